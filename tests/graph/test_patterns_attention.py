"""Written-out attention becomes SDPA under exact conditions; every near miss stays as it is."""

import math

import pytest
import torch

from graph.build import Build, assert_same, run, targets
from thruway.core.target import Target
from thruway.graph.patterns import attention_masks
from thruway.graph.patterns.attention import recognise_attention
from thruway.graph.patterns.attention_masks import settle_masks
from thruway.graph.rewrite import Context, bind, meta

aten = torch.ops.aten
SIZES = (2, 3, 40, 8)
AMX = Target(library_calls=frozenset({"onednn", "onednn_bf16", "amx"}))


def rnd(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes))).to(dtype)


class Written(Build):
    """q, k and v, and the steps of attention by name."""

    def __init__(self, sizes=SIZES, dtype=torch.float32, keys=None):
        super().__init__()
        *batch, queries, width = sizes
        self.q, self.k, self.v = (self.input(rnd(*batch, n, width, dtype=dtype)) for n in (queries, keys or queries, keys or queries))

    def scores(self, scale=None):
        product = self(aten.matmul.default, self.q, self(aten.transpose.int, self.k, -1, -2))
        return product if scale is None else self(aten.div.Tensor, product, scale)

    def weights(self, scores):
        return self(aten.softmax.int, scores, -1)

    def result(self, scores):
        return self(aten.matmul.default, self.weights(scores), self.v)


def check(b: Build, output, attention: bool, target=AMX, **tolerance):
    graph = b.done(output)
    context = Context(target)
    result = recognise_attention(graph, context)
    assert ("scaled_dot_product_attention.default" in targets(result)) == attention, targets(result)
    assert attention or result is graph
    assert_same(graph, result, b.tensors, **{"rtol": 1e-4, "atol": 1e-5, **tolerance})
    return result


def causal(b: Build, n, m=None):
    return b(aten.tril.default, b(aten.ones.default, [n, m or n], dtype=torch.bool))


@pytest.mark.parametrize("sizes, keys", [(SIZES, None), (SIZES, 56), ((6, 40, 8), None)])
def test_plain(sizes, keys):
    b = Written(sizes, keys=keys)
    check(b, b.result(b.scores(8 ** 0.5)), True)


def test_scale_on_query_and_key_and_none():
    b = Written()
    product = b(aten.matmul.default, b(aten.mul.Tensor, b.q, 0.5), b(aten.mul.Scalar, b(aten.transpose.int, b.k, 2, 3), 0.7))
    check(b, b.result(product), True)
    b = Written()
    check(b, b.result(b.scores()), True)


def test_bmm():
    b = Written((6, 40, 8))
    scores = b(aten.bmm.default, b.q, b(aten.transpose.int, b.k, 1, 2))
    check(b, b(aten.bmm.default, b.weights(scores), b.v), True)


def test_a_key_that_was_made_transposed():
    b = Build()
    q, kt, v = b.input(rnd(2, 3, 40, 8)), b.input(rnd(2, 3, 8, 40)), b.input(rnd(2, 3, 40, 8))
    check(b, b(aten.matmul.default, b(aten.softmax.int, b(aten.matmul.default, q, kt), -1), v), True)


def test_low_precision_with_a_softmax_in_float():
    b = Written(dtype=torch.bfloat16)
    weights = b(aten.softmax.int, b(aten._to_copy.default, b.scores(8 ** 0.5), dtype=torch.float32), -1)
    output = b(aten.matmul.default, b(aten._to_copy.default, weights, dtype=torch.bfloat16), b.v)
    check(b, output, True, rtol=5e-2, atol=5e-2)


def test_causal_mask_is_recognised():
    b = Written()
    mask = b(aten.bitwise_not.default, causal(b, 40))
    result = check(b, b.result(b(aten.masked_fill.Scalar, b.scores(2.0), mask, -math.inf)), True)
    node = next(n for n in result.nodes if "attention" in n.name)
    assert node.kwargs["is_causal"] and node.args[3] is None


def test_causal_mask_by_comparing_places():
    b = Written()
    place = b(aten.arange.default, 40)
    mask = b(aten.gt.Tensor, b(aten.unsqueeze.default, place, 0), b(aten.unsqueeze.default, place, 1))
    result = check(b, b.result(b(aten.masked_fill.Scalar, b.scores(2.0), mask, -math.inf)), True)
    assert next(n for n in result.nodes if "attention" in n.name).kwargs["is_causal"]


@pytest.mark.parametrize("diagonal", [-1, 1])
def test_a_shifted_triangle_is_not_causal(diagonal):
    b = Written()
    mask = b(aten.bitwise_not.default, b(aten.tril.default, b(aten.ones.default, [40, 40], dtype=torch.bool), diagonal))
    result = check(b, b.result(b(aten.masked_fill.Scalar, b.scores(2.0), mask, -math.inf)), True)
    assert not next(n for n in result.nodes if "attention" in n.name).kwargs["is_causal"]
    assert ("where.self" in targets(result)) == (diagonal == -1)          # the first row sees no key then


