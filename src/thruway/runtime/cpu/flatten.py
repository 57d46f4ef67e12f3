"""Flattens a concrete launch list to the rows that native/program.c reads: steps as tuples, tensors as slots, code as addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import ModuleType

import torch

from thruway.core.errors import Unsupported
from thruway.core.launch import Allocate, Call, Kernel, LaunchList, Slot, SlotRef, Step, TensorSpec, View, slots_in
from thruway.core.dtypes import ITEMSIZE
from thruway.native.probe import device_code, dtype_code
from thruway.runtime.cpu.launch import written_inputs
from thruway.runtime.cpu.tensors import byte_span, make_arena, make_constants, persistent_tensors
from thruway.runtime.lifetime import PERSISTENT, Slots, examine
from thruway.runtime.resolve import Code, address_of, dtype_of

KERNEL, FRESH, VIEW, CALL, SHIM, DROP, LAUNCH = range(7)
CONSTANT, SLOT, LIST = range(3)
RELEASE_BYTES = 1 << 20                      # kernels that touch more let other Python threads run
# Matrix products that the C shim offers below the dispatcher, at a third of the cost of calling the operator: (function, tensors by position)
SHIMS = {
    "aten::mm.out": ("aoti_torch_cpu_mm_out", 2),
    "aten::bmm.out": ("aoti_torch_cpu_bmm_out", 2),
    "aten::addmm.out": ("aoti_torch_cpu_addmm_out", 3),
    "aten::baddbmm.out": ("aoti_torch_cpu_baddbmm_out", 3),
}
Row = tuple[object, ...]


def native_program(core: ModuleType, launch: LaunchList, code: Code):
    """The native Program of a concrete launch list."""
    slots = examine(launch)
    rows: list[Row] = []
    for i, step in enumerate(launch.steps):
        rows += _rows(step, launch, slots, code)
        if slots.drops[i]:
            rows.append((DROP, slots.drops[i]))
    return make_program(core, launch, slots, rows)


def make_program(core: ModuleType, launch: LaunchList, slots: Slots, rows: Sequence[Row]):
    """The native Program of these rows."""
    return core.Program(
        slots=launch.slots,
        inputs=len(launch.inputs),
        arena_bytes=launch.arena_bytes,
        steps=tuple(rows),
        outputs=launch.outputs,
        read_inputs=_read_inputs(launch, slots),
        per_call=tuple(slot for slot in range(launch.slots) if slots.is_per_call(slot)),
        make_frame=_frame_maker(launch, slots),
    )


def _rows(step: Step, launch: LaunchList, slots: Slots, code: Code) -> Iterable[Row]:
    match step:
        case Allocate(slot, spec, None):
            yield fresh_row(slot, spec)
        case View(slot) if slots.is_per_call(slot):
            yield _view_row(step, slots)
        case Allocate() | View():
            pass                             # persistent: make_frame makes them
        case Kernel():
            yield (KERNEL, step.symbol, address_of(code.kernels[step.symbol]), step.pointers, step.sizes, written_inputs(step, slots, launch),
                   _touched_bytes(step.pointers, slots) > RELEASE_BYTES, step.writes_input)
        case Call():
            yield _shim_row(step, slots) or _call_row(step, code)
        case _:
            raise TypeError(f"not a step of a launch list: {step!r}")


def fresh_row(slot: Slot, spec: TensorSpec) -> Row:
    return FRESH, slot, spec.sizes, spec.strides, dtype_code(dtype_of(spec.dtype)), device_code(torch.device(spec.device))


def _view_row(step: View, slots: Slots) -> Row:
    base, spec, is_object = slots.spec[step.base], step.spec, step.slot in slots.objects
    if is_object and base is not None and base.dtype != spec.dtype:
        raise Unsupported("TW311", f"a view of a {base.dtype} tensor as {spec.dtype}")
    return (VIEW, step.slot, step.base, spec.offset * ITEMSIZE[spec.dtype], spec.offset, is_object, step.slot in slots.real_views, spec.sizes, spec.strides)


def _call_row(step: Call, code: Code) -> Row:
    arguments = (*step.args, *(value for _, value in step.kwargs))
    return (CALL, code.operators[step.op], tuple(map(_argument, arguments)), tuple(name for name, _ in step.kwargs), step.outs,
            tuple(_expected(spec) for spec in step.out_specs), step.writes_input)


def _shim_row(step: Call, slots: Slots) -> Row | None:
    """The row of a matrix product written in its plain form: all tensors by position, alpha and beta by name."""
    symbol, count = SHIMS.get(step.op, ("", 0))
    scalars = dict(step.kwargs)
    out = scalars.pop("out", None)
    if not symbol or len(step.args) != count or step.writes_input or not all(isinstance(each, SlotRef) for each in (out, *step.args)):
        return None
    tensors = (out.slot, *(each.slot for each in step.args))
    return SHIM, symbol, tensors, (float(scalars.get("beta", 1)), float(scalars.get("alpha", 1))), _touched_bytes(tensors, slots) > RELEASE_BYTES


def _expected(spec: TensorSpec) -> Row:
    return spec.sizes, spec.strides, dtype_code(dtype_of(spec.dtype))


def _argument(argument: object) -> Row:
    match argument:
        case SlotRef(slot):
            return SLOT, slot
        case list() | tuple() if slots_in(argument):
            return LIST, tuple(map(_argument, argument))
        case tuple():
            return CONSTANT, list(argument)
        case _:
            return CONSTANT, argument


def _touched_bytes(touched: Iterable[Slot], slots: Slots) -> int:
    return sum(byte_span(spec) for slot in touched if (spec := slots.spec[slot]) is not None)


def _read_inputs(launch: LaunchList, slots: Slots) -> tuple[Slot, ...]:
    """Inputs whose address is wanted: kernels read them, or views of them."""
    read = {step.base for step in launch.steps if isinstance(step, View)}
    read.update(slot for step in launch.steps if isinstance(step, Kernel) for slot in step.pointers)
    return tuple(i for i in range(len(launch.inputs)) if i in read)


def _frame_maker(launch: LaunchList, slots: Slots) -> Callable[[tuple[torch.Tensor, ...] | None, torch.Tensor | None], Row]:
    """make_frame(derived, arena) → (a tensor or None per slot, an address per slot)."""
    constants = make_constants(launch)
    persistent = [slots.kind[slot] in PERSISTENT for slot in range(launch.slots)]

    def make_frame(derived: tuple[torch.Tensor, ...] | None, arena: torch.Tensor | None) -> Row:
        tensors = persistent_tensors(launch, slots, arena if arena is not None else make_arena(0), constants, derived or ())
        return tuple(tensors), tuple(_address(tensor) if fixed else 0 for tensor, fixed in zip(tensors, persistent))

    return make_frame


def _address(tensor: torch.Tensor | None) -> int:
    """0 for weights in a library's opaque layout too, which only its calls read."""
    return tensor.data_ptr() if tensor is not None and tensor.layout == torch.strided else 0
