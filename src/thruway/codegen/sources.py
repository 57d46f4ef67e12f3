"""From a Plan to Sources: the C text of every distinct kernel, spread over translation units, and the launch list that calls them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from thruway.codegen.attention_bf16_c import attention_bf16_text
from thruway.codegen.c import print_kernel
from thruway.codegen.launch_list import Printed, launch_list
from thruway.codegen.math_c import needed
from thruway.codegen.operators import may_fault
from thruway.codegen.pairs_c import PAIRS_GUARD
from thruway.codegen.product_bf16_c import product_bf16_text
from thruway.codegen.product_c import product_text
from thruway.codegen.structure import lift_coordinates, structure
from thruway.core.launch import LaunchList
from thruway.core.sizes import atom
from thruway.core.target import Target
from thruway.loops.ir import Buffer, CheckIndex, Extern, Kernel, Op, Origin
from thruway.schedule.depend import root
from thruway.schedule.own_attention import OwnAttention, own_kernel
from thruway.schedule.own_products import OwnProduct
from thruway.schedule.phases import phase_values
from thruway.schedule.plan import Plan
from thruway.schedule.rewrite import walk

# Word for word what artifact.toolchain.PRELUDE says; a test compares them.
PRELUDE = """\
typedef void tw_body(long lo, long hi, void *ctx);
static void tw_serial_for(long begin, long end, long grain, tw_body *body, void *ctx) { if (begin < end) body(begin, end, ctx); }
static void (*tw_parallel_for)(long begin, long end, long grain, tw_body *body, void *ctx) = tw_serial_for;
void tw_init(void *const *services) { tw_parallel_for = (void (*)(long, long, long, tw_body *, void *))services[0]; }
"""
PLACEHOLDER = "KERNEL"
OWN = {
    (OwnProduct, "float32"): ("tw_k_product", product_text), (OwnProduct, "bfloat16"): ("tw_k_product_bf16", product_bf16_text),
    (OwnAttention, "bfloat16"): ("tw_k_attention_bf16", attention_bf16_text),
}


@dataclass(frozen=True, slots=True)
class Sources:
    """`units` are self-contained C texts; `symbols[i]` are the kernels that unit i exports; `hash` identifies all of it."""

    launch: LaunchList
    units: tuple[str, ...]
    symbols: tuple[tuple[str, ...], ...]
    hash: str


def generate(plan: Plan, target: Target, units: int | None = None) -> Sources:
    """C for the plan's kernels in at most `units` translation units (one per core where None), equal kernels once."""
    printer = _Kernels(plan, target)
    derived = [printer.take(step) for step in plan.derived]
    steps = [printer.take(step) for step in plan.steps]
    launch = launch_list(plan, derived, steps)
    texts, symbols = _spread(printer.texts, units or os.cpu_count() or 1)
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    return Sources(launch, texts, symbols, digest)


class _Kernels:
    """Prints each distinct kernel once. `texts` maps a symbol to its text without the functions it calls."""

    def __init__(self, plan: Plan, target: Target):
        self.plan, self.target = plan, target
        self.texts: dict[str, str] = {}
        self.known: dict[tuple, tuple[str, tuple[int, ...], tuple, bool]] = {}

    def take(self, step: Kernel | Extern) -> Printed | Extern:
        """The step printed, or itself where it is a library call."""
        if isinstance(step, Kernel):
            return self.kernel(step)
        own = own_kernel(step, self.plan.buffers, self.target)
        return step if own is None else self.own(own)

    def own(self, own: OwnProduct | OwnAttention) -> Printed:
        """One text for all products of a dtype, one for all attention: sizes and layouts are arguments."""
        symbol, text = OWN[type(own), own.dtype]
        self.texts.setdefault(symbol, text(symbol))
        return Printed(symbol, own.pointers, own.scalars, False, self.plan.buffers[own.out].kind != "temp", (own.out,))

    def kernel(self, kernel: Kernel) -> Printed:
        buffers = self.plan.buffers
        written = tuple(dict.fromkeys(root(w, buffers) for w in kernel.writes))
        writes_input = any(buffers[w].kind != "temp" for w in written)
        kernel, fixed = lift_coordinates(kernel, buffers)
        key, storages = structure(kernel, buffers)
        key = (*key, writes_input)
        if key not in self.known:
            self.known[key] = self._print(kernel, buffers, storages)
        symbol, order, size_symbols, checks = self.known[key]
        scalars = tuple(fixed.get(s, atom(s)) for s in size_symbols)
        return Printed(symbol, tuple(storages[k] for k in order), scalars, checks, writes_input, written)

    def _print(self, kernel: Kernel, buffers: Mapping[str, Buffer], storages: tuple[str, ...]):
        printed = print_kernel(PLACEHOLDER, kernel, buffers, self.target)
        symbol = f"tw_k{len(self.texts)}_{kernel_hint(kernel)}"
        self.texts[symbol] = comment(kernel) + printed.text.replace(PLACEHOLDER, symbol)
        return symbol, tuple(storages.index(p) for p in printed.pointers), printed.sizes, can_fail(kernel)


def can_fail(kernel: Kernel) -> bool:
    """Whether the kernel holds a check: an index against a size, or an integer division."""
    return any(
        isinstance(x, CheckIndex) or isinstance(x, Op) and may_fault(x)
        for p in kernel.phases for x in walk(*phase_values(p))
    )


def kernel_hint(kernel: Kernel) -> str:
    """A word for the symbol: the last graph node's name."""
    names = [n for origin in kernel.origin for n in origin.nodes]
    return re.sub(r"\W", "_", names[-1])[:32] if names else "kernel"


def comment(kernel: Kernel) -> str:
    """The graph nodes and user lines of the kernel's first use."""
    nodes = list(dict.fromkeys(n for origin in kernel.origin for n in origin.nodes))
    lines = list(dict.fromkeys(_line(o) for o in kernel.origin if o.line is not None))
    text = ", ".join(nodes) or kernel.name
    return "".join(f"/* {part.replace('*/', '* /')} */\n" for part in (text, *lines))


def _line(origin: Origin) -> str:
    line = origin.line
    return f"{os.path.basename(line.file)}:{line.line} in {line.function}" + (f": {line.text.strip()}" if line.text else "")


def _spread(kernels: Mapping[str, str], units: int) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Kernels over units, the longest first into the shortest unit, those that multiply by the same tiles into one; each with the functions that it calls."""
    bins: list[list[str]] = [[] for _ in range(min(units, len(kernels)))]
    for symbol in sorted(kernels, key=lambda s: -len(kernels[s])):
        shared = [b for b in bins if PAIRS_GUARD in kernels[symbol] and any(PAIRS_GUARD in kernels[s] for s in b)]
        min(shared or bins, key=lambda b: sum(len(kernels[s]) for s in b)).append(symbol)
    order = list(kernels)
    chosen = [tuple(sorted(b, key=order.index)) for b in bins]
    return tuple(unit_text([kernels[s] for s in symbols]) for symbols in chosen), tuple(chosen)


def unit_text(kernels: list[str]) -> str:
    """One translation unit: the threads' door, the functions used, the kernels."""
    body = "\n".join(kernels)
    return f"{PRELUDE}\n{needed(body)}\n\n{body}"
