"""Writes: which become functional, which stay, and that every read sees the right version."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from thruway.core.errors import Unsupported

from graph.retraced import check, operators, writes

X = torch.arange(12.0).reshape(3, 4) - 5
INDEX = torch.tensor([2, 0])


def test_whole_overwrites_of_fresh_tensors_are_functional():
    def f(x):
        y = x * 2
        y.relu_()
        y.add_(x, alpha=2).mul_(3)
        y += 1
        return y
    traced = check(f, X, in_place=())
    assert operators(traced) == ["mul", "relu", "add", "mul", "add"]


def test_a_write_through_a_bijective_view_is_functional():
    def f(x):
        y = x.clone()
        y.view(-1).add_(1)
        y.t().mul_(x.t())
        y.unsqueeze(0).permute(2, 0, 1).sigmoid_()
        return y, y.t()
    check(f, X, in_place=())


def test_a_view_made_before_a_write_sees_it():
    def f(x):
        y = x + 1
        v = y[0]
        w = y.view(2, 6)
        y.neg_()
        return v * 2, w + 1, y
    check(f, X, in_place=())


def test_a_partial_write_of_a_fresh_tensor_stays_in_place():
    def f(x):
        y = torch.zeros(3, 4)
        before = y + 1
        y[1] = x[0]
        y[:, 2].fill_(7)
        return y, before, y.sum()
    check(f, X, in_place=("copy_", "fill_"))


def test_indexed_writes_stay_in_place():
    def f(x, i):
        y = x * 1
        y.index_copy_(0, i, x[:2])
        y.index_put_((i,), x[0, 0])
        z = y.scatter_(1, i[:, None], 5.0)
        return y, z * 2
    check(f, X, INDEX, in_place=("index_copy_", "index_put_", "scatter_"))


def test_writes_to_inputs_stay_in_place_and_later_reads_see_them():
    def f(x):
        v = x[1]
        a = v * 2
        x.add_(1)
        b = v * 2
        v.zero_()
        return a, b, x.sum(0), v
    check(f, X, in_place=("add_", "zero_"))


def test_a_cache_is_written_in_place_and_never_copied():
    def f(cache, i, x):
        for layer in range(2):
            cache[layer].index_copy_(1, i, x)
            x = (cache[layer] * 0.5).sum(1, keepdim=True)
        return x
    traced = check(f, torch.zeros(2, 3, 8, 4), torch.tensor([5]), torch.ones(3, 1, 4), in_place=("index_copy_", "index_copy_"))
    assert "clone" not in operators(traced) and "index_copy" not in operators(traced)


def test_outputs_that_alias_inputs_are_views_of_them():
    def f(x):
        return x, x.t(), x[0], x.detach(), x.view(-1)[2:], x + 0
    check(f, X, in_place=())


def test_outputs_that_alias_each_other():
    def f(x):
        y = x + 1
        return y, y[0], y.t(), y.detach()
    check(f, X, in_place=())


def test_a_literal_is_cloned_before_it_is_written_or_leaves():
    def f(x):
        a = torch.tensor([1.0, 2.0, 3.0, 4.0])
        b = torch.tensor([1.0, 2.0, 3.0, 4.0])
        b[0] = 9
        return a, x + b, x + torch.tensor([1.0, 2.0, 3.0, 4.0])
    traced = check(f, X)
    assert sum(n.op == "get_attr" for n in traced.graph.nodes) == 3


def test_out_arguments():
    def f(x):
        y = torch.empty(3, 4)
        torch.add(x, 1, out=y)
        z = torch.empty(0)
        torch.mul(x, 2, out=z)
        torch.sub(x, 1, out=x)
        return y, z, x * 1
    check(f, X, in_place=("copy_",))


def test_out_that_resizes_an_input_is_refused():
    with pytest.raises(Unsupported):
        check(lambda x, y: torch.add(x, 1, out=y), X, torch.empty(0))


def test_dtype_of_the_target_wins():
    def f(x, i):
        y = i * 1
        y.mul_(2)
        z = x * 1
        z.add_(torch.ones(4, dtype=torch.float64))
        z.lt_(3)
        return y, z
    check(f, X, INDEX, in_place=())


def test_metadata_changes_of_fresh_tensors_become_views():
    def f(x):
        y = x * 2
        y.t_()
        y.unsqueeze_(0)
        y.add_(1)
        return y, y.transpose_(1, 2)
    check(f, X)


@pytest.mark.parametrize("change", [lambda x: x.t_(), lambda x: x.resize_(2, 2), lambda x: x.set_(x.clone()), lambda x: x.unsqueeze_(0)])
def test_metadata_changes_of_inputs_are_refused(change):
    with pytest.raises(Unsupported):
        check(lambda x: change(x) + 1, X)


def test_random_operators_stay_in_order():
    def f(x):
        a = torch.rand(3)
        b = torch.empty(3).normal_()
        torch.rand(2)
        c = torch.nn.functional.dropout(x, 0.5)
        d = x.clone().bernoulli_(0.3)
        e = torch.empty(4).uniform_(2, 3)
        return a, b, c, d, e, torch.randn(2), torch.randint(0, 9, (3,)), torch.randperm(5)
    traced = check(f, X, in_place=())
    assert operators(traced).count("rand") == 2


def test_a_write_marks_its_placeholder_as_no_weight():
    weight = torch.nn.Parameter(torch.ones(4))

    def f(x):
        weight.mul_(2)
        return x * weight
    traced = check(f, X)
    assert [n.meta["weight"] for n in traced.graph.nodes if n.op == "placeholder"] == [False, False]


STEPS = {
    "relu": lambda y, x: y.relu_(),
    "add": lambda y, x: y.add_(x.sum()),
    "row": lambda y, x: y[0].copy_(x[0]),
    "column": lambda y, x: y[:, 1].mul_(2),
    "flat": lambda y, x: y.reshape(-1).sub_(1),
    "transposed": lambda y, x: y.t().add_(1),
    "masked": lambda y, x: y.masked_fill_(x > 0, 3.0),
    "where": lambda y, x: y.copy_(torch.where(x > 1, x, y)),
    "put": lambda y, x: y.index_put_((torch.tensor([1]),), x[2]),
    "shift": lambda y, x: y[1:].copy_(y[:-1].clone()),
    "expand": lambda y, x: y.add_(y[:1].expand(3, 4).clone()),
    "split": lambda y, x: y.chunk(2, 1)[1].neg_(),
    "diagonal": lambda y, x: y.diagonal().zero_(),
}


@settings(max_examples=120, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5), st.sampled_from(["fresh", "input", "view", "both"]))
def test_random_programs_of_writes(names, kind):
    def f(x, z):
        y = {"fresh": lambda: x * 1.5, "input": lambda: z, "view": lambda: z.t().contiguous(), "both": lambda: z}[kind]()
        if kind == "view":
            y = z[:]
        reads = [y[1], y.t()]
        results = []
        for name in names:
            STEPS[name](y, x)
            results += [reads[0] * 2, reads[1].sum()]
            if kind == "both":
                STEPS[name](x, y)
        return *results, y, reads[0]
    check(f, X, X.flip(0).contiguous())


def test_what_is_not_read_is_gone_but_writes_stay():
    def f(x):
        x.exp()
        y = x * 2
        y.add_(1)
        x.mul_(2)
        return x[0]
    traced = check(f, X, in_place=("mul_",))
    assert operators(traced) == ["mul_", "select"]
    assert writes(traced) == ["mul_"]
