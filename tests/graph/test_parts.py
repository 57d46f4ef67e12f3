"""Graphs over several devices in parts, without any of the devices: what the parts compute on the CPU is compared with what the whole graph
computes there.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.fx import Node

from graph.paper import CPU, ONE, TWO, Paper, aten, on_cpu
from thruway import graph_compiler
from thruway.core.errors import Unsupported
from thruway.core.journal import Journal
from thruway.core.settings import Settings
from thruway.core.sizes import symbol
from thruway.core.target import Target
from thruway.gpu_compiler import print_graph, run_gpu_passes, split_derived
from thruway.graph.evaluate import evaluate
from thruway.graph.parts import Parts, devices_of, draws, writes_inputs
from thruway.graph.rewrite import copied
from thruway.native import RegionFailed
from thruway.runtime.parts import PartsRunnable, Step
from thruway.shapes.symbolic import Facts


def order(parts: Parts) -> list[str]:
    return [part.device or "move" for part in parts.steps]


def halves() -> tuple[Paper, tuple[Node, ...]]:
    paper = Paper()
    x, first, second = paper.input(torch.randn(4, 4), ONE), paper.input(torch.randn(4, 4), ONE), paper.input(torch.randn(4, 4), TWO)
    half = paper(aten.relu.default, paper(aten.mm.default, x, first))
    return paper, (paper(aten.mm.default, paper.move(half, TWO), second), paper(aten.sum.default, half))


def test_two_halves_are_two_parts_and_a_move():
    paper, outputs = halves()
    parts = paper.parts(*outputs)
    assert order(parts) == [ONE, "move", TWO]
    paper.compare(parts)


def test_the_cpu_in_the_middle_waits_and_is_waited_for():
    paper = Paper()
    x = paper.input(torch.randn(3, 3), ONE)
    there = paper(aten._to_copy.default, paper(aten.exp.default, x), device=CPU, non_blocking=True)
    back = paper.move(paper(aten.sum.dim_IntList, there, [0]), ONE)
    only = paper(aten._to_copy.default, x, device=CPU, non_blocking=True)
    parts = paper.parts(paper(aten.add.Tensor, back, paper(aten.sin.default, x)), only)
    assert order(parts) == ["move", ONE, "move", CPU, "move", ONE]
    assert sum(len(part.graph.find_nodes(op="call_function", target=aten.sin.default)) for part in parts.steps[1:2]) == 1       # needs nobody: first part
    first, second = (parts.steps[i].graph.find_nodes(op="call_function", target=aten._to_copy.default)[0] for i in (0, 2))
    assert first.kwargs["non_blocking"] and "non_blocking" not in second.kwargs
    paper.compare(parts)


def test_cpu_indices_are_moved_and_cpu_scalars_go_along():
    paper = Paper()
    x, index, scalar = paper.input(torch.randn(5, 3), ONE), paper.input(torch.tensor([2, 0]), CPU), paper.input(torch.tensor(3.0), CPU)
    rows = paper(aten.index.Tensor, x, [index])
    twice = paper(aten.mul.Tensor, scalar, 2.0)
    parts = paper.parts(paper(aten.mul.Tensor, rows, twice), paper(aten.index.Tensor, x, [None, index]))
    assert order(parts) == ["move", ONE] and scalar.name in parts.steps[1].inputs
    paper.compare(parts)


def test_a_scalar_that_the_cpu_computes_is_read_where_it_is():
    paper = Paper()
    x, y = paper.input(torch.randn(4), ONE), paper.input(torch.randn(4), CPU)
    parts = paper.parts(paper(aten.mul.Tensor, x, paper(aten.sum.default, paper(aten.exp.default, y))))
    assert order(parts) == [CPU, ONE]
    paper.compare(parts)


def test_a_graph_beside_cpu_scalars_and_unused_inputs_lies_on_one_device():
    paper = Paper()
    x, scalar, _ = paper.input(torch.randn(4), ONE), paper.input(torch.tensor(2.0), CPU), paper.input(torch.randn(4), TWO)
    paper.graph.output((paper(aten.mul.Tensor, x, paper(aten.exp.default, scalar)),))
    assert devices_of(paper.graph) == {ONE}


def test_writes_and_reads_of_a_cache_are_in_one_part():
    """A read that needs no other device still waits for the write that comes before it."""
    paper = Paper()
    x, cache = paper.input(torch.randn(2, 3), ONE), paper.input(torch.zeros(4, 3), TWO)
    before = paper(aten.sum.default, cache)
    written = paper(aten.copy_.default, paper(aten.slice.Tensor, cache, 0, 1, 3), x)
    after = paper(aten.sum.dim_IntList, paper(aten.view.default, cache, [4, 3]), [1])
    parts = paper.parts(before, after, paper(aten.exp.default, written))
    assert order(parts) == ["move", TWO]
    assert [writes_inputs(part.graph) for part in parts.steps] == [False, True]
    paper.compare(parts)


def test_moves_come_before_all_writes_or_behind_them():
    def made(*, between: bool):
        paper = Paper()
        x = paper.input(torch.randn(3), ONE)
        early = paper.move(x, TWO)
        once = paper(aten.add_.Tensor, x, 1.0)
        middle = paper.move(once, TWO) if between else early
        twice = paper(aten.mul_.Tensor, once, 2.0)
        return paper, (early, middle, paper.move(twice, TWO), paper(aten.exp.default, early))
    paper, outputs = made(between=False)
    paper.compare(paper.parts(*outputs))
    paper, outputs = made(between=True)
    with pytest.raises(Unsupported, match="between two writes"):
        paper.parts(*outputs)


def test_what_is_written_and_waits_for_its_own_reader_elsewhere_is_refused():
    paper = Paper()
    x = paper.input(torch.randn(3), ONE)
    once = paper(aten.add_.Tensor, x, 1.0)
    there = paper(aten.exp.default, paper.move(once, TWO))
    with pytest.raises(Unsupported):
        paper.parts(paper(aten.mul_.Tensor, once, paper.move(there, ONE)))


def test_draws_of_one_device_keep_their_order():
    paper = Paper()
    x, y = paper.input(torch.rand(3), CPU), paper.input(torch.rand(3), ONE)
    late = paper(aten.bernoulli.default, paper(aten.sigmoid.default, paper.move(paper(aten.exp.default, y), CPU)))
    parts = paper.parts(late, paper(aten.bernoulli.default, x))
    drawn = [node for part in parts.steps for node in part.graph.nodes if node.target is aten.bernoulli.default]
    assert [node.all_input_nodes[0].name != x.name for node in drawn] == [True, False]
    assert [draws(part.graph) for part in parts.steps] == [part.device == CPU for part in parts.steps]


def test_symbolic_sizes_are_refused():
    paper, outputs = halves()
    node = next(iter(paper.graph.nodes))
    node.meta["value"] = replace(node.meta["value"], sizes=(symbol("s0"), 4))
    with pytest.raises(Unsupported, match="sizes change"):
        paper.parts(*outputs)


def test_a_failure_before_anything_was_written_gives_random_state_back():
    def fail(x):
        torch.rand(3)
        raise IndexError("eager's own")
    state = torch.get_rng_state()
    with pytest.raises(RegionFailed):
        PartsRunnable([Step(lambda x: (x + 1,), ("x",), ("y",), False), Step(fail, ("y",), ("z",), False)], ("x",), ("z",), True)(torch.ones(2))
    assert torch.equal(state, torch.get_rng_state())
    with pytest.raises(IndexError):
        PartsRunnable([Step(lambda x: (x.add_(1),), ("x",), ("y",), True), Step(fail, ("y",), ("z",), False)], ("x",), ("z",), True)(torch.ones(2))


@pytest.mark.parametrize("writes_first", [True, False])
def test_a_part_that_has_written_when_it_fails_is_not_run_again(writes_first):
    def write_and_fail(x):
        if writes_first:
            x.add_(1)
        raise IndexError("eager's own")
    with pytest.raises(IndexError if writes_first else RegionFailed):
        PartsRunnable([Step(write_and_fail, ("x",), ("y",), True)], ("x",), ("y",), False)(torch.ones(2))


def test_parts_on_gpus_become_kernels_for_their_device():
    paper, outputs = halves()
    target = Target(kind="cuda", library_calls=frozenset({"cudnn", "cublaslt", "sm_90"}))
    for part in paper.parts(*outputs).steps:
        if part.device:
            main = split_derived(run_gpu_passes(part.graph, target, Journal(), "part", Settings(verify=2), None)).main
            steps = print_graph(main, target, part.device, Settings(), "float32", Journal(), "part").launch.steps
            assert {spec.device for step in steps if (spec := getattr(step, "spec", None))} <= {part.device}


def test_the_compiler_takes_each_part_where_it_lies(monkeypatch, tmp_path):
    """CPU parts are compiled as ever; what would run on a GPU runs on the CPU here."""
    paper = Paper()
    x, y = paper.input(torch.randn(8), ONE), paper.input(torch.randn(8), CPU)
    there = paper.move(paper(aten.exp.default, x), CPU)
    back = paper.move(paper(aten.add.Tensor, paper(aten.sin.default, there), y), ONE)
    paper.graph.output((paper(aten.mul.Tensor, back, x), there))
    whole, taken = on_cpu(copied(paper.graph)), []

    def on_gpu(graph, *_):
        taken.append(devices_of(graph))
        return lambda *inputs: evaluate(on_cpu(graph), inputs)

    monkeypatch.setattr(graph_compiler, "compile_on_gpu", on_gpu)
    monkeypatch.setattr(graph_compiler, "evaluate", lambda graph, inputs: evaluate(on_cpu(graph), inputs))
    journal, setting = Journal(), Settings(cache_dir=str(tmp_path / "cache"))
    compiler = graph_compiler.GraphCompiler(journal)
    run = compiler._compile_operators(paper.graph, "f", setting, compiler.machine(setting), "float32", "default", Facts(), False)
    for _ in range(2):
        torch.testing.assert_close(run(*paper.inputs), evaluate(whole, paper.inputs))
    assert taken == [{ONE}, {ONE}]
    assert [event.detail for event in journal.of_kind("parts")] == ["cuda:0 and cpu and cuda:0, with 2 moves between devices"]


def storage(paper: Paper, node: Node) -> int:
    return paper.tensors[node].untyped_storage().data_ptr()


@st.composite
def programs(draw):
    """Paper with some thirty operators over three devices, and its outputs."""
    paper = Paper()
    torch.manual_seed(draw(st.integers(0, 1000)))
    values = [paper.input(torch.randn(4, 4), device) for device in (CPU, ONE, TWO, ONE)] + [paper.input(torch.tensor(1.5), CPU)]
    for _ in range(draw(st.integers(3, 30))):
        values = values or [paper.input(torch.randn(4, 4), ONE)]
        one, other = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        device = one.meta["value"].device
        kind = draw(st.sampled_from(["unary", "binary", "move", "view", "write", "index", "scalar", "like"]))
        is_matrix = one.meta["value"].sizes == (4, 4)
        match kind:
            case "unary":
                values.append(paper(aten.sin.default, one))
            case "binary" if is_matrix and (other.meta["value"].device == device or not other.meta["value"].sizes and other.meta["value"].device == CPU):
                values.append(paper(aten.add.Tensor, one, other))
            case "move":
                values.append(paper.move(one, draw(st.sampled_from([each for each in (CPU, ONE, TWO) if each != device]))))
            case "view" if is_matrix:
                values.append(paper(aten.t.default, one))
            case "write" if is_matrix and other.meta["value"].sizes == (4, 4):
                memory, stays = storage(paper, one), storage(paper, one) == storage(paper, other) or draw(st.booleans())
                values = [each for each in values if storage(paper, each) != memory]              # a read must stand behind the write
                values.append(paper(aten.add_.Tensor, one, 0.5) if stays else paper(aten.copy_.default, one, other))
            case "index" if is_matrix:
                index = paper.input(torch.tensor([3, 1, 0, 2]), draw(st.sampled_from([CPU, device])))
                values.append(paper(aten.index.Tensor, one, [index]))
            case "scalar":
                values.append(paper(aten.sum.default, one))
            case "like":
                values.append(paper(aten.zeros_like.default, one))
            case _:
                pass
    return paper, [node for node in values if node.op != "placeholder"] or [paper(aten.neg.default, paper.input(torch.randn(4, 4), TWO))]


@settings(max_examples=60, deadline=None)
@given(programs())
def test_parts_compute_what_the_whole_computes(made):
    paper, outputs = made
    try:
        parts = paper.parts(*outputs)
    except Unsupported as refused:
        assert any(node.target in (aten.add_.Tensor, aten.copy_.default) for node in paper.graph.nodes), refused      # writes alone are refused
        return
    paper.compare(parts)
