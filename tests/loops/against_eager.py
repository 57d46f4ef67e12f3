"""Holds lowering and the reference evaluator against eager torch: one operator call becomes a one-node graph, is lowered and evaluated."""

from __future__ import annotations

import numpy as np
import torch
from torch import fx

from thruway.graph.retrace import retrace_callable
from thruway.loops.evaluate import Argument, Result, evaluate
from thruway.loops.ir import Extern, Program
from thruway.loops.lower import lower
from thruway.loops.simplify import simplify
from thruway.loops.verify import verify
from thruway.shapes.meta import TensorMeta

torch.set_num_threads(1)
TOLERANCE = {torch.float64: (1e-10, 1e-12), torch.float32: (1.3e-6, 1e-6), torch.bfloat16: (8e-3, 1e-5), torch.float16: (1e-3, 1e-5)}


def meta_of(x):
    """TensorMeta of a real tensor, or of each in a tuple."""
    if isinstance(x, torch.Tensor):
        return TensorMeta(tuple(x.shape), tuple(x.stride()), str(x.dtype).removeprefix("torch."), str(x.device), offset=x.storage_offset())
    if isinstance(x, (tuple, list)):
        return tuple(meta_of(one) for one in x)
    return x


def to_numpy(x: torch.Tensor) -> np.ndarray:
    x = x.detach()
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()


def to_torch(x):
    """A tensor on the array's memory; bfloat16 is copied."""
    if isinstance(x, Argument):
        array = x.array if all(s >= 0 for s in x.array.strides) else x.array.copy()
        tensor = torch.as_tensor(array)
        return tensor.to(torch.bfloat16) if x.dtype == "bfloat16" else tensor
    return [to_torch(one) for one in x] if isinstance(x, tuple) else x


class TorchExterns:
    """Every library call, answered by torch."""

    def __contains__(self, name: str) -> bool:
        return True

    def __getitem__(self, name: str):
        def call(*args, **kwargs):
            space, _, rest = name.partition("::")
            operator, _, overload = rest.partition(".")
            function = getattr(getattr(getattr(torch.ops, space), operator), overload or "default")
            tensors = [to_torch(a) for a in args]
            results = function(*tensors, **{k: to_torch(v) for k, v in kwargs.items()})
            if operator.endswith("_") and isinstance(args[0], Argument):
                args[0].array[...] = to_numpy(tensors[0])
            results = results if isinstance(results, (tuple, list)) else (results,)
            return [to_numpy(r) for r in results if isinstance(r, torch.Tensor)]
        return call


def one_node_graph(target, args, kwargs, value):
    """The graph that calls `target` on placeholders for the tensors among its arguments, and those tensors in order."""
    graph, tensors, known = fx.Graph(), [], {}

    def placeholder(x):
        if isinstance(x, (tuple, list)):
            return type(x)(placeholder(one) for one in x)
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in known:
            known[id(x)] = graph.placeholder(f"arg{len(tensors)}")
            known[id(x)].meta["value"] = meta_of(x)
            tensors.append(x)
        return known[id(x)]

    node_args = tuple(placeholder(a) for a in args)
    node_kwargs = {k: placeholder(v) for k, v in kwargs.items()}
    node = graph.call_function(target, node_args, node_kwargs)
    node.meta["value"] = meta_of(value)
    results = list(value) if isinstance(value, (tuple, list)) else [value]
    if isinstance(value, (tuple, list)):
        import operator
        items = []
        for k, one in enumerate(results):
            item = graph.call_function(operator.getitem, (node, k))
            item.meta["value"] = meta_of(one)
            items.append(item)
        graph.output(tuple(items))
    else:
        graph.output((node,))
    return graph, tensors


