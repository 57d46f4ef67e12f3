"""Operators compiled, many in one graph, against eager on the same device: the calls that the tests of `loops` make."""

from __future__ import annotations

import functools
import operator

import pytest
import torch
from torch import fx

from loops.recorded_calls import MODULES, OperatorCall, calls_of
from loops.against_eager import TOLERANCE
from thruway import pipeline
from thruway.core.options import CompileOptions

SIXTHS = frozenset({torch.ops.aten.hardsigmoid.default, torch.ops.aten.hardswish.default})
SAMPLE, TOGETHER = 96, 48                        # calls of each module on a CPU, an even sample; calls in one graph


def parts() -> list:
    """(module, which of its calls, device) for each graph: all calls on a GPU."""
    found = []
    for module in MODULES:
        name, count = module.__name__.rpartition(".")[2], len(calls_of(module))
        step = max(1, count // SAMPLE)
        for part in range(SAMPLE // TOGETHER):
            chosen = slice(part * TOGETHER * step, (part + 1) * TOGETHER * step, step)
            found.append(pytest.param(module, chosen, "cpu", id=f"{name}-cpu-{part}"))
        for start in range(0, count, TOGETHER):
            found.append(pytest.param(module, slice(start, start + TOGETHER), "cuda", id=f"{name}-cuda-{start}", marks=pytest.mark.gpu))
    return found


@pytest.mark.parametrize(("module", "chosen", "device"), parts())
def test_operators(module, chosen, device):
    check(_calls(module)[chosen], device)


_calls = functools.cache(calls_of)


def check(calls: list[OperatorCall], device: str) -> None:
    graph, tensors, wanted, sources = fx.Graph(), [], [], []
    outputs = []
    for call in calls if device == "cpu" else [each for each in calls if not _is_left_to_torch(each)]:
        moved = _moved(call.args, device), _moved(call.kwargs, device)
        try:
            value = call.target(*moved[0], **moved[1])
        except (RuntimeError, NotImplementedError):
            continue                             # not for this device
        node = graph.call_function(call.target, _placed(moved[0], graph, tensors), _placed(moved[1], graph, tensors))
        for k, one in enumerate(value if isinstance(value, tuple | list) else (value,)):
            if isinstance(one, torch.Tensor):
                outputs.append(graph.call_function(operator.getitem, (node, k)) if isinstance(value, tuple | list) else node)
                wanted.append(one)
                sources.append(call)
    graph.output(tuple(outputs))
    first = [node for node in graph.nodes if node.op == "placeholder"]
    for node in reversed(first):
        next(iter(graph.nodes)).prepend(node)
    order = [int(node.name.removeprefix("t")) for node in graph.nodes if node.op == "placeholder"]
    module = fx.GraphModule(torch.nn.Module(), graph)
    pipeline.journal.clear()
    with torch.no_grad():
        compiled = pipeline.compile_graph(module, [tensors[i] for i in order], CompileOptions())
        left = [f"{event.kind}: {event.detail} {event.reason}" for event in pipeline.journal.events if event.kind in ("bug", "eager")]
        assert compiled is not module and not left, left
        for _ in range(3):
            got = compiled(*[tensors[i] for i in order])
    wrong = [f"{call.test} {call.target} {[getattr(a, 'dtype', a) for a in call.args]}: {text}"
             for call, a, b in zip(sources, got, wanted, strict=True) if (text := _difference(a, b, call))]
    assert not wrong, "\n".join(wrong)


def _is_left_to_torch(call: OperatorCall) -> bool:
    """On a GPU: updates that have no atomic, and a second result that CUDA leaves empty."""
    name, dtype = call.target._schema.name, call.args[0].dtype if isinstance(call.args[0], torch.Tensor) else None
    updates = any(each in name for each in ("index_add", "scatter_add", "index_put")) and dtype in (torch.bool, torch.uint8, torch.int8, torch.int16)
    return updates or "scatter_reduce" in name or "log_sigmoid_forward" in name


def _difference(got: torch.Tensor, want: torch.Tensor, call: OperatorCall) -> str:
    if (got.shape, got.dtype, _strides(got)) != (want.shape, want.dtype, _strides(want)):
        return f"{got.shape} {got.dtype} {got.stride()}, not {want.shape} {want.dtype} {want.stride()}"
    relative, absolute = TOLERANCE.get(want.dtype, (0.0, 0.0))
    if want.is_cuda and want.dtype == torch.float64 and call.target in SIXTHS:
        relative = absolute = 1e-7               # CUDA's kernel has 1/6 in float32
    if want.is_cuda and want.dtype in (torch.bfloat16, torch.float16) and call.target is torch.ops.aten.native_group_norm.default:
        absolute = 4e-3                          # CUDA's kernel rounds mean and deviation first
    try:
        torch.testing.assert_close(got, want, rtol=relative * call.scale * 2, atol=max(absolute * call.scale, call.atol) * 2, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""


def _strides(t: torch.Tensor) -> list[int]:
    """Those that say where elements are."""
    return [stride for stride, size in zip(t.stride(), t.shape) if size > 1 and t.numel()]


def _moved(value, device: str):
    """`value` with its tensors on `device`, in the layout that they have."""
    match value:
        case torch.Tensor():
            span = value.untyped_storage().nbytes() // value.itemsize
            return value.detach().as_strided((span,), (1,), 0).to(device).as_strided(value.shape, value.stride(), value.storage_offset())
        case tuple() | list():
            return type(value)(_moved(each, device) for each in value)
        case dict():
            return {name: _moved(each, device) for name, each in value.items()}
        case torch.device():
            return torch.device(device)
        case _:
            return value


def _placed(value, graph: fx.Graph, tensors: list[torch.Tensor]):
    match value:
        case torch.Tensor():
            tensors.append(value)
            return graph.placeholder(f"t{len(tensors) - 1}")
        case tuple() | list():
            return type(value)(_placed(each, graph, tensors) for each in value)
        case dict():
            return {name: _placed(each, graph, tensors) for name, each in value.items()}
        case _:
            return value
