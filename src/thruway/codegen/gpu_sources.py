"""From a Plan to GpuSources: Triton text of every distinct kernel, and the launch list that calls them.

The GPU's twin of `sources`. Equal kernels are printed once. A CPU scalar that a kernel reads is copied to the device first; kernels
that would write CPU memory are Unsupported here. Rows that are handed over between phases and do not fit a program go through memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from thruway.codegen.launch_list import Printed, launch_list
from thruway.codegen.sources import can_fail, kernel_hint
from thruway.codegen.structure import lift_coordinates, structure
from thruway.codegen.triton import print_kernel
from thruway.codegen.triton_dot import print_product, product_of
from thruway.codegen.triton_source import RESIDENT, TritonSource
from thruway.core import sizes
from thruway.core.dtypes import ITEMSIZE
from thruway.core.errors import Unsupported
from thruway.core.launch import Call, LaunchList, TensorSpec
from thruway.core.sizes import SizeLike
from thruway.loops.ir import Buffer, BufferRef, Extern, Kernel, Load, Store
from thruway.schedule.depend import root
from thruway.schedule.memory import byte_size
from thruway.schedule.phases import phase_values
from thruway.schedule.plan import Placement, Plan
from thruway.schedule.products import factors
from thruway.schedule.rewrite import is_size, loads, rewrite, weigh


@dataclass(frozen=True, slots=True)
class GpuSource:
    """One kernel: its text, the element type behind each pointer, the bytes it must move at least and those behind each pointer (None
    where sizes are symbolic). `misses_tiles`: it sums products of many rows, and not by tensor cores."""

    source: TritonSource
    dtypes: tuple[str, ...]
    floor_bytes: int | None
    pointer_bytes: tuple[int, ...] | None
    misses_tiles: bool = False


@dataclass(frozen=True, slots=True)
class GpuSources:
    launch: LaunchList
    kernels: tuple[GpuSource, ...]
    hash: str

    @property
    def reach(self) -> tuple[SizeLike, ...]:
        """The symbolic sizes that have to stay below FAR for 32-bit indices."""
        return tuple(dict.fromkeys(size for kernel in self.kernels if not kernel.source.wide for size in kernel.source.reach))

    @property
    def text(self) -> str:
        return "\n".join(kernel.source.text for kernel in self.kernels)


def generate_gpu(plan: Plan, device: str, wide: bool = False) -> GpuSources:
    """Triton for the plan's kernels on `device` ("cuda:0"). Unsupported names what cannot run there. `wide`: with 64-bit indices in any case."""
    if plan.derived:
        raise Unsupported("TW705", "values kept between calls are computed by torch's operators on a GPU")
    plan = _with_scalars_on_device(plan, device)
    printer = _Kernels(plan, wide)
    steps = [printer.take(step) if isinstance(step, Kernel) else step for step in plan.steps]
    launch = _with_layouts(launch_list(printer.plan, (), steps), printer.plan, steps)
    digest = hashlib.sha256("\0".join(k.source.text for k in printer.kernels).encode()).hexdigest()
    return GpuSources(launch, tuple(printer.kernels), digest)


