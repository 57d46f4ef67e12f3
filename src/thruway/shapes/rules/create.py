"""Factories, copies and conversions: results with no operand's elements, or one operand's elements in another layout or dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch

from thruway.core.sizes import SizeLike
from thruway.shapes.meta import TensorMeta
from thruway.shapes.names import default_dtype, device_name, dtype_name
from thruway.shapes.refuse import expect, is_checked, require
from thruway.shapes.rules.dims import fresh, fresh_as_suggested
from thruway.shapes.rules.promote import category, number_dtype
from thruway.shapes.rules.strides import (
    CHANNELS_LAST_ORDER,
    channels_last_strides,
    contiguous_strides,
    equals,
    is_contiguous,
    preserved_strides,
    suggests_channels_last,
)

Rule = Callable[..., object]


def _options(options: dict[str, object], dtype: str) -> tuple[str, str]:
    layout, device = options.get("layout"), options.get("device")
    require(layout in (None, torch.strided), f"layout {layout}")
    require(not options.get("pin_memory"), "pinned memory")
    named = options.get("dtype")
    return (dtype if named is None else dtype_name(named)), device_name("cpu" if device is None else device)


def strides_in(sizes: tuple[SizeLike, ...], memory_format: object) -> tuple[SizeLike, ...]:
    if memory_format is torch.channels_last or memory_format is torch.channels_last_3d:
        require(len(sizes) == (4 if memory_format is torch.channels_last else 5), f"{memory_format} of {len(sizes)} dimensions")
        return channels_last_strides(sizes)
    require(memory_format in (None, torch.contiguous_format), f"{memory_format} for a fresh tensor")
    return contiguous_strides(sizes)


def _made(sizes: Sequence[SizeLike], options: dict[str, object], dtype: str | None = None) -> TensorMeta:
    for size in sizes:
        expect(size, ">=", 0, f"sizes {tuple(sizes)}")
    name, device = _options(options, dtype or default_dtype())
    return TensorMeta(tuple(sizes), strides_in(tuple(sizes), options.get("memory_format")), name, device)


def _zeros(sizes: Sequence[SizeLike], **options: object) -> TensorMeta:
    return _made(sizes, options)


def _random(sizes: Sequence[SizeLike], *, generator: object = None, **options: object) -> TensorMeta:
    return _made(sizes, options)


def _full(sizes: Sequence[SizeLike], value: object, **options: object) -> TensorMeta:
    return _made(sizes, options, number_dtype(value))


def _randint(*args: object, generator: object = None, **options: object) -> TensorMeta:
    return _made(args[-1], options, "int64")


def _randperm(n: SizeLike, *, generator: object = None, **options: object) -> TensorMeta:
    return _made((n,), options, "int64")


def _scalar_tensor(value: object, **options: object) -> TensorMeta:
    return _made((), options)


# Whether torch counts the integers between float bounds by the floats; torch 2.11 cut the bounds first.
COUNTS_BY_FLOATS = torch.arange(1.5, 0, -1, dtype=torch.int64).numel() == 2


def _arange(*args: object, **options: object) -> TensorMeta:
    start, end, step = (0, args[0], 1) if len(args) == 1 else (args[0], args[1], args[2] if len(args) > 2 else options.pop("step", 1))
    integral = not any(isinstance(a, float) for a in (start, end, step))
    require(step != 0 and (end >= start if step > 0 else end <= start), f"arange from {start} to {end} by {step}")
    wanted = options.get("dtype")
    if integral:
        length = (end - start + step - 1) // step if step > 0 else (start - end - step - 1) // -step
    else:
        require(COUNTS_BY_FLOATS or wanted is None or wanted.is_floating_point, "integers between float bounds")
        length = math.ceil((end - start) / step)
    require(wanted is None or category(dtype_name(wanted)) in (1, 2), f"arange of {wanted}")
    return _made((length,), options, "int64" if integral else default_dtype())


def _linspace(start: object, end: object, steps: int, **options: object) -> TensorMeta:
    expect(steps, ">=", 0, f"linspace of {steps}")
    return _made((steps,), options, number_dtype(0.0 if not isinstance(start, complex) and not isinstance(end, complex) else 0j))


def _eye(n: SizeLike, m: SizeLike | None = None, **options: object) -> TensorMeta:
    return _made((n, n if m is None else m), options)


def _empty_strided(sizes: Sequence[SizeLike], strides: Sequence[SizeLike], **options: object) -> TensorMeta:
    return replace(_made(sizes, options), strides=tuple(strides))


def _like(x: TensorMeta, *_: object, generator: object = None, memory_format: object = None, **options: object) -> TensorMeta:
    """`*_like`: x's layout unless another is asked for."""
    dtype, _ = _options(options, x.dtype)
    device = x.device if options.get("device") is None else device_name(options["device"])
    return TensorMeta(x.sizes, copied_strides(x, memory_format), dtype, device)


