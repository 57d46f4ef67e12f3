"""Which nodes are kept between calls."""

import torch

from graph.build import Build, assert_same
from thruway.graph.derived import find_derivable, mark_derived
from thruway.graph.rewrite import Context

aten = torch.ops.aten


def rnd(*sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0))


def marked(b: Build, *outputs, context=None):
    graph = b.done(*outputs)
    result = mark_derived(graph, context or Context())
    assert_same(graph, result, b.tensors)
    return [str(n.target).removeprefix("aten.") for n in result.nodes if n.meta.get("derived")]


def test_work_on_weights_is_kept_and_views_of_weights_and_fills_are_not():
    b = Build()
    x, w = b.input(rnd(3, 3)), b.weight(rnd(3, 3))
    turned = b(aten.t.default, w)
    cast = b(aten._to_copy.default, b.weight(rnd(3, 3).double()), dtype=torch.float32)
    ones = b(aten.ones.default, [3, 3])
    total = b(aten.mm.default, x, turned)
    assert marked(b, b(aten.add.Tensor, b(aten.mul.Tensor, total, cast), ones)) == ["_to_copy.default"]


def test_a_view_of_kept_work_is_kept_with_it():
    b = Build()
    table = b(aten.sin.default, b(aten.arange.default, 4, dtype=torch.float32))
    wide = b(aten.unsqueeze.default, table, 1)
    assert marked(b, b(aten.mul.Tensor, b.input(rnd(4, 3)), wide)) == ["arange.default", "sin.default", "unsqueeze.default"]


def test_inputs_random_values_and_written_weights_are_not_derivable():
    b = Build()
    w = b.weight(rnd(3))
    nodes = [b(aten.mul.Tensor, b.input(rnd(3)), w), b(aten.mul.Tensor, w, b(aten.rand.default, [3])), b(aten.sin.default, w)]
    b(aten.add_.Tensor, w, 1)
    graph = b.done(*nodes)
    assert not find_derivable(graph) and mark_derived(graph, Context()) is graph


def test_a_fill_that_is_written_is_made_every_call():
    b = Build()
    cache = b(aten.zeros.default, [3])
    written = b(aten.add_.Tensor, cache, b.weight(rnd(3)))
    assert marked(b, b(aten.mul.Tensor, written, b.input(rnd(3)))) == []


def test_the_caller_gets_a_copy():
    b = Build()
    graph = b.done(b(aten.exp.default, b.weight(rnd(3))))
    assert find_derivable(graph) and mark_derived(graph, Context()) is graph
    b = Build()
    kept = b(aten.exp.default, b.weight(rnd(3)))
    result = mark_derived(b.done(kept, b(aten.mul.Tensor, kept, b.input(rnd(3)))), Context())
    first = result.output_node().args[0][0]
    assert first.target is aten.clone.default and not first.meta.get("derived")


def test_memory_limit_keeps_the_dear_before_the_cheap():
    b = Build()
    x = b.input(rnd(4))
    cheap = b(aten.mul.Tensor, b.weight(rnd(4)), 2)
    dear = b(aten.exp.default, b.weight(rnd(4)))
    output = b(aten.mul.Tensor, b(aten.add.Tensor, x, cheap), dear)
    context = Context(derived_limit=16)
    assert marked(b, output, context=context) == ["exp.default"]
    assert context.derived_bytes == 16 and context.notes == [("unpacked", "mul_tensor: memory")]


def test_nothing_to_keep_gives_the_same_object():
    b = Build()
    graph = b.done(b(aten.add.Tensor, b.input(rnd(3)), b.weight(rnd(3))))
    assert mark_derived(graph, Context()) is graph
