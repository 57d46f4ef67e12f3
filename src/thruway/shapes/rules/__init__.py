"""Metadata rules by operator family: tables of rows, operator name → rule. A rule takes the operator's arguments with TensorMeta in
place of tensors and returns a TensorMeta, a tuple of them, or a size."""
