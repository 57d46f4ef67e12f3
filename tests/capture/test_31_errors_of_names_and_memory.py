"""Names without a value behind breaks, writes that torch refuses because of what else shows the memory, and lists that are looked at while
they are sorted: errors come at their lines, in eager's words, after the effects that stood before them."""

import contextlib
import io
import types

import pytest
import torch

import thruway
from capture.beside_eager import check

X = torch.arange(6.0).reshape(3, 2)


def outside(function, *args):
    """Called from a module that is never captured: a break."""
    return function(*args)


outside = types.FunctionType(outside.__code__, {"__name__": "tqdm.made", "__builtins__": __builtins__})


def told(function, *args):
    """What it gives or raises, what it printed, and its arguments afterwards."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            result = function(*args)
        except Exception as error:
            result = type(error).__name__, str(error)
    return result, printed.getvalue(), args


def assert_told_alike(function, make, calls=3):
    compiled = thruway.compile(function, backend="eager")
    for _ in range(calls):
        expected, found = told(function, *make()), told(compiled, *make())
        assert str(expected) == str(found)
    return expected


# -- names without a value ------------------------------------------------------------------------------------------------------------


def own_variable(x, delete):
    number = 3
    held = lambda: number                                   # noqa: E731, F841
    if delete:
        del number
    outside(torch.relu, x)
    try:
        return x + number
    finally:
        outside(torch.relu, x)


def free_variable(x, delete):
    number = 3
    if delete:
        del number

    def inner(y):
        outside(torch.relu, y)
        return y + number
    return outside(inner, x)


def deleted_inside(x, delete):
    number = 3

    def inner(y):
        nonlocal number
        outside(torch.relu, y)
        if delete:
            del number
        return y + number
    return inner(x)


def handled(x, delete):
    number = 3
    if delete:
        del number

    def inner(y):
        outside(torch.relu, y)
        try:
            return y + number
        except NameError as error:
            return type(error).__name__, str(error)
    return inner(x)


@pytest.mark.parametrize("function", [own_variable, free_variable, deleted_inside, handled])
@pytest.mark.parametrize("delete", [True, False])
def test_a_name_without_a_value_behind_a_break(function, delete):
    found = assert_told_alike(function, lambda: (X, delete))[0]
    assert (type(found) is tuple) is delete


# -- memory that is shown twice -------------------------------------------------------------------------------------------------------


def by_list(t):
    print("before")
    t += 1
    t[[0]] = t[1]


def by_empty_list(t):
    print("before")
    t += 1
    t[[]] = t.unbind()[0]


def by_operator(t):
    print("before")
    t[1:].add_(t[:-1])


def caught(t):
    print("before")
    try:
        t[[0]] = t[1]
    except RuntimeError as error:
        return str(error), t + 1


@pytest.mark.parametrize("function", [by_list, by_empty_list, by_operator, caught])
def test_a_write_of_what_an_operand_shows_too(function):
    (word, printed, _) = assert_told_alike(function, lambda: (X.clone(),))
    assert "single memory location" in str(word) and printed == "before\n"


def test_writes_of_other_rows_and_of_copies():
    def rows(t):
        t = t.clone()
        t[0] = t[1]
        t[[2]] = t[1].clone()
        t[0].copy_(t[0])
        return t
    check(rows, X, graphs=1)


def written_view(t, log):
    view = outside(torch.Tensor.unsqueeze, t, 0)
    log.append("before")
    view.add_(2)
    return view.detach()


def test_a_view_of_a_leaf_is_not_written():
    found = assert_told_alike(written_view, lambda: (torch.ones(2, requires_grad=True), []))
    assert found[0][0] == "RuntimeError" and "view of a leaf" in found[0][1] and found[2][1] == ["before"]


def test_a_view_of_a_result_and_a_view_without_a_gradient_are_written():
    for make in (lambda: (torch.ones(2, requires_grad=True) * 2, []), lambda: (torch.ones(2), [])):
        assert isinstance(assert_told_alike(written_view, make)[0], torch.Tensor)


def test_a_view_of_a_leaf_is_written_without_gradients():
    def written(t):
        view = outside(torch.Tensor.unsqueeze, t, 0)
        with torch.no_grad():
            view.add_(2)
        return t.detach()
    assert isinstance(assert_told_alike(written, lambda: (torch.ones(2, requires_grad=True),))[0], torch.Tensor)


def by_unbind(t):
    for row in t:
        row[0] = 3


def by_chunk(t):
    t.chunk(3, 1)[2].view(-1).mul_(2)


def without_grad(t):
    with torch.no_grad():
        row = t[0]
    row.add_(1)


def of_a_view_without_grad(t):
    with torch.no_grad():
        row = t[0]
    row.view(-1)[0] = 2


def by_select(t):
    t[0].add_(1)


@pytest.mark.parametrize("write, words", [
    (by_unbind, "function that returns multiple views"), (by_chunk, "function that returns multiple views"),
    (without_grad, "A view was created in no_grad mode"), (of_a_view_without_grad, "a view of a view which was created in no_grad"),
    (by_select, "a view of a leaf"),
])
def test_what_autograd_says_of_a_refused_write_is_caught(write, words):
    def caught(t):
        try:
            write(t)
        except RuntimeError as error:
            return str(error)
    found, _, _ = assert_told_alike(caught, lambda: (torch.ones(2, 3, requires_grad=True),))
    assert words in found


def test_views_of_what_the_graph_made_stand_where_they_do_in_eager():
    compiled = thruway.compile(lambda i: torch.tensor([0.5, 0.0, 1.5, 3.0])[i])
    assert [compiled(i).storage_offset() for i in (0, 2, 3, 2, 1)] == [0, 2, 3, 2, 1]


def test_two_views_of_a_literal_share_memory():
    @thruway.compile
    def both(i):
        made = torch.tensor([0.5, 0.0, 1.5, 3.0])
        return made[i], made
    for i in (0, 2, 3):
        one, other = both(i)
        one.add_(1)
        assert other[i] == one and both(i)[1].tolist() == [0.5, 0.0, 1.5, 3.0]


# -- lists and classes ----------------------------------------------------------------------------------------------------------------


def test_a_list_is_empty_while_it_is_sorted():
    def sort(x, values, other):
        values.sort(key=values.count)
        other.sort(key=[3, 1, 1].count)
        try:
            values.sort(key=lambda one: 1 // len(values))
        except ZeroDivisionError as error:
            return x + 1, values, other, str(error)
    check(lambda x: sort(x, [2, 0, 1, 2], [1, 3, 2]), X)


class Plain:
    pass


class Signed:
    def __abs__(self):
        return 5


def test_abs_of_an_object_without_the_method():
    def absolute(x, cls):
        try:
            return x + abs(cls())
        except TypeError as error:
            return x + 2, str(error)
    check(lambda x: absolute(x, Plain), X, graphs=1)
    check(lambda x: absolute(x, Signed), X, graphs=1)


def test_a_view_that_autograd_refuses_is_left_to_torch():
    base = torch.zeros(2, 3)
    with torch.no_grad():
        view = base.unbind(0)[1]
    base.add_(torch.ones(3, requires_grad=True))
    compiled = thruway.compile(lambda x: x * 2)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
            compiled(view)
    with torch.no_grad():
        assert torch.equal(compiled(view), base[1] * 2)
    assert not thruway.metrics()["bugs"]
