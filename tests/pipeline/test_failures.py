"""Whatever goes wrong is recorded and answered by eager; errors of the user's own arrive as eager raises them, at the user's line."""

from __future__ import annotations

import gc
import os
import traceback
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import thruway
from thruway import backends, graph_compiler, pipeline
from thruway.core.errors import Unsupported
from thruway.native import RegionFailed

HERE = __file__


def add_one(x):
    return x.sin() + 1


def reasons() -> list[str]:
    return [event.reason.code for event in pipeline.journal.of_kind("eager") if event.reason]


@pytest.fixture(autouse=True)
def fresh():
    thruway.reset()
    yield
    thruway.reset()


STAGES = ("retrace", "run_passes", "lower", "simplify", "build_plan", "generate", "load_artifact")


@pytest.mark.faults
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("error", [Unsupported("TW999", "a test"), ValueError("a fault"), RecursionError("deep")])
def test_a_stage_that_fails(monkeypatch, stage, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(graph_compiler, stage, fail)
    compiled = thruway.compile(add_one)
    x = torch.randn(4)
    for _ in range(2):
        assert torch.equal(compiled(x), add_one(x))
    found = thruway.metrics()
    code, bugs = ("TW999", 0) if isinstance(error, Unsupported) else ("TW900", 1)
    assert found["graphs"] == 1 and (found["eager"], found["bugs"]) == (1, bugs) and reasons() == [code]


def test_a_cache_folder_that_may_hold_nothing_costs_compiling_and_nothing_else(tmp_path):
    def sums_and_products(x):
        return (x.sin() * 2).sum(0), (x.cos() + 1).amax(1), x.exp().cumsum(0) / 3

    compiled = thruway.compile(sums_and_products, options={"cache_dir": str(tmp_path / "cache"), "cache_size_mb": 0, "measure": False})
    x = torch.randn(5, 7)
    for got, expected in zip(compiled(x), sums_and_products(x), strict=True):
        torch.testing.assert_close(got, expected)
    found = thruway.metrics()
    assert found["graphs"] == 1 and found["eager"] == found["bugs"] == 0 and found["cache_misses"] > 0


@pytest.mark.faults
def test_a_fault_of_ours_is_told_without_being_asked(monkeypatch, capsys):
    def half_past(x):
        return x.cos() + 0.5

    monkeypatch.setattr(graph_compiler, "lower", lambda *args: {}["a fault"])
    told = thruway.explain(half_past)(torch.ones(2))
    assert [reason.code for reason in told.eager] == ["TW900"] and "THRUWAY_DUMP" in told.eager[0].hint
    assert "half_past does not run compiled as a whole: TW900: a fault of thruway itself: KeyError: 'a fault'" in capsys.readouterr().err


@pytest.mark.faults
def test_a_capture_that_fails(monkeypatch):
    monkeypatch.setattr(pipeline, "capture", lambda *args, **kwargs: 1 / 0)
    compiled = thruway.compile(add_one)
    assert torch.equal(compiled(torch.ones(2)), add_one(torch.ones(2)))
    assert thruway.metrics()["bugs"] == 1 and reasons() == ["TW900"]


@pytest.mark.parametrize("error", [RegionFailed("no"), RegionFailed("later")])
def test_a_run_that_gives_up(monkeypatch, error):
    calls = []

    def load(*args, **kwargs):
        def call(*inputs):
            calls.append(inputs)
            raise error

        return type("Runnable", (), {"call": staticmethod(call)})

    monkeypatch.setattr(graph_compiler, "load_artifact", load)
    compiled = thruway.compile(add_one)
    x = torch.randn(4)
    for _ in range(3):
        assert torch.equal(compiled(x), add_one(x))
    assert len(calls) == 1 and reasons() == ["TW811"]


@pytest.mark.faults
def test_guards_that_do_not_hold(monkeypatch):
    real = pipeline.capture

    def broken(function, arguments, *args, **kwargs):
        return real(function, tuple(each + 1 if isinstance(each, int) else each for each in arguments), *args, **kwargs)

    monkeypatch.setattr(pipeline, "capture", broken)

    def shift(x, n):
        return x + n

    assert torch.equal(thruway.compile(shift)(torch.ones(2), 3), torch.full((2,), 4.0))
    assert reasons() == ["TW900"]


def test_stopping_after_a_stage():
    compiled = thruway.compile(add_one, options={"stop": "plan"})
    assert torch.equal(compiled(torch.ones(2)), add_one(torch.ones(2)))
    assert reasons() == ["TW803"]


def wrong_shapes(a, b):
    c = a.relu()
    return c @ b                                     # the line that fails


def out_of_range(a, b):
    table = a.abs() + 1
    return nn.functional.embedding(b, table).sum()   # the line that fails


def bad_index(a, b):
    c = a * 2
    return c[b]                                      # the line that fails


def wrong_word(a, b):
    c = a * 2
    return c.softmax(dimension=b)                    # the line that fails


def raises_itself(a, b):
    if a.shape[0] == 3:
        raise KeyError("three")                      # the line that fails
    return a


def reads_past_the_end(a, b):
    return [a, a * 2][b]                             # the line that fails


def inner_module_fails(a, b):
    return nn.functional.linear(a, b)                # the line that fails


def not_positive(a, b):
    c = a @ a.mT - 100
    return torch.linalg.cholesky(c) + b              # the line that fails


ERRORS = [
    (wrong_shapes, (torch.ones(3, 4), torch.ones(3, 4)), (torch.ones(3, 4), torch.ones(4, 2))),
    (out_of_range, (torch.ones(3, 4), torch.tensor([0, 7])), (torch.ones(3, 4), torch.tensor([0, 2]))),
    (bad_index, (torch.ones(3, 4), torch.tensor([0, 7])), (torch.ones(3, 4), torch.tensor([0, -3]))),
    (bad_index, (torch.ones(3, 4), torch.tensor([-9, 1])), (torch.ones(3, 4), torch.tensor([0, -3]))),
    (wrong_word, (torch.ones(3, 4), 0), None),
    (raises_itself, (torch.ones(3, 4), 0), (torch.ones(2, 4), 0)),
    (reads_past_the_end, (torch.ones(3, 4), 5), (torch.ones(3, 4), 1)),
    (inner_module_fails, (torch.ones(3, 4), torch.ones(5, 5)), (torch.ones(3, 4), torch.ones(5, 4))),
    (not_positive, (torch.ones(3, 3), torch.ones(3, 3)), None),
]


def failure_of(function, args) -> Exception:
    with pytest.raises(Exception) as raised:
        function(*args)
    return raised.value


@pytest.mark.parametrize("backend", ["thruway", "eager"])
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("function, bad, good", ERRORS)
def test_errors_of_the_user(function, bad, good, backend, fullgraph, grad):
    bad = tuple(each.clone().requires_grad_() if grad and isinstance(each, torch.Tensor) and each.is_floating_point() else each for each in bad)
    expected = failure_of(function, bad)
    compiled = thruway.compile(function, backend=backend, fullgraph=fullgraph)
    for args in (bad, good, bad):
        if args is None:
            continue
        if args is good:
            torch.testing.assert_close(compiled(*args), function(*args))
            continue
        got = failure_of(compiled, args)
        assert type(got) is type(expected) and str(got) == str(expected)
        lines = [frame.line for frame in traceback.extract_tb(got.__traceback__) if frame.filename == HERE]
        assert any("the line that fails" in line for line in lines), lines


def test_wrong_arguments():
    compiled = thruway.compile(add_one)
    assert str(failure_of(compiled, (1, 2))) == str(failure_of(add_one, (1, 2)))


class Drawn(nn.Module):
    def forward(self, x, index):
        return nn.functional.dropout(x, 0.5, True)[index]


@pytest.mark.parametrize("backend", ["thruway", "eager"])
def test_random_state_after_a_failure(backend):
    model = Drawn()
    bad, good = (torch.ones(4, 4), torch.tensor([9])), (torch.ones(4, 4), torch.tensor([1]))
    compiled = thruway.compile(model, backend=backend)
    for args in (good, bad, good):
        torch.manual_seed(3)
        try:
            expected = model(*args)
        except IndexError as error:
            expected = error
        state = torch.get_rng_state()
        torch.manual_seed(3)
        if isinstance(expected, IndexError):
            assert str(failure_of(compiled, args)) == str(expected)
        else:
            assert torch.equal(compiled(*args), expected)
        assert torch.equal(torch.get_rng_state(), state)


def process_state() -> dict[str, object]:
    tiny = torch.tensor(1e-310, dtype=torch.float64)
    small = torch.tensor([1e-39])
    return {
        "threads": torch.get_num_threads(), "interop": torch.get_num_interop_threads(), "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(), "random": torch.get_rng_state().tolist(), "filters": list(warnings.filters),
        "flushes": ((tiny * 0.5).item(), (small * 0.5).item(), 1e-310 * 0.5), "grad": torch.is_grad_enabled(), "collector": gc.isenabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(), "matmul": torch.get_float32_matmul_precision(),
        "mkldnn": torch.backends.mkldnn.enabled, "showwarning": warnings.showwarning, "print": torch._tensor_str.PRINT_OPTS,
    }


@pytest.mark.parametrize("backend", ["thruway", "eager"])
def test_the_process_stays_as_it_was(backend):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.Sequential(nn.Linear(16, 16), layer, nn.LayerNorm(16), nn.Linear(16, 4)).eval()
    x = torch.randn(2, 5, 16)
    before = process_state()
    with torch.no_grad():
        compiled = thruway.compile(model, backend=backend)
        compiled(x)
        assert thruway.metrics()["graphs"] == 1
        compiled(x)
    thruway.compile(model, backend=backend)(x).sum().backward()
    assert process_state() == before


def test_the_collector_stays_off_where_it_was():
    gc.disable()
    try:
        thruway.compile(add_one)(torch.ones(2))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_backend_gets_the_tensors_of_the_call():
    seen = []

    def backend(graph, inputs):
        seen.append([tuple(each.shape) for each in inputs])
        graph(*inputs)
        return graph

    model = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    assert torch.equal(thruway.compile(model, backend=backend)(x), model(x))
    assert sorted(seen[0]) == [(2,), (2, 3), (4, 3)]


def test_a_backend_that_fails_says_so():
    def backend(graph, inputs):
        raise ValueError("mine")

    with pytest.raises(thruway.BackendError, match="backend 'backend' failed on a graph of add_one: ValueError: mine") as raised:
        thruway.compile(add_one, backend=backend)(torch.ones(2))
    assert isinstance(raised.value.__cause__, ValueError) and isinstance(raised.value, thruway.ThruwayError)


def test_a_failing_backend_has_the_name_that_was_asked_for(monkeypatch):
    def compiler_fn(graph, inputs):
        raise ImportError("not installed")

    monkeypatch.setattr(backends, "_installed", lambda group: {"mine": SimpleNamespace(load=lambda: compiler_fn)})
    with pytest.raises(thruway.BackendError, match="backend 'mine' failed on a graph of add_one: ImportError"):
        thruway.compile(add_one, backend="mine")(torch.ones(2))


def test_a_backend_that_gives_nothing_to_call_says_so():
    def backend(graph, inputs):
        return None

    with pytest.raises(thruway.BackendError, match="backend 'backend' gave None for a graph of add_one; it must give a callable"):
        thruway.compile(add_one, backend=backend)(torch.ones(2))


def test_a_graph_of_another_capture_keeps_gradients():
    graph = torch.fx.symbolic_trace(add_one)
    x = torch.ones(3, requires_grad=True)
    assert pipeline.compile_graph(graph, [x], pipeline.CompileOptions())(x).requires_grad
    with torch.no_grad():
        compiled = pipeline.compile_graph(graph, [x], pipeline.CompileOptions())
        torch.testing.assert_close(compiled(x)[0], add_one(x))
    assert thruway.metrics()["graphs"] == 2 and thruway.metrics()["eager"] == 1


def test_a_refused_cache_folder_is_said_and_costs_no_compilation(tmp_path):
    occupied = tmp_path / "occupied"
    occupied.write_text("a file")
    with thruway.settings.override(cache_dir=str(occupied)), pytest.warns(RuntimeWarning, match="name another in THRUWAY_CACHE_DIR"):
        told = thruway.explain(lambda x: x.sin() * 2)(torch.ones(3))
    assert told.graph_count == 1 and not told.eager and not any("bug" in note for note in told.notes)


def test_a_cache_folder_that_cannot_be_written_is_said_and_costs_no_compilation(tmp_path, monkeypatch):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    monkeypatch.setattr(os, "access", lambda path, wanted, **_: path != folder)
    with thruway.settings.override(cache_dir=str(folder)), pytest.warns(RuntimeWarning, match="cannot be written.*kept for this process alone"):
        told = thruway.explain(lambda x: x.sin() * 2)(torch.ones(3))
    assert told.graph_count == 1 and not told.eager and not any("bug" in note for note in told.notes)


def fails_in_a_side(x, i, v):
    x.add_(1)
    kept = x[x > 0] * 2
    if v.sum() > 0:
        made = torch.index_select(kept, 0, i)
    else:
        made = torch.index_select(kept, 0, i) * 2
    return made


@pytest.mark.parametrize("wants_grad", [False, True])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_error_in_a_side_of_a_branch_comes_from_its_line(capfd, wants_grad, sign):
    compiled = thruway.compile(fails_in_a_side)
    compiled(torch.ones(4), torch.tensor([1, 2]), torch.ones(2))
    arguments = lambda: (torch.ones(4), torch.tensor([1, 22]), torch.full((2,), sign, requires_grad=wants_grad))
    wanted, got = failure_of(fails_in_a_side, arguments()), failure_of(compiled, arguments())
    assert (type(got), str(got)) == (type(wanted), str(wanted))
    last = traceback.extract_tb(got.__traceback__)[-1]
    assert last.filename == HERE and last.lineno == traceback.extract_tb(wanted.__traceback__)[-1].lineno
    assert capfd.readouterr().err == ""                      # what torch.fx prints about errors in its modules
