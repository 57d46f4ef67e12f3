"""The CUDA driver through ctypes: load machine code, launch it. Addresses and streams come from torch.

Calls keep the interpreter lock; a launch has a lock of its own besides, so that no other thread fills in addresses before the driver reads them.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence

import torch

from thruway.core.launch import GpuKernel
from thruway.core.sizes import evaluate

_MAX_DYNAMIC_SHARED = 8          # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_STATIC_SHARED_LIMIT = 48 << 10
_OUT_OF_MEMORY = 2               # CUDA_ERROR_OUT_OF_MEMORY
_INVALID_CONTEXT = 201           # CUDA_ERROR_INVALID_CONTEXT


class Driver:
    """The functions of libcuda that launching needs. Made once per process, after torch has started CUDA."""

    def __init__(self) -> None:
        self.cuda = ctypes.PyDLL("libcuda.so.1")
        word, number = ctypes.c_void_p, ctypes.c_uint
        self.launch_kernel = self.cuda.cuLaunchKernel
        self.launch_kernel.argtypes = (word, *([number] * 7), word, word, word)
        self.contexts: dict[int, ctypes.c_void_p] = {}

    def context(self, device: int) -> ctypes.c_void_p:
        """The context that torch uses on GPU `device`."""
        context, handle = ctypes.c_void_p(), ctypes.c_int()
        if device not in self.contexts:
            self.check(self.cuda.cuDeviceGet(ctypes.byref(handle), device), "finding the device")
            self.check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle), "finding the device's context")
            self.contexts[device] = context
        return self.contexts[device]

    def attach(self, device: int) -> None:
        """Makes GPU `device` this thread's: a fresh thread has no context until torch calls CUDA there."""
        self.check(self.cuda.cuCtxSetCurrent(self.context(device)), "entering the device's context")

    def calling(self, function: Callable[..., int], *arguments: object) -> int:
        """The call's answer; a thread without a context gets the current device's first."""
        code = function(*arguments)
        if code == _INVALID_CONTEXT:
            self.attach(torch.cuda.current_device())
            code = function(*arguments)
        return code

    def check(self, code: int, what: str) -> None:
        """Raises torch's own error where memory is short: the caller may then give some back."""
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            kind = torch.OutOfMemoryError if code == _OUT_OF_MEMORY else RuntimeError
            raise kind(f"{what}: {(text.value or b'unknown error').decode()}")

    def load(self, kernel: GpuKernel) -> ctypes.c_void_p:
        """The function handle of a kernel in the current context."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.calling(self.cuda.cuModuleLoadData, ctypes.byref(module), kernel.cubin), f"loading {kernel.symbol}")
        self.check(self.cuda.cuModuleGetFunction(ctypes.byref(function), module, kernel.entry.encode()), f"finding {kernel.entry}")
        if kernel.shared > _STATIC_SHARED_LIMIT:
            self.check(self.cuda.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, kernel.shared), f"shared memory of {kernel.symbol}")
        return function


_drivers: list[Driver] = []


def driver() -> Driver:
    """This process's driver, opened at the first use."""
    if not _drivers:
        _drivers.append(Driver())
    return _drivers[0]


class Launch:
    """One kernel call with its grid and argument block prepared; `run(addresses, stream)` only fills in the addresses.
    `words`: what follows the addresses among its arguments, as integers."""

    def __init__(self, driver: Driver, kernel: GpuKernel, function: ctypes.c_void_p, sizes: Sequence[int], flag: int, pointers: int):
        points = evaluate(kernel.points, dict(zip(kernel.size_names, sizes)))
        self.kernel, self.function, self.call, self.check, self.attach = kernel, function, driver.launch_kernel, driver.check, driver.attach
        self.programs, self.threads = -(-points // kernel.block), 32 * kernel.warps
        integer = ctypes.c_int64 if kernel.wide else ctypes.c_int32
        self.tail = ([ctypes.c_void_p(flag)] if kernel.checks else []) + [integer(s) for s in sizes] + [ctypes.c_void_p()] * kernel.extra
        self.words = ((flag,) if kernel.checks else ()) + tuple(sizes) + (0,) * kernel.extra
        self.addresses = (ctypes.c_void_p * pointers)()
        base, width = ctypes.addressof(self.addresses), ctypes.sizeof(ctypes.c_void_p)
        places = [base + i * width for i in range(pointers)] + [ctypes.addressof(value) for value in self.tail]
        self.arguments = (ctypes.c_void_p * len(places))(*places)
        self.filling = threading.Lock()

    def run(self, addresses: Sequence[int], stream: int) -> None:
        if not self.programs:
            return
        with self.filling:
            self.addresses[:] = addresses
            code = self._launch(stream)
            if code == _INVALID_CONTEXT:
                self.attach(torch.cuda.current_device())
                code = self._launch(stream)
        if code:
            self.check(code, f"launching {self.kernel.symbol}")

    def _launch(self, stream: int) -> int:
        return self.call(self.function, self.programs, 1, 1, self.threads, 1, 1, self.kernel.shared, stream, self.arguments, None)


class Flag:
    """An int32 in pinned host memory: a kernel writes it only on failure, and reading it waits for nothing."""

    def __init__(self) -> None:
        self.memory = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        self.address = self.memory.data_ptr()
        self.value = ctypes.c_int32.from_address(self.address)

    def take(self) -> bool:
        """Whether a failure was written; asking clears it."""
        if not self.value.value:
            return False
        self.value.value = 0
        return True
