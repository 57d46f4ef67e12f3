"""Threads, re-entry, forks, and memory that stays flat."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from runtime.programs import CHECKED_ADD, MULTIPLY_ADD, launch_list, linear_then_add, matrix, multiply_add, vector

from thruway.core.launch import Allocate, Call, Kernel, SlotRef, SymbolBinding
from thruway.core.sizes import symbol
from thruway.native import RegionFailed


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Runs work(0) … work(count - 1) at once; the first error of any is raised."""
    with ThreadPoolExecutor(count) as threads:
        list(threads.map(work, range(count)))


def test_threads_share_one_runnable(loader):
    run = loader(linear_then_add(), MULTIPLY_ADD)
    w = torch.randn(4, 8)

    def work(seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        for i in range(60):
            batch = 1 + (seed + i) % 5
            x, y, z = (torch.randn(batch, n, generator=draw) for n in (4, 8, 8))
            torch.testing.assert_close(run(x, w, y, z)[0], x @ w * y + z)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        in_threads(work, 8)
    finally:
        sys.setswitchinterval(interval)


def test_large_kernels_let_other_threads_run(loader):
    """Two threads in the same Program while the interpreter lock is released: each needs its own arena."""
    n = 600_000
    steps = (Allocate(1, vector(n), arena=0), Kernel("multiply_add", (0, 0, 0, 1), (n,)), Allocate(2, vector(n)), Kernel("multiply_add", (1, 1, 1, 2), (n,)))
    run = loader(launch_list((vector(n),), steps, (2,), 3, arena_bytes=4 * n), MULTIPLY_ADD)

    def work(k: int) -> None:
        x = torch.full((n,), float(k))
        y = x * x + x
        for _ in range(8):
            assert torch.equal(run(x)[0], y * y + y)

    in_threads(work, 4)


def test_reentry(loader):
    """An operator written in Python that calls the same Runnable again, while its arena is in use."""
    depth = [0]
    library = torch.library.Library("thruway_test_reentry", "FRAGMENT")
    library.define("again(Tensor x) -> Tensor")
    spec = vector(4)
    steps = (
        Allocate(1, spec, arena=0), Kernel("multiply_add", (0, 0, 0, 1), (4,)),
        Call("thruway_test_reentry::again", (SlotRef(0),), (), (2,)),
        Allocate(3, spec), Kernel("multiply_add", (1, 2, 1, 3), (4,)),
    )

    def again(x: torch.Tensor) -> torch.Tensor:
        depth[0] += 1
        return run(x + 1)[0] if depth[0] < 4 else torch.ones(4)

    library.impl("again", again, "CPU")
    run = loader(launch_list((spec,), steps, (3,), 4, arena_bytes=64), MULTIPLY_ADD)

    def plain(x: torch.Tensor, left: int) -> torch.Tensor:
        y = x * x + x
        return y * (plain(x + 1, left - 1) if left else torch.ones(4)) + y

    assert torch.equal(run(torch.arange(4.0))[0], plain(torch.arange(4.0), 3))
    library._destroy()


def test_fork(loader):
    run = loader(linear_then_add(), MULTIPLY_ADD)
    x, w, y = torch.randn(2, 4), torch.randn(4, 8), torch.randn(2, 8)
    expected = run(x, w, y, y)[0]
    child = os.fork()
    if child == 0:
        same = torch.equal(run(x, w, y, y)[0], expected)
        more = run(x[:1], w, y[:1], y[:1])[0].shape == (1, 8)
        os._exit(0 if same and more else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(run(x, w, y, y)[0], expected)


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_memory_and_references_stay_flat(loader):
    run = loader(linear_then_add(), MULTIPLY_ADD)
    inputs = torch.randn(2, 4), torch.randn(4, 8), torch.randn(2, 8), torch.randn(2, 8)
    big = torch.randn(3, 4), inputs[1], torch.randn(3, 8), torch.randn(3, 8)

    def many(times: int) -> None:
        for _ in range(times):
            run(*inputs)
            run(*big)

    many(200)
    gc.collect()
    before, counts, memory = len(gc.get_objects()), [sys.getrefcount(each) for each in inputs], resident()
    many(2500)
    gc.collect()
    assert [sys.getrefcount(each) for each in inputs] == counts
    assert len(gc.get_objects()) - before < 200      # one object a call would be thousands
    assert resident() - memory < 4 << 20


def test_failing_calls_leak_nothing(loader):
    steps = (Allocate(2, vector(1 << 16)), Call("aten::mm", (SlotRef(0), SlotRef(0)), (), (1,)))
    run = loader(launch_list((matrix(2, 3),), steps, (1, 2), 3))
    x = torch.randn(2, 3)

    def fail(times: int) -> None:
        for _ in range(times):
            with pytest.raises(RegionFailed):
                run(x)

    fail(50)
    gc.collect()
    counts, memory = sys.getrefcount(x), resident()
    fail(500)
    gc.collect()
    assert sys.getrefcount(x) == counts and resident() - memory < 8 << 20


def test_intermediates_go_after_their_last_use(loader):
    """A tensor that a call returned is freed before the next step, not at the end."""
    seen: list[weakref.ref] = []
    alive: list[bool] = []
    library = torch.library.Library("thruway_test_drop", "FRAGMENT")
    library.define("make(Tensor x) -> Tensor")
    library.define("look(Tensor x) -> Tensor")

    def make(x: torch.Tensor) -> torch.Tensor:
        made = x + 1
        seen.append(weakref.ref(made.untyped_storage()))
        return made

    def look(x: torch.Tensor) -> torch.Tensor:
        alive.append(torch.zeros(0).set_(x).numel() > 0)
        return x + 1

    library.impl("make", make, "CPU")
    library.impl("look", look, "CPU")
    steps = (
        Call("thruway_test_drop::make", (SlotRef(0),), (), (1,)),
        Call("aten::mul.Tensor", (SlotRef(1), SlotRef(1)), (), (2,)),
        Call("thruway_test_drop::look", (SlotRef(2),), (), (3,)),
    )
    run = loader(launch_list((vector(4),), steps, (3,), 4))
    x = torch.arange(4.0)
    assert torch.equal(run(x)[0], (x + 1) ** 2 + 1)
    assert alive == [True] and seen[0]() is None
    library._destroy()


def test_release_frees_arenas_and_runs_again(loader):
    n = 9 << 20                              # beyond what the allocator may keep for itself
    size = symbol("n")
    steps = (Allocate(1, vector(size), arena=0), Kernel("multiply_add", (0, 0, 0, 1), (size,)), Allocate(2, vector(1)), Kernel("multiply_add", (1, 1, 1, 2), (1,)))
    run = loader(launch_list((vector(size),), steps, (2,), 3, arena_bytes=4 * size, symbols=(SymbolBinding("n", 0, 0),)), MULTIPLY_ADD)
    x = torch.ones(n)
    before = resident()
    assert run(x)[0].item() == 6
    run.release()
    assert resident() - before < 16 << 20
    assert run(x)[0].item() == 6


def test_a_dropped_runnable_frees_what_it_holds(loader):
    run = loader(multiply_add(4), MULTIPLY_ADD)
    a = torch.ones(4)
    run(a, a, a)
    gone = weakref.ref(run.call.prepare) if hasattr(run.call, "prepare") else None
    count = sys.getrefcount(a)
    del run
    gc.collect()
    assert sys.getrefcount(a) == count and (gone is None or gone() is None)


def test_a_kernel_that_fails_gives_its_frame_back(loader):
    steps = (Allocate(2, vector(4)), Kernel("checked", (1,), (4,), checks=True))
    run = loader(launch_list((vector(4), vector(1)), steps, (2,), 3), CHECKED_ADD)
    bad, good = torch.tensor([1e30]), torch.zeros(2)[:1]
    for _ in range(20):
        with pytest.raises(RegionFailed):
            run(bad, bad)
        run(good, good)


def test_programs_share_one_arena(loader):
    """Arenas of many programs and shapes together take what the largest takes."""
    def make() -> object:
        n = symbol("n")
        steps = (
            Allocate(1, vector(n), arena=0), Kernel("multiply_add", (0, 0, 0, 1), (n,)), Allocate(2, vector(1)), Kernel("multiply_add", (1, 1, 1, 2), (1,)),
        )
        return loader(launch_list((vector(n),), steps, (2,), 3, arena_bytes=4 * n, symbols=(SymbolBinding("n", 0, 0),)), MULTIPLY_ADD)

    runs = [make() for _ in range(3)]
    x = torch.ones(9 << 20)
    before = resident()
    for part in range(1, 10):
        for run in runs:
            assert run(x[:part << 20])[0].item() == 6
    for part in range(9, 0, -1):
        for run in runs:
            assert run(x[:part << 20])[0].item() == 6
    assert resident() - before < 100 << 20              # one arena is 36 MiB, all of them would be 540


def test_arenas_come_and_go_under_threads(loader):
    """Growing arenas are replaced while other threads are inside theirs, and derived values change under way."""
    n = symbol("n")
    steps = (
        Allocate(3, vector(n), arena=0), Kernel("multiply_add", (0, 0, 0, 3), (n,)),
        Call("aten::add.Tensor", (SlotRef(3), SlotRef(2)), (), (4,)),
    )
    derived = (Call("aten::mul.Tensor", (SlotRef(1), 2), (), (2,)),)
    launch = launch_list((vector(n), vector(1)), steps, (4,), 5, weights=(1,), derived=derived, derived_slots=(2,), arena_bytes=4 * n,
                         symbols=(SymbolBinding("n", 0, 0),))
    run = loader(launch, MULTIPLY_ADD)

    def work(seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        for i in range(60):
            size = int(torch.randint(1, 400_000, (), generator=draw))
            x, w = torch.full((size,), float(seed)), torch.full((1,), float(i))
            assert torch.equal(run(x, w)[0], x * x + x + 2 * w)

    in_threads(work, 6)
