"""Shadow mode: right code passes and shows nothing; for each kind of fault the stage, the node and the user's line are named, and the
script that is written shows the fault again in a process of its own."""

from __future__ import annotations

import functools
import logging
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import thruway
from report import sabotage
from thruway import CheckError
from thruway.surface import lazy

LOG: list = []
COUNT = 0
SCALE = 1.0


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    thruway.reset()
    monkeypatch.setattr(thruway.surface.lazy.loaded_pipeline() or lazy.pipeline(), "graphs", type(lazy.pipeline().graphs)(lazy.pipeline().journal))
    LOG.clear()
    with thruway.settings.override(check_dir=str(tmp_path / "out"), cache_dir=str(tmp_path / "cache")):
        yield


@pytest.fixture
def broken(monkeypatch):
    def put(target, name, value):
        (monkeypatch.setitem if isinstance(target, dict) else monkeypatch.setattr)(target, name, value)

    return lambda name: getattr(sabotage, name)(put)


def checked(fn, *args, calls=1, **words):
    """The difference that a checked call finds."""
    with pytest.raises(CheckError) as raised:
        compiled = thruway.compile(fn, check=calls, **words)
        for each in args if calls > 1 else [args]:
            compiled(*each)
    return raised.value


def rerun(script, fault=""):
    """The script in a process of its own, with the same fault or without."""
    start = f"from report import sabotage; sabotage.{fault}(sabotage.put); " if fault else ""
    program = f"import runpy; {start}runpy.run_path({script!r}, run_name='__main__')"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=_environment())


def _environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ["PYTHONPATH"]]),
                         "THRUWAY_CACHE_DIR": thruway.settings.cache_dir + "-again"}


def reproduces(error, fault):
    assert Path(error.script).exists() and error.script in str(error)
    found = rerun(error.script, fault)
    assert found.returncode == 1 and "CheckError" in found.stderr, found.stderr


# -- where nothing is wrong ---------------------------------------------------------------------------------------------------------------

def eventful(x, scale):
    global COUNT
    COUNT += 1
    print("called", COUNT)
    warnings.warn("once", stacklevel=1)
    logging.getLogger("shadow").warning("logged")
    LOG.append(x.shape)
    x.add_(1)
    return torch.nn.functional.dropout(x * scale, 0.5), x


def test_effects_happen_once_and_random_numbers_are_eagers(capsys, caplog):
    global COUNT
    COUNT = 0
    compiled = thruway.compile(eventful, check=2)
    for i in range(4):
        x = torch.ones(8)
        torch.manual_seed(i)
        got, same = compiled(x, 2.0)
        torch.manual_seed(i)
        assert torch.equal(got, torch.nn.functional.dropout(torch.full((8,), 4.0), 0.5)) and same is x and x[0] == 2
    assert capsys.readouterr().out == "".join(f"called {i + 1}\n" for i in range(4)) and len(LOG) == COUNT == 4
    assert [record.message for record in caplog.records] == ["logged"] * 4


def test_a_module_with_buffers_and_gradients():
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh())
    compiled = thruway.compile(net, check=2)
    for i in range(3):
        compiled(torch.randn(8, 4)).sum().backward()
        assert net[1].num_batches_tracked == i + 1 and net[0].weight.grad is not None


def test_views_objects_and_errors_pass():
    class Box:
        total = 0

        def __init__(self):
            self.items = {"a": [torch.zeros(3)]}

    def f(x, box, boxes=[]):
        Box.total += 1
        boxes.append(box)
        box.items["b"] = x[1:]
        if x.shape[0] > 3:
            raise ValueError(f"long {x.shape[0]}")
        return box, x.t(), box.items

    compiled, box = thruway.compile(f, check=3), Box()
    for _ in range(3):
        result = compiled(torch.ones(2, 2), box)
        assert result[0] is box and result[2] is box.items
    assert Box.total == 3 and len(f.__defaults__[0]) == 3
    with pytest.raises(ValueError, match="long 4"):
        thruway.compile(f, check=3)(torch.ones(4, 2), box)


def test_after_the_checked_calls_nothing_is_left_in_the_way():
    compiled = thruway.compile(lambda x: x * 2, check=2)
    for _ in range(3):
        compiled(torch.ones(3))
    misses = compiled.misses
    compiled(torch.ones(3))
    assert compiled.misses == misses and len(compiled.entries) == 1


def test_what_cannot_run_twice_is_left_unchecked():
    def f(rows):
        return sum(next(rows) for _ in range(2))

    assert thruway.compile(f, check=1)(iter([torch.ones(1), torch.ones(1), torch.zeros(1)])) == 2
    assert "iterator" in lazy.pipeline().journal.of_kind("unchecked")[0].detail