class _Kernels:
    """Prints each distinct kernel once; `known` maps a structure to its symbol, pointer order, sizes and checks."""

    def __init__(self, plan: Plan, wide: bool):
        self.plan, self.wide = plan, wide
        self.kernels: list[GpuSource] = []
        self.known: dict[tuple, tuple[str, tuple[int, ...], tuple[str, ...], bool]] = {}

    def take(self, kernel: Kernel) -> Printed:
        kernel = self._with_rows_in_memory(kernel)
        buffers = self.plan.buffers
        writes_input = any(buffers[root(w, buffers)].kind != "temp" for w in kernel.writes)
        kernel, fixed = lift_coordinates(kernel, buffers)
        key, storages = structure(kernel, buffers)
        if key not in self.known:
            self.known[key] = self._print(kernel, buffers, storages)
        symbol, order, names, checks = self.known[key]
        values = {one.name: value for one, value in fixed.items()}
        return Printed(symbol, tuple(storages[k] for k in order), tuple(values.get(n, sizes.symbol(n)) for n in names), checks, writes_input)

    def _print(self, kernel: Kernel, buffers: Mapping[str, Buffer], storages: tuple[str, ...]):
        symbol = f"tw_k{len(self.kernels)}_{kernel_hint(kernel)}"
        kernel = replace(kernel, name=symbol)
        products = product_of(kernel)
        source = print_kernel(kernel, buffers, self.wide) if products is None else print_product(kernel, buffers, products, self.wide)
        dtypes = tuple(buffers[name].dtype for name in source.pointers)
        misses = products is None and any(factors(r.value, kernel.outer) is not None for p in kernel.phases for r in p.reductions)
        self.kernels.append(GpuSource(source, dtypes, _floor_bytes(kernel, buffers), _pointer_bytes(source, buffers), misses))
        return symbol, tuple(storages.index(root(p, buffers)) for p in source.pointers), source.sizes, can_fail(kernel)

    def _with_rows_in_memory(self, kernel: Kernel) -> Kernel:
        """Private rows that are too long for one program, or read at other places than written, become buffers with a row per outer point."""
        if all(_elements(row) <= RESIDENT for row in kernel.scratch) and not _crosses_rows(kernel):
            return kernel
        outer = tuple(axis.extent for axis in kernel.outer)
        index = tuple(axis.index for axis in kernel.outer)
        rows = {row.name: f"{kernel.name}_{row.name}" for row in kernel.scratch}
        device = self.plan.buffers[kernel.writes[0]].device
        made = {rows[row.name]: _row_major(rows[row.name], row.dtype, outer + row.sizes, device) for row in kernel.scratch}
        self.plan = replace(self.plan, buffers=self.plan.buffers | made,
                            placements=self.plan.placements | {name: Placement("output") for name in made})

        def on_load(load: Load) -> Load:
            return Load(rows[load.buffer], index + load.index, load.dtype) if load.buffer in rows else load

        def moved(value):
            return rewrite(value, lambda size: size, on_load)

        def stored(store: Store) -> Store:
            store = replace(store, value=moved(store.value))
            return replace(store, buffer=rows[store.buffer], index=index + store.index) if store.buffer in rows else store

        phases = tuple(
            replace(p, lets=tuple(replace(x, value=moved(x.value)) for x in p.lets),
                    reductions=tuple(replace(x, value=moved(x.value)) for x in p.reductions), stores=tuple(stored(x) for x in p.stores))
            for p in kernel.phases
        )
        return replace(kernel, phases=phases, scratch=(), writes=kernel.writes + tuple(made), reads=kernel.reads)


def _crosses_rows(kernel: Kernel) -> bool:
    """Whether an element of a private row is read by another thread's element than the one that wrote it."""
    private = {row.name for row in kernel.scratch}
    written = {store.buffer: store.index for phase in kernel.phases for store in phase.stores if store.buffer in private}
    return any(x.index != written[x.buffer] for phase in kernel.phases for x in loads(*phase_values(phase)) if x.buffer in private)


def _row_major(name: str, dtype: str, extents: tuple[SizeLike, ...], device: str) -> Buffer:
    strides: list[SizeLike] = []
    step: SizeLike = 1
    for extent in reversed(extents):
        strides.insert(0, step)
        step = sizes.mul(step, extent)
    return Buffer(name, dtype, extents, tuple(strides), "temp", device)


def _elements(buffer: Buffer) -> int:
    """Elements, or more than any program keeps where that is not known."""
    count = sizes.product(buffer.sizes)
    return count if type(count) is int else RESIDENT + 1


