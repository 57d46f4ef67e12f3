"""Recording work as a CUDA graph while other threads go on.

Three things that another thread may do at any time would spoil a recording, or be spoilt by it:
- `torch.cuda.synchronize()` waits for every stream, which is forbidden while one records: it raises there and ends the recording. Meanwhile
  that call waits for the recording instead, which takes milliseconds.
- Drawing random numbers is refused by a generator that is being recorded. Work that draws none is recorded with a generator of our own.
- Collecting garbage may free a graph or an event. Nothing is collected meanwhile.
A library's first use by a thread cannot be recorded either: who records has to have run the same work before.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

_recorder = threading.RLock()                 # one thread records at a time
_synchronize: Callable[[], None] = getattr(torch._C, "_cuda_synchronize", lambda: None)
_generators: dict[int, torch.Generator] = {}
_Made = TypeVar("_Made")


def record(run: Callable[[], _Made], stream: torch.cuda.Stream, pool: object = None, draws: bool = False) -> tuple[torch.cuda.CUDAGraph, _Made]:
    """What `run` launches, recorded on `stream`, and what it gives. `draws`: it may draw from torch's generator."""
    graph = torch.cuda.CUDAGraph()
    with _recorder, _undisturbed(), torch.cuda.stream(stream):
        with _own_generator(stream.device_index, draws):
            graph.capture_begin(*(() if pool is None else (pool,)), capture_error_mode="thread_local")
        try:
            made = run()
        finally:
            graph.capture_end()
    return graph, made


def recover(device: torch.device) -> None:
    """After a recording that failed: torch's generator must hear the end of one, or it refuses to draw."""
    record(lambda: torch.zeros(1, device=device), torch.cuda.Stream(device), draws=True)


@contextmanager
def _undisturbed() -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    torch._C._cuda_synchronize = _synchronize_later
    try:
        yield
    finally:
        torch._C._cuda_synchronize = _synchronize
        if collects:
            gc.enable()


def _synchronize_later() -> None:
    with _recorder:
        _synchronize()


@contextmanager
def _own_generator(device: int, draws: bool) -> Iterator[None]:
    """Whatever generator the device has when a recording begins is bound to it until it ends; later changes go unnoticed."""
    if draws:
        yield
        return
    shared = torch.cuda.default_generators[device]
    kept = shared.graphsafe_get_state()
    if device not in _generators:
        _generators[device] = shared.clone_state()
        _generators[device].seed()
    shared.graphsafe_set_state(_generators[device])
    try:
        yield
    finally:
        shared.graphsafe_set_state(kept)
