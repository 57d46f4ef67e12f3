"""Every rule against eager on real CPU tensors: sizes, strides, dtype, offset of views; and never accept what eager rejects."""

from __future__ import annotations

import random
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from thruway.core.errors import Unsupported
from thruway.shapes.infer import RULES, infer
from thruway.shapes.meta import TensorMeta
from thruway.shapes.names import device_name, dtype_name
from thruway.shapes.traits import traits_of

from shapes.calls import CALLS
from shapes.samples import Sampler, overload

# Rules without a sampler here: random operators, packed operators and such, tested through retraced programs.
LAYOUT_VARIES = {
    "aten::huber_loss": "strides of dimensions of size one",
    "aten::angle": "of complex",
    "aten::rms_norm": "with a weight of another dtype eager takes another path",
    "aten::scaled_dot_product_attention": "of three dimensions, by the kernel chosen",
}


def metas(value):
    if isinstance(value, torch.Tensor):
        return TensorMeta(tuple(value.shape), value.stride(), dtype_name(value.dtype), device_name(value.device), False, value.storage_offset())
    if isinstance(value, (list, tuple)):
        return type(value)(metas(v) for v in value)
    if isinstance(value, dict):
        return {k: metas(v) for k, v in value.items()}
    return value


def flat(value) -> list:
    return [x for v in value for x in flat(v)] if isinstance(value, (list, tuple)) else [value]


