"""One captured graph after every stage of the compiler, as something that runs: from the captured operators to the kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch.fx import Graph, GraphModule, Node

from thruway import graph_compiler, pipeline
from thruway.capture.captured import Captured
from thruway.core.settings import Settings
from thruway.gpu_compiler import is_on_gpu
from thruway.graph.evaluate import evaluate
from thruway.graph.numbers import place_numbers, with_numbers
from thruway.graph.rewrite import Context
from thruway.loops.evaluate import Argument
from thruway.loops.evaluate import evaluate as evaluate_loops
from thruway.loops.ir import Program
from thruway.report.shadow.compare import same_values
from thruway.report.shadow.copies import Copies
from thruway.runtime.plain import plain_region
from thruway.runtime.resolve import dtype_of, find_operator

Runs = Callable[..., Any]
ELEMENTS = 1 << 22                  # inputs up to which the loop evaluator, which is slow, is asked


def stages_of(captured: Captured, module: GraphModule, settings: Settings, mode: str, elements: int) -> Iterator[tuple[str, Runs]]:
    """Each stage by name, in order, with what runs its outcome over the inputs of `module`."""
    metas, weights = [each.meta for each in captured.inputs], [each.weight for each in captured.inputs]
    machine = pipeline.graphs.machine(settings)
    placed = place_numbers(module, metas, weights)
    ready = functools.partial(with_numbers, convert=placed.convert)
    graph = graph_compiler.retrace(placed.module, placed.metas, placed.weights, captured.facts)
    yield "graph (retrace)", ready(functools.partial(_run_operators, graph))
    if not is_on_gpu(graph):
        context = Context(machine.target, settings.numerics)
        for one in graph_compiler.PASSES:
            graph = one.fn(graph, context)
            yield f"graph passes ({one.name})", ready(functools.partial(_run_operators, graph))
        if elements <= ELEMENTS and machine.target.kernels:
            program = graph_compiler.lower(graph, machine.target, captured.guards.state.default_dtype)
            yield "loops (lower)", ready(functools.partial(run_program, program))
            yield "loops (simplify)", ready(functools.partial(run_program, graph_compiler.simplify(program)))
    last = "the GPU compiler" if is_on_gpu(graph) else "codegen (schedule, code generation or launch)"
    yield last, pipeline.graphs.compile(module, metas, weights, captured.name, settings, captured.guards.state.default_dtype, mode, captured.facts)


def first_difference(captured: Captured, module: GraphModule, inputs: tuple[Any, ...], settings: Settings, mode: str) -> str | None:
    """The first stage after which the graph gives another result than its operators do."""
    wanted = _values(plain_region(module.graph, module.forward), inputs)
    elements = sum(each.numel() for each in inputs if isinstance(each, torch.Tensor))
    try:
        for name, run in stages_of(captured, module, settings, mode, elements):
            found = _values(run, inputs)
            if found is not None and wanted is not None and not _agree(wanted, found):
                return name
    except Exception:                                    # a stage that refuses the graph answers nothing wrong
        return None
    return None


def first_node(captured: Captured, inputs: tuple[Any, ...], stage: str, settings: Settings, mode: str) -> Node | None:
    """The first node of the captured graph that, as the graph's last one, comes out differently after `stage`; found by halving."""
    nodes = [node for node in captured.graph.graph.nodes if node.op.startswith("call") and isinstance(node.meta.get("example_value"), torch.Tensor)]

    def differs(index: int) -> bool:
        return first_difference(captured, _up_to(captured.graph, nodes[index]), inputs, settings, mode) is not None

    low, high = 0, len(nodes) - 1
    if not nodes or not differs(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if differs(middle) else (middle + 1, high)
    return nodes[low]


def _up_to(module: GraphModule, last: Node) -> GraphModule:
    """The graph that ends with `last`."""
    graph, copies = Graph(), {}
    for node in module.graph.nodes:
        if node.op == "output":
            break
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if node is last:
            break
    for node in module.graph.nodes:
        if node.op == "placeholder" and node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output((copies[last],))
    return GraphModule(module, graph)


def _values(run: Runs, inputs: tuple[Any, ...]) -> list[Any] | None:
    """What `run` gives, and its inputs afterwards; None where it refuses."""
    copies = Copies()
    mine = tuple(copies.copy(each) for each in inputs)
    try:
        with torch.no_grad():
            return [*run(*mine), *mine]
    except Exception:
        return None


def _agree(wanted: list[Any], found: list[Any]) -> bool:
    return all(
        one.shape == other.shape and one.dtype == other.dtype and same_values(one, other)
        for one, other in zip(wanted, found) if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    )


def _run_operators(graph: Graph, *inputs: Any) -> tuple[Any, ...]:
    with torch.no_grad():
        return evaluate(graph, inputs)


def run_program(program: Program, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The meaning of a loop program, with torch's operators where it calls a library."""
    result = evaluate_loops(program, [_to_array(each) for each in inputs], _Library())
    if result.failed:
        raise IndexError("an index check failed")
    for tensor, array in zip(inputs, result.inputs):
        if not tensor.is_inference():
            tensor.copy_(torch.as_tensor(numpy.ascontiguousarray(array)).reshape(tensor.shape))
    return tuple(torch.as_tensor(array).to(dtype_of(program.buffers[name].dtype)) for name, array in zip(program.outputs, result.outputs))


class _Library:
    """Every library call, answered by torch."""

    def __contains__(self, name: str) -> bool:
        return True

    def __getitem__(self, name: str) -> Runs:
        operator = find_operator(name)

        def call(*args: Any, **kwargs: Any) -> list[Any]:
            tensors = [_to_tensor(each) for each in args]
            results = operator(*tensors, **{key: _to_tensor(each) for key, each in kwargs.items()})
            for argument, tensor in zip(args, tensors):
                if isinstance(argument, Argument):
                    argument.array[...] = _to_array(tensor)
            results = results if isinstance(results, tuple | list) else (results,)
            return [_to_array(each) for each in results if isinstance(each, torch.Tensor)]

        return call


def _to_array(tensor: torch.Tensor) -> Any:
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()


def _to_tensor(value: Any) -> Any:
    if isinstance(value, Argument):
        return torch.as_tensor(value.array.copy()).to(dtype_of(value.dtype))
    return [_to_tensor(each) for each in value] if isinstance(value, tuple) else value
