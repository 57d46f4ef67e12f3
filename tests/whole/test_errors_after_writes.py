"""An error behind a write that is seen outside: the function cannot run again, but its text and its line are eager's."""

from __future__ import annotations

import traceback

import pytest
import torch

import thruway


def stores(x, i):
    x[0] = 1
    x[i.item()] = 5
    return x


def reads(x, i):
    x.add_(1)
    return x[i.item()] * 2


def selects(x, i):
    x.add_(1)
    return x.select(0, i.item())


def below(x, i):
    x.mul_(2)
    return stores(x, i) + 1


def behind_new_dimensions(x, i):
    x.add_(1)
    return x[None, ..., None, :][:, 0, :1] + x[None, i.item()]


def by_the_methods_name(x, i):
    x.__iadd__(1)
    return abs(x)[i.item()] * 2


def second_place(x, i):
    y = x.add_(1)[None]
    return y[0, i.item()]


def while_handling(x, i):
    try:
        raise KeyError("first")
    except KeyError:
        x.add_(1)
        return x[i.item()] * 2


def overlapping(x, i):
    x[1:].copy_(x[:-1].clone())
    return x[i]


def caught(function, *arguments):
    with pytest.raises(Exception) as found:
        function(*arguments)
    frames = traceback.extract_tb(found.value.__traceback__)
    assert found.value.__cause__ is None and not found.value.__suppress_context__
    return type(found.value), str(found.value), (frames[-1].filename, frames[-1].lineno, frames[-1].name)


@pytest.mark.parametrize("function", [stores, reads, selects, below, behind_new_dimensions, by_the_methods_name, second_place, while_handling, overlapping])
def test_text_and_line(function):
    compiled = thruway.compile(function)
    for first in (torch.tensor(2), torch.tensor(9), torch.tensor(-7)):
        if first.item() == 2:
            assert torch.equal(compiled(torch.ones(5), first), function(torch.ones(5), first))
            continue
        assert caught(compiled, torch.ones(5), first) == caught(function, torch.ones(5), first)


@pytest.mark.parametrize("function", [stores, reads, selects, below, second_place])
def test_an_error_has_the_context_that_the_caller_handles(function):
    def contexts(call):
        found = []
        for handled in (None, KeyError("outside")):
            try:
                try:
                    raise handled or StopAsyncIteration
                except StopAsyncIteration:
                    pass
                except KeyError:
                    call(torch.ones(5), torch.tensor(9))
                call(torch.ones(5), torch.tensor(9))
            except IndexError as error:
                found.append(repr(error.__context__))
        return found
    compiled = thruway.compile(function)
    compiled(torch.ones(5), torch.tensor(2))
    assert contexts(compiled) == contexts(function) == ["None", "KeyError('outside')"]


def test_effects_before_the_error_stay():
    def notes(x, i, log):
        x.add_(1)
        log.append(x.sum().item())
        x[i.item()] = 5
        log.append("behind")

    def notes_after(x, i, log):
        log.append("first")
        y = x[i.item()] * 2
        x.add_(1)
        log.append(y.item())
    for function in (notes, notes_after):
        for backend in ("eager", "thruway"):
            compiled = thruway.compile(function, backend=backend)
            for place in (2, 9, -7, 0):
                found = []
                for call in (function, compiled):
                    x, log = torch.zeros(5), []
                    try:
                        call(x, torch.tensor(place), log)
                    except IndexError as error:
                        log.append(str(error))
                    found.append((x.tolist(), log))
                assert found[0] == found[1]


def test_what_was_written_stays():
    x, y = torch.zeros(5), torch.zeros(5)
    caught(stores, x, torch.tensor(9))
    caught(thruway.compile(stores), y, torch.tensor(9))
    assert torch.equal(x, y) and y[0] == 1


def test_a_loop_that_writes_nothing_runs_again_with_its_effects():
    def counts(x, w, log):
        log.append("first")
        i = 0
        while abs(x).sum() > w[i].item() and i < 4:
            i += 1
            x = x * 0.9
        log.append("behind")
        return x.add_(1)
    for backend in ("eager", "thruway"):
        compiled = thruway.compile(counts, backend=backend)
        for n in (4, 5, 2):
            found = []
            for call in (counts, compiled):
                log = []
                try:
                    log.append(call(torch.ones(4), torch.ones(n), log).tolist())
                except IndexError as error:
                    log.append(str(error))
                found.append(log)
            assert len(found[0]) == len(found[1]) and found[0][:2] == found[1][:2]
