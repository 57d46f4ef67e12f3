"""Programs written to find what breaks: each once gave another answer than eager, did not end, or cost an entry per call."""

from __future__ import annotations

import abc
import functools
import math
import threading
import types

import pytest
import torch
import torch.nn.functional as F
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


def count_entries(run, calls):
    """How often `run` is compiled anew over the calls, which must do what eager does."""
    compiled = thruway.compile(run)
    before = thruway.metrics()["recompiles"]
    for args in calls:
        assert str(outcome(compiled, args)) == str(outcome(run, args)), args
    return thruway.metrics()["recompiles"] - before


def outcome(run, args):
    try:
        return run(torch.ones(3), *args)
    except Exception as error:
        return type(error), str(error)


def test_floats_that_change_are_compared_and_divided_by_without_an_entry_each():
    def scaled(x, a, b):
        return x * (a * b) + a / b

    def scheduled(x, t):
        alpha = math.cos(t * math.pi / 2) ** 2
        weight = t if t < 0.5 else 1 - t
        return x * alpha + (1 - alpha) ** 0.5, weight, x * min(1.0, t * 2), abs(t), math.sqrt(t)

    def warmed_up(x, step):
        rate = min(1.0, step / 10)
        return x * rate, 0.9 ** step, rate

    def guided(x, scale):
        return x * scale if scale else x

    assert count_entries(scaled, [(0.1 * i, 1.0 + i) for i in range(8)] + [(1.0, 0.0)]) <= 2
    assert count_entries(scheduled, [(0.1 * i,) for i in range(1, 10)]) <= 2
    assert count_entries(scheduled, [(0.3,), (0.4,), (-0.5,), (float("nan"),), (0.2,)]) <= 4
    assert count_entries(warmed_up, [(i,) for i in range(20)]) <= 3
    assert count_entries(guided, [(0.1 * i,) for i in range(8)]) <= 1


def test_functions_that_fail_for_some_numbers_fail_for_those_alone():
    def run(x, t):
        return x / t, 1.0 / t, math.log(t), math.exp(t) * x, t ** 2, t ** -1.5

    assert count_entries(run, [(0.1 * i,) for i in range(1, 8)] + [(0.0,), (-1.0,), (1e5,), (2.0,)]) <= 4


def test_methods_take_floats_that_change():
    def run(x, rate):
        made = x.mul(rate).add(rate)
        made.mul_(rate).div_(rate + 1)
        return made, torch.sub(made, rate), torch.gt(x, rate), x.half().mul(rate), x.int().add(rate), x.sub_(rate)

    assert count_entries(run, [(0.1 * i,) for i in range(1, 8)]) <= 1


def test_operators_that_write_in_place_where_little_is_known_of_them():
    def into_complex(x, made):
        return torch.add(x, 2, out=made)

    def complex_part(x, made):
        made[0] = 2
        return made * x

    def filled(x, n):
        x.fill_(n)
        return x

    def run_up(x):
        x.cumsum_(0)
        return x, x[:1].var(0), x[0].var(0)

    def turned(x):
        made = torch.cat([x, x])
        made.transpose_(0, 1)
        return made, made.shape[1]

    made = torch.complex(torch.ones(3), torch.ones(3))
    assert_same(into_complex, torch.ones(3), made.clone())
    assert_same(complex_part, torch.ones(3), made.clone())
    assert_same(run_up, torch.arange(5.0))
    assert_same(run_up, torch.arange(5, dtype=torch.bfloat16))
    for run, calls in ((filled, [(torch.ones(n), n) for n in range(2, 7)]), (run_up, [(torch.ones(n),) for n in range(2, 7)]),
                       (turned, [(torch.ones(n, 3),) for n in range(2, 7)])):
        compiled, before = thruway.compile(run), thruway.metrics()["recompiles"]
        for args in calls:
            assert str(compiled(*(one.clone() if isinstance(one, torch.Tensor) else one for one in args))) == str(run(*args))
        assert thruway.metrics()["recompiles"] - before <= 1


def test_writes_to_what_nobody_reads_still_check_where_they_write():
    def scattered(x, index):
        x.clone().scatter_(1, index, 2)
        return x + 1

    def indexed(x, index):
        made = x.clone()
        made[:, index[0]] = 3
        return x + 1

    def added(x, index):
        made = x.clone()
        made.index_add_(1, index[0], x)
        return x + 1

    for run in (scattered, indexed, added):
        for index in ([[0, 2, 1]], [[0, 3, 1]]):
            assert_same(run, torch.ones(1, 3), torch.tensor(index))


def test_an_alias_that_leaves_before_what_it_aliases_is_another_object():
    def run(x):
        made = x.unsqueeze(1)
        return made.detach(), made, (x * 2).detach()

    first, second, _ = thruway.compile(run)(torch.ones(3))
    assert first is not second and first.data_ptr() == second.data_ptr()
    assert_same(run, torch.ones(3))


def test_one_of_several_views_whose_base_was_written():
    def run(x):
        x = x * 1
        first, second = x.unbind(0)
        x.mul_(2)
        return first.view(7)

    assert_same(run, torch.ones(2, 3, requires_grad=True))


def test_checks_are_made_for_what_is_not_read_and_after_inputs_were_written():
    def part(x, index):
        return x[index][0] * 2

    def divided(x):
        less = x + 1
        x.view(-1)[0] = 3
        return x // less

    for index in ([0, 1], [0, 5]):
        assert_same(part, torch.ones(3, 2), torch.tensor(index))
    before = thruway.metrics()["bugs"]
    assert_same(divided, torch.tensor([5, 6]))
    assert_same(divided, torch.tensor([-1, 6]))
    assert thruway.metrics()["bugs"] == before