def run_call(target, *args, **kwargs) -> tuple[Program, list, list]:
    """The lowered program of one call, what it gives, and what eager gives; inputs that the call writes come last in both."""
    copies = {}

    def copied(x):
        if isinstance(x, (tuple, list)):
            return type(x)(copied(one) for one in x)
        if isinstance(x, torch.Tensor):
            if id(x) not in copies:
                fresh = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
                copies[id(x)] = fresh.copy_(x) if 0 not in [s for s, n in zip(x.stride(), x.shape) if n > 1] else x.clone().as_strided(x.shape, x.stride())
            return copies[id(x)]
        return x

    value = target(*copied(args), **{k: copied(v) for k, v in kwargs.items()})
    graph, tensors = one_node_graph(target, args, kwargs, value)
    program = lower(graph)
    verify(program)
    result = evaluate(program, [to_numpy(t) for t in tensors], TorchExterns())
    assert not result.failed
    assert_same_simplified(program, tensors, result)
    eager = list(value) if isinstance(value, (tuple, list)) else [value]
    if str(target).split(".")[1].endswith("_") and not str(target).split(".")[1].startswith("__"):
        eager, ours = [copies[id(t)] for t in tensors], list(result.inputs)
    else:
        ours = list(result.outputs)
    return program, ours, eager


def assert_same_simplified(program: Program, tensors: list[torch.Tensor], result: Result) -> None:
    """Simplification changes no bit."""
    simple = simplify(program)
    verify(simple)
    again = evaluate(simple, [to_numpy(t) for t in tensors], TorchExterns())
    for a, b in zip((*result.outputs, *result.inputs), (*again.outputs, *again.inputs), strict=True):
        np.testing.assert_array_equal(a, b)
        if a.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(a) & ~np.isnan(a), np.signbit(b) & ~np.isnan(b))


def assert_close(ours, eager: torch.Tensor, exact: bool = False, scale: float = 1.0, atol: float = 0.0) -> None:
    expected = to_numpy(eager)
    assert ours.shape == expected.shape, (ours.shape, expected.shape)
    assert ours.dtype == expected.dtype, (ours.dtype, expected.dtype)
    if exact or not eager.dtype.is_floating_point:
        np.testing.assert_array_equal(ours, expected)
    else:
        relative, absolute = TOLERANCE[eager.dtype]
        np.testing.assert_allclose(ours, expected, rtol=relative * scale, atol=max(absolute * scale, atol), equal_nan=True)


def assert_lowers(target, *args, exact: bool = False, scale: float = 1.0, atol: float = 0.0, extern: bool = False, **kwargs) -> Program:
    """The call lowers without a library call (with one where `extern`), and gives what eager gives."""
    program, ours, eager = run_call(target, *args, **kwargs)
    assert extern == any(isinstance(node, Extern) for node in program.nodes), [type(n).__name__ for n in program.nodes]
    assert len(ours) == len(eager)
    for a, b in zip(ours, eager):
        assert_close(a, b, exact, scale, atol)
    return program


def lowered(fn, *args) -> tuple[Program, list[torch.Tensor]]:
    """The verified program of a Python function over torch tensors, and every tensor it takes in order."""
    with torch.no_grad():
        traced = retrace_callable(fn, [meta_of(a) if isinstance(a, torch.Tensor) else a for a in args])
    program = lower(traced.graph)
    verify(program)
    return program, [a for a in args if isinstance(a, torch.Tensor)] + list(traced.lifted)


def assert_function(fn, *args, scale: float = 1.0) -> Program:
    """`fn`, lowered and evaluated, gives what eager gives, and leaves its arguments as eager leaves them."""
    program, tensors = lowered(fn, *args)
    result = evaluate(program, [to_numpy(t) for t in tensors], TorchExterns())
    assert not result.failed
    assert_same_simplified(program, tensors, result)
    copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    with torch.no_grad():
        out = fn(*copies)
    for ours, eager in zip(result.outputs, out if isinstance(out, (tuple, list)) else (out,), strict=True):
        assert_close(ours, eager, scale=scale)
    for ours, eager in zip(result.inputs, [c for c in copies if isinstance(c, torch.Tensor)]):
        assert_close(ours, eager, scale=scale)
    return program
