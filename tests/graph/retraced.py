"""Holding a retraced graph against eager: outputs, strides, mutated inputs, and which outputs share storage with what."""

from __future__ import annotations

import torch
from thruway.graph.evaluate import evaluate
from thruway.graph.retrace import Retraced, retrace_callable
from thruway.graph.verify import verify
from thruway.shapes.trace_tensor import meta_of


def flat(value) -> list:
    if isinstance(value, (list, tuple)):
        return [x for v in value for x in flat(v)]
    if isinstance(value, dict):
        return [x for v in value.values() for x in flat(v)]
    return [value]


def copies(inputs) -> list:
    """The same layouts over fresh memory."""
    made = []
    for t in inputs:
        if isinstance(t, torch.Tensor):
            base = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)
            made.append(base.copy_(t))
        else:
            made.append(t)
    return made


def storage_classes(outputs, inputs) -> list[int]:
    """For each output, the first tensor among inputs and outputs whose storage it shares."""
    everything = [t for t in (*inputs, *outputs) if isinstance(t, torch.Tensor)]
    pointers = [t.untyped_storage().data_ptr() for t in everything]
    return [pointers.index(t.untyped_storage().data_ptr()) if t.numel() else -1 for t in outputs]


def check(fn, *inputs, in_place: tuple[str, ...] | None = None) -> Retraced:
    """Retraces `fn`, verifies the graph, and compares it with eager on copies of `inputs`. `in_place` names the operators that write."""
    eager_in, graph_in = copies(inputs), copies(inputs)
    with torch.no_grad():
        traced = retrace_callable(fn, [meta_of(t) if isinstance(t, torch.Tensor) else t for t in inputs])
        verify(traced.graph)
        torch.manual_seed(0)
        want = [t for t in flat(fn(*eager_in)) if isinstance(t, torch.Tensor)]
        torch.manual_seed(0)
        got = evaluate(traced.graph, [*(t for t in graph_in if isinstance(t, torch.Tensor)), *traced.lifted])
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert torch.equal(a, b) or (a.isnan() == b.isnan()).all()
        assert (a.dtype, a.stride()) == (b.dtype, b.stride())
    for a, b in zip(graph_in, eager_in):
        assert not isinstance(a, torch.Tensor) or torch.equal(a, b), "an input was written differently"
    assert storage_classes(got, graph_in) == storage_classes(want, eager_in), "outputs share storage differently"
    for node, value in zip(traced.graph.output_node().args[0], got):
        assert node.meta["value"].sizes == tuple(value.shape) and node.meta["value"].strides == value.stride()
    if in_place is not None:
        assert writes(traced) == list(in_place)
    return traced


def writes(traced: Retraced) -> list[str]:
    from thruway.shapes.traits import traits_of
    return [n.target._schema.name.removeprefix("aten::") for n in traced.graph.nodes
            if isinstance(n.target, torch._ops.OpOverload) and traits_of(n.target).writes]


def operators(traced: Retraced) -> list[str]:
    return [n.target._schema.name.removeprefix("aten::") for n in traced.graph.nodes if isinstance(n.target, torch._ops.OpOverload)]
