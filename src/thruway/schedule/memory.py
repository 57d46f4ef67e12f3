"""Where each buffer lives: lifetimes over the steps, and offsets into one arena with reuse.

Sizes that are integers are packed by offset, largest first. Where any is symbolic, buffers share slots stacked one after the
other: a slot is taken over by a later buffer of at most its size, so offsets are sums of symbolic sizes that hold at any batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from thruway.core import sizes
from thruway.core.dtypes import ITEMSIZE
from thruway.core.launch import TensorSpec
from thruway.core.sizes import SizeLike
from thruway.core.target import Target
from thruway.loops.ir import Buffer, Extern, Kernel, Op
from thruway.schedule.depend import read_buffers, root, written_buffers
from thruway.schedule.own_attention import own_kernel
from thruway.schedule.phases import phase_values
from thruway.schedule.plan import Placement
from thruway.schedule.rewrite import is_size, loads, walk

ALIGNMENT = 64
BLOCKWISE = frozenset({"sin", "cos"})   # a kernel with these may compute a block a second time, so it must still find its inputs


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Steps `born` to `dies`, both inclusive; `takes_over` names the buffers that may end at step `born` in the same place."""

    name: str
    bytes: SizeLike
    born: int
    dies: int
    takes_over: frozenset[str] = frozenset()


Step = Kernel | Extern


def reads_of(step: Step) -> Iterable[str]:
    return read_buffers(step) if isinstance(step, Extern) else step.reads


def writes_of(step: Step) -> Iterable[str]:
    return written_buffers(step) if isinstance(step, Extern) else step.writes


def plan_memory(
    buffers: Mapping[str, Buffer], derived: Sequence[Step], steps: Sequence[Step], outputs: Sequence[str], has_out: frozenset[str],
    target: Target,
) -> tuple[dict[str, Placement], SizeLike]:
    """A Placement for every buffer in use, and the arena's size in bytes. `has_out`: library calls that can write into given memory."""
    placements = _fixed(buffers, derived, steps, outputs, has_out, target)
    lifetimes = _lifetimes(buffers, steps, placements)
    pack = pack_offsets if all(type(x.bytes) is int for x in lifetimes) else _stack_slots
    offsets, total = pack(lifetimes)
    placements.update({name: Placement("arena", offset) for name, offset in offsets.items()})
    return placements, total


def _fixed(
    buffers: Mapping[str, Buffer], derived: Sequence[Step], steps: Sequence[Step], outputs: Sequence[str], has_out: frozenset[str],
    target: Target,
) -> dict[str, Placement]:
    """Placements that need no arena."""
    result: dict[str, Placement] = {}
    for name, buffer in buffers.items():
        if buffer.alias is not None:
            result[name] = Placement("alias", buffer.offset, buffer.alias)
        elif buffer.kind in {"input", "weight", "constant"}:
            result[name] = Placement(buffer.kind)
    for step in derived:
        result.update({name: Placement("derived") for name in writes_of(step) if name not in result})
    leaving = {root(name, buffers) for name in outputs}
    for step in steps:
        is_call = isinstance(step, Extern) and own_kernel(step, buffers, target) is None
        for name in writes_of(step):
            if name in result:
                continue
            if is_call and name in step.outs and not (step.op in has_out and name not in leaving):
                result[name] = Placement("returned")
            elif name in leaving:
                result[name] = Placement("output")
    return result


def byte_size(buffer: Buffer | TensorSpec) -> SizeLike:
    """Bytes from the first to the last element of a buffer, rounded up to the arena's alignment."""
    strides = buffer.strides
    if strides is None:
        elements = sizes.product(buffer.sizes)
    elif any(size == 0 for size in buffer.sizes):
        elements = 0
    else:
        elements = 1
        for size, stride in zip(buffer.sizes, strides, strict=True):
            elements = sizes.add(elements, sizes.mul(sizes.add(size, -1), stride))
    return _aligned(sizes.mul(elements, ITEMSIZE[buffer.dtype]))


