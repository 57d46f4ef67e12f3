"""Which shape a kernel is printed in, and how much work one piece of it is, from the target's limits."""

from __future__ import annotations

from collections.abc import Sequence

from thruway.codegen.flatten import ORDERED, Flat, coefficient
from thruway.codegen.operators import BLOCKWISE
from thruway.core import sizes
from thruway.core.dtypes import ITEMSIZE
from thruway.core.sizes import SizeLike, Symbol
from thruway.core.target import Target
from thruway.loops.ir import Axis, Load, Op
from thruway.schedule.phases import phase_values
from thruway.schedule.rewrite import cost, walk, weigh

LANES = 64
GRID_FROM = 32768     # elements under which a reduction of everything is not worth spreading
TILE = 16             # the side of a square that is turned in registers
PARTS = 64            # pieces of a grid phase; fixed, so that results do not depend on the number of threads
CHEAP_PER_ELEMENT = 12


def choose_shape(flat: Flat) -> str:
    """ "rows", "tiles", "lanes" or "grid" (see `c`)."""
    kernel = flat.kernel
    inner = next((p.inner for p in kernel.phases if p.inner), ())
    if not inner:
        return "tiles" if across_axis(flat) is not None else "rows"
    total = sizes.product(a.extent for a in inner)
    ordered = any(r.op in ORDERED for p in kernel.phases for r in p.reductions)
    if not kernel.outer:
        return "grid" if not ordered and kernel.scan is None and (type(total) is not int or total > GRID_FROM) else "rows"
    return "lanes" if contiguous_votes(flat, kernel.outer[-1]) > contiguous_votes(flat, inner[-1]) else "rows"


def across_axis(flat: Flat) -> Axis | None:
    """The axis along which a pointwise kernel reads contiguous data that it writes along another, if there is one worth turning."""
    kernel = flat.kernel
    if len(kernel.outer) < 2 or kernel.scan is not None or flat.unsafe or len(kernel.phases) != 1 or kernel.phases[0].inner:
        return None
    along = kernel.outer[-1]
    values = phase_values(kernel.phases[0])
    if not _is_wide(along) or any(isinstance(x, Op) and x.name in BLOCKWISE for x in walk(*values)):
        return None
    loads = [x for x in walk(*values) if isinstance(x, Load)]
    for axis in kernel.outer[:-1]:
        if _is_wide(axis) and any(is_across(x.buffer, x.index, axis, along, flat) for x in loads):
            return axis
    return None


def _is_wide(axis: Axis) -> bool:
    return type(axis.extent) is not int or axis.extent >= TILE


def is_across(buffer: str, index: tuple, axis: Axis, along: Axis, flat: Flat) -> bool:
    """Whether a load runs contiguously along `axis` and jumps along `along`."""
    written = {s.buffer for s in flat.kernel.phases[0].stores}
    if len(index) != 1 or buffer in written or ITEMSIZE[flat.buffers[buffer].dtype] not in (2, 4):
        return False
    return coefficient(index[0], Symbol(axis.name)) == 1 and coefficient(index[0], Symbol(along.name)) not in (0, 1, None)


def contiguous_votes(flat: Flat, axis: Axis) -> int:
    """Elements that the phases over inner axes touch side by side along `axis`."""
    symbol = Symbol(axis.name)
    private = {b.name for b in flat.kernel.scratch}
    votes = 0
    for phase in flat.kernel.phases:
        if not phase.inner:
            continue
        touched = [(x.buffer, x.index[0]) for x in walk(*phase_values(phase)) if isinstance(x, Load)]
        touched += [(s.buffer, s.index[0]) for s in phase.stores]
        votes += sum(weigh(sizes.product(flat.buffers[b].sizes)) for b, at in touched if b not in private and coefficient(at, symbol) == 1)
    return votes


def work_per_row(flat: Flat, along: Sequence[Axis] = ()) -> SizeLike:
    """Cheap operations that one outer point (with the axes `along` beside it) costs."""
    total: SizeLike = 0
    for phase in flat.kernel.phases:
        values = phase_values(phase)
        each = 1 + cost(*values) + len([x for x in walk(*values) if isinstance(x, Load)])
        total = sizes.add(total, sizes.mul(sizes.product(a.extent for a in (*phase.inner, *along)), each))
    return total


def grain_work(target: Target) -> int:
    """Cheap operations that should at least stay together on one thread."""
    return target.parallel_grain * CHEAP_PER_ELEMENT
