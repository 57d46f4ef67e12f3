"""Which products are a kernel of ours, and how it is told where they lie."""

from dataclasses import replace

import pytest

from thruway.core.sizes import product, symbol
from thruway.core.target import Target
from thruway.loops.ir import Buffer, BufferRef, Extern
from thruway.schedule.own_products import own_product

TARGET = Target(vector_bytes=64, library_calls=frozenset({"mkl", "onednn"}))


def buffer(name, sizes, strides=None, **rest):
    dense = [product(sizes[i + 1:]) for i in range(len(sizes))]
    return Buffer(name, rest.pop("dtype", "float32"), sizes, strides or tuple(dense), **rest)


def case(op, *operands, out=(64, 256)):
    buffers = {b.name: b for b in (*operands, buffer("out", out))}
    return Extern(op, tuple(BufferRef(b.name) for b in operands), (), ("out",)), buffers


X, W, TURNED, BIAS = buffer("x", (64, 128)), buffer("w", (128, 256)), buffer("t", (256, 128)), buffer("bias", (256,))


def test_each_form_with_its_weight_as_it_lies():
    assert own_product(*case("aten::mm", X, W), TARGET).scalars == (64, 256, 128, 128, 256, 1, 0, 0, 0, 0)
    assert own_product(*case("aten::addmm", BIAS, X, W), TARGET).scalars == (64, 256, 128, 128, 256, 1, 0, 0, 0, 1)
    assert own_product(*case("aten::linear", X, TURNED, BIAS), TARGET).scalars == (64, 256, 128, 128, 1, 128, 0, 0, 0, 1)
    assert own_product(*case("aten::linear", X, TURNED), TARGET).pointers == ("x", "t", "out")
    assert own_product(*case("aten::linear", X, replace(TURNED, strides=(1, 256)), BIAS), TARGET).scalars[4:6] == (256, 1)


def test_views_start_where_they_lie_in_their_storages():
    step, buffers = case("aten::linear", buffer("v", (8, 8, 128), (8 * 300, 300, 1), alias="base", offset=40), TURNED, BIAS, out=(8, 8, 256))
    buffers["base"] = buffer("base", (64, 300), alias="all", offset=7)
    buffers["all"] = buffer("all", (30000,))
    found = own_product(step, buffers, TARGET)
    assert found.pointers == ("all", "t", "out", "bias")
    assert found.rows == 64 and found.stride == 300 and found.offsets == (47, 0, 0)


def test_a_number_of_rows_that_is_not_known():
    found = own_product(*case("aten::mm", buffer("x", (symbol("s"), 128)), W, out=(symbol("s"), 256)), TARGET)
    assert found.rows == symbol("s")


@pytest.mark.parametrize("op, operands, out", [
    ("aten::mm", (replace(X, dtype="float64"), W), (64, 256)),                                    # another dtype
    ("aten::mm", (replace(X, strides=(1, 64)), W), (64, 256)),                                    # rows that do not lie along memory
    ("aten::mm", (X, replace(W, strides=(512, 2))), (64, 256)),                                   # a weight with gaps in both directions
    ("aten::linear", (buffer("x", (4, 16, 128), (4096, 128, 1)), TURNED), (4, 16, 256)),          # rows at two distances
    ("aten::addmm", (buffer("bias", (64, 256)), X, W), (64, 256)),                                # a whole matrix added
    ("aten::mm", (buffer("x", (2, 128)), W), (2, 256)),                                           # few rows
    ("aten::mm", (X, buffer("w", (128, 16))), (64, 16)),                                          # few columns
    ("aten::mm", (buffer("x", (64, symbol("s"))), buffer("w", (symbol("s"), 256))), (64, 256)),   # sums that may be empty
    ("aten::bmm", (buffer("x", (2, 64, 128)), buffer("w", (2, 128, 256))), (2, 64, 256)),         # another operator
])
def test_near_misses(op, operands, out):
    assert own_product(*case(op, *operands, out=out), TARGET) is None


@pytest.mark.parametrize("target", [
    Target(vector_bytes=32), replace(TARGET, library_calls=frozenset({"mkl", "mkl_fast"})), replace(TARGET, kernels=False), replace(TARGET, kind="cuda"),
])
def test_other_machines_call_their_library(target):
    assert own_product(*case("aten::mm", X, W), target) is None


PAIRED = Target(vector_bytes=64, library_calls=frozenset({"onednn", "onednn_bf16", "bf16_pairs"}))


def short(name, sizes, strides=None, **rest):
    return buffer(name, sizes, strides, dtype="bfloat16", **rest)


def short_case(x, weight, out, *bias):
    buffers = {b.name: b for b in (x, weight, *bias, short("out", out))}
    return Extern("aten::linear", tuple(BufferRef(b.name) for b in (x, weight, *bias)), (), ("out",)), buffers


