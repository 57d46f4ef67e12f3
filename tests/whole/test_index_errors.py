"""Indices out of range raise as in eager: also where the place read does not hang on them, and the first of several is the one named."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import thruway
from thruway.surface import lazy

BAD = torch.tensor([1, 7])


def _error(function: Callable[..., torch.Tensor], *args: torch.Tensor) -> tuple[type, str]:
    with pytest.raises((IndexError, RuntimeError)) as found:
        function(*args)
    return type(found.value), str(found.value)


@pytest.mark.parametrize("function", [
    lambda x, i: x.index_select(0, i), lambda x, i: x[i] + 1, lambda x, i: x.gather(0, i[None]), lambda x, i: x.take(i * 2),
    lambda x, i: torch.nn.functional.embedding(i, x), lambda x, i: x.t()[:, i], lambda x, i: x.expand(2, 4, 3)[:, i].sum(),
    lambda x, i: x.index_select(0, i).to(torch.float64) * 2,
], ids=["index_select", "index", "gather", "take", "embedding", "transposed", "summed", "cast"])
def test_expanded_tensors_check_their_indices(function: Callable[..., torch.Tensor]) -> None:
    compiled = thruway.compile(function)
    for x in (torch.ones(1, 3).expand(4, 3), torch.ones(()).expand(4, 3)):
        assert _error(compiled, x, BAD) == _error(function, x, BAD)
        assert torch.equal(compiled(x, BAD % 4), function(x, BAD % 4))


@pytest.mark.parametrize(("first", "second"), [(5, 7), (1, 7), (5, 1), (-9, 3)])
def test_the_first_index_out_of_range_is_named(first: int, second: int) -> None:
    def picked(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return x[i, j] + 1

    def apart(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return x[None, i, :1, ..., j] + 1
    for function, x in ((picked, torch.ones(2, 3)), (apart, torch.ones(2, 2, 2, 3))):
        compiled = thruway.compile(function)
        places = torch.tensor(first), torch.tensor(second)
        assert torch.equal(compiled(x, torch.tensor(1), torch.tensor(2)), function(x, torch.tensor(1), torch.tensor(2)))
        assert _error(compiled, x, *places) == _error(function, x, *places)


@pytest.mark.parametrize("read", [
    lambda x, i: x[i], lambda x, i: x[None, i], lambda x, i: x[..., i], lambda x, i: x[0, :, i], lambda x, i: x[i, i, i, i], lambda x, i: x.sum()[i],
    lambda x, i: x.select(1, i), lambda x, i: x[i, 9],
], ids=["first", "behind None", "last", "third", "too many", "of a number", "select", "before a constant"])
def test_numbers_that_change(read: Callable[..., torch.Tensor]) -> None:
    """Capture sees them as symbols, and already its own call may be out of range."""
    def function(x: torch.Tensor, i: int) -> object:
        try:
            return read(x, i).tolist()
        except IndexError as error:
            return str(error)

    def writes(x: torch.Tensor, i: int) -> object:
        try:
            read(x, i).fill_(3.0)
        except IndexError as error:
            return str(error), x.tolist()
        return x.tolist()
    for each in (function, writes):
        compiled = thruway.compile(each)
        for place in (0, 1, 7, 2, -9, -1):
            assert compiled(torch.ones(2, 3, 4), place) == each(torch.ones(2, 3, 4), place), place


def test_stored_at_numbers_that_change() -> None:
    def function(x: torch.Tensor, i: int) -> None:
        x[0, i] = 2
    compiled = thruway.compile(function)
    for place in (0, 1, 2):
        compiled(x := torch.ones(2, 3), place)
        assert x[0, place] == 2
    for place in (3, -4):
        assert _error(compiled, torch.ones(2, 3), place) == _error(function, torch.ones(2, 3), place)


def test_a_number_is_looked_at_before_a_constant_behind_it() -> None:
    def caught(x: torch.Tensor, i: torch.Tensor) -> str:
        try:
            return str(x[i, 7].sum())
        except IndexError as error:
            return str(error)
    compiled = thruway.compile(caught)
    for place in (1, 5, 0):
        assert compiled(torch.ones(2, 3), torch.tensor(place)) == caught(torch.ones(2, 3), torch.tensor(place))


def test_an_empty_index_of_any_rank_gathers_nothing() -> None:
    def gathered(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x.gather(0, index) * 2
    for x in (torch.ones(7), torch.ones(7, 3), torch.ones(2, 2, 2, dtype=torch.int64)):
        for shape in ((0,), (0, 3), (3, 0, 2)):
            compiled, index = thruway.compile(gathered), torch.zeros(shape, dtype=torch.int64)
            assert compiled(x, index).shape == gathered(x, index).shape
    assert not lazy.pipeline().journal.of_kind("bug")
    assert _error(thruway.compile(gathered), torch.ones(7), torch.zeros(1, 2, dtype=torch.int64))[0] is RuntimeError
