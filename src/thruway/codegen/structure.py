"""What makes two kernels the same text: everything but the names of their buffers and where they come from.

The twelfth copy of a block is compared, not printed.
"""

from __future__ import annotations

from collections.abc import Mapping

from thruway.loops.ir import Buffer, Cast, CheckIndex, Expr, IndexValue, Kernel, Literal, Load, Op, Var, Within
from thruway.schedule.depend import root
from thruway.schedule.rewrite import is_size


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
            self.layouts[name] = (number, b.dtype, b.sizes, b.strides, b.offset if b.alias else 0, self.buffers[storage].dtype,
                                  self.buffers[storage].kind != "temp")
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
