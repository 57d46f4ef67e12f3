"""Linear layers recognised, merged where they share an input, and given to the library that measures fastest."""

import pytest
import torch

from graph.build import Build, assert_same, targets
from thruway.core.target import Target
from thruway.graph.derived import mark_derived
from thruway.graph.patterns.cpu_linear import choose_linear, merging_pays, saved_calls, select_linears
from thruway.graph.patterns.linear import merge_linears, recognise_linear
from thruway.graph.rewrite import Context

aten = torch.ops.aten
CPU = Target(library_calls=frozenset({"onednn", "onednn_bf16", "mkl"}))
INTEL = Target(library_calls=frozenset({"onednn", "onednn_bf16", "mkl", "mkl_fast"}))
ONEDNN, MKL = "mkldnn._linear_pointwise.default", "mkl._mkl_linear.default"


def rnd(*sizes, dtype=torch.float32):
    return (torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes))) * 0.1).to(dtype)


def after(b, passes, *outputs, context=None):
    graph = b.done(*outputs)
    result, context = graph, context or Context(CPU)
    for one in passes:
        result = one(result, context)
        result.lint()
    low = any(t.dtype == torch.bfloat16 for t in b.tensors)
    assert_same(graph, result, b.tensors, rtol=2e-2 if low else 1e-4, atol=2e-2 if low else 1e-5)
    return result


def test_products_with_a_weight_are_linear():
    b = Build()
    x = b.input(rnd(16, 4))
    y = b(aten.addmm.default, b.weight(rnd(5)), x, b.weight(rnd(4, 5)))
    z = b(aten.mm.default, y, b(aten.t.default, b.weight(rnd(6, 5))))
    assert targets(after(b, [recognise_linear], z)).count("linear.default") == 2


@pytest.mark.parametrize("bias, factors", [((16, 5), {}), ((5,), {"beta": 2}), ((5,), {"alpha": 0.5}), ((1,), {}), ((1, 5), {})])
def test_other_products_stay(bias, factors):
    b = Build()
    graph = b.done(b(aten.addmm.default, b.weight(rnd(*bias)), b.input(rnd(16, 4)), b.weight(rnd(4, 5)), **factors))
    assert recognise_linear(graph, Context(CPU)) is graph


def test_a_product_of_two_inputs_stays():
    b = Build()
    graph = b.done(b(aten.mm.default, b.input(rnd(16, 4)), b.input(rnd(4, 5))))
    assert recognise_linear(graph, Context(CPU)) is graph


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_linears_of_one_input_merge(dtype, bias):
    b = Build()
    x = b(aten.relu.default, b.input(rnd(4, 4, 4, dtype=dtype)))
    parts = [b(aten.linear.default, x, b.weight(rnd(n, 4, dtype=dtype)), b.weight(rnd(n, dtype=dtype)) if bias else None) for n in (5, 6, 7)]
    views = [b(aten.view.default, part, [16, part.meta["value"].sizes[-1]]) for part in parts]
    result = after(b, [merge_linears], *[b(aten.sin.default, view) for view in views])
    assert targets(result).count("linear.default") == 1 and targets(result).count("slice.Tensor") == 3


def test_weights_made_later_are_brought_forward():
    b = Build()
    x = b.input(rnd(16, 4))
    first = b(aten.linear.default, x, b.weight(rnd(5, 4)))
    second = b(aten.linear.default, x, b(aten.mul.Tensor, b.weight(rnd(5, 4)), 2))
    assert targets(after(b, [merge_linears], b(aten.mul.Tensor, first, second))).count("linear.default") == 1


def miss_other_input(b, x):
    return [b(aten.linear.default, x, b.weight(rnd(5, 4))), b(aten.linear.default, b(aten.sin.default, x), b.weight(rnd(5, 4)))]


def miss_one_bias(b, x):
    return [b(aten.linear.default, x, b.weight(rnd(5, 4)), b.weight(rnd(5))), b(aten.linear.default, x, b.weight(rnd(5, 4)))]


def miss_weight_is_an_input(b, x):
    return [b(aten.linear.default, x, b.weight(rnd(5, 4))), b(aten.linear.default, x, b.input(rnd(5, 4)))]


def miss_input_is_written(b, x):
    first = b(aten.linear.default, x, b.weight(rnd(5, 4)))
    b(aten.add_.Tensor, x, 1)
    return [first, b(aten.linear.default, x, b.weight(rnd(5, 4)))]


@pytest.mark.parametrize("miss", [value for name, value in sorted(globals().items()) if name.startswith("miss_")])
def test_merge_near_misses(miss):
    b = Build()
    graph = b.done(*[b(aten.sin.default, y) for y in miss(b, b.input(rnd(16, 4)))])
    assert merge_linears(graph, Context(CPU)) is graph


