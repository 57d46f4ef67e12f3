"""Representative programs with their inputs: every shape of kernel, every kind of access."""

from __future__ import annotations

import numpy as np

from codegen.execute import from_words, to_words
from schedule.programs import Draft, cast, gelu, layer_norm, lit, op, softmax
from thruway.core.sizes import symbol
from thruway.loops.ir import CheckIndex, Condition, IndexValue, Literal, Load, Within

CASES = {}
I, J = symbol("i0"), symbol("i1")


def case(build):
    CASES[build.__name__] = build
    return build


def floats(*dims, seed=0):
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def halves(*dims, seed=0):
    return from_words(to_words(floats(*dims, seed=seed), "bfloat16"), "bfloat16")


def integers(low, high, *dims, seed=0):
    return np.random.default_rng(seed).integers(low, high, dims)


@case
def sin_plus_cos():
    d = Draft()
    d.input("x", 1000)
    s, c = (d.compute(n, (1000,), op(n, d.at("x"))) for n in ("sin", "cos"))
    d.compute("y", (1000,), op("add", d.at(s), d.at(c)))
    x = floats(1000)
    x[5], x[6], x[7] = 1e6, np.inf, np.nan
    return d.program("y"), [x]


@case
def gelu_of_layer_norm():
    d = Draft()
    d.input("x", 6, 1024), d.input("w", 1024), d.input("b", 1024)
    layer_norm(d, "ln", d.at("x"), (6, 1024), "w", "b")
    d.compute("y", (6, 1024), gelu(d.at("ln")))
    return d.program("y"), [floats(6, 1024), floats(1024, seed=1), floats(1024, seed=2)]


@case
def masked_softmax():
    dims = (2, 7, 50)
    d = Draft()
    d.input("x", *dims), d.input("mask", 7, 50, dtype="bool")
    mask = Load("mask", (symbol("i1"), symbol("i2")), "bool")
    s = d.compute("s", dims, op("where", mask, op("mul", d.at("x"), lit(0.125)), lit(float("-inf"))))
    softmax(d, "y", d.at(s), dims)
    return d.program("y"), [floats(*dims), np.tril(np.ones((7, 50), bool), 43)]


@case
def sum_rows():
    d = Draft()
    d.input("x", 9, 5000)
    d.reduce("y", "sum", d.at("x"), (9, 5000), (1,))
    return d.program("y"), [floats(9, 5000)]


@case
def sum_columns():
    d = Draft()
    d.input("x", 600, 100)
    d.reduce("y", "sum", d.at("x"), (600, 100), (0,))
    return d.program("y"), [floats(600, 100)]


@case
def scale_by_norm():
    dims = (300, 400)
    d = Draft()
    d.input("x", *dims)
    s = d.reduce("s", "sum", op("mul", d.at("x"), d.at("x")), dims, (0, 1))
    d.compute("y", dims, op("div", d.at("x"), op("sqrt", d.at(s))))
    return d.program("y"), [floats(*dims)]


@case
def bf16_swiglu():
    d = Draft()
    d.input("a", 33, 70, dtype="bfloat16"), d.input("b", 33, 70, dtype="bfloat16")
    wide = cast(d.at("a"), "float32")
    s = d.compute("s", (33, 70), cast(op("mul", wide, op("sigmoid", wide)), "bfloat16"))
    d.compute("y", (33, 70), cast(op("mul", cast(d.at(s), "float32"), cast(d.at("b"), "float32")), "bfloat16"))
    return d.program("y"), [halves(33, 70), halves(33, 70, seed=1)]


@case
def bf16_rms_norm():
    dims = (5, 300)
    d = Draft()
    d.input("x", *dims, dtype="bfloat16"), d.input("r", *dims, dtype="bfloat16"), d.input("w", 300, dtype="bfloat16")
    h = d.compute("h", dims, cast(op("add", cast(d.at("x"), "float32"), cast(d.at("r"), "float32")), "bfloat16"))
    wide = cast(d.at(h), "float32")
    q = d.reduce("q", "sum", op("mul", wide, wide), dims, (1,))
    n = op("mul", wide, op("rsqrt", op("add", op("div", d.at(q), lit(300.0)), lit(1e-6))))
    w = cast(Load("w", (J,), "bfloat16"), "float32")
    d.compute("y", dims, cast(op("mul", cast(cast(n, "bfloat16"), "float32"), w), "bfloat16"))
    return d.program("h", "y"), [halves(*dims), halves(*dims, seed=1), halves(300, seed=2)]


