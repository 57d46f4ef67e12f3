"""Finds the code that a launch list names: kernels in compiled libraries, operators in torch."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from thruway.core.dtypes import ITEMSIZE
from thruway.core.errors import CompilerBug, Unsupported
from thruway.core.launch import Call, Kernel, LaunchList

KernelFunction = Callable[..., int]


@dataclass(frozen=True, slots=True)
class Code:
    """`kernels`: symbol → C function (its address is `address_of` it). `operators`: name → callable of torch."""

    kernels: Mapping[str, KernelFunction]
    operators: Mapping[str, Callable[..., object]]


def find_code(launch: LaunchList, libraries: Sequence[ctypes.CDLL]) -> Code:
    """CompilerBug names a kernel that no library has, Unsupported an operator that torch does not know."""
    steps = (*launch.derived, *launch.steps)
    kernels = {step.symbol: _find_kernel(step.symbol, libraries) for step in steps if isinstance(step, Kernel)}
    operators = {step.op: find_operator(step.op) for step in steps if isinstance(step, Call)}
    return Code(kernels, operators)


def open_library(path: Path) -> ctypes.CDLL:
    """Loads one compiled source and hands it the services of this process. OSError where the file is gone."""
    library = ctypes.CDLL(str(path))
    initialize = getattr(library, "tw_init", None)
    parallel_for = _torch_symbol("torch_parallel_for")
    if initialize is not None and parallel_for is not None:
        initialize((ctypes.c_void_p * 1)(ctypes.cast(parallel_for, ctypes.c_void_p)))
    return library


def find_operator(name: str) -> Callable[..., object]:
    """"aten::mm.out" → the C function behind torch.ops.aten.mm.out, which spares the Python around it."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    try:
        operator = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    except AttributeError:
        raise Unsupported("TW310", f"torch has no operator {name}") from None
    return operator._op


def address_of(function: KernelFunction) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def dtype_of(name: str) -> torch.dtype:
    if name not in ITEMSIZE:
        raise CompilerBug("runtime", f"no dtype is called {name}")
    return getattr(torch, name)


def _find_kernel(symbol: str, libraries: Sequence[ctypes.CDLL]) -> KernelFunction:
    for library in libraries:
        function = getattr(library, symbol, None)
        if function is not None:
            function.restype = ctypes.c_int
            return function
    raise CompilerBug("runtime", f"no compiled library has the kernel {symbol}")


def _torch_symbol(name: str) -> KernelFunction | None:
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    return getattr(ctypes.CDLL(os.path.join(folder, "libtorch_cpu.so")), name, None)
