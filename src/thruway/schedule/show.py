"""A plan as text: buffers and where they live, the steps in order under the user's lines, and what each fusion should save."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from thruway.core import sizes
from thruway.loops.ir import Buffer, Extern, Kernel
from thruway.loops.show import show_buffer, show_kernel, show_node
from thruway.schedule.plan import Placement, Plan


def show_plan(plan: Plan) -> str:
    """The plan as readable text."""
    lines = ["buffers"]
    lines += [f"  {show_buffer(buffer)}{_place(buffer, plan.placements[name])}" for name, buffer in plan.buffers.items() if name in plan.placements]
    lines += ["derived, kept between calls", *_steps(plan.derived, plan)] if plan.derived else []
    lines += ["steps", *_steps(plan.steps, plan)]
    lines += ["outputs", f"  {', '.join(plan.outputs)}", f"arena: {sizes.show(plan.arena_bytes)} bytes"]
    lines += ["predicted", *[f"  {p.what}: {p.bytes_saved} bytes, {p.microseconds} µs" for p in plan.predictions]] if plan.predictions else []
    return "\n".join([*lines, ""])


def _place(buffer: Buffer, placement: Placement) -> str:
    """Where the buffer lives, unless its kind says it or it lies in another."""
    match placement:
        case Placement("arena", offset):
            return f"  # in the arena at {sizes.show(offset)}"
        case Placement(where):
            return "" if buffer.alias or where == buffer.kind else f"  # {where}"


def _steps(steps: Sequence[Kernel | Extern], plan: Plan) -> Iterator[str]:
    last = None
    for step in steps:
        match step:
            case Kernel():
                yield from (f"  {line}" for line in show_kernel(step).splitlines())
                last = None
            case Extern():
                if step.origin.line is not None and step.origin.line != last:
                    yield f"  # {step.origin.line}"
                last = step.origin.line or last
                yield from (f"  {line}" for line in show_node(step, plan.buffers))
            case _:
                raise TypeError(f"not a step of a plan: {step!r}")
