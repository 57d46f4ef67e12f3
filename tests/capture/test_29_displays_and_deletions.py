"""Operators with scalars of numpy's, iter with a sentinel, object.__delattr__, stars in displays over iterators found outside, lazy conjugates."""

import numpy as np
import pytest
import torch
from capture.beside_eager import alike, check
from whole.assert_same import assert_same

import thruway

X = torch.arange(3.0)
ARRAY = np.array([1.0, 4.0, 9.0], dtype=np.float32)


def numbers_and_scalars(x):
    half, whole = np.float32(1.5), np.int32(2)
    return x + 1, x.sum().item() * half, x.shape[0] + half, float(np.sum(ARRAY)) + half, half * 2, whole + x.shape[0], x.shape[0] > half, x * half


@pytest.mark.parametrize("dynamic", [None, True])
def test_numbers_beside_scalars_of_numpy_give_scalars_of_numpy(dynamic):
    expected, found = numbers_and_scalars(X), thruway.compile(numbers_and_scalars, dynamic=dynamic)(X)
    assert [type(one) for one in found] == [type(one) for one in expected] and repr(found) == repr(expected)


def test_iter_with_a_sentinel():
    def until(x):
        left = iter([3, 1, 0, 4])
        read = iter(lambda: next(left), 0)
        first = next(read)
        return x * first, list(read), list(left), sum(iter(lambda: 1, 1))
    check(until, X, graphs=1)


class Watched:
    last = ""

    def __delattr__(self, name):
        Watched.last = name
        object.__delattr__(self, name)


def test_deletion_through_object():
    def remove(x):
        one = Watched()
        one.a, one.b = x * 2, 3
        y = one.a
        del one.a
        super(Watched, one).__delattr__("b")
        try:
            object.__delattr__(one, "b")
        except AttributeError as error:
            return y, str(error), vars(one)
        return y
    check(remove, X, graphs=1)


def counting(n):
    yield from range(n)


def starred(x, generator, iterator):
    y = x * 2
    taken = [1, *generator, 5]
    return y + 1, taken, {0, *iterator, 9}, {"a": 1, **dict.fromkeys("bc", len(taken))}


def test_stars_over_iterators_found_outside_break_there_alone():
    thruway.reset()
    compiled = thruway.compile(starred)
    for n in (2, 3, 3):
        alike(starred(X, counting(n), iter([n, 2])), compiled(X, counting(n), iter([n, 2])))
    assert thruway.metrics()["eager"] == 0


def matched(x, command):
    match command:
        case {"op": "add", "k": int(k), **rest} if k > 0:
            return x + k, rest
        case [first, *middle, last]:
            return x * first + last, middle
        case _:
            return x, None


def test_a_list_where_a_dict_of_another_length_was_keeps_its_content():
    thruway.reset()
    compiled = thruway.compile(matched)
    for command in ({"op": "add", "k": 2, "z": 1}, {"op": "add", "k": -2}, [1, 2, 3, 4], (5, 6), {"a": 1}, [1, 2], 3.5):
        alike(matched(X, command), compiled(X, command))
    assert thruway.metrics()["eager"] == 0 and thruway.metrics()["graph_breaks"] == 0


def conjugates(z):
    y = z * 1
    return y.conj(), y.mH, y.conj() + 1, y.conj().imag * 2, (y.conj().t() @ y).real, torch.view_as_real(y)


def written_conjugates(z):
    y = z * 1
    lazy = y.conj()
    y.mul_(2)
    lazy.add_(1j)
    return lazy, y, lazy.imag.sum()


@pytest.mark.parametrize("function", [conjugates, written_conjugates, lambda z: z.conj(), lambda z: z.mH + 1, lambda z: z.conj() * z])
def test_conjugates(function):
    assert_same(function, torch.tensor([[1 + 2j, 3 - 1j], [2j, -1 + 0j]]))


def test_whether_a_conjugate_is_lazy_is_asked_of_the_tensor():
    def ask(z):
        z = z * 1
        lazy = z.conj()
        return lazy.is_conj(), z.is_conj(), lazy.imag.is_neg(), lazy.resolve_conj().is_conj(), lazy + 1, torch.is_conj(lazy * 2)
    assert_same(ask, torch.tensor([1 + 2j, 3 - 1j]))
