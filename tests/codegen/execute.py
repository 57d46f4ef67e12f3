"""Runs a Plan as compiled C over numpy arrays: a launch list interpreted in a page, one gcc per distinct text. No torch.

Arrays of bfloat16 are float32 arrays of bfloat16 values outside and uint16 words inside; float16 is numpy's own.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from thruway.codegen.sources import Sources, generate
from thruway.core import launch, sizes
from thruway.core.target import Target

FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-fPIC", "-shared", "-nostartfiles",
         "-Wall", "-Werror", "-Wno-unused-variable", "-Wno-unused-function", "-Wno-unknown-pragmas", "-Wno-unused-but-set-variable")
NUMPY = {"bool": np.uint8, "bfloat16": np.uint16, "float16": np.uint16}
FOLDER = Path(tempfile.gettempdir()) / "thruway-test-kernels"
GUARD = 64


@cache
def compiled(text: str) -> ctypes.CDLL:
    FOLDER.mkdir(exist_ok=True)
    stem = FOLDER / hashlib.sha256((text + repr(FLAGS)).encode()).hexdigest()[:24]
    library = stem.with_suffix(".so")
    if not library.exists():
        source = stem.with_suffix(".c")
        source.write_text(text)
        done = subprocess.run(["gcc", *FLAGS, str(source), "-o", str(library) + ".part", "-lm"], capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(f"{source}:\n{done.stderr[:3000]}\n{text}")
        Path(str(library) + ".part").rename(library)
    return ctypes.CDLL(str(library))


def to_words(array: np.ndarray, dtype: str) -> np.ndarray:
    """The array as it stands in memory."""
    if dtype == "bfloat16":
        bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
        words = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        return np.where(np.isnan(array), np.uint16(0x7FC0), words).reshape(np.shape(array))
    if dtype == "float16":
        return np.ascontiguousarray(array, np.float16).view(np.uint16).reshape(np.shape(array))
    return np.asarray(array).astype(NUMPY.get(dtype, dtype))


def from_words(words: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return (np.ascontiguousarray(words).astype(np.uint32) << 16).view(np.float32).reshape(words.shape)
    if dtype == "float16":
        return np.ascontiguousarray(words).view(np.float16).reshape(words.shape)
    return words.astype(bool) if dtype == "bool" else words


class Run:
    """One execution of a launch list; `failed` tells whether a check reported."""

    def __init__(self, sources: Sources, inputs: list[np.ndarray]):
        self.sources, self.list = sources, sources.launch
        self.library = {s: compiled(text) for text, symbols in zip(sources.units, sources.symbols, strict=True) for s in symbols}
        self.failed = False
        shapes = [np.shape(x) for x in inputs]
        self.sizes = {b.name: shapes[b.input][b.dim] for b in self.list.symbols}
        self.arena = np.full(self.size(self.list.arena_bytes) + GUARD, 0xA5, np.uint8)
        self.memory: dict[int, np.ndarray] = {}     # slot → 1-d words from its first element on
        self.specs: dict[int, launch.TensorSpec] = {}
        for given, array in zip(self.list.inputs, inputs, strict=True):
            self.allocate(given.slot, given.spec, None)
            self.view(given.slot)[...] = to_words(array, given.spec.dtype)
        for step in (*self.list.derived, *self.list.steps):
            self.step(step)
            if self.failed:
                return
        self.outputs = [self.read(slot) for slot in self.list.outputs]
        self.inputs = [self.read(given.slot) for given in self.list.inputs]
        assert (self.arena[self.size(self.list.arena_bytes):] == 0xA5).all(), "a kernel wrote behind the arena"

    def size(self, size) -> int:
        return sizes.evaluate(size, self.sizes)

    def allocate(self, slot: int, spec: launch.TensorSpec, arena) -> None:
        dtype = np.dtype(NUMPY.get(spec.dtype, spec.dtype))
        dims, strides = [self.size(s) for s in spec.sizes], [self.size(s) for s in spec.strides]
        count = 0 if 0 in dims else 1 + sum((d - 1) * s for d, s in zip(dims, strides, strict=True))
        if arena is None:
            self.memory[slot] = np.zeros(count, dtype)
        else:
            start = self.size(arena)
            self.memory[slot] = self.arena[start:start + count * dtype.itemsize].view(dtype)
            assert len(self.memory[slot]) == count, "a buffer reaches over the arena's end"
        self.specs[slot] = spec

    def view(self, slot: int) -> np.ndarray:
        spec, memory = self.specs[slot], self.memory[slot]
        dims, strides = [self.size(s) for s in spec.sizes], [self.size(s) for s in spec.strides]
        if math.prod(dims) == 0:
            return np.zeros(dims, memory.dtype)
        return np.lib.stride_tricks.as_strided(memory, dims, [s * memory.itemsize for s in strides])

    def read(self, slot: int) -> np.ndarray:
        return from_words(self.view(slot).copy(), self.specs[slot].dtype)

    def step(self, step: launch.Step) -> None:
        match step:
            case launch.Allocate(slot, spec, arena):
                self.allocate(slot, spec, arena)
            case launch.View(slot, base, spec):
                self.specs[slot] = spec
                self.memory[slot] = self.memory[base][self.size(spec.offset):]
            case launch.Kernel(symbol, pointers, scalars, _, _):
                addresses = (ctypes.c_void_p * max(1, len(pointers)))(*(self.memory[p].ctypes.data for p in pointers))
                numbers = (ctypes.c_longlong * max(1, len(scalars)))(*(self.size(s) for s in scalars))
                self.failed |= bool(getattr(self.library[symbol], symbol)(addresses, numbers))
            case launch.Call():
                self.call(step)
            case _:
                raise TypeError(f"not a step: {step!r}")

    def call(self, step: launch.Call) -> None:
        """The one library call that tests need: a matrix product."""
        assert step.op in {"aten::mm", "aten::mm.out"}, step.op
        a, b = (self.read(x.slot) for x in step.args)
        result = a @ b
        if step.op.endswith(".out"):
            self.view(dict(step.kwargs)["out"].slot)[...] = result
        else:
            self.memory[step.outs[0]] = result.ravel()
            rows, columns = result.shape
            self.specs[step.outs[0]] = launch.TensorSpec("float32", (rows, columns), (columns, 1))


def run_plan(plan, inputs: list[np.ndarray], target: Target | None = None) -> Run:
    return Run(generate(plan, target or Target(), units=1), inputs)