def test_a_fully_masked_row_gives_nan_as_in_eager():
    b = Written()
    keep = torch.rand(2, 1, 40, 40) > 0.3
    keep[0, :, 3] = False
    scores = b(aten.where.ScalarOther, b.input(keep), b.scores(2.0), -math.inf)
    result = check(b, b.result(scores), True)
    assert "where.self" in targets(result)
    assert torch.isnan(run(result, b.tensors)[0][0, :, 3]).all()


@pytest.mark.parametrize("mask", [(40, 40), (1, 1, 40), (2, 1, 1, 40), (2, 3, 40, 40)])
def test_an_added_mask(mask):
    values = rnd(*mask)
    values[..., -3:] = -math.inf
    b = Written()
    check(b, b.result(b(aten.add.Tensor, b.scores(2.0), b.input(values))), True)
    values[..., -1:, :] = -math.inf
    b = Written()
    check(b, b.result(b(aten.add.Tensor, b.input(values), b.scores(2.0))), True)


def test_two_boolean_masks_join():
    b = Written()
    scores = b(aten.masked_fill.Scalar, b.scores(2.0), b(aten.bitwise_not.default, causal(b, 40)), -math.inf)
    check(b, b.result(b(aten.masked_fill.Scalar, scores, b.input(torch.rand(2, 1, 1, 40) > 0.5), -math.inf)), True)


def test_one_key_value_head_for_all_queries():
    b = Build()
    q, k, v = b.input(rnd(2, 3, 40, 8)), b.input(rnd(2, 1, 40, 8)), b.input(rnd(2, 1, 40, 8))
    scores = b(aten.matmul.default, q, b(aten.transpose.int, k, -1, -2))
    check(b, b(aten.matmul.default, b(aten.softmax.int, scores, -1), v), True)


def miss_dropout(b):
    return b(aten.matmul.default, b(aten.mul.Tensor, b.weights(b.scores(2.0)), b.input((torch.rand(2, 3, 40, 40) > 0.1).float())), b.v)


def miss_scores_read_twice(b):
    scores = b.scores(2.0)
    return b(aten.add.Tensor, b.result(scores), b(aten.sum.default, scores))


def miss_weights_read_twice(b):
    weights = b.weights(b.scores(2.0))
    return b(aten.add.Tensor, b(aten.matmul.default, weights, b.v), b(aten.sum.default, weights))


def miss_softmax_over_queries(b):
    return b(aten.matmul.default, b(aten.softmax.int, b.scores(2.0), -2), b.v)


def miss_finite_fill(b):
    return b.result(b(aten.masked_fill.Scalar, b.scores(2.0), b(aten.bitwise_not.default, causal(b, 40)), -1e4))


def miss_negative_scale(b):
    return b.result(b.scores(-2.0))


def miss_scale_by_a_tensor(b):
    return b.result(b(aten.mul.Tensor, b.scores(), b.input(rnd(3, 1, 1))))


def miss_scaled_addition(b):
    return b.result(b(aten.add.Tensor, b.scores(2.0), b.input(rnd(40, 40)), alpha=2))


def miss_added_after_softmax(b):
    return b(aten.matmul.default, b(aten.add.Tensor, b.weights(b.scores(2.0)), b.input(rnd(40, 40))), b.v)


def miss_masked_and_added(b):
    scores = b(aten.add.Tensor, b.scores(2.0), b.input(rnd(40, 40)))
    return b.result(b(aten.masked_fill.Scalar, scores, b(aten.bitwise_not.default, causal(b, 40)), -math.inf))


def miss_key_written_later(b):
    output = b.result(b.scores(2.0))
    b(aten.add_.Tensor, b.k, 1)
    return output


def miss_wider_values(b):
    return b(aten.matmul.default, b.weights(b.scores(2.0)), b.input(rnd(2, 3, 40, 16)))


@pytest.mark.parametrize("miss", [value for name, value in sorted(globals().items()) if name.startswith("miss_")])
def test_near_misses(miss):
    b = Written()
    check(b, miss(b), False)


def test_float16_and_strict_numerics_do_not_match():
    b = Written(dtype=torch.float16)
    check(b, b.result(b.scores(2.0)), False, rtol=1e-2, atol=1e-2)
    b = Written()
    graph = b.done(b.result(b.scores(2.0)))
    assert recognise_attention(graph, Context(AMX, numerics="strict")) is graph


def test_where_it_does_not_pay_it_stays():
    b = Written(dtype=torch.bfloat16)
    check(b, b.result(b.scores(2.0)), False, target=Target(), rtol=5e-2, atol=5e-2)
    b = Written((2, 3, 1, 8), keys=64)
    check(b, b.result(b.scores(2.0)), False)
    b = Written((2, 3, 8, 8))
    check(b, b.result(b.scores(2.0)), False)
    b = Written((2, 3, 8, 8), dtype=torch.bfloat16)
    check(b, b.result(b.scores(2.0)), True, target=Target(kind="cuda"), rtol=5e-2, atol=5e-2)