def copied_strides(x: TensorMeta, memory_format: object) -> tuple[SizeLike, ...]:
    if memory_format is None or memory_format is torch.preserve_format:
        return preserved_strides(x.sizes, x.strides)
    return strides_in(x.sizes, memory_format)


def _new(x: TensorMeta, sizes: Sequence[SizeLike], *_: object, **options: object) -> TensorMeta:
    dtype, _ = _options(options, x.dtype)
    device = x.device if options.get("device") is None else device_name(options["device"])
    for size in sizes:
        expect(size, ">=", 0, f"sizes {tuple(sizes)}")
    return TensorMeta(tuple(sizes), contiguous_strides(tuple(sizes)), dtype, device)


def _new_empty_strided(x: TensorMeta, sizes: Sequence[SizeLike], strides: Sequence[SizeLike], **options: object) -> TensorMeta:
    return replace(_new(x, sizes, **options), strides=tuple(strides))


def _clone(x: TensorMeta, *, memory_format: object = None) -> TensorMeta:
    return TensorMeta(x.sizes, copied_strides(x, memory_format), x.dtype, x.device)


def _to_copy(x: TensorMeta, *, non_blocking: bool = False, **options: object) -> TensorMeta:
    return _like(x, **options)


def _copy(x: TensorMeta, source: TensorMeta, non_blocking: bool = False) -> TensorMeta:
    _check_expands(source, x)
    return TensorMeta(x.sizes, preserved_strides(x.sizes, x.strides), x.dtype, x.device)


def _copy_inplace(x: TensorMeta, source: TensorMeta, non_blocking: bool = False) -> TensorMeta:
    _check_expands(source, x)
    return x


def _check_expands(source: TensorMeta, x: TensorMeta) -> None:
    lead = len(x.sizes) - len(source.sizes)
    require(lead >= 0 and all(equals(s, 1) or equals(s, t) or is_checked(s, t) for s, t in zip(source.sizes, x.sizes[lead:])),
            f"copy of sizes {source.sizes} into {x.sizes}")


def _fill(x: TensorMeta, *args: object, generator: object = None, **_: object) -> TensorMeta:
    for a in args:
        require(not isinstance(a, TensorMeta) or not a.sizes, "fill with a tensor of more than one element")
    return TensorMeta(x.sizes, preserved_strides(x.sizes, x.strides), x.dtype, x.device)


def _float_fill(x: TensorMeta, *args: object, **kwargs: object) -> TensorMeta:
    require(category(x.dtype) >= 2, f"random floats in a {x.dtype} tensor")
    return _fill(x, *args, **kwargs)


def _samples(x: TensorMeta, generator: object = None) -> TensorMeta:
    """Of a distribution for each element, or row, of its parameters."""
    require(x.dtype in ("float32", "float64"), f"samples of a distribution in {x.dtype}")
    return fresh(x, x.sizes)


def _triangle(x: TensorMeta, diagonal: int = 0) -> TensorMeta:
    require(len(x.sizes) >= 2, "a triangle of fewer than two dimensions")
    return fresh(x, x.sizes)


