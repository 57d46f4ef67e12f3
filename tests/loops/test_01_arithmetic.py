"""The meaning of every operator, conversion, reduction and scan of the grammar, held against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from loops.against_eager import assert_close, to_numpy
from loops.inputs import ALL, FLOATS, INTEGERS, name_of, random, special
from thruway.loops.arithmetic import NUMPY, apply, convert, identity, reduce, round_bfloat16, scan
from thruway.loops.expressions import BOOLEAN_OPS, literal
from thruway.loops.ir import MOMENTS, OPS, REDUCTIONS, SCANS

torch.set_num_threads(1)

UNARY = {
    "neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "signbit": torch.signbit, "floor": torch.floor, "ceil": torch.ceil,
    "round": torch.round, "trunc": torch.trunc, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "exp": torch.exp,
    "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log, "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p,
    "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan, "sinh": torch.sinh,
    "cosh": torch.cosh, "tanh": torch.tanh, "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh, "erf": torch.erf,
    "erfc": torch.erfc, "erfinv": torch.erfinv, "lgamma": torch.lgamma, "digamma": torch.digamma, "sigmoid": torch.sigmoid,
    "isnan": torch.isnan, "isinf": torch.isinf,
}
BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow, "atan2": torch.atan2, "hypot": torch.hypot,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"), "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "mod": torch.remainder, "fmod": torch.fmod, "min": torch.minimum, "max": torch.maximum, "fmin": torch.fmin, "fmax": torch.fmax,
    "copysign": torch.copysign, "nextafter": torch.nextafter, "ldexp": torch.ldexp, "eq": torch.eq, "ne": torch.ne, "lt": torch.lt,
    "le": torch.le, "gt": torch.gt, "ge": torch.ge,
}
INTEGER_BINARY = {
    "bitand": torch.bitwise_and, "bitor": torch.bitwise_or, "bitxor": torch.bitwise_xor,
    "shl": torch.bitwise_left_shift, "shr": torch.bitwise_right_shift,
}
FLOAT_ONLY = {"div", "atan2", "hypot", "copysign", "nextafter", "ldexp"}
EXACT = {"neg", "abs", "sign", "signbit", "floor", "ceil", "round", "trunc", "isnan", "isinf", "add", "sub", "mul", "min", "max", "fmin", "fmax",
         "copysign", "nextafter", "eq", "ne", "lt", "le", "gt", "ge"}
LOGICAL = {"and": torch.logical_and, "or": torch.logical_or, "xor": torch.logical_xor}
ELSEWHERE = {"where", "fma", "bitcast", "bitnot", "not"} | LOGICAL.keys()


def meaning(name, dtype, *tensors):
    kind = name_of(dtype)
    with np.errstate(all="ignore"):
        return apply(name, [to_numpy(t) for t in tensors], "bool" if name in BOOLEAN_OPS else kind, kind)


def pairs(dtype):
    values = special(dtype)
    return values[:, None].expand(len(values), len(values)).reshape(-1), values.repeat(len(values))


def test_every_operator_has_a_test():
    assert OPS.keys() == UNARY.keys() | BINARY.keys() | INTEGER_BINARY.keys() | ELSEWHERE


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
@pytest.mark.parametrize("name", UNARY)
def test_unary_on_floats(name, dtype):
    x = torch.cat([special(dtype), random(dtype, 40), random(dtype, 40) / 4])
    if name == "digamma":
        x = x[(x > -20) | ~torch.isfinite(x)]                        # near its poles torch's own float32 result is a matter of rounding
    assert_close(meaning(name, dtype, x), UNARY[name](x), exact=name in EXACT, scale=4)


@pytest.mark.parametrize("dtype", INTEGERS, ids=name_of)
@pytest.mark.parametrize("name", ("neg", "abs", "sign"))
def test_unary_on_integers_wraps(name, dtype):
    assert_close(meaning(name, dtype, special(dtype)), UNARY[name](special(dtype)))


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
@pytest.mark.parametrize("name", BINARY)
def test_binary_on_floats(name, dtype):
    if name == "hypot" and dtype == torch.float16 or name == "nextafter" and dtype == torch.float16:
        pytest.skip("torch has no such kernel")
    a, b = pairs(dtype)
    if name in ("floordiv", "mod", "truncdiv", "fmod"):
        usable = ~((a.abs() / b.abs()) > 1e6) | ~torch.isfinite(a) | ~torch.isfinite(b)      # beyond, eager's vectors and tails differ
        a, b = a[usable], b[usable]
    a, b = torch.cat([a, random(dtype, 50)]), torch.cat([b, random(dtype, 50, seed=1)])
    if name == "nextafter" and dtype == torch.bfloat16:
        return
    assert_close(meaning(name, dtype, a, b), BINARY[name](a, b).to(torch.bool if name in BOOLEAN_OPS else dtype), exact=name in EXACT)


@pytest.mark.parametrize("dtype", INTEGERS, ids=name_of)
@pytest.mark.parametrize("name", [n for n in (*BINARY, *INTEGER_BINARY) if n not in FLOAT_ONLY])
def test_binary_on_integers(name, dtype):
    a, b = pairs(dtype)
    if name in ("floordiv", "truncdiv", "mod", "fmod"):
        fits = (b != 0) & ~((a == torch.iinfo(dtype).min) & (b == -1))
        a, b = a[fits], b[fits]
    if name in ("shl", "shr"):
        fits = (b >= 0) & (b < 20)                                   # a negative count is undefined in torch's own kernel
        a, b = a[fits], b[fits]
    if name == "pow":
        b = b.clamp(0, 9)
    if name in ("fmin", "fmax"):
        expected = {"fmin": torch.minimum, "fmax": torch.maximum}[name](a, b)
    else:
        expected = {**BINARY, **INTEGER_BINARY}[name](a, b)
    assert_close(meaning(name, dtype, a, b), expected)


@pytest.mark.parametrize("name", LOGICAL)
def test_logic(name):
    a, b = pairs(torch.bool)
    assert_close(meaning(name, torch.bool, a, b), LOGICAL[name](a, b))
    assert_close(meaning("not", torch.bool, a), torch.logical_not(a))


@pytest.mark.parametrize("dtype", INTEGERS, ids=name_of)
def test_bitnot(dtype):
    assert_close(meaning("bitnot", dtype, special(dtype)), torch.bitwise_not(special(dtype)))


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_where_keeps_values_and_fma_rounds_once(dtype):
    a, b = pairs(dtype)
    condition = torch.arange(len(a)) % 3 == 0
    kind = name_of(dtype)
    assert_close(apply("where", [to_numpy(condition), to_numpy(a), to_numpy(b)], kind, kind), torch.where(condition, a, b), exact=True)
    x = random(torch.float32, 100)
    y = random(torch.float32, 100, seed=1)
    exact = (x.double() * y.double() + x.double()).float()
    assert_close(meaning("fma", torch.float32, x, y, x), exact, exact=True)


@pytest.mark.parametrize("old, new", [(torch.float32, torch.int32), (torch.int32, torch.float32), (torch.bfloat16, torch.int16),
                                      (torch.int16, torch.bfloat16), (torch.float64, torch.int64), (torch.float16, torch.int16)])
def test_bitcast(old, new):
    x = random(old, 40)
    assert_close(apply("bitcast", [to_numpy(x)], name_of(new), name_of(old)), x.view(new), exact=True)


@pytest.mark.parametrize("new", ALL + (torch.int8, torch.int16), ids=name_of)
@pytest.mark.parametrize("old", ALL + (torch.int8, torch.int16), ids=name_of)
def test_conversions(old, new):
    x = torch.cat([special(old), random(old, 60)])
    if old.is_floating_point and not new.is_floating_point and new != torch.bool:
        x = x[x.abs() < 100]                                         # out of range the C language leaves it open
        if new == torch.uint8:
            x = x[x >= 0]
    with np.errstate(all="ignore"):
        assert_close(np.asarray(convert(to_numpy(x), name_of(old), name_of(new))), x.to(new), exact=True)


def test_bfloat16_rounds_ties_to_even():
    bits = torch.randint(0, 2**31 - 1, (5000,), dtype=torch.int32)
    x = bits.view(torch.float32)
    x = torch.cat([x, -x, (bits & -65536 | 0x8000).view(torch.float32)])
    np.testing.assert_array_equal(round_bfloat16(to_numpy(x)), to_numpy(x.to(torch.bfloat16)))


REDUCED = {
    "sum": lambda x: x.sum(-1, dtype=x.dtype), "prod": lambda x: x.prod(-1, dtype=x.dtype), "min": lambda x: x.amin(-1), "max": lambda x: x.amax(-1),
    "any": lambda x: x.bool().any(-1), "all": lambda x: x.bool().all(-1), "argmin": lambda x: x.argmin(-1), "argmax": lambda x: x.argmax(-1),
}


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8), ids=name_of)
@pytest.mark.parametrize("name", REDUCED)
def test_reductions(name, dtype):
    x = random(dtype, 6, 9)
    if dtype.is_floating_point:
        x[0, 3], x[1, 2], x[1, 5] = torch.nan, torch.inf, -torch.inf
    values = to_numpy(x.bool() if name in ("any", "all") else x)
    kind = "bool" if name in ("any", "all") else "int64" if name.startswith("arg") else name_of(dtype)
    assert_close(reduce(name, values, 1, kind), REDUCED[name](x))


def test_reductions_and_scans_are_complete():
    assert REDUCTIONS == REDUCED.keys() | {"xor"} | MOMENTS.keys()
    assert SCANS == {"sum", "prod", "min", "max", "logsumexp"}
    values = np.array([[5, 3, 6]], np.int32)
    assert reduce("xor", values, 1, "int32") == 5 ^ 3 ^ 6


def test_moments_are_the_mean_and_the_squared_distances():
    values = np.array([[1.0, 2.0, 6.0], [1e5, 1e5 + 1, 1e5 + 2]], np.float32)
    for name in MOMENTS:
        expected = values.mean(-1, dtype=np.float64) if name.startswith("mean") else values.var(-1, dtype=np.float64) * 3
        assert np.array_equal(reduce(name, values, 1, "float32"), expected.astype(np.float32))


@pytest.mark.parametrize("name", sorted(REDUCTIONS - {"argmin", "argmax"} - MOMENTS.keys()))
@pytest.mark.parametrize("dtype", ("float32", "int32", "bool", "bfloat16"))
def test_empty_reductions_give_the_identity(name, dtype):
    if name == "xor" and dtype in ("float32", "bfloat16") or name in ("any", "all") and dtype != "bool":
        return
    empty = np.zeros((2, 0), NUMPY[dtype])
    got = reduce(name, empty, 1, dtype)
    assert got.shape == (2,) and (got == np.asarray(identity(name, dtype)).astype(got.dtype)).all()


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.int64), ids=name_of)
def test_scans(dtype):
    x = random(dtype, 3, 7) / (1 if not dtype.is_floating_point else 3)
    x = x.to(dtype)
    kind = name_of(dtype)
    assert_close(scan("sum", to_numpy(x), 1, kind), x.cumsum(1))
    assert_close(scan("prod", to_numpy(x), 0, kind), x.cumprod(0))
    assert_close(scan("min", to_numpy(x), 1, kind), x.cummin(1).values)
    assert_close(scan("max", to_numpy(x), 0, kind), x.cummax(0).values)
    if dtype.is_floating_point:
        assert_close(scan("logsumexp", to_numpy(x), 1, kind), x.logcumsumexp(1))


@pytest.mark.parametrize("value, dtype, held", [(-2, "uint8", 254), (300, "uint8", 44), (200, "int8", -56), (2**31, "int32", -(2**31)), (-1, "int64", -1)])
def test_constants_wrap_around(value, dtype, held):
    assert literal(value, dtype).value == held
