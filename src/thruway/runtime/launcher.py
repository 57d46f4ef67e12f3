"""The Python twin of the native Launcher (native/launch.c): same arguments, same results, for where the native core was not built."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import torch

from thruway.native import RegionFailed
from thruway.runtime.cpu.launch import PythonProgram
from thruway.runtime.derived import Watch

SHAPE_LIMIT = 16
RESTLESS, QUIET = 2, 16                      # as in native/launch.c
Tensors = tuple[torch.Tensor, ...]


class PythonLauncher:
    """Picks the program for the sizes of its inputs, and sees that derived values are those of today's weights."""

    def __init__(
        self, inputs: int, symbols: tuple[tuple[int, int], ...], prepare: Callable[..., PythonProgram], watched: tuple[int, ...],
        derive: Callable[..., Tensors] | None = None, plain: Callable[..., Tensors] | None = None, first: Callable[..., Tensors] | None = None,
    ):
        self.inputs, self.symbols, self.prepare, self.watched, self.derive, self.plain = inputs, symbols, prepare, watched, derive, plain
        self.first = first                   # answers the first call in place of all this
        self.release()

    def release(self) -> None:
        """Drops programs and derived values; the next call makes them again."""
        self.programs: OrderedDict[tuple[int, ...], PythonProgram] = OrderedDict()
        self.current: tuple[Watch, Tensors | None] | None = None         # replaced as one, whatever other threads do
        self.quiet = self.restless = 0

    def __call__(self, *inputs: torch.Tensor) -> Tensors:
        if len(inputs) != self.inputs:
            raise TypeError(f"expected {self.inputs} tensors, got {len(inputs)} arguments")
        for i, each in enumerate(inputs):
            if not isinstance(each, torch.Tensor):
                raise TypeError(f"argument {i} is no tensor but {type(each).__name__}")
        if first := self.first:
            self.first = None
            return first(*inputs)
        try:
            derived = self._current_derived(inputs) if self.derive else ()
            program = self._find_program(inputs)
        except Exception as error:
            raise RegionFailed(error) from error
        return self.plain(*inputs) if derived is None else program(inputs, derived)

    def _current_derived(self, inputs: Tensors) -> Tensors | None:
        weights, current = [inputs[i] for i in self.watched], self.current
        if current is not None and current[0].is_same(weights):
            self.quiet += 1
            if current[1] is not None or self.quiet <= QUIET:
                return current[1]
            self.restless = 0
        else:
            self.restless = self.restless + 1 if current is not None and self.quiet == 0 else 0
        return self._derive_again(inputs, weights)

    def _derive_again(self, inputs: Tensors, weights: list[torch.Tensor]) -> Tensors | None:
        self.quiet, self.current = 0, None
        watch = Watch(weights)               # before deriving, so that a write meanwhile is seen at the next call
        derived = None if self.plain and self.restless >= RESTLESS else self.derive(*inputs)
        self.current = watch, derived
        return derived

    def _find_program(self, inputs: Tensors) -> PythonProgram:
        values = tuple(inputs[i].size(dim) for i, dim in self.symbols)
        program = self.programs.get(values)
        if program is None:
            program = self.programs[values] = self.prepare(*values)
            if len(self.programs) > SHAPE_LIMIT:
                self.programs.popitem(last=False)
        return program
