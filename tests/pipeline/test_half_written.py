"""Operators that fail on what their tensors hold, after something older than the call was written: memory is left as eager leaves it,
and an `except` of the user's catches what it catches in eager."""

from __future__ import annotations

import contextlib
import types

import pytest
import torch

import thruway
from thruway import pipeline
from thruway.core.launch import Call, Input, LaunchList, SlotRef, TensorSpec
from thruway.runtime.cpu.launch import PythonProgram
from thruway.runtime.resolve import find_code

OUTSIDE, INSIDE = torch.tensor([0, 1, 9]), torch.tensor([0, 1, 3])
ERRORS = (IndexError, RuntimeError)


@pytest.fixture(autouse=True)
def fresh():
    thruway.reset()
    yield
    thruway.reset()


def put(x, i, v):
    return x.put_(i, v, accumulate=True) + 1


def index_reduce(x, i, v):
    return x.index_reduce_(0, i, v + 2, "prod") + 1


def scatter_mean(x, i, v):
    return x.scatter_reduce_(0, i, v, "mean") + 1


def scatter_add(x, i, v):
    return x.scatter_add_(0, i, v) * 2


def through_a_view(x, i, v):
    x[:3].index_add_(0, i, v)
    return x + 1


def of_a_fresh_tensor(x, i, v):
    x.add_(1)
    return x.clone().index_add_(0, i, v)


def after_a_write(x, i, v):
    x.add_(1)
    return x[i] * v


def outcome(function, i, v):
    x = torch.ones(4)
    try:
        return x, function(x, i, v), None
    except ERRORS as error:
        return x, None, (type(error), str(error))


def assert_left_as_by_eager(function, wants_grad, *more):
    values = torch.ones(3, requires_grad=wants_grad)
    compiled = thruway.compile(function)
    for i in (OUTSIDE, OUTSIDE, INSIDE, OUTSIDE):
        wanted, got = outcome(function, i, values), outcome(compiled, i, values)
        assert got[2] == wanted[2]
        assert torch.equal(got[0], wanted[0])
        assert (got[1] is None) == (wanted[1] is None) and (got[1] is None or torch.equal(got[1], wanted[1]))


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("wants_grad", [False, True])
@pytest.mark.parametrize("function", [put, index_reduce, scatter_mean, scatter_add, through_a_view, of_a_fresh_tensor, after_a_write])
def test_an_operator_that_fails_half_way_is_not_run_twice(function, wants_grad):
    assert_left_as_by_eager(function, wants_grad)


def test_the_python_executor_does_not_run_it_twice_either():
    """Its launch list, as the native one runs it."""
    inputs = tuple(Input(k, TensorSpec(dtype, (size,), (1,))) for k, (dtype, size) in enumerate([("float32", 4), ("int64", 3), ("float32", 3)]))
    step = Call("aten::put_", (SlotRef(0), SlotRef(1), SlotRef(2), True), writes_input=True)
    launch = LaunchList(inputs, (), (), (), (), (step,), (), 0, 3)
    x = torch.ones(4)
    with pytest.raises(IndexError):
        PythonProgram(launch, find_code(launch, []))([x, OUTSIDE, torch.ones(3)])
    assert x.tolist() == [2, 2, 1, 1]


def caught(x, i, v):
    x.add_(1)
    try:
        return x[i] * v
    except ERRORS:
        return x * 3


def caught_above(x, i, v):
    def look_up(x, i):
        return x.add_(1)[i]

    try:
        return look_up(x, i)
    except ERRORS:
        return x * 3


def caught_where_it_writes(x, i, v):
    try:
        x.put_(i, v.detach(), accumulate=True)
    except ERRORS:
        x.mul_(10)
    return x + 1


def suppressed(x, i, v):
    x.add_(1)
    with contextlib.suppress(*ERRORS):
        x.index_add_(0, i, v.detach())
    return x * 3


def in_a_handler(x, i, v):
    x.add_(1)
    try:
        try:
            raise ValueError
        except ValueError:
            return x[i]
    except ERRORS:
        return x * 3


def caught_by_the_second_clause(x, i, v):
    x.add_(1)
    try:
        return x[i] * v
    except NotImplementedError:
        return x
    except (KeyError, IndexError, RuntimeError):
        return x * 3


def caught_around_a_mode(x, i, v):
    x.add_(1)
    try:
        with torch.no_grad():
            return x[i] * v.detach()
    except ERRORS:
        return x * 3


def caught_by_a_name_of_its_own(x, i, v):
    x.add_(1)
    kinds = ERRORS
    try:
        return x[i] * v
    except kinds:
        return x * 3


def caught_around_another_try(x, i, v):
    x.add_(1)
    try:
        try:
            return x[i] * v
        except KeyError:
            return x
    except ERRORS:
        return x * 3


def caught_of_a_number(x, i, v):
    x.add_(1)
    try:
        return x[i.max()] * v
    except ERRORS:
        return x * 3


def caught_where_it_writes_by_a_number(x, i, v):
    x.add_(1)
    try:
        x[i.max()] = v[0].detach()
    except ERRORS:
        return x * 3
    return x * v[0]


def caught_where_it_writes_by_a_mask(x, i, v):
    try:
        x[x * 4 > i.max()] = v.new_ones(4)
    except ERRORS:
        return x * 3
    return x * v[0]


def caught_of_a_count(x, i, v):
    x.add_(1)
    try:
        return x[x * 4 > i.max()].reshape(4) * v[0]
    except ERRORS:
        return x * 3


