"""Kinds of code that whole models brought: caches that grow, code that asks whether it is compiled, ranges of integers between floats, complex views."""

from __future__ import annotations

import abc
import contextlib
import contextvars
import copy
import functools
from collections.abc import Iterable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

import thruway
from thruway.shapes.rules.create import COUNTS_BY_FLOATS


@pytest.fixture(autouse=True)
def fresh():
    thruway.reset()
    yield
    thruway.reset()


class Attention(nn.Module):
    """One layer of decoding; `written_out` multiplies matrices where torch's fused kernel would do."""

    def __init__(self, written_out: bool):
        super().__init__()
        self.project, self.written_out = nn.Linear(8, 24), written_out

    def forward(self, x, cache):
        q, k, v = self.project(x).view(1, -1, 3, 2, 4).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        if self.written_out:
            out = (q @ k.transpose(2, 3)).softmax(-1) @ v
        else:
            out = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + out.transpose(1, 2).flatten(2), (k, v)


class Decoder(nn.Module):
    def __init__(self, written_out: bool):
        super().__init__()
        self.layers = nn.ModuleList(Attention(written_out) for _ in range(2))

    def forward(self, x, cache, mask=None):
        made = []
        for layer, old in zip(self.layers, cache or [None, None]):
            x, new = layer(x, old)
            made.append(new)
        return x if mask is None else x * mask.sum(-1, keepdim=True), made


@pytest.mark.parametrize("written_out", [False, True])
@pytest.mark.parametrize("with_mask", [False, True])
def test_caches_that_grow_together_are_one_size(written_out, with_mask):
    """Four tensors whose second size is the same number at each call; the mask is one longer."""
    torch.manual_seed(0)
    model = Decoder(written_out).eval()
    compiled = thruway.compile(model)
    x = torch.randn(1, 5, 8)
    with torch.no_grad():
        expected, cache = model(x, None)
        for step in range(6):
            mask = torch.ones(1, 6 + step) if with_mask else None
            one = expected[:, -1:]
            expected, expected_cache = model(one, cache, mask)
            got, cache = compiled(one, cache, mask)
            torch.testing.assert_close(got, expected)
            torch.testing.assert_close(cache, expected_cache)
    counted = thruway.metrics()
    assert counted["eager"] == counted["bugs"] == counted["graph_breaks"] == 0
    assert counted["graphs"] == 2                                    # the first call, and one for all lengths


def test_sizes_that_differ_after_all_are_told_apart():
    def f(a, b):
        return (a * 2).sum(), torch.cat([a, b]) if a.shape == b.shape else a.sum() - b.sum()

    compiled = thruway.compile(f)
    for m, n in ((3, 3), (4, 4), (5, 5), (5, 6), (7, 7), (8, 6)):
        a, b = torch.randn(m), torch.randn(n)
        torch.testing.assert_close(compiled(a, b), f(a, b))


def raising_when_compiled(x, mask):
    if mask is None and not torch.compiler.is_compiling():
        mask = torch.ones_like(x)
    return x * mask[0]


def test_code_that_raises_only_when_it_is_compiled_takes_the_road_of_eager():
    x = torch.randn(2, 3)
    compiled = thruway.compile(raising_when_compiled, fullgraph=True)
    torch.testing.assert_close(compiled(x, None), x)


def test_the_answer_is_the_same_after_a_break():
    """The error would be made by the continuation, and be let go by its `finally`, where it breaks again."""
    held = contextvars.ContextVar("held")

    @contextlib.contextmanager
    def broken_around():
        token = held.set(1)
        try:
            yield
        finally:
            held.reset(token)
            torch.seed()

    def f(x, mask=None):
        with broken_around():
            x = raising_when_compiled(x, mask)
        return x + 1

    x = torch.randn(2, 3)
    torch.testing.assert_close(thruway.compile(f)(x), x + 1)


def test_an_error_of_the_code_itself_is_raised_all_the_same():
    def f(x, rows=None):
        torch.compiler.is_compiling()
        return x * rows[0]

    with pytest.raises(TypeError, match="not subscriptable"):
        thruway.compile(f)(torch.ones(2))


class AnswersByCode(abc.ABCMeta):
    def __instancecheck__(cls, instance):
        return super().__instancecheck__(instance)

    def __subclasscheck__(cls, below):
        return super().__subclasscheck__(below)


