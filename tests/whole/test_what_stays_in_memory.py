"""Calls with ever new Python objects leave nothing behind, a deleted compiled module is freed, and what a call was given is freed after it."""

from __future__ import annotations

import contextlib
import gc
import sys
import types
import weakref

import memory
import numpy
import pytest
import torch

import thruway


@pytest.mark.parametrize("name", memory.WORKS)
def test_calls_with_ever_new_objects_are_flat(name, monkeypatch):
    monkeypatch.setattr(memory, "CALLS", 200)
    thruway.reset()
    objects, _, captures = memory.grown(*memory.WORKS[name])
    assert objects <= 40 and captures <= 4, (objects, captures)


def test_a_deleted_module_is_freed():
    assert memory.is_freed()


def plain(x):
    return x + 1


def broken(x):
    y = x * 2
    sys.intern("a")
    return y + x


def raises(x):
    y = x + 1
    raise ValueError(y.shape)


def refused(x):
    return x @ torch.ones(7, 7)


def refusal_caught(x):
    try:
        return x @ torch.ones(7, 7)
    except RuntimeError:
        return x + 1


def out_of_range(x):
    return x[9]


def generator(x):
    def numbers():
        yield x
        yield x + 1
    each = numbers()
    return next(each) + 1


def branch(x):
    return x + 1 if x.sum() > 0 else x - 1


def with_gradient(x):
    return (x * x.clone().requires_grad_()).sum()


def through_numpy(x):
    return torch.from_numpy(numpy.sin(x.numpy()))


def in_an_object(x):
    held = types.SimpleNamespace(x=x, more={"a": [x]})
    return held.x + held.more["a"][0]


KEPT = []


def kept(x):
    KEPT.append(x)
    return x + 1


PROGRAMS = [plain, broken, raises, refused, refusal_caught, out_of_range, generator, branch, with_gradient, through_numpy, in_an_object, kept]


@pytest.mark.parametrize("function", PROGRAMS)
def test_what_a_compiling_call_was_given_is_freed_without_the_collector(function):
    thruway.reset()
    compiled = thruway.compile(function)
    gc.collect()
    gc.disable()
    try:
        for rows in (3, 3, 4, 5):                       # compiles, does not, compiles again
            x = torch.ones(rows, 3)
            reference = weakref.ref(x)
            with contextlib.suppress(Exception):
                compiled(x)
            del x
            assert (reference() is None) == (function is not kept), rows
    finally:
        gc.enable()
