"""Matrix products and convolutions: matmul to mm, bmm, mv or dot over views; convolutions of any rank to `convolution`."""

from __future__ import annotations

from types import SimpleNamespace

from torch.fx import Node

from thruway.core.errors import Unsupported
from thruway.core.sizes import SizeLike, product
from thruway.graph.rewrite import Context, Emitter, aten, meta
from thruway.shapes.meta import TensorMeta


def matmul(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node:
    left, right = meta(a.self), meta(a.other)
    match len(left.sizes), len(right.sizes):
        case 1, 1:
            return emit(aten.dot.default, a.self, a.other)
        case 2, 1:
            return emit(aten.mv.default, a.self, a.other)
        case 1, 2:
            row = emit(aten.mm.default, emit(aten.unsqueeze.default, a.self, 0), a.other)
            return emit(aten.squeeze.dim, row, 0)
        case 2, 2:
            return emit(aten.mm.default, a.self, a.other)
        case _, 2:
            rows = emit.view(a.self, (product(left.sizes[:-1]), left.sizes[-1]))
            return emit.view(emit(aten.mm.default, rows, a.other), (*left.sizes[:-1], right.sizes[-1]))
        case _:
            return _batched(emit, a.self, a.other, meta(node))


def _batched(emit: Emitter, left: Node, right: Node, result: TensorMeta) -> Node:
    """Both sides broadcast to the same batch, done as one bmm; a vector becomes a row or a column for it."""
    if len(meta(left).sizes) == 1:
        left = emit(aten.unsqueeze.default, left, 0)
    if len(meta(right).sizes) == 1:
        right = emit(aten.unsqueeze.default, right, 1)
    batch = _broadcast(meta(left).sizes[:-2], meta(right).sizes[:-2])
    out = emit(aten.bmm.default, _folded(emit, left, batch), _folded(emit, right, batch))
    return emit.view(out, result.sizes)


def _broadcast(a: tuple[SizeLike, ...], b: tuple[SizeLike, ...]) -> tuple[SizeLike, ...]:
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    return tuple(y if x == 1 else x for x, y in pairs)


def _folded(emit: Emitter, node: Node, batch: tuple[SizeLike, ...]) -> Node:
    sizes = (*batch, *meta(node).sizes[-2:])
    return emit.view(emit.expand(node, sizes), (product(batch), *sizes[-2:]))


def _convolution(rank: int, transposed: bool):
    def convolution(emit: Emitter, _node: Node, a: SimpleNamespace, _context: Context) -> Node:
        x, batched = a.input, len(meta(a.input).sizes) == rank + 2
        if not batched:
            x = emit(aten.unsqueeze.default, x, 0)
        extra = _each(a.output_padding, rank) if transposed else [0] * rank
        x, padding = _padding(emit, x, a, rank)
        out = emit(aten.convolution.default, x, a.weight, a.bias, _each(a.stride, rank), padding, _each(a.dilation, rank),
                   transposed, extra, a.groups)
        return out if batched else emit(aten.squeeze.dim, out, 0)
    return convolution


def _each(numbers, rank: int) -> list[int]:
    given = list(numbers) if isinstance(numbers, (tuple, list)) else [numbers]
    return given * rank if len(given) == 1 else given


def _padding(emit: Emitter, x: Node, a: SimpleNamespace, rank: int) -> tuple[Node, list[int]]:
    """Padding as numbers; what "same" needs more on one side is padded before the convolution."""
    if a.padding == "valid":
        return x, [0] * rank
    if a.padding != "same":
        return x, _each(a.padding, rank)
    totals = [d * (k - 1) for d, k in zip(_each(a.dilation, rank), meta(a.weight).sizes[2:], strict=True)]
    if any(total % 2 for total in totals):
        uneven = [n for total in reversed(totals) for n in (0, total % 2)]
        x = emit(aten.constant_pad_nd.default, x, uneven)
    return x, [total // 2 for total in totals]


def addmm_activation(emit: Emitter, _node: Node, a: SimpleNamespace, _context: Context) -> Node:
    out = emit(aten.addmm.default, a.self, a.mat1, a.mat2, beta=a.beta, alpha=a.alpha)
    return emit(aten.gelu.default, out, approximate="tanh") if a.use_gelu else emit(aten.relu.default, out)


def linear_of_vector(emit: Emitter, _node: Node, a: SimpleNamespace, _context: Context) -> Node | None:
    """A linear layer over one vector is one over a matrix of one row."""
    if len(meta(a.input).sizes) != 1 or len(meta(a.weight).sizes) != 2:
        return None
    return emit(aten.squeeze.dim, emit(aten.linear.default, emit(aten.unsqueeze.default, a.input, 0), a.weight, a.bias), 0)


def einsum(_emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node:
    raise Unsupported("TW303", f"einsum {a.equation!r} that the retrace left whole")


COMPOSITES = {
    aten._addmm_activation.default: addmm_activation,
    **{op: _convolution(rank, False) for rank, name in ((1, "conv1d"), (2, "conv2d"), (3, "conv3d"))
       for op in (getattr(aten, name).default, getattr(aten, name).padding)},
    aten.conv_transpose1d.default: _convolution(1, True),
    aten.conv_transpose2d.input: _convolution(2, True),
    aten.conv_transpose3d.input: _convolution(3, True),
}
RULES = {**COMPOSITES, aten.matmul.default: matmul, aten.linear.default: linear_of_vector, aten.einsum.default: einsum}
