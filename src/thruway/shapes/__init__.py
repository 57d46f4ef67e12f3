"""Tensor metadata: what an operator's result looks like, from rules of our own; torch's meta kernels only where no rule exists.

`meta.TensorMeta` is the value; `infer(op, args, kwargs)` gives the result's metadata; `trace_tensor` wraps a TensorMeta in a
torch.Tensor subclass so that torch's own Python and C++ composite code runs over it; `symbolic` backs torch.SymInt by our sizes.
"""