def _floor_bytes(kernel: Kernel, buffers: Mapping[str, Buffer]) -> int | None:
    """Each buffer read and each written once; of one that is read at computed places alone no more than there are points."""
    values = [value for phase in kernel.phases for value in phase_values(phase)]
    whole = {root(x.buffer, buffers) for x in loads(*values) if all(map(is_size, x.index)) and x.buffer in buffers}
    points = sizes.mul(sizes.product(a.extent for a in kernel.outer), max((weigh(sizes.product(a.extent for a in p.inner)) for p in kernel.phases), default=1))
    counts = []
    for names, is_read in ((kernel.reads, True), (kernel.writes, False)):
        for name in {root(each, buffers) for each in names}:
            count = sizes.product(buffers[name].sizes)
            count = sizes.minimum(count, points) if is_read and name not in whole else count
            counts.append(sizes.mul(count, ITEMSIZE[buffers[name].dtype]))
    known = [count for count in counts if isinstance(count, int)]
    return sum(known) if len(known) == len(counts) else None


def _pointer_bytes(source: TritonSource, buffers: Mapping[str, Buffer]) -> tuple[int, ...] | None:
    """Bytes of the memory behind each pointer."""
    owners = [buffers[root(name, buffers)] for name in source.pointers]
    spans = [byte_size(owner) for owner in owners]
    return tuple(spans) if all(type(span) is int for span in spans) else None


def _with_scalars_on_device(plan: Plan, device: str) -> Plan:
    """CPU scalars that kernels read get a copy on the device, made by a step of its own at the start."""
    buffers, placements = dict(plan.buffers), dict(plan.placements)
    copies: dict[str, Extern] = {}
    steps = []
    for step in plan.steps:
        if isinstance(step, Kernel):
            if any(not buffers[root(name, buffers)].device.startswith("cuda") for name in step.writes):
                raise Unsupported("TW706", f"{step.name} computes in CPU memory beside GPU kernels", "make the tensor on the GPU, or outside")
            step = _reading_copies(step, buffers, placements, copies, device)
        steps.append(step)
    return replace(plan, buffers=buffers, placements=placements, steps=(*copies.values(), *steps)) if copies else plan


def _reading_copies(kernel: Kernel, buffers: dict, placements: dict, copies: dict[str, Extern], device: str) -> Kernel:
    names = {}
    for name in kernel.reads:
        buffer = buffers[name]
        if buffer.device.startswith("cuda"):
            continue
        if buffer.kind not in ("input", "weight") or sizes.product(buffer.sizes) != 1:
            raise Unsupported("TW706", f"{kernel.name} reads {name} in CPU memory", "make the tensor on the GPU, or outside")
        names[name] = copy = f"{name}_on_gpu"
        if name not in copies:
            buffers[copy] = replace(buffer, name=copy, kind="temp", device=device)
            placements[copy] = Placement("returned")
            copies[name] = Extern("aten::_to_copy", (BufferRef(name),), (("device", device),), (copy,))
    if not names:
        return kernel

    def moved(value):
        return rewrite(value, lambda size: size, lambda load: replace(load, buffer=names.get(load.buffer, load.buffer)))

    phases = tuple(
        replace(p, lets=tuple(replace(x, value=moved(x.value)) for x in p.lets),
                reductions=tuple(replace(x, value=moved(x.value)) for x in p.reductions),
                stores=tuple(replace(x, value=moved(x.value)) for x in p.stores))
        for p in kernel.phases
    )
    return replace(kernel, phases=phases, reads=tuple(names.get(name, name) for name in kernel.reads))


def _with_layouts(launch: LaunchList, plan: Plan, steps) -> LaunchList:
    """Every call says which layout later steps count on: a library may give another one."""
    externs = iter([step for step in steps if isinstance(step, Extern)])
    specs = {}
    for step in launch.steps:
        if isinstance(step, Call):
            extern = next(externs)
            if step.outs:
                specs[id(step)] = tuple(_spec(plan.buffers[name]) for name in extern.outs)
    return replace(launch, steps=tuple(replace(s, out_specs=specs[id(s)]) if id(s) in specs else s for s in launch.steps))


def _spec(buffer: Buffer) -> TensorSpec:
    return TensorSpec(buffer.dtype, buffer.sizes, buffer.strides, buffer.device)
