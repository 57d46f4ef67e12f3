"""Autotuning without a GPU: what was measured in one process is found by the next, which compiles and measures nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from thruway.artifact.gpu_kernels import GpuKernels, KernelJob
from thruway.artifact.store import Store
from thruway.core.errors import CompilerBug
from thruway.core.launch import GpuKernel
from thruway.runtime.cuda import tune
from thruway.runtime.cuda.tune import AT_ONCE, Candidates, choose

MICROSECONDS = {4: 9.0, 8: 3.0, 16: 5.0}           # by warps: the guess is the slowest


class Kernels(GpuKernels):
    """Compiles nothing; `compiled` counts the kernels, those with `broken` warps fail."""

    def __init__(self, folder: Path, broken: int = 0):
        super().__init__(Store(folder, 1 << 24), 90, lambda kind, detail: None)
        self.compiled, self.broken = 0, broken

    def _compile(self, jobs):
        if any(job.warps == self.broken for job in jobs):
            raise CompilerBug("artifact", "does not compile")
        self.compiled += len(jobs)
        return [GpuKernel(job.symbol, b"code", job.symbol, job.points, job.block, job.warps, 0, job.checks, job.wide, 0, job.size_names) for job in jobs]


class Process:
    """One process: its kernels, and how many were measured."""

    def __init__(self, monkeypatch, folder: Path, broken: int = 0, seconds: float = 60.0):
        self.seconds = seconds
        self.kernels, self.measured, self.notes = Kernels(folder, broken), 0, []
        monkeypatch.setattr(tune, "measure", self._measure)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU of paper")

    def _measure(self, kernel, *_):
        self.measured += 1
        return MICROSECONDS[kernel.warps]

    def choose(self, count: int = 3, **more) -> list[int]:
        found = choose([candidates(i, **more) for i in range(count)], self.kernels, None, torch.device("cuda", 0), lambda *note: self.notes.append(note),
                       self.seconds)
        return [each.warps for each in found]


def candidates(i: int, pointer_bytes=(4096, 4096)) -> Candidates:
    first = KernelJob(f"text {i}", f"k{i}", ("float32", "float32"), (True, True), False, (), False, 1024, 256, (("X", 256),), 4)
    return Candidates((first, replace(first, warps=8), replace(first, warps=16)), pointer_bytes)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "cache"
    made.mkdir(mode=0o700)
    return made


def test_the_next_process_neither_measures_nor_compiles(monkeypatch, folder):
    first = Process(monkeypatch, folder)
    assert first.choose() == [8, 8, 8] and (first.measured, first.kernels.compiled) == (9, 9)
    second = Process(monkeypatch, folder)
    assert second.choose() == [8, 8, 8] and (second.measured, second.kernels.compiled, second.notes) == (0, 0, [])


def test_what_was_not_reached_in_time_is_measured_next_time(monkeypatch, folder):
    count = AT_ONCE + 2
    first = Process(monkeypatch, folder)
    clock = iter([0.0] * (AT_ONCE + 1) + [61.0])
    monkeypatch.setattr(tune, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    found = first.choose(count)
    assert found[-2:] == [4, 4] and first.measured == 3 * AT_ONCE and "2 kernels stay as guessed" in first.notes[-1][1]
    monkeypatch.undo()
    second = Process(monkeypatch, folder)
    assert second.choose(count)[-2:] == [8, 8] and second.measured == 6


def test_no_seconds_leave_the_guesses(monkeypatch, folder):
    process = Process(monkeypatch, folder, seconds=-1.0)
    assert process.choose() == [4, 4, 4] and process.measured == 0 and process.notes[-1][1] == "-1 s are spent: 3 kernels stay as guessed"


def test_a_configuration_that_does_not_compile_is_left_out(monkeypatch, folder):
    process = Process(monkeypatch, folder, broken=8)
    assert process.choose() == [16, 16, 16] and Process(monkeypatch, folder).choose() == [16, 16, 16]


@pytest.mark.parametrize("pointer_bytes", [None, (1 << 32, 16)])
def test_what_cannot_be_measured_keeps_the_guess(monkeypatch, folder, pointer_bytes):
    process = Process(monkeypatch, folder)
    assert process.choose(pointer_bytes=pointer_bytes) == [4, 4, 4] and process.measured == 0
