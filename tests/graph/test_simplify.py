"""What goes and what must stay."""

import math

import pytest
import torch

from graph.build import Build, assert_same, targets
from thruway.graph.rewrite import Context
from thruway.graph.simplify import simplify
from thruway.graph.verify import verify

aten = torch.ops.aten


def rnd(*sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(len(sizes)))


def simplified(b: Build, *outputs):
    graph = b.done(*outputs)
    result = simplify(graph, Context())
    assert_same(graph, result, b.tensors)
    return targets(result)


def test_unused_nodes_go_and_random_ones_stay():
    b = Build()
    x = b.input(rnd(3))
    b(aten.exp.default, x)
    b(aten.rand.default, [3])
    assert simplified(b, b(aten.sin.default, x)) == ["rand.default", "sin.default"]


def test_assertions_stay():
    b = Build()
    x = b.input(rnd(3))
    b.emit.known((), aten._assert_async.default, b(aten.any.default, b(aten.gt.Scalar, x, -100)))
    assert "_assert_async.default" in simplified(b, b(aten.sin.default, x))


def test_repeated_nodes_merge_through_their_users():
    b = Build()
    x = b.input(rnd(3))
    first, second = (b(aten.add.Tensor, b(aten.sin.default, x), 1) for _ in range(2))
    assert simplified(b, b(aten.mul.Tensor, first, second)) == ["sin.default", "add.Tensor", "mul.Tensor"]


@pytest.mark.parametrize("leave, left", [(0, 1), (1, 1), (2, 2)])
def test_equal_constants_merge_unless_the_caller_gets_both(leave, left):
    b = Build()
    x = b.input(rnd(2))
    one, two, other = (b.constant(torch.tensor(row)) for row in ([1.0, 2.0], [1.0, 2.0], [1.0, -0.0]))
    total = b(aten.add.Tensor, b(aten.mul.Tensor, x, one), b(aten.mul.Tensor, b(aten.sin.default, x), two))
    graph = simplify(b.done(b(aten.add.Tensor, total, other), *(one, two)[:leave]), Context())
    assert sum(node.op == "get_attr" for node in graph.nodes) == left + 1


@pytest.mark.parametrize("one, other", [(2, 2.0), (0.0, -0.0)])
def test_constants_that_compare_equal_differ(one, other):
    b = Build()
    x = b(aten.neg.default, b.input(torch.tensor([1.5])))
    assert simplified(b, b(aten.cat.default, [b(aten.mul.Tensor, x, value) for value in (one, other)])).count("mul.Tensor") == 2


def test_two_results_stay_two_tensors():
    b = Build()
    x = b.input(rnd(3))
    assert simplified(b, b(aten.sin.default, x), b(aten.sin.default, x)) == ["sin.default", "sin.default"]


def test_a_tensor_that_is_written_is_not_shared():
    b = Build()
    one, two = b(aten.zeros.default, [3]), b(aten.zeros.default, [3])
    written = b(aten.add_.Tensor, one, b.input(rnd(3)))
    assert simplified(b, written, b(aten.add.Tensor, two, 1)).count("zeros.default") == 2


def test_reads_before_and_after_a_write_differ():
    b = Build()
    x = b.input(rnd(3))
    before = b(aten.sin.default, x)
    b(aten.add_.Tensor, x, 1)
    view = b(aten.view.default, x, [3])
    after = b(aten.sin.default, b(aten.view.default, view, [3, 1]))
    assert simplified(b, b(aten.cos.default, before), after).count("sin.default") == 2


def test_random_nodes_do_not_merge():
    b = Build()
    graph = b.done(b(aten.add.Tensor, b(aten.rand.default, [3]), b(aten.rand.default, [3])))
    assert targets(simplify(graph, Context())).count("rand.default") == 2