def test_results_that_leave_the_graph_stay_apart():
    b = Build()
    x = b.input(rnd(16, 4))
    graph = b.done(b(aten.linear.default, x, b.weight(rnd(5, 4))), b(aten.linear.default, x, b.weight(rnd(5, 4))))
    assert merge_linears(graph, Context(CPU)) is graph


def test_no_merging_where_numerics_are_strict_or_memory_is_short():
    for context in (Context(CPU, numerics="strict"), Context(CPU, derived_limit=10)):
        b = Build()
        x = b.input(rnd(16, 4))
        y = b(aten.mul.Tensor, b(aten.linear.default, x, b.weight(rnd(5, 4))), b(aten.linear.default, x, b.weight(rnd(5, 4))))
        graph = b.done(y)
        assert merge_linears(graph, context) is graph


@pytest.mark.parametrize("target, dtype, rows, sides, call", [
    (CPU, "float32", 1, (64, 64), "plain"), (CPU, "float32", 8, (64, 64), "plain"), (CPU, "float32", 64, (64, 64), "plain"),
    (CPU, "float32", 1, (512, 2048), "plain"), (CPU, "float32", 128, (512, 1536), "onednn"), (CPU, "float32", None, (512, 1536), "onednn"),
    (INTEL, "float32", 1, (512, 2048), "plain"), (INTEL, "float32", 16, (64, 64), "plain"), (INTEL, "float32", 256, (512, 1536), "mkl"),
    (CPU, "bfloat16", 1, (64, 64), "plain"), (CPU, "bfloat16", 1, (512, 1536), "onednn"), (CPU, "bfloat16", 256, (512, 4096), "onednn"),
    (CPU, "float64", 256, (512, 512), "plain"), (CPU, "float16", 256, (512, 512), "plain"), (Target(), "float32", 256, (512, 512), "plain"),
])
def test_choice(target, dtype, rows, sides, call):
    assert choose_linear(target, dtype, rows, sides[0] * sides[1]) == call


def test_merging_costs_memory_only_where_it_is_packed_anyway():
    assert merging_pays(CPU, "float32", 128, 1 << 20, 4)
    assert not merging_pays(CPU, "float32", 1, 1 << 20, 4)
    assert merging_pays(Target(kind="cuda"), "float32", 1, 1 << 20, 4)


@pytest.mark.parametrize("target, dtype, call", [(CPU, torch.float32, ONEDNN), (CPU, torch.bfloat16, ONEDNN), (INTEL, torch.float32, MKL)])
@pytest.mark.parametrize("transposed", [False, True])
def test_packed_calls(target, dtype, call, transposed):
    b = Build()
    x = b.input(rnd(2, 64, 256, dtype=dtype))
    weight = b(aten.t.default, b.weight(rnd(256, 512, dtype=dtype))) if transposed else b.weight(rnd(512, 256, dtype=dtype))
    y = b(aten.linear.default, b(aten.relu.default, b(aten.linear.default, x, weight, b.weight(rnd(512, dtype=dtype)))), b.weight(rnd(256, 512, dtype=dtype)))
    result = after(b, [select_linears], y, context=Context(target))
    assert targets(result).count(call) == 2
    assert ("relu.default" in targets(result)) == (call == MKL)


