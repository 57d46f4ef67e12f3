"""Operators whose errors hang on what their tensors hold, not on shapes: an index out of range, an integer divided by 0, a singular matrix."""

from __future__ import annotations

INDEXING = frozenset({
    "index", "index_select", "gather", "embedding", "embedding_bag", "take", "take_along_dim", "scatter", "scatter_add", "scatter_reduce", "index_add",
    "index_copy", "index_fill", "index_put", "index_reduce", "one_hot", "nll_loss", "nll_loss_nd", "nll_loss2d", "nll_loss_forward",
    "_embedding_bag", "_embedding_bag_forward_only", "nll_loss2d_forward", "cross_entropy_loss", "_unsafe_index", "bincount", "put",
})
DIVIDING = frozenset({"floor_divide", "remainder", "fmod", "div"})       # integers by 0
SOLVING = ("linalg_", "_linalg_", "cholesky", "inverse", "lu_", "multinomial", "bernoulli", "normal", "masked_scatter", "_assert_async", "ctc_loss")


def name_of_operator(op: object) -> str:
    """`index_put` of `aten.index_put.default`."""
    return str(op).removeprefix("aten.").partition(".")[0]


def indexes_or_divides(name: str, dtype: str) -> bool:
    """Whether an index or a divisor decides about an error; `dtype` is that of the result."""
    return name in INDEXING or (name in DIVIDING and dtype.startswith(("int", "uint")))


def raises_by_elements(op: object, dtype: str) -> bool:
    """Whether elements decide about an error of `op`, in place or not."""
    name = name_of_operator(op)
    return indexes_or_divides(name.rstrip("_"), dtype) or name.startswith(SOLVING)
