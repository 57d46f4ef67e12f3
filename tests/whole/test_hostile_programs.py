"""Programs written to find what breaks: each once gave another answer than eager, did not end, or cost an entry per call."""

from __future__ import annotations

import abc

import torch
from whole.assert_same import assert_same

import thruway


@torch.library.custom_op("hostile::bump", mutates_args=("x",))
def bump(x: torch.Tensor, by: int) -> None:
    x.add_(by)


NOTES: list[float] = []


@torch.library.custom_op("hostile::note", mutates_args=())
def note(x: torch.Tensor) -> None:
    NOTES.append(float(x.sum()))


@note.register_fake
def _(x):
    return None


def test_custom_operators_without_a_result_run():
    def run(x):
        made = x.clone()
        bump(made, 3)
        bump(x, 1)
        note(x * 2)
        return made, x * 2

    assert_same(run, torch.ones(2), prepare=NOTES.clear, observe=NOTES.copy, breaks=0, graphs=1)


class Abstract(abc.ABC):
    @abc.abstractmethod
    def answer(self): ...


class Plain:
    pass


class Greedy:
    def __init__(self, value):
        super().__init__(value)


def test_object_refuses_what_it_refuses_in_eager():
    def run(x, make, *args):
        try:
            return x, make(*args)
        except TypeError as error:
            return x + 1, str(error)

    for make, args in ((Abstract, ()), (Plain, (1,)), (Greedy, (1,))):
        assert_same(run, torch.ones(2), make, *args, breaks=0)


def test_tensors_of_inference_mode_say_so():
    def run(x, on):
        with torch.inference_mode(on):
            made = x + 1
        return made.is_inference(), x.is_inference(), (x * 2).is_inference()

    assert_same(run, torch.ones(2), True)
    assert_same(run, torch.ones(2), False)


def test_a_side_that_does_not_end_is_not_waited_for():
    def grow(x, items):
        if x.norm() < 1:
            for _ in (one for one in items):
                items *= 2
        return x + 1

    def wait(x, items):
        if x.norm() < 1:
            while items:
                x = x + 1
        return x + 1

    for run in (grow, wait):
        assert thruway.compile(run, backend="eager")(torch.ones(3), [1, 2]).tolist() == [2.0, 2.0, 2.0]
