"""Faults put into thruway on purpose, one per stage, for the tests of shadow mode: here and in the processes that run its scripts."""

from __future__ import annotations

from dataclasses import replace

import torch

from thruway import graph_compiler, pipeline
from thruway.capture.emit import WRITERS
from thruway.core.passes import Pass
from thruway.loops.lowerings import ROWS
from thruway.loops.lowerings.pointwise import unary_same


def in_capture(put):
    """Every captured cosine is a sine."""
    true = pipeline.capture

    def capture(*args, **kwargs):
        captured = true(*args, **kwargs)
        for node in captured.graph.graph.nodes if captured.graph else ():
            if node.target is torch.cos:
                node.target = torch.sin
        return captured

    put(pipeline, "capture", capture)


def in_gradients(put):
    """Every captured cosine loses its gradient."""
    true = pipeline.capture

    def capture(*args, **kwargs):
        captured = true(*args, **kwargs)
        for node in list(captured.graph.graph.nodes) if captured.graph else ():
            if node.target is torch.exp:
                with captured.graph.graph.inserting_before(node):
                    node.args = (captured.graph.graph.call_method("detach", node.args),)
        return captured

    put(pipeline, "capture", capture)


def in_guards(put):
    """Nothing watches numbers and strings."""
    true = pipeline.capture

    def capture(*args, **kwargs):
        captured = true(*args, **kwargs)
        kept = tuple(guard for guard in captured.guards.guards if guard.kind != "equal")
        return replace(captured, guards=replace(captured.guards, guards=kept))

    put(pipeline, "capture", capture)


def in_effects(put):
    """Lists made outside get nothing appended."""
    put(WRITERS, "append", lambda out, target, *operands: "pass")


def in_passes(put):
    """`decompose` makes the opposite of a relu."""
    true = next(one.fn for one in graph_compiler.PASSES if one.fn.__name__ == "decompose")

    def decompose(graph, context):
        made = true(graph, replace(context, owns_graph=False))
        for node in made.nodes:
            if node.target is torch.ops.aten.relu.default:
                node.target = torch.ops.aten.neg.default
        return made

    put(graph_compiler, "PASSES", tuple(Pass(decompose) if one.fn is true else one for one in graph_compiler.PASSES))


def in_lowering(put):
    """A relu is lowered as its opposite."""
    put(ROWS, "aten.relu.default", unary_same("neg"))


def in_codegen(put):
    """One constant is printed wrong."""
    true = graph_compiler.generate

    def generate(plan, target):
        sources = true(plan, target)
        return replace(sources, units=tuple(unit.replace("3.5f", "3.25f") for unit in sources.units))

    put(graph_compiler, "generate", generate)


def put(target, name, value):
    """For good: in a process of its own."""
    if isinstance(target, dict):
        target[name] = value
    else:
        setattr(target, name, value)