@case
def cat_transposed_plus():
    n = 40
    d = Draft()
    d.input("x", n, 24), d.input("y", n, 16), d.input("z", 40, n)
    joined = Within((Condition(J, 24),), d.at("x"), d.at("y", I, J - 24), "float32")
    d.compute("c", (n, 40), joined)
    d.compute("o", (40, n), op("add", d.at("c", J, I), d.at("z")))
    return d.program("o"), [floats(n, 24), floats(n, 16, seed=1), floats(40, n, seed=2)]


@case
def cat_and_pad_inside():
    d = Draft()
    d.input("x", 6, 24), d.input("y", 6, 17)
    joined = Within((Condition(J, 24),), d.at("x"), d.at("y", I, J - 24), "float32")
    d.compute("c", (6, 41), op("mul", joined, lit(2.0)))
    d.compute("p", (8, 47), Within((Condition(I - 1, 6), Condition(J - 3, 41)), d.at("c", I - 1, J - 3), lit(-1.0), "float32"))
    return d.program("p"), [floats(6, 24), floats(6, 17, seed=1)]


@case
def gather_rows():
    d = Draft()
    d.input("table", 50, 64), d.input("at", 9, dtype="int64"), d.input("y", 9, 64)
    row = Load("table", (CheckIndex(d.at("at", I), 50, True), J), "float32")
    d.compute("o", (9, 64), op("add", row, d.at("y")))
    return d.program("o"), [floats(50, 64), integers(-50, 50, 9), floats(9, 64, seed=1)]


@case
def gather_columns():
    d = Draft()
    d.input("x", 50, 64), d.input("at", 9, dtype="int64")
    d.compute("o", (50, 9), Load("x", (I, CheckIndex(d.at("at", J), 64, True)), "float32"))
    return d.program("o"), [floats(50, 64), integers(-64, 64, 9)]


@case
def arg_max_and_min():
    d = Draft()
    d.input("x", 12, 70)
    d.reduce("a", "argmax", d.at("x"), (12, 70), (1,), "int64")
    d.reduce("b", "argmin", d.at("x"), (12, 70), (0,), "int64")
    x = floats(12, 70)
    x[3, 4] = np.nan
    x[5] = 2.0
    return d.program("a", "b"), [x]


@case
def maximum_keeps_nan():
    d = Draft()
    d.input("x", 7, 700)
    d.reduce("a", "max", d.at("x"), (7, 700), (1,))
    d.reduce("b", "min", d.at("x"), (7, 700), (0,))
    x = floats(7, 700)
    x[3, 650] = np.nan
    x[4] = -np.inf
    return d.program("a", "b"), [x]


@case
def any_and_all():
    d = Draft()
    d.input("x", 7, 33)
    positive = op("gt", d.at("x"), lit(1.9))
    d.reduce("a", "any", positive, (7, 33), (1,))
    d.reduce("b", "all", op("lt", d.at("x"), lit(2.2)), (7, 33), (0,))
    return d.program("a", "b"), [floats(7, 33)]


@case
def running_sums():
    d = Draft()
    d.input("x", 4, 9, 20)
    d.scan("a", "sum", d.at("x"), (4, 9, 20), 2)
    d.scan("b", "sum", d.at("x"), (4, 9, 20), 1)
    d.scan("c", "max", d.at("x"), (4, 9, 20), 2)
    return d.program("a", "b", "c"), [floats(4, 9, 20)]