def test_eager_that_differs_from_itself_is_no_fault():
    def f(x):
        return x * (time.perf_counter_ns() % 1009)

    assert thruway.compile(f, check=1)(torch.ones(2)).shape == (2,)
    assert "differs from itself" in lazy.pipeline().journal.of_kind("unchecked")[-1].detail


def test_the_setting_checks_every_compilation(broken):
    broken("in_capture")
    with thruway.settings.override(check=1), pytest.raises(CheckError):
        thruway.compile(lambda x: x.cos() + torch.cos(x))(torch.ones(2))
    assert thruway.compile(lambda x: torch.cos(x), check=0)(torch.zeros(2)).sum() == 0


# -- faults -------------------------------------------------------------------------------------------------------------------------------

def waves(x):
    y = x + 1
    z = torch.cos(y)
    return z.sum(), z


def test_a_wrong_capture(broken):
    broken("in_capture")
    error = checked(waves, torch.arange(4.0))
    assert error.stage == "capture" and error.place == "result[0]" and "sin" in error.node
    assert error.line.text.strip() == "z = torch.cos(y)"
    reproduces(error, "in_capture")
    mended = rerun(error.script)
    assert mended.returncode == 0 and "does what eager does" in mended.stdout, mended.stderr


def test_a_lost_gradient(broken):
    broken("in_gradients")
    error = checked(lambda x: torch.exp(x) + x, torch.ones(3, requires_grad=True))
    assert error.place.startswith("gradients") and error.stage == "capture" and Path(error.script).exists()


def notes(x):
    LOG.append(x.shape[0])
    return x + 1


def test_a_lost_effect(broken):
    broken("in_effects")
    error = checked(notes, torch.ones(3))
    assert error.stage == "capture" and error.place == "variable LOG"


def scaled(x, how):
    return x * 2 if how == "double" else x * 3


def test_a_missing_guard(broken):
    broken("in_guards")
    error = checked(scaled, (torch.ones(3), "double"), (torch.ones(3), "triple"), calls=2)
    assert error.stage == "guards" and "how" in error.node
    reproduces(error, "in_guards")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        y = self.inner(x)
        y = y * 3.5
        return torch.relu(y) + 1


@pytest.mark.parametrize("fault, stage, text", [
    ("in_passes", "graph passes (decompose)", "return torch.relu(y) + 1"), ("in_lowering", "loops (lower)", "return torch.relu(y) + 1"),
    ("in_codegen", "codegen", "y = y * 3.5"),
])
def test_a_fault_behind_capture(broken, fault, stage, text):
    broken(fault)
    with torch.no_grad():
        error = checked(Net(), torch.randn(5, 3))
    assert error.stage.startswith(stage), error.stage
    assert error.line.text.strip() == text and Path(error.script).exists()
    if fault == "in_codegen":
        reproduces(error, fault)


def test_a_script_can_be_switched_off(broken, tmp_path):
    broken("in_capture")
    with thruway.settings.override(check_dir="-"):
        error = checked(waves, torch.ones(2))
    assert error.script == "" and not (tmp_path / "out").exists()
    assert str(error).endswith("no script was written, as the setting check_dir asks")


def test_why_there_is_no_script_is_said(broken, tmp_path):
    broken("in_capture")
    (tmp_path / "file").write_text("")
    with thruway.settings.override(check_dir=str(tmp_path / "file")):
        assert "no script was written: the folder" in str(checked(waves, torch.ones(2)))
    space = {"torch": torch}
    exec("def nowhere(x):\n    return torch.cos(x)\n", space)
    error = checked(space["nowhere"], torch.ones(2))
    assert not error.script and "the source of a function in it is in no file" in str(error)


def test_rounding_within_eagers_own_error_is_no_difference():
    def f(x):
        return (x * 1e4).sum(0) - (x * 1e4).sum(0).mean()

    with torch.no_grad():
        thruway.compile(f, check=2)(torch.randn(4096, 8))


def test_classes_with_closures_and_caches_are_left_as_one_call_leaves_them():
    seen = []

    @functools.lru_cache
    def cached(size):
        seen.append(size)
        return size * 2

    def f(x):
        class Local:
            def note(self):
                seen.append("noted")

        Local().note()
        return x * cached(x.shape[0])

    class Outer:
        def __call__(self, x):
            seen.append("outer")
            return f(x)

    compiled, outer = thruway.compile(lambda o, x: o(x), check=2), Outer()
    for _ in range(2):
        assert compiled(outer, torch.ones(3))[0] == 6
    assert seen == ["outer", "noted", 3, "outer", "noted"]