def _flip(x: TensorMeta, dims: Sequence[int]) -> TensorMeta:
    rank = len(x.sizes)
    require(all(-max(rank, 1) <= d < max(rank, 1) for d in dims) and len({d % max(rank, 1) for d in dims}) == len(dims), "flip's dimensions")
    return TensorMeta(x.sizes, preserved_strides(x.sizes, x.strides), x.dtype, x.device)


def _roll(x: TensorMeta, shifts: Sequence[SizeLike], dims: Sequence[int] = ()) -> TensorMeta:
    require(all(-len(x.sizes) <= d < len(x.sizes) for d in dims), "roll's dimensions")
    require(len(shifts) == len(dims) or (not dims and len(shifts) == 1), "roll with other numbers of shifts and dimensions")
    require(len(dims) == 1 or is_contiguous(x.sizes, x.strides), "roll of several dimensions of a tensor that is not contiguous")
    return fresh_as_suggested(x, x.sizes)


def _constant_pad(x: TensorMeta, pad: Sequence[SizeLike], value: object = 0) -> TensorMeta:
    require(len(pad) % 2 == 0 and len(pad) // 2 <= len(x.sizes), f"padding {tuple(pad)} of {len(x.sizes)} dimensions")
    sizes = list(x.sizes)
    for i in range(len(pad) // 2):
        left, right = pad[2 * i], pad[2 * i + 1]
        cut = sum(amount for amount in (left, right) if amount < 0)
        require(sizes[-1 - i] + cut >= 0, "padding that takes away more than there is")
        sizes[-1 - i] = sizes[-1 - i] + left + right
    if all(type(p) is int and p <= 0 for p in pad) or not is_contiguous(x.sizes, x.strides) and all(p <= 0 for p in pad):
        return TensorMeta(tuple(sizes), preserved_strides(tuple(sizes), x.strides), x.dtype, x.device)
    if len(sizes) in CHANNELS_LAST_ORDER and suggests_channels_last(x.sizes, x.strides):
        return TensorMeta(tuple(sizes), channels_last_strides(tuple(sizes)), x.dtype, x.device)
    return fresh(x, tuple(sizes))


def _named(rule: Rule, names: str) -> dict[str, Rule]:
    return {f"aten::{name}": rule for name in names.split()}


RULES: dict[str, Rule] = {
    **_named(_zeros, "zeros ones empty.memory_format"),
    **_named(_random, "rand randn rand.generator randn.generator"),
    **_named(_randint, "randint randint.low randint.generator randint.low_generator"),
    **_named(_like, "zeros_like ones_like empty_like full_like rand_like randn_like randint_like randint_like.low_dtype"),
    **_named(_new, "new_zeros new_ones new_empty new_full"),
    **_named(_fill, "fill.Scalar fill.Tensor zero random random.from random.to bernoulli.Tensor"),
    **_named(_float_fill, "uniform exponential normal_functional log_normal cauchy"),
    **_named(_arange, "arange arange.start arange.start_step"),
    **_named(_triangle, "tril triu"),
    "aten::full": _full,
    **_named(_samples, "_sample_dirichlet _standard_gamma"),
    "aten::randperm": _randperm,
    "aten::randperm.generator": _randperm,
    "aten::scalar_tensor": _scalar_tensor,
    "aten::linspace": _linspace,
    "aten::eye": _eye,
    "aten::eye.m": _eye,
    "aten::empty_strided": _empty_strided,
    "aten::new_empty_strided": _new_empty_strided,
    "aten::clone": _clone,
    "aten::_to_copy": _to_copy,
    "aten::copy": _copy,
    "aten::copy_": _copy_inplace,
    "aten::flip": _flip,
    "aten::roll": _roll,
    "aten::constant_pad_nd": _constant_pad,
}
for _name in ("bernoulli_.float", "geometric_", "random_", "normal_", "exponential_", "uniform_"):
    RULES[f"aten::{_name}"] = partial(lambda x, *args, **kwargs: x)