PAIRS = Target(vector_bytes=64, library_calls=frozenset({"onednn", "onednn_bf16", "bf16_pairs"}))


@pytest.mark.parametrize("mask, sizes, expected", [
    (None, (2, 3, 40, 8), True), ("causal", (2, 3, 40, 8), True), ("band", (2, 3, 40, 8), False), ("added", (2, 3, 40, 8), False), (None, (2, 3, 40, 12), False),
])
def test_bfloat16_by_pairs_takes_no_mask_but_a_causal_one(mask, sizes, expected):
    b = Written(sizes, dtype=torch.bfloat16)
    scores = b.scores(2.0)
    if mask == "added":
        scores = b(aten.add.Tensor, scores, b.input(rnd(40, 40, dtype=torch.bfloat16)))
    elif mask is not None:
        keep = causal(b, 40) if mask == "causal" else b(aten.tril.default, b(aten.ones.default, [40, 40], dtype=torch.bool), 3)
        scores = b(aten.masked_fill.Scalar, scores, b(aten.bitwise_not.default, keep), -math.inf)
    check(b, b.result(scores), expected, target=PAIRS, rtol=5e-2, atol=5e-2)


ON_GPU = Target(kind="cuda")


def called(b: Build, mask, target=AMX):
    """The settled graph of one attention call with `mask`, and the arguments of that call."""
    q, k, v = (b.input(rnd(2, 3, 40, 8)) for _ in range(3))
    made = mask(b)
    graph = b.done(b(aten.scaled_dot_product_attention.default, q, k, v, made))
    result = settle_masks(graph, Context(target))
    assert_same(graph, result, b.tensors, rtol=1e-4, atol=1e-5)
    node = next(node for node in result.nodes if node.target is aten.scaled_dot_product_attention.default)
    return result is not graph, bind(node)


OPEN = (lambda b: b(aten.ones.default, [40, 40], dtype=torch.bool), lambda b: b(aten.zeros.default, [2, 1, 40, 40]),
        lambda b: b(aten.expand.default, b(aten.ge.Scalar, b(aten.arange.default, 40), 0), [2, 1, 40, 40]))
CAUSAL = (lambda b: causal(b, 40), lambda b: b(aten.expand.default, causal(b, 40), [2, 1, 40, 40]),
          lambda b: b(aten.triu.default, b(aten.full.default, [40, 40], -math.inf), 1))
OTHERS = (lambda b: b(aten.tril.default, b(aten.ones.default, [40, 40], dtype=torch.bool), 1), lambda b: b.input(rnd(40, 40) > -1),
          lambda b: b.input(rnd(40, 40)), lambda b: b(aten.expand.default, b.input(rnd(1, 1, 1, 1) > -9), [2, 1, 40, 40]))


@pytest.mark.parametrize("mask", OPEN)
def test_a_mask_that_hides_nothing_goes(mask):
    changed, a = called(Build(), mask)
    assert changed and a.attn_mask is None and not a.is_causal


@pytest.mark.parametrize("mask", CAUSAL)
def test_a_triangle_given_as_a_mask_becomes_a_flag(mask):
    changed, a = called(Build(), mask)
    assert changed and a.attn_mask is None and a.is_causal


@pytest.mark.parametrize("mask", OTHERS)
def test_other_masks_stay_and_are_numbers_without_gaps_on_a_gpu(mask):
    changed, a = called(Build(), mask)
    assert not changed and a.attn_mask is not None
    _, a = called(Build(), mask, ON_GPU)
    assert meta(a.attn_mask).dtype == "float32" and meta(a.attn_mask).strides[-1] == 1


def test_the_mask_of_many_layers_is_looked_at_once(monkeypatch):
    looked = []
    worked_out = attention_masks.worked_out
    monkeypatch.setattr(attention_masks, "worked_out", lambda mask: looked.append(mask) or worked_out(mask))
    b = Written()
    hidden, outputs = b(aten.logical_not.default, causal(b, 40)), []
    for _ in range(4):
        fresh = b(aten.logical_not.default, b(aten.logical_not.default, hidden))       # a node of its own in each layer
        scores = b(aten.masked_fill.Scalar, b.scores(8 ** 0.5), fresh, -math.inf)
        outputs.append(b(aten.matmul.default, b.weights(scores), b.v))
    total = b(aten.add.Tensor, b(aten.add.Tensor, outputs[0], outputs[1]), b(aten.add.Tensor, outputs[2], outputs[3]))
    result = recognise_attention(b.done(total), Context(AMX))
    assert targets(result).count("scaled_dot_product_attention.default") == 4
    assert 1 <= len(looked) <= 2
