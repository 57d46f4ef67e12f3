"""Tensors that want gradients: which results require them, what writes in place do to versions, leaves and views, and what eager refuses."""

from __future__ import annotations

import itertools

import pytest
import torch

import thruway
from whole.assert_same import assert_same

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def wants(tensor):
    return tensor.clone().requires_grad_()


def views(x):
    return x.view(-1), x[0], x.detach(), x * 2, x.t()


def partly_without(x):
    with torch.no_grad():
        y = x * 2
    return y, x + y, x.detach() + 1


def write_result(x):
    y = x * 2
    y.mul_(3)
    y[0] = 0
    return y, y.detach()


def write_leaf(x):
    x.add_(1)
    return x


def write_leaf_without(x):
    with torch.no_grad():
        x.add_(1)
    return x * 2


def write_saved(x):
    y = x.exp()
    z = y * 2
    y.add_(1)
    return z


def integer_result(x):
    return x.argmax(), x > 0, (x > 0).sum()


def inner_gradient(x):
    y = (x * x).sum()
    (grad,) = torch.autograd.grad(y, x)
    return grad * 2


FUNCTIONS = [views, partly_without, write_result, write_leaf, write_leaf_without, write_saved, integer_result]


@pytest.mark.parametrize("no_grad", [False, True], ids=["grad", "no_grad"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_of_a_leaf(function, no_grad):
    if function is write_saved and not no_grad:
        return                                             # its backward is refused: see below
    assert_same(function, wants(X), no_grad=no_grad)


def outcome(call, x):
    try:
        y = call(x)
        y.sum().backward()
        return y.tolist(), x.grad.tolist()
    except RuntimeError as error:
        return str(error)[:120]


@pytest.mark.parametrize("function", [write_saved, write_leaf, write_leaf_without], ids=lambda f: f.__name__)
def test_refused_writes(function):
    compiled = thruway.compile(function)
    for _ in range(3):
        assert outcome(compiled, wants(X)) == outcome(function, wants(X))


def test_gradient_inside():
    compiled = thruway.compile(inner_gradient)
    for _ in range(2):
        torch.testing.assert_close(compiled(wants(X)), inner_gradient(wants(X)))


def test_a_write_is_seen_by_autograd():
    """What a compiled call writes makes an earlier graph's backward fail, and what it only reads does not."""
    def write(a, b):
        a.add_(b)
        return a.sum()

    compiled = thruway.compile(write)
    for call in (write, compiled, compiled):
        w, a, b = wants(X), X.clone(), X.clone()
        of_a, of_b = (w * a).sum(), (w * b).sum()
        with torch.no_grad():
            call(a, b)
        of_b.backward()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            of_a.backward()


def test_inference_tensors():
    with torch.inference_mode():
        made = X * 2

    def read(x):
        return x + 1

    def write(x):
        x.add_(1)
        return x

    for function in (read, write):
        compiled = thruway.compile(function)
        for _ in range(2):
            for mode in (torch.enable_grad, torch.inference_mode):
                results = []
                for call in (compiled, function):
                    with mode():
                        try:
                            results.append(call(made.clone() if torch.is_inference_mode_enabled() else made).tolist())
                        except RuntimeError as error:
                            results.append(str(error)[:60])
                assert results[0] == results[1]


@pytest.mark.parametrize("write", [
    lambda x: x[1].add_(0.5), lambda x: x[:, 1:].t().mul_(2), lambda x: x.add_(1), lambda x: (x * 2)[1].add_(torch.ones(7)),
    lambda x: (x * 2)[1:, 1:].add_(torch.ones(7)), lambda x: x.detach()[1].add_(torch.ones(7)), lambda x: x[1:].copy_(torch.ones(7)),
], ids=["a view of a leaf", "a view of a view", "a leaf", "a row of a result", "a part of a result", "detached", "shapes of a view"])
def test_what_autograd_refuses_to_write_is_said_in_its_words(write):
    def said(x):
        try:
            write(x)
        except RuntimeError as error:
            return str(error)
        return "nothing"
    assert thruway.compile(said)(torch.ones(2, 3, requires_grad=True)) == said(torch.ones(2, 3, requires_grad=True)) != "nothing"


def asked_for_a_leaf(x):
    return (x + 1 if x.is_leaf else x - 1), x[0].is_leaf


def asked_who_made_it(x):
    return x + 1 if x.grad_fn is None else x - 1


def written_with_care(x):
    try:
        x.add_(1)
    except RuntimeError as error:
        return str(error)
    return x.sum()


def written_through_a_view(x):
    try:
        x[:1].mul_(2)
    except RuntimeError as error:
        return str(error)
    return x * 2


KINDS = {
    "leaf": lambda: torch.ones(3, requires_grad=True), "result": lambda: torch.ones(3, requires_grad=True) * 1, "plain": lambda: torch.ones(3),
    "view of a leaf": lambda: torch.ones(1, 3, requires_grad=True)[0],
}


@pytest.mark.parametrize("function", [asked_for_a_leaf, asked_who_made_it, written_with_care, written_through_a_view])
def test_an_entry_for_a_leaf_answers_for_no_other(function):
    def outcome(run, kind):
        try:
            return torch.utils._pytree.tree_map(lambda one: one.detach().clone() if isinstance(one, torch.Tensor) else one, run(KINDS[kind]()))
        except RuntimeError as error:
            return str(error)

    for order in itertools.permutations(KINDS):
        compiled = thruway.compile(function)
        for kind in (*order, *order):
            mine, eagers = outcome(compiled, kind), outcome(function, kind)
            assert str(mine) == str(eagers), (order, kind)


def test_parameters_that_are_only_read_have_no_guard_on_their_kind():
    def answers(function):
        return [guard for guard in thruway.explain(function)(wants(torch.ones(3))).guards if "the same answer" in guard]

    assert not answers(torch.nn.Linear(3, 3)) and answers(lambda x: x + 1 if x.is_leaf else x)
