"""The bench's figures, its words, and the command as a whole on models that take no time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from command import tiny_models
from thruway.command import bench, measure, works

TESTS = str(Path(__file__).parents[1])
ROW = {"model": "net", "batch": 1, "compiler": "thruway", "eager_ms": 10.0, "compiled_ms": 5.0, "speedup": 2.0, "speedup_low": 1.9,
       "speedup_high": 2.1, "aa": 1.0, "first_s": 1.01, "calls_to_pay": 200, "graphs": 1}


@pytest.mark.parametrize("count, below", [(6, 0), (8, 0), (9, 1), (15, 3), (25, 7), (100, 39)])
def test_interval_of_the_median(count, below):
    """The ranks of the usual table: the largest with at most 2.5 % in each tail."""
    assert measure.median_interval(list(range(count))[::-1]) == (below, count - 1 - below)


def test_interval_of_few_values_is_their_range():
    assert measure.median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)


def test_summary_takes_ratios_round_by_round():
    got = measure.summary({"eager": [10.0, 20.0, 30.0], "again": [10.0, 20.0, 30.0], "compiled": [5.0, 10.0, 10.0]})
    assert got["ratios"] == [2.0, 2.0, 3.0] and got["speedup"] == 2.0 and got["aa"] == 1.0 and got["compiled_ms"] == 10.0


def test_error_is_relative_to_the_largest_value():
    assert measure.max_error({"a": [torch.tensor([1.0, -4.0])]}, {"a": [torch.tensor([1.0, -3.0])]}) == 0.25
    assert measure.max_error(torch.zeros(0), torch.zeros(0)) == 0.0


def test_calls_to_pay():
    assert bench.calls_to_pay(ROW) == 200
    assert bench.calls_to_pay(ROW | {"compiled_ms": 11.0, "speedup_low": 0.8}) is None
    assert bench.calls_to_pay(ROW | {"speedup_low": 0.99}) is None
    assert bench.calls_to_pay(ROW | {"first_s": 0.001}) == 1


def test_the_sentence_says_what_was_measured_and_no_more():
    said = bench.sentence([ROW])
    assert said == ("Under repeated compatible inputs on this machine, steady execution by thruway, against eager, was at least 1.9 times faster (net at batch 1), "
                    "which pays after 200 calls; no shape transition, warm start or training step was measured.")


def test_the_sentence_keeps_faster_slower_and_noise_apart():
    slower = ROW | {"batch": 8, "speedup": 0.5, "speedup_low": 0.4, "speedup_high": 0.6, "calls_to_pay": None}
    noise = ROW | {"model": "my:model", "batch": None, "speedup": 1.1, "speedup_low": 0.9, "speedup_high": 1.2, "calls_to_pay": None}
    other = ROW | {"compiler": "torch", "speedup": 1.5, "speedup_low": 1.04, "speedup_high": 1.6, "calls_to_pay": 900}
    said = bench.sentence([ROW, slower, noise, other])
    for part in ("at least 1.9 times faster (net at batch 1)", "at least 1.6 times slower (net at batch 8)", "no different within the noise (my:model)",
                 "; steady execution by torch.compile, against eager, was at least 1.04 times faster"):
        assert part in said
    assert "faster" not in bench.sentence([slower])
    assert "eager itself, nothing having been compiled (net at batch 1)" in bench.sentence([ROW | {"graphs": 0}])


@pytest.mark.parametrize("change", [{"aa": 1.3}, {"aa": 0.8}, {"speedup": 85.53, "speedup_low": 37.7, "speedup_high": 171.0}])
def test_the_sentence_leaves_noise_unsaid(change):
    said = bench.sentence([ROW | change])
    assert "too noisy to say (net at batch 1)" in said and "faster" not in said and "pays" not in said


@pytest.mark.parametrize("values, said", [([85.53, 92.0], "85"), ([1.999], "1.9"), ([1.0167], "1.01"), ([10.0], "10"), ([1.1], "1.1"), ([371.0], "370")])
def test_a_lower_end_is_rounded_down_to_two_digits(values, said):
    assert bench._at_least(values) == f"at least {said}"


def test_jobs_put_compilers_side_by_side():
    same = {"mode": None, "device": "cpu", "dtype": "float32", "threads": 1, "rounds": 3, "seconds": 0.1}
    got = [(job.model, job.batch, job.compiler) for job in bench.jobs([("a", True), ("b", False)], (1, 8), ("thruway", "torch"), **same)]
    assert got == [("a", 1, "thruway"), ("a", 1, "torch"), ("a", 8, "thruway"), ("a", 8, "torch"), ("b", None, "thruway"), ("b", None, "torch")]


def test_works():
    assert works.takes_batch("resnet50") and works.takes_batch("command.tiny_models:linear") and not works.takes_batch("command.tiny_models:function")
    model, (x,) = works.build("command.tiny_models:linear", 3, "cpu", "bfloat16")
    assert x.shape == (3, 8) and x.dtype is torch.bfloat16 and not model.training and model[0].weight.dtype is torch.bfloat16
    _, (ids,) = works.build("command.tiny_models:function", None, "cpu", "bfloat16")
    assert ids.dtype is torch.int64 and tiny_models.function()[0](ids)["double"].sum() == 12
    with pytest.raises(ValueError, match="unknown model 'vgg'; known: resnet50, transformer, or module:factory"):
        works.takes_batch("vgg")
    with pytest.raises(ValueError, match="must return"):
        works.build("command.test_bench:wrong_factory", None, "cpu", "float32")


def wrong_factory():
    return 3


def _thruway(*words, **variables):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((TESTS, os.environ["PYTHONPATH"])), **variables}
    environment.pop("COLUMNS", None)
    return subprocess.run([sys.executable, "-m", "thruway.command.cli", *words], capture_output=True, text=True, env=environment)


def test_the_command_end_to_end(tmp_path):
    """Eager stands in for compiled (THRUWAY_DISABLE), so that the harness is tested apart from the compiler."""
    figures = tmp_path / "figures.json"
    words = ["--rounds", "3", "--seconds", "0.05", "--threads", "1", "--batch", "2", "--json", str(figures)]
    for name in ("linear", "broken", "fails_in_eager"):
        words += ["--model", f"command.tiny_models:{name}"]
    done = _thruway("bench", *words, THRUWAY_DISABLE="1")
    assert done.returncode == 1 and "2 of 3 measurements failed" in done.stderr and "no weights here" in done.stderr
    assert "fails in eager: RuntimeError: mat1 and mat2" in " ".join(done.stderr.split()) and "Traceback" not in done.stderr
    written = json.loads(figures.read_text())
    (row,) = written["rows"]
    assert row["batch"] == 2 and row["error"] == 0.0 and row["graphs"] == 0 and row["used_threads"] == 1 and len(row["ratios"]) == 3
    assert row["eager_ms"] > 0 and row["first_s"] > 0 and row["peak_mb"] >= row["eager_peak_mb"] > 0
    assert "[1/3] command.tiny_models:linear at batch 2, thruway\n[2/3] command.tiny_models:broken" in done.stderr
    assert all(any(set(heads) <= set(line.split()) for line in done.stdout.splitlines()) for heads in (("model", "speedup", "aa"), ("pays", "more")))
    assert "command.tiny_models:linear" in done.stdout and written["sentence"] in done.stdout and "float32 on" in done.stdout


def test_the_package_runs_as_the_command():
    done = subprocess.run([sys.executable, "-m", "thruway", "--help"], capture_output=True, text=True)
    assert done.stdout.startswith("Usage: thruway [OPTIONS] COMMAND") and "doctor" in done.stdout and done.returncode == 0


def test_unknown_words_list_the_known_ones():
    assert "unknown model 'vgg'" in _thruway("bench", "--model", "vgg").stderr
    assert "max-autotune" in _thruway("bench", "--mode", "fastest").stderr


def test_cache_show_and_clear(tmp_path):
    folder = tmp_path / "cache"
    assert f"{folder}: 0 files" in _thruway("cache", "show", THRUWAY_CACHE_DIR=str(folder)).stdout
    (folder / "abc.so").write_bytes(bytes(2 << 20))
    assert f"{folder}: 1 file, 2.0 of 2048 MB" in _thruway("cache", "show", THRUWAY_CACHE_DIR=str(folder)).stdout
    assert "2.0 MB removed" in _thruway("cache", "clear", THRUWAY_CACHE_DIR=str(folder)).stdout
    assert not (folder / "abc.so").exists() and "0 files" in _thruway("cache", "show", THRUWAY_CACHE_DIR=str(folder)).stdout


@pytest.mark.parametrize("variable, value, said", [
    ("THRUWAY_CC", "/no/such/gcc", "!! C compiler no program is found for '/no/such/gcc'"),
    ("THRUWAY_STOP", "nowhere", "!! settings THRUWAY_STOP='nowhere': unknown stop 'nowhere'; known: retrace, lower, plan, generate"),
    ("THRUWAY_LOGS", "graph_break", "no topic is named graph_break; known: graph_breaks,"),
])
def test_doctor_names_a_setting_that_does_not_fit(tmp_path, variable, value, said):
    done = _thruway("doctor", THRUWAY_CACHE_DIR=str(tmp_path / "cache"), **{variable: value})
    assert said in " ".join(done.stdout.split()) and "!!" in done.stdout and done.returncode == 1 and done.stderr == ""


def test_doctor_names_a_missing_compiler(tmp_path):
    done = _thruway("doctor", THRUWAY_CACHE_DIR=str(tmp_path / "cache"), PATH="/nowhere", CC="")
    assert "No C compiler was found that works" in " ".join(done.stdout.split()) and done.returncode == 1
    assert "torch" in done.stdout and "native core" in done.stdout and "cache folder" in done.stdout


def test_doctor_names_a_compiler_that_compiles_nothing(tmp_path):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    done = _thruway("doctor", THRUWAY_CACHE_DIR=str(tmp_path / "cache"), THRUWAY_CC=str(broken), COLUMNS="400")
    assert f"{broken} does not compile" in " ".join(done.stdout.split()) and done.returncode == 1


FAULTS = {
    "command.tiny_models:absent": "command.tiny_models has no 'absent'",
    "command.tiny_models:": "unknown model 'command.tiny_models:'",
    ":linear": "unknown model ':linear'",
    "no_such_module:linear": "no module 'no_such_module'",
    "./models/tiny_models.py:linear": "models/tiny_models.py is a file; .*: tiny_models:linear, run in the folder",
    "command.tiny_models:NUMBER": "must be a function .* not an object of type int",
    "command.tiny_models:MODULE": "must be a function .* not an object of type Linear",
    "command.tiny_models:wants_two": r"must take a batch size or nothing, but it is wants_two\(batch, size\)",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_factory_that_cannot_be_used_is_named_in_one_sentence(name):
    with pytest.raises(works.WorkFailed, match=FAULTS[name]) as caught:
        works.takes_batch(name)
    assert "\n" not in str(caught.value)


def test_modules_that_cannot_be_imported_say_why(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name, text, why in (("raises_here", "\nraise OSError('gone')", r"OSError: gone \(raises_here.py:2\)"),
                            ("wrong_here", "x = (", "SyntaxError: "), ("needs_more", "import absent_module", "No module named 'absent_module'")):
        (tmp_path / f"{name}.py").write_text(text)
        with pytest.raises(works.WorkFailed, match=f"{name} cannot be imported: .*{why}"):
            works.takes_batch(f"{name}:factory")


@pytest.mark.parametrize("name, why", [
    ("three", "must return .* not a tuple of 3"), ("alone", "must return .* not an object of type Linear"), ("no_model", "the model is an object of type int"),
    ("broken", r"fails: RuntimeError: no weights here \(tiny_models.py:\d+\)"), ("leaves", "fails: SystemExit"),
])
def test_what_a_factory_does_wrong_is_said(name, why):
    with pytest.raises(works.WorkFailed, match=why):
        works.build(f"command.tiny_models:{name}", 2, "cpu", "float32")


def test_a_parameter_that_is_given_by_name_alone_is_no_batch_size():
    assert not works.takes_batch("command.tiny_models:only_named")
