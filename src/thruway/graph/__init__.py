"""The functional ATen graph: retraced once from the captured graph, then rewritten by passes.

A graph is a plain `torch.fx.Graph` that `graph.verify` accepts. Conventions, relied on by every pass and by `loops`:

- Placeholders are tensors (or sizes). `node.meta["value"]` is a `TensorMeta`, a size, or a tuple of them, for every node but the
  output; `node.meta["line"]` the user's line or None. A placeholder's `node.meta["weight"]` is True where the value is a module's
  parameter or buffer that the graph does not write.
- call_function targets are OpOverloads (`torch.ops.aten.add.Tensor`; composites worth keeping whole stay whole: linear, convolution,
  scaled_dot_product_attention, layer_norm, softmax, …), operators of `mkldnn`, `mkl` and user libraries, and `operator.getitem` on tuples.
- A literal tensor is a `get_attr` node with the tensor in `node.meta["constant"]`; nothing writes it. A 0-dim literal is `aten.full`.
- Arguments are nodes, constants, sizes (`int` or a node whose value is a size), and lists of them.
- Nodes are functional, but for in-place operators whose first argument is a placeholder, a fresh tensor or a chain of view nodes over one.
  A node's value is the value at its place in the order: a read that must see an in-place write stands behind it, through view nodes that
  stand behind it too. Whole overwrites of fresh tensors are rewritten to functional form; what remains in place is written in place.
- The output node returns a flat tuple. An output that aliases an input in eager is a view chain over that placeholder.
- `node.meta["derived"]` is True where a node depends on weights and constants alone and is kept between calls.
"""
