"""What makes two kernels the same text: everything but the names of their buffers, where they come from, and fixed coordinates.

The twelfth copy of a block is compared, not printed; it may read the twelfth slice of what the first reads the first of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from thruway.core.sizes import SizeLike, Symbol, symbol
from thruway.loops.ir import Buffer, Cast, CheckIndex, Expr, Index, IndexValue, Kernel, Let, Literal, Load, Op, Phase, Var, Within
from thruway.schedule.depend import root
from thruway.schedule.phases import phase_values
from thruway.schedule.rewrite import is_size, rewrite, walk


def lift_coordinates(kernel: Kernel, buffers: Mapping[str, Buffer]) -> tuple[Kernel, dict[Symbol, int]]:
    """The kernel with each fixed coordinate (a slice of a stacked tensor) as a size of its own, and those sizes' values."""
    values: dict[Symbol, int] = {}
    places: dict[tuple[str, int, int], SizeLike] = {}
    private = {b.name for b in kernel.scratch}

    def lifted(name: str, index: tuple[Index, ...]) -> tuple[Index, ...]:
        if name in private:
            return index
        return tuple(lift(name, dim, i) if type(i) is int and buffers[name].sizes[dim] != 1 else i for dim, i in enumerate(index))

    def lift(name: str, dim: int, at: int) -> SizeLike:
        key = (name, dim, at)
        if key not in places:
            places[key] = symbol(f"at{len(places)}")
            values[Symbol(f"at{len(values)}")] = at
        return places[key]

    found = [(x.buffer, x.index) for p in kernel.phases for x in walk(*phase_values(p)) if isinstance(x, Load)]
    found += [(s.buffer, s.index) for p in kernel.phases for s in p.stores]
    if all(lifted(name, index) == index for name, index in found):
        return kernel, {}
    places.clear()
    values.clear()
    seen: dict[int, Expr] = {}

    def again(expr: Expr) -> Expr:
        return rewrite(expr, lambda size: size, lambda load: replace(load, index=lifted(load.buffer, load.index)), seen)

    phases = tuple(
        Phase(
            p.inner,
            tuple(Let(x.var, again(x.value)) for x in p.lets),
            tuple(replace(r, value=again(r.value)) for r in p.reductions),
            tuple(replace(s, index=lifted(s.buffer, tuple(i if is_size(i) else again(i) for i in s.index)), value=again(s.value)) for s in p.stores),
        )
        for p in kernel.phases
    )
    return replace(kernel, phases=phases), values


def structure(kernel: Kernel, buffers: Mapping[str, Buffer]) -> tuple[tuple, tuple[str, ...]]:
    """A key that equal kernels share, and the storages' names in the order in which the key numbers them."""
    return _Key(kernel, buffers).build()


class _Key:
    def __init__(self, kernel: Kernel, buffers: Mapping[str, Buffer]):
        self.kernel = kernel
        self.buffers = {**buffers, **{b.name: b for b in kernel.scratch}}
        self.numbers: dict[str, int] = {}
        self.layouts: dict[str, tuple] = {}
        self.tokens: list = []
        self.done: dict[int, int] = {}

    def build(self) -> tuple[tuple, tuple[str, ...]]:
        kernel = self.kernel
        self.tokens += [kernel.outer, kernel.scan]
        for buffer in kernel.scratch:
            self.tokens.append(self.buffer(buffer.name))
        for phase in kernel.phases:
            self.tokens.append(phase.inner)
            for let in phase.lets:
                self.tokens += ["let", let.var]
                self.add(let.value)
            for r in phase.reductions:
                self.tokens += [r.var, r.op, r.dtype]
                self.add(r.value)
            for store in phase.stores:
                self.tokens += ["store", self.buffer(store.buffer), store.mode]
                self.index(store.index)
                self.add(store.value)
        return tuple(self.tokens), tuple(self.numbers)

    def buffer(self, name: str) -> tuple:
        if name not in self.layouts:
            b = self.buffers[name]
            storage = root(name, self.buffers)
            number = self.numbers.setdefault(storage, len(self.numbers))
            self.layouts[name] = (number, b.dtype, b.sizes, b.strides, b.offset if b.alias else 0, self.buffers[storage].dtype)
        return self.layouts[name]

    def index(self, index: tuple) -> None:
        for one in index:
            if is_size(one):
                self.tokens.append(one)
            else:
                self.add(one)

    def add(self, expr: Expr) -> None:
        key = id(expr)
        if key in self.done:
            self.tokens.append(("again", self.done[key]))
            return
        self.done[key] = len(self.done)
        match expr:
            case Literal(value, dtype):
                self.tokens.append(("lit", repr(value), dtype))
            case Var(name, dtype):
                self.tokens.append(("var", name, dtype))
            case IndexValue(size, dtype):
                self.tokens.append(("index", size, dtype))
            case Load(buffer, index, dtype):
                self.tokens.append(("load", self.buffer(buffer), dtype))
                self.index(index)
            case Op(name, args, dtype):
                self.tokens.append((name, dtype))
                for a in args:
                    self.add(a)
            case Cast(x, dtype):
                self.tokens.append(("cast", dtype))
                self.add(x)
            case Within(conditions, then, other, dtype):
                self.tokens.append(("within", conditions, dtype))
                self.add(then)
                self.add(other)
            case CheckIndex(x, size, wrap, dtype):
                self.tokens.append(("check", size, wrap, dtype))
                self.add(x)
            case _:
                raise TypeError(f"not an expression of a kernel: {expr!r}")