def test_an_abstract_class_whose_hook_says_yes_asks_nothing_that_is_derived_from_it():
    """A library that derives from Iterable must not end the capture of every ModuleList."""
    class Derived(Iterable, metaclass=AnswersByCode):
        __iter__ = None

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            for layer in self.layers[1:]:
                x = layer(x)
            return x if isinstance([x], Iterable) and Derived else None

    model, x = Model(), torch.ones(2, 4)
    with torch.no_grad():
        torch.testing.assert_close(thruway.compile(model, fullgraph=True)(x), model(x))


SMALLEST_STEP = 0.1 if COUNTS_BY_FLOATS else 1          # torch 2.11 itself dies of integer steps that round to 0
bounds = st.one_of(st.integers(-9, 9), st.floats(-9, 9, width=16))


@settings(max_examples=20, deadline=None)
@given(bounds, bounds, bounds, st.sampled_from([torch.int64, torch.int32]))
def test_ranges_of_integers_between_floats(start, end, step, dtype):
    assume(abs(step) >= SMALLEST_STEP and any(isinstance(one, float) for one in (start, end, step)) and (end - start) * step >= 0)

    def f(x):
        return torch.arange(start, end, step, dtype=dtype) * 2, x + 1

    got, _ = thruway.compile(f)(torch.ones(2))
    assert torch.equal(got, f(torch.ones(2))[0])
    assert not COUNTS_BY_FLOATS or thruway.metrics()["eager"] == 0


def test_complex_numbers_as_pairs_and_pairs_as_complex_numbers():
    """The tokens of a transform, and rotations by complex multiplication."""
    def f(x, angles):
        mixed = torch.fft.fftn(x, dim=(1, 2)).real
        turned = torch.view_as_complex(x.reshape(2, 4, 3, 2)) * torch.polar(torch.ones_like(angles), angles)
        return mixed + x, torch.view_as_real(turned).flatten(2) * 2

    x, angles = torch.randn(2, 4, 6), torch.rand(4, 3)
    torch.testing.assert_close(thruway.compile(f, fullgraph=True)(x, angles), f(x, angles))
    assert thruway.metrics()["eager"] == 0


def test_a_complex_view_that_is_written_through_stays_a_view():
    def f(x):
        pairs = torch.view_as_real(x)
        pairs.mul_(2)
        return x + 1

    a = torch.randn(3, dtype=torch.complex64)
    b = a.clone()
    torch.testing.assert_close(thruway.compile(f)(a), f(b))
    torch.testing.assert_close(a, b)