def test_pairs_of_bfloat16():
    found = own_product(*short_case(short("x", (64, 128)), short("w", (256, 128)), (64, 256), short("bias", (256,))), PAIRED)
    assert found.dtype == "bfloat16" and found.scalars == (64, 256, 128, 128, 1, 128, 0, 0, 0, 1, 0, 0, 0)
    assert own_product(*short_case(short("x", (64, 128)), short("w", (256, 128), (200, 1)), (64, 256)), PAIRED).across == 200


@pytest.mark.parametrize("x, weight, out, target", [
    (short("x", (64, 128)), short("w", (256, 128), (1, 256)), (64, 256), PAIRED),                           # pairs that do not lie side by side
    (short("x", (64, 128), (129, 1)), short("w", (256, 128)), (64, 256), PAIRED),                           # rows that start within a pair
    (short("x", (64, 129)), short("w", (256, 129)), (64, 256), PAIRED),                                     # half a pair
    (short("x", (64, 128)), short("w", (252, 128)), (64, 252), PAIRED),                                     # half a tile
    (short("x", (64, 8192)), short("w", (256, 8192)), (64, 256), PAIRED),                                   # sums too long for the block
    (short("x", (16, 128)), short("w", (256, 128)), (16, 256), PAIRED),                                     # few rows
    (short("x", (2048, 128)), short("w", (256, 128)), (2048, 256), PAIRED),                                 # many rows
    (short("x", (symbol("s"), 128)), short("w", (256, 128)), (symbol("s"), 256), PAIRED),                   # rows whose number is not known
    (short("x", (64, 128)), short("w", (256, 128)), (64, 256), TARGET),                                     # no instruction for pairs
    (short("x", (64, 128)), short("w", (256, 128)), (64, 256), replace(PAIRED, library_calls=PAIRED.library_calls | {"amx"})),     # matrix tiles
    (buffer("x", (64, 128)), short("w", (256, 128)), (64, 256), PAIRED),                                    # two dtypes
])
def test_what_stays_a_library_call_in_bfloat16(x, weight, out, target):
    assert own_product(*short_case(x, weight, out), target) is None


def pixels(name, channels, side=8, batch=2, **rest):
    return short(name, (batch, channels, side, side), (channels * side * side, 1, channels * side, channels), **rest)


def convolved(op, *operands, geometry=((0,), (1,), (1,), 1), end=("relu", (), ""), x="x", bias=BufferRef("b"), out=None, w=None):
    """The step and the buffers x of 128 channels, other of 256, weight and bias."""
    made = {b.name: b for b in (out or pixels("out", 256), pixels("x", 128), pixels("other", 256), w or short("w", (256, 128, 1, 1)), short("b", (256,)))}
    outs = () if "pointwise_" in op else ("out",)
    return Extern(op, (*(BufferRef(name) for name in operands), bias, *geometry, *end), (), outs, ("other",) if not outs else ()), made


PLAIN, SUM, SUM_IN_PLACE = "mkldnn::_convolution_pointwise", "mkldnn::_convolution_pointwise.binary", "mkldnn::_convolution_pointwise_.binary"


def test_a_convolution_of_pixels_with_what_follows():
    found = own_product(*convolved(PLAIN, "x", "w"), PAIRED)
    assert found.scalars == (128, 256, 128, 128, 1, 128, 0, 0, 0, 1, 0, 0, 1) and found.pointers == ("x", "w", "out", "b")
    assert own_product(*convolved(PLAIN, "x", "w", bias=None, end=("none", (), "")), PAIRED).scalars[9:] == (0, 0, 0, 0)
    summed = own_product(*convolved(SUM, "x", "other", "w", end=("add", 1.0, None, (), None)), PAIRED)
    assert summed.pointers == ("x", "w", "out", "b", "other") and summed.scalars[10:] == (1, 0, 0)
    placed = own_product(*convolved(SUM_IN_PLACE, "other", "x", "w", end=("add", 1.0, "relu", (), "")), PAIRED)
    assert placed.pointers == ("x", "w", "other", "b", "other") and placed.out == "other" and placed.clamps


@pytest.mark.parametrize("near", [
    convolved(PLAIN, "x", "w", geometry=((0, 0), (1, 1), (1, 1), 1)),                       # the weight is packed
    convolved(PLAIN, "x", "w", geometry=((0,), (2,), (1,), 1)), convolved(PLAIN, "x", "w", geometry=((0,), (1,), (1,), 2)),
    convolved(PLAIN, "x", "w", end=("swish", (), "")), convolved(PLAIN, "x", "w", w=short("w", (256, 128, 3, 3))),
    convolved(PLAIN, "x", "w", out=short("out", (2, 256, 8, 8))),                           # channels that lie outside
    convolved(SUM, "x", "other", "w", end=("mul", 1.0, None, (), None)), convolved(SUM, "x", "other", "w", end=("add", 0.5, None, (), None)),
])
def test_convolutions_that_stay_calls(near):
    assert own_product(*near, PAIRED) is None
    assert own_product(*convolved(PLAIN, "x", "w"), TARGET) is None
