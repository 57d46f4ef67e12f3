"""Which attention is a kernel of ours, and how it is told where its tensors lie."""

import struct
from dataclasses import replace

import pytest

from schedule.test_own_products import PAIRED, TARGET, short
from thruway.core.sizes import symbol
from thruway.loops.ir import BufferRef, Extern
from thruway.schedule.own_attention import own_attention

SIZES = (2, 8, 40, 64)
Q, K, V = short("q", SIZES), short("k", SIZES), short("v", SIZES)


def case(q=Q, k=K, v=V, *rest, out=None, **kwargs):
    buffers = {b.name: b for b in (q, k, v, out or short("out", q.sizes))}
    return Extern("aten::scaled_dot_product_attention", (*(BufferRef(b.name) for b in (q, k, v)), *rest), tuple(kwargs.items()), ("out",)), buffers


def found(*args, target=PAIRED, **kwargs):
    return own_attention(*case(*args, **kwargs), target)


def test_sizes_scale_and_places():
    dense = (0, 8 * 40 * 64, 40 * 64, 64)
    bits = struct.unpack("I", struct.pack("f", 0.125))[0]
    assert found().scalars == (2, 8, 1, 40, 40, 64, 0, bits, *dense * 4) and found().pointers == ("q", "k", "v", "out")
    assert found(Q, K, V, None, 0.0, True).causal and found(is_causal=True, scale=2.0).scale == 2.0
    shared = found(Q, short("k", (2, 2, 56, 64)), short("v", (2, 2, 56, 64)), enable_gqa=True)
    assert shared.sizes == (2, 8, 4, 40, 56, 64)


def test_views_start_where_they_lie_in_their_storages():
    step, buffers = case(short("q", SIZES, (40 * 1536, 64, 1536, 1), alias="base", offset=512), out=short("out", SIZES, (40 * 512, 64, 512, 1)))
    buffers["base"] = short("base", (2, 40, 1536))
    got = own_attention(step, buffers, PAIRED)
    assert got.pointers == ("base", "k", "v", "out")
    assert got.places[0] == (512, 40 * 1536, 64, 1536) and got.places[3] == (0, 40 * 512, 64, 512)


def test_sizes_that_are_not_known():
    s = symbol("s")
    assert found(short("q", (s, 8, s, 64)), short("k", (s, 8, 40, 64)), short("v", (s, 8, 40, 64))).sizes == (s, 8, 1, s, 40, 64)
    assert found(Q, short("k", (2, 8, s, 64)), short("v", (2, 8, s, 64))) is None


@pytest.mark.parametrize("near", [
    case(Q, K, V, BufferRef("mask")), case(dropout_p=0.1), case(scale=1e39),
    case(Q, short("k", (2, 2, 40, 64)), short("v", (2, 2, 40, 64))),                        # heads that are shared, unasked
    case(short("q", (2, 8, 40, 64), (8 * 40 * 65, 40 * 65, 65, 1))),                        # rows that start within a pair
    case(Q, short("k", SIZES, (8 * 40 * 64, 40 * 64, 1, 40))),                              # pairs that do not lie side by side
    case(Q, K, short("v", (2, 8, 40, 32))),
    case(*(short(name, (2, 8, 40, 60)) for name in "qkv")), case(*(short(name, (2, 8, 40, 136)) for name in "qkv")),
    case(*(replace(short(name, SIZES), dtype="float32") for name in "qkv"), out=replace(short("out", SIZES), dtype="float32")),
    case(short("q", (2, 8, 1, 64)), K, V),                                                  # one query
    case(Q, short("k", (2, 8, 4096, 64)), short("v", (2, 8, 4096, 64))),                    # values that leave the second cache
    case(*(short(name, (8, 40, 64)) for name in "qkv")),
])
def test_near_misses(near):
    assert own_attention(*near, PAIRED) is None


@pytest.mark.parametrize("target", [TARGET, replace(PAIRED, library_calls=PAIRED.library_calls | {"amx"}), replace(PAIRED, vector_bytes=32),
                                    replace(PAIRED, kernels=False), replace(PAIRED, kind="cuda")])
def test_other_machines_call_torch(target):
    assert found(target=target) is None