class StaticLayer(nn.Module):
    """A cache of fixed length that counts for itself how much of it is filled, as decoders keep it."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 4)
        self.register_buffer("keys", torch.zeros(1, 8, 4))
        self.register_buffer("filled", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        at = torch.arange(x.shape[1]) + self.filled
        self.keys.index_copy_(1, at, self.project(x))
        self.filled.add_(x.shape[1])
        return x + (x @ self.keys.transpose(1, 2)).softmax(-1) @ self.keys


def static_layers():
    torch.manual_seed(0)
    return nn.Sequential(*[StaticLayer() for _ in range(3)]).eval()


def test_places_in_caches_are_checked_before_any_cache_is_written():
    model, expected = static_layers(), static_layers()
    compiled = thruway.compile(model)
    with torch.no_grad():
        for length in (2, 1, 1, 1):
            x = torch.randn(1, length, 4)
            torch.testing.assert_close(compiled(x), expected(x))
        torch.testing.assert_close(dict(model.named_buffers()), dict(expected.named_buffers()))
        assert thruway.metrics()["eager"] == 0
        before = {name: buffer.clone() for name, buffer in model.named_buffers() if not name.startswith("0")}
        model[2].filled.fill_(8)
        with pytest.raises((IndexError, RuntimeError)):
            compiled(torch.randn(1, 1, 4))
    assert torch.equal(model[2].keys, before["2.keys"])


def test_types_of_python_as_dtypes():
    def f(x):
        return x + torch.tensor([-1, 2], dtype=int), x.to(float), torch.zeros(2, dtype=bool)

    x = torch.randn(2)
    for backend in ("eager", "thruway"):
        torch.testing.assert_close(thruway.compile(f, fullgraph=True, backend=backend)(x), f(x))


class Routed(StaticLayer):
    """The second place is found among values that the kernel writing the cache computes for itself."""

    def forward(self, x):
        at = (self.filled * 2) % 8
        self.keys[0, at] += self.project(x)[0, 0]
        self.keys[0, (at + 1) % 8] = x[0, 0]
        return self.keys * x[0, 0]


def test_places_that_a_kernel_computes_for_itself():
    torch.manual_seed(0)
    model = nn.Sequential(Routed(), Routed()).eval()
    expected = copy.deepcopy(model)
    compiled = thruway.compile(model)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(1, 2, 4)
            torch.testing.assert_close(compiled(x), expected(x))
    torch.testing.assert_close(dict(model.named_buffers()), dict(expected.named_buffers()))
    assert thruway.metrics()["bugs"] == 0


def test_elements_of_tensors_made_of_constants_are_known():
    """Sizes, bounds and slices that models compute in small tensors."""
    def f(x):
        width = torch.tensor(min(x.shape[1], 100))
        chunk = torch.div(x.shape[1], 4, rounding_mode="trunc")
        counts = torch.tensor([2, 1, 3]).cumsum(0)
        y = x.view(x.shape[0], 4, chunk).clamp(-width, width * 2 - 1)
        y = y.as_strided(size=[2, 4, torch.div(x.shape[1], 8, rounding_mode="floor")], stride=[12, 3, 1])
        parts = x[:, width - 4:width - 1], x[:, counts[0]:counts[-1].item()], x * counts.max(), max(chunk, width - 2) * x
        return y, *parts, float(counts[1]), counts.tolist(), [i for i in range(int(chunk))], x if counts[0] > 1 else -x

    x = torch.randn(2, 12)
    for backend in ("eager", "thruway"):
        compiled = thruway.compile(f, backend=backend, fullgraph=True)
        torch.testing.assert_close(compiled(x), f(x))
        assert thruway.metrics()["eager"] == 0


def test_elements_that_are_written_are_not_known():
    def f(x):
        at = torch.zeros(3, dtype=torch.long)
        alias = at[1:]
        at[1] += x.long().sum()
        total = torch.tensor(0)
        total += at[0]
        return x * 2 if alias[0] > 3 else x - total, at.tolist()

    compiled = thruway.compile(f)
    for fill in (1.0, 2.0, 0.0):
        x = torch.full((3,), fill)
        torch.testing.assert_close(compiled(x), f(x))


def test_many_pieces_are_catenated_by_the_operator():
    """Detection puts the boxes of ninety classes together: kernels of that many pieces took minutes to make."""
    def f(x, n):
        pieces = [x[:, : n + i % 3] * i for i in range(90)]
        return torch.cat(pieces, 1) + 1, torch.cat([x * i for i in range(90)])

    compiled = thruway.compile(f, dynamic=True, fullgraph=True)
    for n in (3, 4, 5):
        x = torch.randn(2, 8)
        torch.testing.assert_close(compiled(x, n), f(x, n))
    assert thruway.metrics()["eager"] == 0 and sum(thruway.metrics()["seconds"].values()) < 60


def checked(cls):
    """A decorator whose methods live in closures, as strict dataclasses make them."""
    plain, log = cls.__setattr__, []

    def __setattr__(self, name, value):
        for check in self.checks.get(name, []):
            check(value)
        log.append(name)
        plain(self, name, value)
    cls.__setattr__, cls.log = __setattr__, log
    return cls


def positive(value):
    if value <= 0:
        raise ValueError(value)


@checked
class Config:
    checks = {"width": [positive]}

    def __init__(self, width):
        self.width = width


def test_a_copied_configuration_is_written_through_its_class():
    def f(x, config):
        other = copy.deepcopy(config)
        setattr(other, "width", config.width + 1)
        try:
            other.width = -1
        except ValueError:
            x = x + 1
        return x * other.width

    config, x = Config(3), torch.randn(2)
    compiled = thruway.compile(f)
    for _ in range(2):
        torch.testing.assert_close(compiled(x, config), f(x, config))
    assert thruway.metrics()["graph_breaks"] == 0
    config.width = 5
    torch.testing.assert_close(compiled(x, config), f(x, config))
    assert Config.log.count("width") > 4


@functools.lru_cache
def is_available():
    return True


@functools.lru_cache
def is_at_least(version, strict=False):
    return version < "3" and not strict


def test_the_first_and_only_answers_of_bounded_caches():
    """Libraries ask so what else is installed; the first call of all leaves the answers."""
    def f(x):
        if is_available() and is_at_least("2.9") and not is_at_least("4", strict=True):
            return x * 2
        return x - 1

    is_available.cache_clear()
    is_at_least.cache_clear()
    compiled, x = thruway.compile(f), torch.randn(2)
    for _ in range(4):
        torch.testing.assert_close(compiled(x), x * 2)
    assert thruway.metrics()["graph_breaks"] == 0 and thruway.metrics()["graphs"] == 1 and thruway.metrics()["postponed"] == 1
