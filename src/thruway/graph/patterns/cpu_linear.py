"""Linear layers on a CPU: which library call, by measured cost.

float32: MKL with a packed weight on CPUs where MKL takes its AVX-512 path, oneDNN elsewhere (there MKL runs at half the
speed); bfloat16 and float16: oneDNN with a packed weight. Small products stay plain addmm, since a oneDNN call costs more
than they do. The figures stand in docs/decisions (library calls on CPUs).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch.fx import Graph, Node

from thruway.core.sizes import SizeLike, product
from thruway.core.target import OWN_WORK, Target, fits_pairs
from thruway.graph.derived import find_derivable
from thruway.graph.rewrite import (
    Context, Emitter, Storages, aten, bind, bytes_of, editable, is_op, meta, output_values, replace, same_layout, settled,
)
from thruway.shapes.meta import TensorMeta

mkldnn, mkl = torch.ops.mkldnn, torch.ops.mkl


@dataclass(frozen=True, slots=True)
class Rates:
    """Cost of one call: fixed microseconds, nanoseconds per thousand multiply-adds once there are rows to share a weight,
    and nanoseconds per thousand weight elements, which is what few rows cost."""

    call: float
    work: float
    stream: float

    def microseconds(self, rows: int, weight: int) -> float:
        return self.call + max(rows * weight * self.work, weight * self.stream) * 1e-6


# Without AMX and with MKL's generic path (Zen 5), and where a Target says "amx" or "mkl_fast" (Sapphire Rapids).
MEASURED: dict[tuple[str, str], Rates] = {
    ("float32", "plain"): Rates(2.0, 18.0, 55.0), ("float32", "onednn"): Rates(11.0, 9.0, 60.0),
    ("bfloat16", "plain"): Rates(4.0, 4.2, 72.0), ("bfloat16", "onednn"): Rates(11.0, 3.95, 25.0),
    ("float16", "plain"): Rates(4.0, 4.2, 72.0), ("float16", "onednn"): Rates(11.0, 3.95, 25.0),
}
WITH_FAST_MKL: dict[tuple[str, str], Rates] = {
    ("float32", "plain"): Rates(2.0, 11.9, 65.0), ("float32", "onednn"): Rates(20.0, 11.6, 65.0), ("float32", "mkl"): Rates(2.6, 11.0, 65.0),
}
WITH_AMX: dict[tuple[str, str], Rates] = {("bfloat16", "plain"): Rates(4.0, 2.2, 60.0), ("bfloat16", "onednn"): Rates(20.0, 1.7, 30.0)}
OWN = Rates(1.0, 8.2, 0.0)         # a kernel of ours, which copies the weight in panels first: nanoseconds per thousand elements of that
PANELS = 60.0
ONEDNN_INSIDE = 10.0               # eager's own low-precision products of several rows go through oneDNN and pay its call
NAMES = {"float32": "onednn", "bfloat16": "onednn_bf16", "float16": "onednn_fp16"}
TYPICAL_ROWS = 64                  # where the number is not known
OPEN_ROWS, OPEN_WORK = 8, 1 << 18  # more than one row: up to so many multiplications, which take as long as a call's start
OPEN_DTYPES = frozenset({"float32", "float64", "bfloat16", "float16"})
FEW_ROWS = 4                       # packing for MKL gains nothing up to here
MARGIN = 0.97
SMALL_BYTES = 1 << 20
RUN = 256                          # elements of a row that oneDNN sums in one register
PACKING = 850.0                    # nanoseconds per thousand elements of a float32 weight, into memory that is there
MERGING_GAIN = 0.0075              # less cannot be measured


def choose_linear(target: Target, dtype: str, rows: int | None, weight: int, fits: bool = True) -> str:
    """ "plain", "onednn" or "mkl" for `rows` (None: not known) against a weight of so many elements. A plain product may be a kernel of ours where it
    `fits` that."""
    rates = _rates(target)
    calls = ["plain", "onednn"] if NAMES.get(dtype) in target.library_calls else ["plain"]
    if (dtype, "mkl") in rates and rows is not None and rows > FEW_ROWS:
        calls.append("mkl")
    if (dtype, "plain") not in rates or len(calls) == 1:
        return "plain"
    if dtype == "bfloat16" and fits and target.has_own_product(dtype, OWN_WORK if rows is None else rows, OWN_WORK if rows is None else rows * weight):
        return "plain"
    count = TYPICAL_ROWS if rows is None else rows
    costs = {call: rates[dtype, call].microseconds(count, weight) for call in calls}
    costs["plain"] = _plain_cost(target, dtype, count, weight)
    best = min(costs, key=costs.__getitem__)
    return best if costs[best] < MARGIN * costs["plain"] else "plain"


def _plain_cost(target: Target, dtype: str, rows: int, weight: int) -> float:
    if dtype == "float32" and target.has_own_product(dtype, rows, rows * weight):
        return OWN.microseconds(rows, weight) + weight * PANELS * 1e-6
    inside = ONEDNN_INSIDE if dtype != "float32" and rows > 1 else 0.0
    return _rates(target)[dtype, "plain"].microseconds(rows, weight) + inside


def _rates(target: Target) -> dict[tuple[str, str], Rates]:
    return {**MEASURED, **(WITH_FAST_MKL if "mkl_fast" in target.library_calls else {}), **(WITH_AMX if "amx" in target.library_calls else {})}


def is_open(target: Target, dtype: str, rows: int | None, weight: SizeLike) -> bool:
    """Whether a product of so many rows with a matrix of so many elements is a loop of ours rather than a call."""
    if target.kind != "cpu" or not target.kernels or dtype not in OPEN_DTYPES or rows is None:
        return False
    return rows == 1 or (1 < rows <= OPEN_ROWS and type(weight) is int and rows * weight <= OPEN_WORK)


def merging_pays(target: Target, dtype: str, rows: int | None, weight: int, itemsize: int, saved: int = 1) -> bool:
    """Whether a joined weight of so many elements earns its memory and the copying: where it is small, or gets packed anyway and the calls
    `saved` can be felt."""
    if is_open(target, dtype, rows, weight):
        return False
    if target.kind != "cpu" or weight * itemsize <= SMALL_BYTES:
        return True
    choice = choose_linear(target, dtype, rows, weight)
    if choice == "plain":
        return False
    rates = _rates(target)[dtype, choice]
    return saved * rates.call >= MERGING_GAIN * rates.microseconds(TYPICAL_ROWS if rows is None else rows, weight)


def saved_calls(dtype: str, width: int, linears: int) -> int:
    """Library calls that so many linears over rows of `width` elements save as one."""
    return (linears - 1) * (-(-width // RUN) if dtype == "float32" and width >= 2 * RUN else 1)


def select_linears(graph: Graph, context: Context) -> Graph:
    if context.target.kind != "cpu":
        return graph
    derivable = find_derivable(graph)
    choices = {node.name: _choice(node, derivable, context.target) for node in graph.nodes if is_op(node, aten.linear.default)}
    made = names_of_made(derivable, Storages(graph))
    if all(choice == "plain" for choice in choices.values()):
        return graph
    fresh, wanted = editable(graph, context), output_values(graph)
    by_name = {node.name: node for node in fresh.nodes}
    for name, choice in choices.items():
        if choice != "plain":
            _select(by_name[name], choice, context, made)
    return settled(fresh, wanted)


def names_of_made(derivable: set[Node], storages: Storages) -> set[str]:
    """What is kept in memory of its own anyway, as a folded or joined weight is; a view of a weight is not."""
    return {node.name for node in derivable if all(root.op == "call_function" for root in storages.roots[node])}


def _choice(node: Node, derivable: set[Node], target: Target) -> str:
    a = bind(node)
    if a.weight not in derivable or (a.bias is not None and a.bias not in derivable) or len(meta(a.weight).sizes) != 2:
        return "plain"
    weight, x = meta(a.weight), meta(a.input)
    fits = fits_pairs(*weight.sizes) and weight.strides[1] == 1 == x.strides[-1]
    return choose_linear(target, meta(node).dtype, rows_of(a.input), product(weight.sizes), fits)


def rows_of(x: Node) -> int | None:
    rows = product(meta(x).sizes[:-1])
    return rows if type(rows) is int else None


def _select(node: Node, choice: str, context: Context, made: set[str]) -> None:
    a, emit = bind(node), Emitter(node)
    rows = rows_of(a.input)
    keeps = a.weight.name in made or context.reserve(bytes_of(meta(a.weight)), a.weight)
    if not keeps and not _packs_per_call(context.target, node, choice, rows, product(meta(a.weight).sizes)):
        return
    if choice == "mkl":
        packed = emit(mkl._mkl_reorder_linear_weight.default, _dense(emit, a.weight), rows)
        replace(node, emit(mkl._mkl_linear.default, a.input, packed, a.weight, a.bias, rows))
        return
    if meta(node).dtype == "float32" and meta(a.weight).sizes[1] >= 2 * RUN and context.numerics != "fused":
        replace(node, _in_runs(emit, a, rows, keeps))
        return
    packed = _packed(emit, _dense(emit, a.weight), rows, keeps)
    activation = _relu_after(node)
    made_node = emit(mkldnn._linear_pointwise.default, a.input, packed, a.bias, "relu" if activation else "none", [], "")
    replace(node, made_node)
    if activation is not None:
        replace(activation, made_node)


def _packs_per_call(target: Target, node: Node, choice: str, rows: int | None, weight: SizeLike) -> bool:
    """Whether packing the weight at every call, for want of memory to keep it in, still beats a plain product."""
    dtype = meta(node).dtype
    if (dtype, choice) != ("float32", "onednn") or rows is None or type(weight) is not int:
        return False
    rates = _rates(target)
    return rates[dtype, choice].microseconds(rows, weight) + weight * PACKING * 1e-6 < MARGIN * _plain_cost(target, dtype, rows, weight)


def _packed(emit: Emitter, weight: Node, rows: int | None, keeps: bool) -> Node:
    packed = emit(mkldnn._reorder_linear_weight.default, weight, rows)
    packed.meta["per_call"] = not keeps
    return packed


def _in_runs(emit: Emitter, a: SimpleNamespace, rows: int | None, keeps: bool) -> Node:
    """The product summed up in runs of at most RUN elements, one call per run: oneDNN adds a whole row into one register in float32, and its
    error is twice that of eager's MKL, which sums in blocks."""
    width, total = meta(a.weight).sizes[1], None
    bounds = _run_bounds(width)
    for (start, end), x in zip(bounds, _rows_in_runs(emit, a.input, bounds), strict=True):
        packed = _packed(emit, emit(aten.slice.Tensor, a.weight, 1, start, end), rows, keeps)
        if total is None:
            total = emit(mkldnn._linear_pointwise.default, x, packed, a.bias, "none", [], "")
        else:
            total = emit(mkldnn._linear_pointwise.binary, x, total, packed, None, "add")
    return total


