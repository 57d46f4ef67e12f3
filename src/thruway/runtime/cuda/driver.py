"""The CUDA driver through ctypes: load machine code, launch it. Addresses and streams come from torch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from thruway.core.errors import CompilerBug
from thruway.core.launch import GpuKernel

_MAX_DYNAMIC_SHARED = 8          # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_STATIC_SHARED_LIMIT = 48 << 10


class Driver:
    """The functions of libcuda that launching needs. Made once per process, after torch has started CUDA."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")

    def check(self, code: int, what: str) -> None:
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{what}: {(text.value or b'unknown error').decode()}")

    def load(self, kernel: GpuKernel) -> ctypes.c_void_p:
        """The function handle of a kernel in the current context."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.cuda.cuModuleLoadData(ctypes.byref(module), kernel.cubin), f"loading {kernel.symbol}")
        self.check(self.cuda.cuModuleGetFunction(ctypes.byref(function), module, kernel.entry.encode()), f"finding {kernel.entry}")
        if kernel.shared > _STATIC_SHARED_LIMIT:
            self.check(self.cuda.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, kernel.shared), f"shared memory of {kernel.symbol}")
        return function


class Launch:
    """One kernel call with its grid and argument block prepared; `run(addresses, stream)` only fills in the addresses."""

    def __init__(self, driver: Driver, kernel: GpuKernel, function: ctypes.c_void_p, sizes: Sequence[int], flag: int):
        if type(kernel.points) is not int:
            raise CompilerBug("runtime", f"{kernel.symbol} is launched before its sizes are numbers")
        self.driver, self.kernel, self.function = driver, kernel, function
        self.programs = -(-kernel.points // kernel.block)
        integer = ctypes.c_int64 if kernel.wide else ctypes.c_int32
        tail = ([ctypes.c_void_p(flag)] if kernel.checks else []) + [integer(s) for s in sizes] + [ctypes.c_void_p()] * kernel.extra
        self.tail = tail

    def bind(self, count: int) -> None:
        """Makes room for `count` addresses."""
        self.addresses = (ctypes.c_void_p * count)()
        base, width = ctypes.addressof(self.addresses), ctypes.sizeof(ctypes.c_void_p)
        places = [base + i * width for i in range(count)] + [ctypes.addressof(value) for value in self.tail]
        self.arguments = (ctypes.c_void_p * len(places))(*places)

    def run(self, addresses: Sequence[int], stream: int) -> None:
        if not self.programs:
            return
        self.addresses[:] = addresses
        kernel = self.kernel
        code = self.driver.cuda.cuLaunchKernel(
            self.function, self.programs, 1, 1, 32 * kernel.warps, 1, 1, kernel.shared, ctypes.c_void_p(stream), self.arguments, None)
        if code:
            self.driver.check(code, f"launching {kernel.symbol}")


def make_flag() -> torch.Tensor:
    """An int32 in pinned host memory: a kernel writes it only on failure, and reading it waits for nothing."""
    return torch.zeros(1, dtype=torch.int32, pin_memory=True)
