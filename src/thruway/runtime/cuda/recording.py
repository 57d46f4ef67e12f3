"""Recording work as a CUDA graph while other threads go on.

Three things that another thread may do at any time would spoil a recording, or be spoilt by it:
- `torch.cuda.synchronize()` waits for every stream, which is forbidden while one records: it raises there and ends the recording. So it waits
  for the recording first, which takes milliseconds, and a recording begins when nobody waits.
- Drawing random numbers is refused by a generator that is being recorded, and torch's own recording takes hold of the default one. Work that
  draws none is recorded through the driver, and no generator hears of it. Work that draws should be recorded by who `is_alone`.
- Collecting garbage may free a graph or an event. Nothing is collected meanwhile.
A library's first use by a thread cannot be recorded either: who records has to have run the same work before.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import torch

from thruway.artifact.workers import THREADS
from thruway.runtime.cuda.driver import Driver, driver

_THREAD_LOCAL = 1                 # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_FREE_ON_LAUNCH = 1               # CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
_Made = TypeVar("_Made")


class Recorded(Protocol):
    def replay(self) -> None:
        """Launches the whole on the current stream."""


class _Waits:
    """Who waits for a whole device, and who records."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.waiting = 0
        self.recorder: int | None = None
        self.synchronize: Callable[[], None] | None = None

    def watch(self) -> None:
        """From now on waits are counted."""
        if self.synchronize is None and hasattr(torch._C, "_cuda_synchronize"):
            self.synchronize = torch._C._cuda_synchronize
            torch._C._cuda_synchronize = self.wait

    def wait(self) -> None:
        with self.changed:
            while self.recorder not in (None, threading.get_ident()):
                self.changed.wait()
            self.waiting += 1
        try:
            self.synchronize()
        finally:
            with self.changed:
                self.waiting -= 1
                self.changed.notify_all()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody begins to wait, and nobody else records."""
        with self.changed:
            while self.recorder is not None:
                self.changed.wait()
            self.recorder = threading.get_ident()
            while self.waiting:
                self.changed.wait()
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()
            with self.changed:
                self.recorder = None
                self.changed.notify_all()


_waits = _Waits()
watch = _waits.watch


class _DriverGraph:
    """A graph made by the driver, whose memory lies in one of torch's pools."""

    def __init__(self, handle: ctypes.c_void_p, device: int, pool: tuple[int, int]):
        self.driver, self.device, self.executable = driver(), device, ctypes.c_void_p()
        cuda = self.driver.cuda
        code = cuda.cuGraphInstantiateWithFlags(ctypes.byref(self.executable), handle, ctypes.c_ulonglong(_FREE_ON_LAUNCH))
        cuda.cuGraphDestroy(handle)
        weakref.finalize(self, _free, self.driver, self.executable, device, pool).atexit = False
        self.driver.check(code, "making a graph of what was recorded")

    def replay(self) -> None:
        previous = torch.cuda._exchange_device(self.device)         # the default stream has the same handle on every device
        try:
            stream = torch._C._cuda_getCurrentRawStream(self.device)
            code = self.driver.calling(self.driver.cuda.cuGraphLaunch, self.executable, ctypes.c_void_p(stream))
        finally:
            torch.cuda._maybe_exchange_device(previous)
        self.driver.check(code, "replaying a graph")


def _free(driver: Driver, executable: ctypes.c_void_p, device: int, pool: tuple[int, int]) -> None:
    if executable:
        driver.cuda.cuGraphExecDestroy(executable)
    torch._C._cuda_releasePool(device, pool)


def record(run: Callable[[], _Made], stream: torch.cuda.Stream, pool: tuple[int, int] | None = None, draws: bool = False) -> tuple[Recorded, _Made]:
    """What `run` launches, recorded on `stream`, and what it gives. `draws`: it may draw from torch's generator."""
    watch()
    pool = pool or torch.cuda.graph_pool_handle()
    with _waits.held(), torch.cuda.stream(stream):
        return (_record_by_torch if draws else _record_by_driver)(run, stream, pool)


def _record_by_torch(run: Callable[[], _Made], stream: torch.cuda.Stream, pool: tuple[int, int]) -> tuple[Recorded, _Made]:
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(pool, capture_error_mode="thread_local")
    try:
        made = run()
    finally:
        graph.capture_end()
    return graph, made


def _record_by_driver(run: Callable[[], _Made], stream: torch.cuda.Stream, pool: tuple[int, int]) -> tuple[Recorded, _Made]:
    made_by, device, handle, raw = driver(), stream.device_index, ctypes.c_void_p(), ctypes.c_void_p(stream.cuda_stream)
    torch._C._cuda_beginAllocateCurrentThreadToPool(device, pool)
    try:
        made_by.check(made_by.calling(made_by.cuda.cuStreamBeginCapture_v2, raw, _THREAD_LOCAL), "beginning to record")
        try:
            made = run()
        finally:
            code = made_by.cuda.cuStreamEndCapture(raw, ctypes.byref(handle))
        made_by.check(code, "recording")
    except BaseException:
        torch._C._cuda_endAllocateToPool(device, pool)
        torch._C._cuda_releasePool(device, pool)
        raise
    torch._C._cuda_endAllocateToPool(device, pool)
    return _DriverGraph(handle, device, pool), made


def is_alone() -> bool:
    """Whether no other thread is in Python code, which might draw. Those that compile for us draw nothing."""
    compiling = {each.ident for each in threading.enumerate() if each.name.startswith(THREADS)}
    return len(sys._current_frames().keys() - compiling) == 1


def recover(device: torch.device) -> None:
    """After a recording that failed: torch's generator must hear the end of one, or it refuses to draw."""
    record(lambda: torch.zeros(1, device=device), torch.cuda.Stream(device), draws=True)