@pytest.mark.parametrize("wants_grad", [False, True])
@pytest.mark.parametrize("function", [
    caught, caught_above, caught_where_it_writes, suppressed, in_a_handler, caught_by_the_second_clause, caught_around_a_mode,
    caught_by_a_name_of_its_own, caught_around_another_try, caught_of_a_number, caught_where_it_writes_by_a_number, caught_of_a_count,
    caught_where_it_writes_by_a_mask,
])
def test_errors_after_a_write_are_caught_as_in_eager(function, wants_grad):
    assert_left_as_by_eager(function, wants_grad)
    assert any(event.reason.code == "TW120" for event in pipeline.journal.of_kind("graph_break"))


def behind_an_except(x, i, v):
    x.add_(1)
    try:
        raise KeyError
    except KeyError:
        return x[i] * v


def test_the_error_being_handled_is_the_context_of_one_after_a_write():
    compiled = thruway.compile(behind_an_except)
    for i in (OUTSIDE, INSIDE, OUTSIDE):
        for function in (behind_an_except, compiled):
            try:
                function(torch.ones(4), i, torch.ones(3))
            except IndexError as error:
                assert type(error.__context__) is KeyError and i is OUTSIDE
            else:
                assert i is INSIDE


def caught_without_a_write(x, i, v):
    try:
        return x[i] * v
    except ERRORS:
        return x * 3


def not_caught(x, i, v):
    x.add_(1)
    with torch.no_grad():
        return [x[i] for _ in range(1)][0]


def written_behind(x, i, v):
    try:
        made = x[i] * v
    except ERRORS:
        made = v
    x.add_(1)
    return made


def caught_as_what_it_is_not(x, i, v):
    x.add_(1)
    try:
        return x[i] * v
    except NotImplementedError:
        return x
    except (KeyError, TypeError) as error:
        return x * len(str(error))


def behind_an_except_that_is_left(x, i, v):
    x.add_(1)
    try:
        raise KeyError
    except KeyError:
        made = v * 2
    return x[i] * made


def a_slice_by_a_number(x, i, v):
    x.add_(1)
    try:
        return x[:i.max()].sum() * v
    except ERRORS:
        return x * 3


CONFIG = types.SimpleNamespace(is_causal=False)


def taken_back_in_the_end(x, i, v):
    CONFIG.is_causal = True
    x.add_(1)
    try:
        return x[i] * v
    finally:
        CONFIG.is_causal = False


def calls_in_the_end(x, i, v):
    x.add_(1)
    try:
        x.add_(v.sum() * x[i].sum())
    finally:
        made = torch.ones(3)
    return x * made[0]


@pytest.mark.parametrize("function", [
    caught_without_a_write, not_caught, written_behind, caught_as_what_it_is_not, taken_back_in_the_end, calls_in_the_end, a_slice_by_a_number,
    behind_an_except_that_is_left,
])
def test_other_functions_stay_one_graph(function):
    compiled = thruway.compile(function, fullgraph=True)
    assert torch.equal(compiled(torch.ones(4), INSIDE, torch.ones(3)), function(torch.ones(4), INSIDE, torch.ones(3)))
    assert_left_as_by_eager(function, False)
    assert not CONFIG.is_causal


def shifted(x, i, v):
    try:
        x[1:].copy_(x[:-1])
    except RuntimeError as error:
        return v, str(error)
    return x + 1


def sum_of_a_shifted_view(x, i, v):
    try:
        torch.add(x[1:], v, out=x[:-1])
    except RuntimeError as error:
        return v, str(error)
    return x + 1


def halves(x, i, v):
    """A near miss: the views share memory and no element."""
    try:
        x[:2].copy_(x[2:])
    except RuntimeError as error:
        return v, str(error)
    return x + 1


@pytest.mark.parametrize(("function", "breaks"), [(shifted, 0), (sum_of_a_shifted_view, 0), (halves, 0)])
def test_a_refusal_to_write_over_what_is_read_is_caught(function, breaks):
    compiled = thruway.compile(function)
    for _ in range(2):
        with torch.no_grad():
            expected, found = outcome(function, INSIDE, torch.ones(3)), outcome(compiled, INSIDE, torch.ones(3))
        assert str(found) == str(expected)
    assert thruway.metrics()["graph_breaks"] == breaks


def looked_up(table, i, log):
    log.append("before")
    return table(i) * 2


def looked_up_in_a_try(table, i, log):
    try:
        return table(i) * 2
    except ERRORS as error:
        log.append(str(error))
        return table.weight * 3


@pytest.mark.parametrize("wants_grad", [False, True])
@pytest.mark.parametrize("function", [looked_up, looked_up_in_a_try])
@pytest.mark.parametrize("make", [torch.nn.Embedding, torch.nn.EmbeddingBag, lambda *sizes: torch.nn.Embedding(*sizes, max_norm=0.5)])
def test_an_index_out_of_an_embedding_is_an_error_as_in_eager(make, function, wants_grad):
    """Those with a largest norm write their weights first."""
    def run(call, table, i):
        log = []
        try:
            return call(table, i, log).detach().tolist(), log, table.weight.tolist()
        except ERRORS as error:
            return str(error), log if function is looked_up_in_a_try or table.max_norm is None else None, table.weight.tolist()

    with torch.set_grad_enabled(wants_grad):
        tables = make(4, 3), make(4, 3)
        tables[1].load_state_dict(tables[0].state_dict())
        compiled = thruway.compile(function)
        for i in (OUTSIDE[None], INSIDE[None], OUTSIDE[None]):
            assert run(compiled, tables[1], i) == run(function, tables[0], i)