def run(op, args, kwargs):
    """What eager gives, or None where it raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return flat(op(*args, **kwargs))
    except (RuntimeError, IndexError, TypeError, NotImplementedError, ValueError, ZeroDivisionError):
        return None


def guess(op, args, kwargs):
    try:
        return flat(infer(op, metas(args), metas(kwargs)))
    except Unsupported:
        return None


def assert_like(name: str, guessed, real, view: bool) -> None:
    assert len(guessed) == len(real)
    for g, r in zip(guessed, real):
        if not isinstance(r, torch.Tensor):
            assert g == r
            continue
        assert (g.sizes, g.dtype) == (tuple(r.shape), str(r.dtype).removeprefix("torch."))
        if r.numel() and name not in LAYOUT_VARIES:
            assert g.strides == r.stride()
            assert not view or g.offset == r.storage_offset()


@pytest.mark.parametrize("name", sorted(CALLS))
def test_rule_agrees_with_eager(name):
    op = overload(name)
    agreed = 0
    for seed in range(40):
        args, kwargs = CALLS[name](Sampler(random.Random(seed)))
        guessed = guess(op, args, kwargs)
        if guessed is None:
            continue
        real = run(op, args, kwargs)
        assert real is not None, f"{op} accepts what eager rejects: {metas(args)} {kwargs}"
        assert_like(name, guessed, real, traits_of(op).view_of is not None)
        agreed += 1
    assert agreed >= 8, "the rule refuses nearly everything"


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(set(CALLS) - {"aten::logical_and", "aten::logical_or", "aten::logical_xor", "aten::convolution"})), st.integers(1000, 10**6))
def test_rules_on_other_calls(name, seed):
    op = overload(name)
    args, kwargs = CALLS[name](Sampler(random.Random(seed)))
    guessed = guess(op, args, kwargs)
    if guessed is not None:
        real = run(op, args, kwargs)
        assert real is not None, f"{op} accepts what eager rejects: {metas(args)} {kwargs}"
        assert_like(name, guessed, real, traits_of(op).view_of is not None)


@pytest.mark.parametrize("of_x", ["whole", "transposed", "sliced"])
@pytest.mark.parametrize("of_weight", ["whole", "transposed"])
@pytest.mark.parametrize("batch, channels, length, kernel, groups", [(1, 8, 16, 3, 1), (2, 8, 16, 1, 1), (2, 8, 16, 4, 8), (1, 1, 40, 10, 1), (2, 8, 1, 1, 2)])
def test_a_convolution_of_sequences_copies_transposed_ones(batch, channels, length, kernel, groups, of_x, of_weight):
    x, weight = torch.randn(batch, channels, length), torch.randn(8, channels // groups, kernel)
    x = {"whole": x, "transposed": x.mT.contiguous().mT, "sliced": torch.randn(batch, channels, length + 1)[..., :length]}[of_x]
    weight = weight if of_weight == "whole" else weight.mT.contiguous().mT
    args = (x, weight, None, [1], [0], [1], False, [0], groups)
    (guessed,), real = guess(torch.ops.aten.convolution.default, args, {}), torch.ops.aten.convolution.default(*args)
    assert guessed.sizes == tuple(real.shape)
    assert all(g == r for g, r, size in zip(guessed.strides, real.stride(), real.shape) if size > 1)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("heads", [(4, 1, 1), (4, 4, 4), (1, 4, 4), (4, 1, 4), (4, 4, 1)])
def test_attention_of_shared_heads(heads, masked):
    q, k, v = (torch.randn(2, 10, h, 8).transpose(1, 2) for h in heads)
    args = (q, k, v, torch.ones(2, 1, 10, 10, dtype=torch.bool) if masked else None)
    (guessed,), real = guess(torch.ops.aten.scaled_dot_product_attention.default, args, {}), torch.nn.functional.scaled_dot_product_attention(*args)
    assert (guessed.sizes, guessed.strides) == (tuple(real.shape), real.stride())
    assert guess(torch.ops.aten._fused_sdp_choice.default, args, {}) == [torch._fused_sdp_choice(*args)]


@pytest.mark.parametrize("needed, averaged", [(False, True), (True, True), (True, False)])
def test_multi_head_attention_gives_its_weights_where_they_are_needed(needed, averaged):
    x, weight, square = torch.randn(2, 5, 8), torch.randn(24, 8), torch.randn(8, 8)
    args = (x, x, x, 8, 2, weight, torch.randn(24), square, torch.randn(8), None, needed, averaged)
    guessed, real = guess(torch.ops.aten._native_multi_head_attention.default, args, {}), torch.ops.aten._native_multi_head_attention.default(*args)
    assert [g and (g.sizes, g.strides) for g in guessed] == [None if r is None else (tuple(r.shape), r.stride()) for r in real]


def test_every_rule_names_an_operator():
    for name in RULES:
        try:
            op = overload(name)
        except AttributeError:
            assert name.split("::")[0] in ("mkldnn", "mkl"), name
        else:
            assert op._name == name


@pytest.mark.parametrize("name", ["relu", "add.Tensor", "mul.Tensor", "sin", "masked_fill.Scalar", "clamp", "index_copy", "scatter.value", "lt.Tensor"])
def test_in_place_forms(name):
    """The in-place form takes the same call where the result fits, and gives its first argument."""
    base, _, over = name.partition(".")
    op = getattr(getattr(torch.ops.aten, base + "_"), over or "default")
    for seed in range(60):
        args, kwargs = CALLS[f"aten::{name}"](Sampler(random.Random(seed)))
        target = args[0].clone()
        guessed = guess(op, (target, *args[1:]), kwargs)
        if guessed is not None:
            real = run(op, (target, *args[1:]), kwargs)
            assert real is not None, f"{op} accepts what eager rejects: {metas(args)}"
            assert_like(f"aten::{name}", guessed, real, False)


def test_out_forms():
    x = torch.ones(2, 3)
    for out in (torch.empty(2, 3), torch.empty(0), torch.empty(3, 2).t()):
        made = infer(torch.ops.aten.add.out, metas((x, 1)), {"out": metas(out)})
        real = torch.add(x, 1, out=out)
        assert (made.sizes, made.strides) == (tuple(real.shape), real.stride())
    with pytest.raises(Unsupported):
        infer(torch.ops.aten.add.out, metas((x, 1.5)), {"out": metas(torch.empty(2, 3, dtype=torch.int64))})


def test_the_slow_way_gives_the_same_as_eager():
    x = torch.ones(3, 4)
    for op, args in [(torch.ops.aten.trace.default, (x,)), (torch.ops.aten.cross.default, (torch.ones(2, 3), torch.ones(2, 3))),
                     (torch.ops.aten.renorm.default, (x, 2, 0, 1.0))]:
        made, real = flat(infer(op, metas(args))), flat(op(*args))
        assert [(m.sizes, m.dtype, m.device) for m in made] == [(tuple(r.shape), "float32", "cpu") for r in real]


@pytest.mark.parametrize("dim", [0, 1, 2, 3, 4, -1])
@pytest.mark.parametrize("make", [lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), lambda: torch.randn(2, 3, 4, 5),
                                  lambda: torch.randn(5, 4, 3, 2).permute(3, 2, 1, 0), lambda: torch.randn(1, 3, 1, 1), lambda: torch.randn(0, 3, 4, 5)])
@pytest.mark.parametrize("count", [1, 2])
def test_stacks_are_laid_out_as_their_catenation(count, make, dim):
    args = ([make() for _ in range(count)], dim)
    (guessed,), real = guess(torch.ops.aten.stack.default, args, {}), torch.stack(*args)
    assert (guessed.sizes, guessed.strides) == (tuple(real.shape), real.stride())


@pytest.mark.parametrize("x", [torch.randn(1, 5).t(), torch.randn(5, 1), torch.randn(4, 5).t(), torch.randn(3, 1, 1, 5).permute(0, 3, 1, 2)])
def test_a_number_to_choose_from_counts_as_a_tensor(x):
    for op, args in ((torch.ops.aten.where.ScalarOther, (x > 0, x, 0)), (torch.ops.aten.where.ScalarSelf, (x > 0, 1.0, x)),
                     (torch.ops.aten.where.self, (x > 0, x, x))):
        (guessed,) = guess(op, args, {})
        assert guessed.strides == op(*args).stride()