def _run_bounds(width: int) -> list[tuple[int, int]]:
    """Equal runs where the width has a fitting divisor."""
    fewest = -(-width // RUN)
    count = next((n for n in range(fewest, 2 * fewest) if width % n == 0), 0)
    length = width // count if count else RUN
    return [(start, min(width, start + length)) for start in range(0, width, length)]


def _rows_in_runs(emit: Emitter, x: Node, bounds: list[tuple[int, int]]) -> list[Node]:
    """The run of every row, for each run, as a dense matrix. Equal runs are written by one loop, which fuses with what makes the rows."""
    sizes, length = meta(x).sizes, bounds[0][1]
    last = len(sizes) - 1
    if sizes[-1] % length:
        return [emit(aten.clone.default, emit(aten.slice.Tensor, x, last, start, end), memory_format=torch.contiguous_format) for start, end in bounds]
    split = emit.view(x, (*sizes[:-1], len(bounds), length))
    turned = emit(aten.clone.default, emit(aten.permute.default, split, [last, *range(last), last + 1]), memory_format=torch.contiguous_format)
    return [emit(aten.select.int, turned, 0, i) for i in range(len(bounds))]


def _relu_after(node: Node) -> Node | None:
    """The only reader, where it is a relu: it commutes with rounding."""
    user = next(iter(node.users)) if len(node.users) == 1 else None
    return user if is_op(user, aten.relu.default) and same_layout(meta(user), meta(node)) else None


def _dense(emit: Emitter, weight: Node) -> Node:
    """Packing reads a row-major weight."""
    value: TensorMeta = meta(weight)
    if value.strides[-1] == 1:
        return weight
    return emit(aten.clone.default, weight, memory_format=torch.contiguous_format)