@case
def cache_write():
    """Values computed and written into a cache in place, behind a checked position, then read again."""
    d = Draft()
    d.input("cache", 2, 3, 16, 8), d.input("pos", 2, dtype="int64"), d.input("k", 2, 3, 2, 8)
    i = [symbol(f"i{n}") for n in range(4)]
    d.compute("t", (2, 3, 2, 8), op("mul", d.at("k"), lit(3.0)))
    d.update("cache", (2, 3, 2, 8), (i[0], i[1], CheckIndex(Load("pos", (i[2],), "int64"), 16, False), i[3]), d.at("t"))
    d.reduce("s", "sum", d.at("cache"), (2, 3, 16, 8), (2,))
    return d.program("s"), [floats(2, 3, 16, 8), np.array([5, 11]), floats(2, 3, 2, 8, seed=1)]


@case
def scatter_add():
    d = Draft()
    d.input("out", 10, 6), d.input("at", 40, dtype="int64"), d.input("x", 40, 6)
    d.update("out", (40, 6), (CheckIndex(d.at("at", I), 10, False), J), d.at("x"), "add")
    return d.program("out"), [floats(10, 6), integers(0, 10, 40), floats(40, 6, seed=1)]


@case
def integer_arithmetic():
    d = Draft()
    d.input("a", 300, dtype="int32"), d.input("b", 300, dtype="int32"), d.input("c", 300, dtype="uint8")
    a, b, c = d.at("a"), d.at("b"), d.at("c")
    d.compute("m", (300,), op("mul", a, b))
    for name in ("floordiv", "truncdiv", "mod", "fmod"):
        d.compute(name, (300,), op(name, a, b))
    d.compute("n", (300,), op("add", op("mul", c, c), Literal(200, "uint8")))
    d.compute("iota", (300,), IndexValue(3 * I - 7, "int64"))
    b = integers(-9, 9, 300, seed=1).astype(np.int32)
    return d.program("m", "floordiv", "truncdiv", "mod", "fmod", "n", "iota"), [
        integers(-2**31, 2**31, 300).astype(np.int32), np.where(b == 0, 3, b).astype(np.int32), integers(0, 256, 300).astype(np.uint8)]


@case
def shared_space():
    """Two results over one space: one kernel, the input read once."""
    d = Draft()
    d.input("x", 20, 30)
    d.compute("a", (20, 30), op("exp", d.at("x")))
    d.compute("b", (20, 30), op("tanh", d.at("x")))
    return d.program("a", "b"), [floats(20, 30)]


@case
def group_norm():
    """Rows of several axes: statistics over (channel in group, pixel), weights per channel."""
    n, g, c, p = 2, 4, 3, 25
    dims = (n, g, c, p)
    d = Draft()
    d.input("x", *dims), d.input("w", g, c)
    s = d.reduce("s", "sum", d.at("x"), dims, (2, 3))
    centred = op("sub", d.at("x"), op("div", d.at(s), lit(float(c * p))))
    q = d.reduce("q", "sum", op("mul", centred, centred), dims, (2, 3))
    scaled = op("mul", centred, op("rsqrt", op("add", op("div", d.at(q), lit(float(c * p))), lit(1e-5))))
    d.compute("y", dims, op("mul", scaled, Load("w", (symbol("i1"), symbol("i2")), "float32")))
    return d.program("y"), [floats(*dims), floats(g, c, seed=1)]


@case
def moments_of_rows():
    """Mean and squared distances in eager's order, of a row in memory and of one that is computed, beside a place that wants that row, too."""
    dims = (7, 300)
    d = Draft()
    d.input("x", *dims)
    y = d.compute("y", dims, op("exp", d.at("x")))
    m, s = (d.reduce(name, f"{name}_of_float32", d.at("x"), dims, (1,)) for name in ("mean", "squares"))
    n, t = (d.reduce(name, f"{kind}_of_bfloat16", d.at(y), dims, (1,)) for name, kind in (("n", "mean"), ("t", "squares")))
    d.reduce("k", "argmax", d.at(y), dims, (1,), "int64")
    d.compute("z", dims, op("mul", op("sub", d.at("x"), d.at(m)), op("rsqrt", op("add", d.at(s), op("mul", d.at(n), d.at(t))))))
    return d.program("z", "k"), [floats(*dims)]