def test_sine_of_a_single_number():
    before = thruway.metrics()["bugs"]
    for run in (lambda x: x.amax().sin(), lambda x: x.sum().cos() + 1, lambda x: x[0].sin()):
        assert_same(run, torch.rand(5))
        assert_same(run, torch.rand(5) * 1e6)
    assert thruway.metrics()["bugs"] == before


def test_integers_have_no_negative_zero():
    def run(x):
        return x.to(torch.int64).rsqrt(), x.int().float(), 1 / x.to(torch.int32), torch.copysign(torch.ones(4), x.long()), x.short().double().reciprocal()

    x = torch.tensor([-0.5, 0.5, -0.0, 2.5])
    for expected, found in zip(run(x), thruway.compile(run)(x)):
        assert torch.equal(expected, found) and torch.equal(expected.signbit(), found.signbit())


def test_truth_values_added_up_in_place_stay_truth_values():
    def run(x):
        x.index_put_((torch.tensor([0, 0]),), x[:1].clone(), accumulate=True)
        return x.count_nonzero(1)

    assert_same(run, torch.tensor([[True, False, True]]))


def test_sizes_read_before_an_input_changes_its_sizes():
    def run(x):
        doubled = x @ x.mT
        x.unsqueeze_(0)
        return len(doubled), x.shape[0]

    compiled = thruway.compile(run)
    for n in (8, 11, 13):
        assert compiled(torch.ones(n, 2)) == (n, 1)


def test_a_cell_that_a_continuation_got_lives_through_a_branch():
    missing = types.FunctionType

    def run(x, y):
        functools.lru_cache(lambda t: t)
        if x.sum() > 1:
            def outer():
                def inner():
                    return y
                return inner
        return missing()

    before = thruway.metrics()["bugs"]
    assert_same(run, torch.ones(3), torch.ones(1))
    assert thruway.metrics()["bugs"] == before


def test_max_pool1d_of_a_transposed_input_is_contiguous_without_gradients():
    def run(x):
        pool = torch.nn.functional.max_pool1d
        return pool(x.mT, 3, 2, 1), torch.nn.MaxPool1d(2, ceil_mode=True)(x.mT), torch.max_pool1d(x, 2), pool(x.mT, 2, return_indices=True)

    assert_same(run, torch.rand(2, 8, 4))
    assert_same(run, torch.rand(2, 8, 4, requires_grad=True))


def test_attributes_of_a_thread_are_read_in_that_thread():
    held = threading.local()

    def run(x):
        held.number = getattr(held, "number", 0) + 1
        return x + held.number

    compiled = thruway.compile(run)
    assert [compiled(torch.zeros(1)).item() for _ in range(3)] == [1.0, 2.0, 3.0]


def test_a_piece_of_a_copy_is_written_and_not_what_was_copied():
    def split(x):
        piece = x.clone().split(2, 0)[0]
        piece.fill_(1)
        return piece

    def unbound(x):
        first, *_ = x.clone().unbind(0)
        first.add_(1)
        return first

    def chunked(x):
        made = x.clone()
        made.chunk(2, 1)[1].mul_(3)
        return made

    for run in (split, unbound, chunked):
        for rows in (1, 4):
            assert_same(run, torch.rand(rows, 3))


@pytest.mark.parametrize("function", [
    lambda x: F.rrelu(x, training=True), lambda x: F.rrelu(x * 1, 0.1, 0.3, training=True, inplace=True) + x,
    lambda x: (noise := torch.empty_like(x), torch.ops.aten.rrelu_with_noise(x, noise, 0.1, 0.3, True), noise * 2)[1:],
    lambda x: (mean := torch.zeros(3), torch._native_batch_norm_legit(x, None, None, mean, torch.ones(3), True, 0.1, 1e-5), mean + 1)[1:],
])
def test_an_operator_that_writes_an_argument_and_gives_something_else(function):
    assert_same(function, torch.randn(4, 3, 5), graphs=1)


def test_nested_tensors_of_the_encoders_fast_path():
    encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval()
    x, padded = torch.randn(2, 5, 16), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    compiled = thruway.compile(encoder)
    with torch.inference_mode():
        for _ in range(2):
            torch.testing.assert_close(compiled(x, src_key_padding_mask=padded), encoder(x, src_key_padding_mask=padded))


@pytest.mark.parametrize("split", [torch.unsafe_chunk, torch.unsafe_split, torch.chunk, lambda x, n: torch.unsafe_split_with_sizes(x, [n, 5 - n])])
def test_parts_of_a_copy_that_leave_are_no_parts_of_the_input(split):
    assert_same(lambda x: split(x * 1, 2), torch.ones(5, 2))
    assert_same(lambda x: split(x.clone(), 2)[0].zero_(), torch.ones(5, 2))

    def written(x):
        whole = x * 2
        split(whole, 2)[0].add_(1)
        return whole
    assert_same(written, torch.ones(5, 2))


def test_complex_numbers_of_numbers_that_change():
    compiled = thruway.compile(lambda x, n: (x + 1, complex(n, 1), complex(n, 2.5) * 2, complex(1, n), complex(n)))
    for n in (1, 2, 3, 0.5, 1.5, 2.5):
        assert compiled(torch.ones(2), n)[1:] == (complex(n, 1), complex(n, 2.5) * 2, complex(1, n), complex(n))
