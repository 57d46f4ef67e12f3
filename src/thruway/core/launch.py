"""The launch list: a compiled graph flattened to what `runtime` executes. Plain, serialisable data.

codegen writes it, artifact stores it, runtime runs it; sizes stay symbolic and are evaluated per call (once per shape).
A *slot* numbers a tensor or raw buffer: inputs come first (slot i is input i), then everything else.

Order of meaning: bind symbols from the inputs' sizes → derived values (from weights alone, kept between calls, see
`derived`) → steps in order → outputs. A step that can fail (`Kernel.checks`) reports a failure by returning a nonzero
flag; the runtime then raises `RegionFailed` before any step marked `writes_input` has run, and the caller reruns eager.
"""

from __future__ import annotations

from dataclasses import dataclass

from thruway.core.sizes import SizeLike

Slot = int
FAR = 2**31 - 2**14      # what counts to here needs 64-bit indices on a GPU: a loop over a row looks once more behind its end


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Layout of one tensor: sizes and strides in elements, storage offset in elements."""

    dtype: str
    sizes: tuple[SizeLike, ...]
    strides: tuple[SizeLike, ...]
    device: str = "cpu"
    offset: SizeLike = 0


@dataclass(frozen=True, slots=True)
class Input:
    """One graph input. `weight`: a parameter or buffer that the graph does not write, so that derived values may keep it."""

    slot: Slot
    spec: TensorSpec
    weight: bool = False


@dataclass(frozen=True, slots=True)
class SymbolBinding:
    """The size symbol `name` is `inputs[input].size(dim)`."""

    name: str
    input: int
    dim: int


@dataclass(frozen=True, slots=True)
class Allocate:
    """Gives `slot` memory: at `arena` bytes into the leased arena, or a fresh tensor where None (it leaves the call)."""

    slot: Slot
    spec: TensorSpec
    arena: SizeLike | None = None


@dataclass(frozen=True, slots=True)
class View:
    """`slot` shares `base`'s storage with another layout; `spec.offset` counts from the base tensor's own first element."""

    slot: Slot
    base: Slot
    spec: TensorSpec


@dataclass(frozen=True, slots=True)
class Kernel:
    """Calls the generated function `symbol(void **pointers, const long long *sizes)`; it returns 0, or a check's number.
    `writes` are the pointers, inputs or views of them, that it writes: their version is bumped. Empty with `writes_input`: any but weights."""

    symbol: str
    pointers: tuple[Slot, ...]
    sizes: tuple[SizeLike, ...] = ()
    checks: bool = False
    writes_input: bool = False
    writes: tuple[Slot, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotRef:
    """A tensor argument of a Call."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class SizeRef:
    """An integer argument of a Call that depends on the sizes."""

    size: SizeLike


@dataclass(frozen=True, slots=True)
class Call:
    """Calls a torch operator by name ("aten::mm.out"; overload after the dot). Arguments hold constants, SlotRef, SizeRef
    and lists of them. `outs` take what it returns, in order, and are empty for an `.out` or in-place operator. `out_specs`,
    where given, are the layouts that later steps count on: another one fails the region."""

    op: str
    args: tuple[object, ...]
    kwargs: tuple[tuple[str, object], ...] = ()
    outs: tuple[Slot, ...] = ()
    writes_input: bool = False
    out_specs: tuple[TensorSpec, ...] = ()


Step = Allocate | View | Kernel | Call


@dataclass(frozen=True, slots=True)
class GpuKernel:
    """A kernel compiled for a GPU, as `runtime.cuda` launches it: ceil(points / block) programs of `warps` warps with `shared` bytes
    of shared memory. Arguments: a Kernel step's pointers, the address of the failure flag where `checks`, its sizes as 32-bit
    integers (64-bit where `wide`), then `extra` null pointers that Triton's calling convention wants. `points` is in terms of
    `size_names`, which name the step's sizes in order. `floor_bytes`: what it must move at least."""

    symbol: str
    cubin: bytes
    entry: str
    points: SizeLike
    block: int
    warps: int
    shared: int
    checks: bool
    wide: bool
    extra: int
    size_names: tuple[str, ...] = ()
    floor_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LaunchList:
    """`derived` are steps that read weights and constants alone: run at the first call and again when a weight changed;
    `derived_slots` are what they leave for `steps`. `constants` are small tensors as (slot, spec, bytes)."""

    inputs: tuple[Input, ...]
    symbols: tuple[SymbolBinding, ...]
    constants: tuple[tuple[Slot, TensorSpec, bytes], ...]
    derived: tuple[Step, ...]
    derived_slots: tuple[Slot, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Slot, ...]
    arena_bytes: SizeLike
    slots: int


def uses(step: Step) -> tuple[Slot, ...]:
    """Slots that a step reads or writes, but for those it defines."""
    match step:
        case Allocate():
            return ()
        case View(base=base):
            return (base,)
        case Kernel(pointers=pointers):
            return pointers
        case Call(args=args, kwargs=kwargs):
            return slots_in((args, kwargs))
        case _:
            raise TypeError(f"not a step of a launch list: {step!r}")


def defines(step: Step) -> tuple[Slot, ...]:
    match step:
        case Allocate(slot=slot) | View(slot=slot):
            return (slot,)
        case Call(outs=outs):
            return outs
        case _:
            return ()


def slots_in(argument: object) -> tuple[Slot, ...]:
    """The slots that an argument of a Call mentions, in order."""
    if isinstance(argument, SlotRef):
        return (argument.slot,)
    return tuple([slot for each in argument for slot in slots_in(each)]) if isinstance(argument, list | tuple) else ()