@case
def moments_of_columns():
    """The same down the columns, in lanes; more of them than a tile holds, and not in eights."""
    dims = (2, 150, 77)
    d = Draft()
    d.input("x", *dims)
    m, s = (d.reduce(name, f"{name}_of_float16", d.at("x"), dims, (1,)) for name in ("mean", "squares"))
    d.compute("z", dims, op("mul", op("sub", d.at("x"), d.at(m)), op("rsqrt", d.at(s))))
    return d.program("z"), [floats(*dims)]


@case
def merged_view_of_norm():
    """A norm over (b, t, c), read as (b*t, c) by what comes after."""
    d = Draft()
    d.input("x", 3, 5, 64), d.input("w", 64), d.input("b", 64)
    layer_norm(d, "ln", d.at("x"), (3, 5, 64), "w", "b")
    d.compute("y", (15, 64), op("exp", d.at("ln", I // 5, I % 5, J)))
    return d.program("y"), [floats(3, 5, 64), floats(64, seed=1), floats(64, seed=2)]


@case
def rotate_within_row():
    """A softmax row read shifted by half: whole rows pass between phases."""
    d = Draft()
    d.input("x", 5, 32)
    softmax(d, "p", d.at("x"), (5, 32))
    other = Within((Condition(J, 16),), d.at("p", I, J + 16), d.at("p", I, J - 16), "float32")
    d.compute("y", (5, 32), op("sub", d.at("p"), other))
    return d.program("y"), [floats(5, 32)]


@case
def column_softmax():
    d = Draft()
    d.input("x", 30, 70)
    m = d.reduce("m", "max", d.at("x"), (30, 70), (0,))
    e = d.compute("e", (30, 70), op("exp", op("sub", d.at("x"), d.at(m))))
    s = d.reduce("s", "sum", d.at(e), (30, 70), (0,))
    d.compute("y", (30, 70), op("div", d.at(e), d.at(s)))
    return d.program("y"), [floats(30, 70)]


@case
def nothing_to_do():
    d = Draft()
    d.input("x", 0, 5)
    d.compute("y", (0, 5), op("exp", d.at("x")))
    d.reduce("s", "sum", d.at("x"), (0, 5), (0,))
    return d.program("y", "s"), [np.zeros((0, 5), np.float32)]


@case
def scalars():
    d = Draft()
    d.input("x"), d.input("y")
    d.compute("z", (), op("mul", op("add", d.at("x"), d.at("y")), lit(2.0)))
    return d.program("z"), [np.float32(3), np.float32(4)]


@case
def branches_around_rows():
    """A condition on the row is a branch around the inner loop, and both branches compute what stands outside of it."""
    d = Draft()
    d.input("x", 6, 300), d.input("y", 6, 300), d.input("a", 6)
    first = op("add", d.at("x"), op("exp", op("mul", IndexValue(I, "float32"), lit(0.5))))
    second = op("sub", d.at("y"), op("log", op("add", IndexValue(I * 2 + 1, "float32"), lit(0.25))))
    d.reduce("s", "sum", Within((Condition(I - 2, 3),), first, second, "float32"), (6, 300), (1,))
    d.compute("o", (6,), op("add", d.at("s", I, 0), d.at("a", I)))
    return d.program("o"), [floats(6, 300), floats(6, 300, seed=1), floats(6, seed=2)]


@case
def branch_value_inside_outer_work():
    """What rests on a value of a branch stays in the branch, also where it would be known outside of the loop."""
    d = Draft()
    d.input("x", 5, 300), d.input("a", 9), d.input("b", 9)
    inner = Within((Condition(I - 1, 3),), Load("a", (I - 1,), "float32"), Load("b", (I + 1,), "float32"), "float32")
    padded = Within((Condition(J - 7, 200),), d.at("x"), lit(0.0), "float32")
    d.compute("o", (5, 300), op("add", padded, op("mul", op("exp", inner), lit(2.0))))
    return d.program("o"), [floats(5, 300), floats(9, seed=1), floats(9, seed=2)]