@pytest.mark.parametrize("op, args", [
    (aten.mul.Tensor, (1,)), (aten.mul.Scalar, (1.0,)), (aten.div.Tensor, (1,)), (aten.pow.Tensor_Scalar, (1,)), (aten.clone.default, ()),
    (aten.view.default, ([2, 3],)), (aten.permute.default, ([0, 1],)), (aten.expand.default, ([2, 3],)), (aten.slice.Tensor, (1, 0, 3)),
    (aten._to_copy.default, ()), (aten.detach.default, ()),
])
def test_idle_operators_go(op, args):
    b = Build()
    idle = b(op, b(aten.sin.default, b.input(rnd(2, 3))), *args)
    assert simplified(b, b(aten.cos.default, idle)) == ["sin.default", "cos.default"]


@pytest.mark.parametrize("op, args", [
    (aten.add.Tensor, (0,)), (aten.sub.Tensor, (-0.0,)), (aten.mul.Tensor, (0,)), (aten.mul.Tensor, (True,)), (aten.slice.Tensor, (1, 0, 2)),
    (aten.slice.Tensor, (1, 0, 3, 2)), (aten.permute.default, ([1, 0],)), (aten.pow.Tensor_Scalar, (2,)), (aten.div.Tensor, (2,)),
])
def test_operators_that_change_something_stay(op, args):
    b = Build()
    x = b.input(torch.tensor([[-0.0, math.nan, math.inf], [0.0, -math.inf, 1e-42]]))
    assert len(simplified(b, b(aten.cos.default, b(op, b(aten.neg.default, x), *args)))) == 3


def test_an_integer_times_one_point_zero_becomes_a_float():
    b = Build()
    x = b.input(torch.tensor([1, 2]))
    assert simplified(b, b(aten.cos.default, b(aten.div.Tensor, b(aten.neg.default, x), 1))) == ["neg.default", "div.Tensor", "cos.default"]


def test_a_copy_that_the_caller_gets_stays():
    b = Build()
    x = b.input(rnd(3))
    assert simplified(b, b(aten.clone.default, x)) == ["clone.default"]
    b = Build()
    y = b(aten.sin.default, b.input(rnd(3)))
    assert simplified(b, y, b(aten.clone.default, y)) == ["sin.default", "clone.default"]


def test_a_copy_in_front_of_a_write_stays():
    b = Build()
    x = b.input(rnd(3))
    assert "clone.default" in simplified(b, b(aten.add_.Tensor, b(aten.clone.default, x), 1))


def test_a_copy_of_other_strides_stays():
    b = Build()
    x = b(aten.sin.default, b.input(rnd(2, 3).t()))
    assert "clone.default" in simplified(b, b(aten.view.default, b(aten.clone.default, x, memory_format=torch.contiguous_format), [6]))


def test_views_of_views_become_one():
    b = Build()
    x = b(aten.sin.default, b.input(rnd(2, 3, 4)))
    turned = b(aten.transpose.int, b(aten.permute.default, x, [2, 0, 1]), 0, 2)
    assert simplified(b, b(aten.cos.default, turned)) == ["sin.default", "permute.default", "cos.default"]
    b = Build()
    x = b(aten.sin.default, b.input(rnd(2, 3, 4)))
    assert simplified(b, b(aten.cos.default, b(aten.view.default, b(aten.view.default, x, [6, 4]), [2, 12]))) == [
        "sin.default", "view.default", "cos.default"]


def test_a_view_of_a_view_has_the_strides_of_what_lies_below():
    b = Build()
    x = b(aten.permute.default, b(aten.sin.default, b.input(rnd(4, 1, 1, 8))), [0, 3, 1, 2])
    graph = b.done(b(aten.cos.default, b(aten.view.default, b(aten.view.default, x, [4, 1, 8]), [4, 8, 1])))
    result = simplify(graph, Context())
    verify(result)
    assert targets(result).count("view.default") == 1


def test_transposing_twice_is_nothing():
    b = Build()
    x = b(aten.sin.default, b.input(rnd(2, 3)))
    assert simplified(b, b(aten.cos.default, b(aten.t.default, b(aten.t.default, x)))) == ["sin.default", "cos.default"]


def test_nothing_to_do_gives_the_same_object():
    b = Build()
    graph = b.done(b(aten.sin.default, b.input(rnd(3))))
    assert simplify(graph, Context()) is graph