def _aligned(size: SizeLike) -> SizeLike:
    if sizes.mod(size, ALIGNMENT) == 0:
        return size
    return sizes.mul(sizes.floordiv(sizes.add(size, ALIGNMENT - 1), ALIGNMENT), ALIGNMENT)


def _lifetimes(buffers: Mapping[str, Buffer], steps: Sequence[Step], placed: Mapping[str, Placement]) -> list[Lifetime]:
    born: dict[str, int] = {}
    dies: dict[str, int] = {}
    for at, step in enumerate(steps):
        for name in {root(n, buffers) for n in (*reads_of(step), *writes_of(step))}:
            if name not in placed:
                born.setdefault(name, at)
                dies[name] = at
    result = []
    for name, start in born.items():
        over = frozenset()
        if isinstance(steps[start], Kernel):
            over = frozenset(r for r in steps[start].reads if dies.get(r) == start and born[r] < start
                             and may_take_over(steps[start], r, name, buffers))
        result.append(Lifetime(name, byte_size(buffers[name]), start, dies[name], over))
    return result


def may_take_over(kernel: Kernel, old: str, new: str, buffers: Mapping[str, Buffer]) -> bool:
    """Whether `new` may be written over `old`: one pass, same layout, and every read of `old` is at the element being written."""
    a, b = buffers[old], buffers[new]
    if len(kernel.phases) != 1 or kernel.scan or (a.sizes, a.strides, ITEMSIZE[a.dtype]) != (b.sizes, b.strides, ITEMSIZE[b.dtype]):
        return False
    phase = kernel.phases[0]
    values = phase_values(phase)
    if phase.inner or any(isinstance(x, Op) and x.name in BLOCKWISE for x in walk(*values)):
        return False
    written = {s.index for s in phase.stores if s.buffer == new}
    return len(written) == 1 and all(is_size(i) for index in written for i in index) and all(
        x.index in written for x in loads(*values) if x.buffer == old)


def pack_offsets(lifetimes: Sequence[Lifetime]) -> tuple[dict[str, SizeLike], SizeLike]:
    """Largest first, each at the lowest offset that is free during its whole life."""
    placed: list[tuple[int, int, Lifetime]] = []
    for one in sorted(lifetimes, key=lambda x: (-x.bytes, x.born, x.name)):
        offset = 0
        for low, high, other in sorted((p for p in placed if _meet(one, p[2])), key=lambda p: p[:2]):
            if low >= offset + one.bytes:
                break
            offset = max(offset, high)
        placed.append((offset, offset + one.bytes, one))
    return {x.name: low for low, _, x in placed}, max((high for _, high, _ in placed), default=0)


def _meet(a: Lifetime, b: Lifetime) -> bool:
    """Whether two lifetimes may not share memory. A takeover is only free if the two start at one offset, which equal sizes do not
    ensure, so it counts here only for `_stack_slots`."""
    return a.born <= b.dies and b.born <= a.dies


def _stack_slots(lifetimes: Sequence[Lifetime]) -> tuple[dict[str, SizeLike], SizeLike]:
    """Slots one after the other; each is used again once its buffer is dead by a buffer that surely fits."""
    slots: list[tuple[SizeLike, Lifetime]] = []
    home: dict[str, int] = {}
    for one in sorted(lifetimes, key=lambda x: (x.born, x.name)):
        free = [k for k, (size, last) in enumerate(slots) if (last.dies < one.born or last.name in one.takes_over) and _fits(one.bytes, size)]
        if free:
            k = min(free, key=lambda k: (slots[k][0] != one.bytes, k))
            slots[k] = (slots[k][0], one)
        else:
            k = len(slots)
            slots.append((one.bytes, one))
        home[one.name] = k
    starts: list[SizeLike] = []
    total: SizeLike = 0
    for size, _ in slots:
        starts.append(total)
        total = sizes.add(total, size)
    return {name: starts[k] for name, k in home.items()}, total


def _fits(small: SizeLike, large: SizeLike) -> bool:
    low = sizes.bounds(sizes.add(large, sizes.mul(small, -1)))[0]
    return low is not None and low >= 0
