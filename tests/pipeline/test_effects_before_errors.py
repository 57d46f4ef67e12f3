"""Operators that fail on what their tensors hold, where gradients are wanted: what Python did before the failing line stays done, once,
and tensors older than the call are left as eager leaves them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import thruway
from thruway.runtime.put_back import Before


def set_where_above(w, i):
    w.detach()[w > i] = torch.ones(3)
    return w * 1


FAILING = {
    "assignment by a mask": set_where_above,
    "index": lambda w, i: w[i],
    "embedding": lambda w, i: F.embedding(i, w),
    "embedding bag": lambda w, i: F.embedding_bag(i, w, torch.tensor([0])),
    "norm of rows": lambda w, i: F.embedding(i, w.detach(), max_norm=1.0) + w[:1],
    "cross entropy": lambda w, i: F.cross_entropy(w[:1] * 2, i),
    "gather": lambda w, i: w.gather(0, i.view(1, -1)),
    "index_select": lambda w, i: w.index_select(0, i),
    "index_add of a new one": lambda w, i: (w * 1).index_add_(0, i, w[:1]),
    "index_put of a new one": lambda w, i: (w * 1).index_put_((i,), w[:1]),
    "cholesky": lambda w, i: torch.linalg.cholesky(w * (5 - i)),
    "number of an element": lambda w, i: w * torch.arange(3)[i.max()],
}


@pytest.fixture(autouse=True)
def fresh():
    thruway.reset()
    yield
    thruway.reset()


class Counting(torch.nn.Module):
    def __init__(self, operator, writes):
        super().__init__()
        self.w, self.operator, self.writes = torch.nn.Parameter(torch.eye(3)), operator, writes
        self.n, self.log = 0, []
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("var", torch.ones(3))

    def forward(self, i):
        self.n += 1
        self.log.append(self.n)
        print("call", self.n)
        if self.writes:
            self.seen += 1
            self.seen[1:].mul_(2)
            F.batch_norm(self.w, self.mean, self.var, training=True)
        noise = torch.rand(1)
        made = self.operator(self.w, i)
        self.seen += 10 * self.writes
        self.log.append("end")
        return made * 2 + noise[0]


def story(module, run, capsys):
    """What five calls give and leave."""
    torch.manual_seed(0)
    found = []
    for number in (0, 9, 9, 1, 2):
        try:
            found.append(run(torch.tensor([number])).tolist())
        except (IndexError, RuntimeError) as error:
            found.append((type(error), str(error)))
    state = (module.n, module.log, module.seen.tolist(), module.mean.tolist(), module.w.tolist(), module.seen.requires_grad)
    return found, state, torch.rand(1).item(), capsys.readouterr().out


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("name", FAILING)
def test_effects_before_the_failing_operator_stay(name, writes, capsys):
    eager, ours = Counting(FAILING[name], writes), Counting(FAILING[name], writes)
    assert story(ours, thruway.compile(ours), capsys) == story(eager, eager, capsys)


def test_a_buffer_that_became_part_of_the_graph_leaves_it_again(capsys):
    def add_norm(w, i):
        return w

    class Adding(Counting):
        def forward(self, i):
            self.seen.detach_()
            self.n += 1
            self.seen.add_(self.w.sum(0))
            return self.w[i]

    eager, ours = Adding(add_norm, True), Adding(add_norm, True)
    assert story(ours, thruway.compile(ours), capsys) == story(eager, eager, capsys)


def test_graphs_whose_calls_all_succeed_keep_their_versions():
    """A near miss: nothing is put back, and autograd still tells of a write behind its back."""
    module = Counting(FAILING["index"], True)
    run, i = thruway.compile(module), torch.tensor([1])
    held = (module.seen.requires_grad_(False) * module.w).sum()
    version = module.seen._version
    run(i).sum().backward()
    assert module.seen._version > version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        held.backward()


def test_a_tensor_is_put_back_with_its_version():
    x = torch.arange(6.0)[::2]
    view, version = x[1:], x._version
    before = Before(x)
    x.mul_(3)
    view.add_(1)
    before.put_back()
    assert x.tolist() == [0, 2, 4] and x._version == version and view.tolist() == [2, 4]


def test_a_leaf_that_was_written_is_a_leaf_again():
    x, w = torch.zeros(3), torch.ones(3, requires_grad=True)
    before = Before(x)
    x.add_(w)
    before.put_back()
    assert x.is_leaf and not x.requires_grad and not x.any() and x._version == 0


def test_what_cannot_be_put_back_is_told():
    """Near misses: other sizes, and a view of a tensor that autograd now follows."""
    w = torch.ones(3, requires_grad=True)
    grown, view, same = torch.zeros(2), torch.zeros(6)[:3], torch.ones(3)
    held = [Before(one) for one in (grown, view, same)]
    grown.resize_(4).fill_(1)
    view.add_(w)
    assert [one.is_known() for one in held] == [False, False, True]


def test_where_one_tensor_cannot_be_put_back_none_is():
    """The error comes as it is, at the user's line, and memory is as eager leaves it."""
    class Viewing(Counting):
        def forward(self, i):
            self.n += 1
            self.seen.add_(1)
            self.part.add_(self.w.sum(0))
            return self.w[i]

    for run in (thruway.compile, lambda module: module):
        module = Viewing(None, True)
        module.part = torch.zeros(6)[:3]
        compiled = run(module)
        compiled(torch.tensor([1]))
        module.part = torch.zeros(6)[:3]
        with pytest.raises(IndexError, match="index 9 is out of bounds"):
            compiled(torch.tensor([9]))
        assert module.seen.tolist() == [2, 2, 2] and module.part.tolist() == [1, 1, 1]
