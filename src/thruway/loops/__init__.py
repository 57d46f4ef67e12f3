"""The loop-level IR and its meaning: grammar, printer, verifier, simplifier, reference evaluator, and lowering from graphs.

What `lower` gives, for who reads Programs:
- Axes of a node are `i0, i1, …` by output dimension; reduced axes are `r<k>`, k the dimension of the operand. Each node has its own
  scope. Size symbols have other names. An axis of extent 1 stays; a buffer dimension of size 1 is always read at 0.
- Buffers have the strides of the graph's metadata (channels_last stays); temps that only lowering knows, and copies of views, are
  row-major. `kind`: input, weight, constant, temp, or size (a size that the caller passes; it has no elements and no reads).
- Views are Computes whose value is one Load. Where a view feeds an Extern or leaves the program there is an alias buffer as well, whose
  `offset` counts elements from the first element of its root; `alias` always names the root. Dead Computes are dropped.
- A graph node is a Compute named as the node; what an operator needs before it is named `<node>_<part>` (softmax: _max, _exp, _sum;
  mean: _sum; var, layer_norm: _sum, _mean, _squares, _rstd). Row values keep their reduced dimensions at size 1.
- bf16 and fp16: Cast to float32 at each read, float32 Ops, Cast back once per operator; inside composite operators temps are float32.
- In-place operators are Updates of the root buffer with the view's index map composed in. Their value may read the target at the index
  that is written, never elsewhere (a copy `<node>_before` is read instead). Later reads of the root see the write.
- CheckIndex stands in coordinates of a Load or Update, and once as a checked divisor: integer division adds a CheckIndex that is 0.
- Extern arguments follow the operator's schema as the graph gave them; dtypes, devices, layouts and memory formats in them are
  the graph's own objects. In-place library calls name their written buffer (often an alias) in `mutates`.
- Expressions are graphs: parts may be shared by identity, so walks must remember what they have seen. Literals differ by sign of zero.
"""