def test_a_packed_weight_needs_memory_and_a_constant():
    b = Build()
    graph = b.done(b(aten.linear.default, b.input(rnd(64, 256)), b.weight(rnd(512, 256))))
    context = Context(CPU, derived_limit=1000)
    assert targets(select_linears(graph, context)) == ["linear.default"] and context.notes[0][0] == "unpacked"
    b = Build()
    graph = b.done(b(aten.linear.default, b.input(rnd(64, 256)), b.input(rnd(512, 256))))
    assert select_linears(graph, Context(CPU)) is graph


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("width, copies", [(600, 1), (512, 1), (521, 3)])
def test_long_rows_are_summed_in_runs(width, copies, bias):
    """Equal runs are copied at once; a prime width has none."""
    b = Build()
    x = b.input(rnd(2, 64, width))
    y = b(aten.linear.default, x, b.weight(rnd(512, width)), b.weight(rnd(512)) if bias else None)
    result = after(b, [select_linears], y, context=Context(CPU))
    runs = -(-width // 256)
    assert targets(result).count(ONEDNN) == 1 and targets(result).count("mkldnn._linear_pointwise.binary") == runs - 1
    assert targets(result).count("clone.default") == copies


def test_runs_of_rows_that_are_not_dense():
    b = Build()
    x = b(aten.permute.default, b.input(rnd(64, 768, 2)), [2, 0, 1])
    result = after(b, [select_linears], b(aten.linear.default, x, b.weight(rnd(512, 768))), context=Context(CPU))
    assert targets(result).count("mkldnn._linear_pointwise.binary") == 2


def test_low_precision_is_summed_in_one_call():
    b = Build()
    y = b(aten.linear.default, b.input(rnd(128, 1024, dtype=torch.bfloat16)), b.weight(rnd(512, 1024, dtype=torch.bfloat16)))
    result = after(b, [select_linears], y, context=Context(CPU))
    assert targets(result) == ["mkldnn._reorder_linear_weight.default", ONEDNN]


def test_packing_a_turned_weight_needs_memory_too():
    b = Build()
    graph = b.done(b(aten.linear.default, b.input(rnd(64, 256)), b(aten.t.default, b.weight(rnd(256, 512)))))
    context = Context(CPU, derived_limit=1000)
    assert targets(select_linears(graph, context)) == ["t.default", "linear.default"] and context.notes[0][0] == "unpacked"


@pytest.mark.parametrize("rows, packs", [(256, True), (32, False)])
@pytest.mark.parametrize("width", [384, 1024])
def test_without_memory_many_rows_are_packed_for_at_every_call(rows, packs, width):
    b = Build()
    y = b(aten.linear.default, b.input(rnd(rows, width)), b.weight(rnd(512, width)))
    result = after(b, [select_linears, mark_derived], y, context=Context(CPU, derived_limit=1000))
    found = [node for node in result.nodes if str(node.target).startswith("mkldnn._reorder")]
    assert bool(found) == packs and not any(node.meta.get("derived") for node in found)


def test_joining_weights_must_save_calls_that_can_be_felt():
    assert merging_pays(CPU, "float32", 256, 1 << 18, 4, saved=1) and not merging_pays(CPU, "float32", 256, 1 << 22, 4, saved=2)
    assert saved_calls("float32", 768, 3) == 6 and saved_calls("float32", 500, 3) == 2 and saved_calls("bfloat16", 768, 2) == 1


def test_products_of_ours_keep_no_packed_weight():
    wide = Target(vector_bytes=64, library_calls=CPU.library_calls)
    assert [choose_linear(wide, "float32", rows, 768 * 768) for rows in (1, 16, 64, 128, 1024)] == ["plain", "onednn", "plain", "plain", "plain"]
    assert choose_linear(wide, "bfloat16", 128, 768 * 768) == "onednn"
    b = Build()
    graph = b.done(b(aten.linear.default, b.input(rnd(128, 768)), b.weight(rnd(768, 768))))
    assert targets(select_linears(graph, Context(wide, derived_limit=0))) == ["linear.default"]
    assert "mkldnn._reorder_linear_weight.default" in targets(select_linears(graph, Context(CPU, derived_limit=0)))     # packed at every call


def test_a_processor_with_matrix_tiles_packs_bfloat16_and_leaves_float32_to_mkl():
    tiles = Target(vector_bytes=64, library_calls=frozenset({"onednn", "onednn_bf16", "onednn_fp16", "mkl", "mkl_fast", "amx"}))
    assert [choose_linear(tiles, "bfloat16", rows, 512 * 1536) for rows in (8, 128, 1024)] == ["onednn"] * 3
    assert [choose_linear(tiles, "float32", rows, 512 * 1536) for rows in (16, 128, 1024)] == ["mkl"] * 3
    assert not tiles.has_own_product("float32", 128, 128 * 512 * 1536)


def test_products_of_ours_in_bfloat16_keep_no_packed_weight():
    pairs = Target(vector_bytes=64, library_calls=CPU.library_calls | {"onednn_bf16", "bf16_pairs"})
    assert [choose_linear(pairs, "bfloat16", rows, 512 * 512) for rows in (16, 64, 128, 1024, None)] == ["onednn", "plain", "plain", "onednn", "onednn"]
    assert choose_linear(pairs, "bfloat16", 128, 512 * 512, fits=False) == "onednn"
    short = lambda *sizes: rnd(*sizes).bfloat16()
    for weight, made in ((short(512, 512), "linear.default"), (short(512, 512).t(), "mkldnn._linear_pointwise.default"), (short(500, 512), "mkldnn._linear_pointwise.default")):
        b = Build()
        graph = b.done(b(aten.linear.default, b.input(short(128, 512)), b.weight(weight)))
        assert targets(select_linears(graph, Context(pairs)))[-1] == made
