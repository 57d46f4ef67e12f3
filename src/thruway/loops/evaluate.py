"""The slow meaning of a Program or of scheduled kernels: each node at once over numpy arrays, with no printer, no simplifier, no torch.

Every buffer lives in flat storage under its declared strides, so that aliases share it. Size symbols are bound from the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from thruway.core import sizes
from thruway.core.sizes import FloorDiv, Max, Min, Mod, Size, SizeLike, Symbol
from thruway.loops.arithmetic import NUMPY, Array, apply, convert, reduce, scan
from thruway.loops.ir import (
    Axis,
    Buffer,
    BufferRef,
    Cast,
    CheckIndex,
    Compute,
    Condition,
    Expr,
    Extern,
    Index,
    IndexValue,
    Kernel,
    Literal,
    Load,
    Node,
    Op,
    Phase,
    Program,
    Reduce,
    Scan,
    SizeArg,
    Update,
    Var,
    Within,
)

Externs = Mapping[str, Callable[..., object]]


@dataclass(frozen=True, slots=True)
class Argument:
    """A buffer on its way into a library call: the array that shares its storage, and its dtype (numpy knows no bfloat16)."""

    array: Array
    dtype: str


@dataclass(frozen=True, slots=True)
class Result:
    """`outputs` in order, `inputs` as they stand afterwards, and whether an index check failed."""

    outputs: tuple[Array, ...]
    inputs: tuple[Array, ...]
    failed: bool


def evaluate(program: Program, inputs: Sequence[Array], externs: Externs | None = None) -> Result:
    """Runs `program`. `externs` maps "aten::mm" to a callable on `Argument`s, integers and constants that returns arrays; what it
    mutates it writes in place. A bfloat16 input is a float32 array of bfloat16 values."""
    return run(program.inputs, program.buffers, (*program.derived, *program.nodes), program.outputs, inputs, externs)


def run(names: Sequence[str], buffers: Mapping[str, Buffer], steps: Iterable[Node | Kernel], outputs: Sequence[str],
        inputs: Sequence[Array], externs: Externs | None = None) -> Result:
    """Runs nodes or kernels in order over `buffers`."""
    machine = Machine(buffers, bind(names, buffers, inputs), externs or {})
    for name, array in zip(names, inputs, strict=True):
        machine.array(name)[...] = array
    with np.errstate(all="ignore"):
        for step in steps:
            machine.step(step)
    return Result(tuple([machine.array(n).copy() for n in outputs]), tuple([machine.array(n).copy() for n in names]), machine.failed)


def bind(names: Sequence[str], buffers: Mapping[str, Buffer], inputs: Sequence[Array]) -> dict[str, int]:
    """The value of each size symbol, from the input dimensions that are a multiple of it plus a constant."""
    values: dict[str, int] = {}
    for name, array in zip(names, inputs, strict=True):
        for size, actual in zip(buffers[name].sizes, np.shape(array), strict=True):
            terms = dict(size.terms) if isinstance(size, Size) else {}
            constant = terms.pop((), 0)
            if len(terms) == 1:
                (factors, coefficient), = terms.items()
                if len(factors) == 1 and isinstance(factors[0], Symbol):
                    values.setdefault(factors[0].name, (actual - constant) // coefficient)
    return values


def _held(data: bytes, dtype: str) -> Array:
    """The elements that `data` holds."""
    if dtype == "bfloat16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, NUMPY[dtype]).copy()


@dataclass(slots=True)
class Scope:
    """What names mean inside an expression: axes as arrays that broadcast over `shape`, scalars computed before, and where to look."""

    axes: dict[str, Array]
    shape: tuple[int, ...]
    vars: dict[str, Array] = field(default_factory=dict)
    mask: Array | None = None
    known: dict[int, Array] = field(default_factory=dict)           # values of shared expressions, by identity


class Machine:
    """Storage for buffers, and one method per kind of node and expression."""

    def __init__(self, buffers: Mapping[str, Buffer], size_values: dict[str, int], externs: Externs):
        self.buffers, self.sizes, self.externs = dict(buffers), size_values, externs
        self.storage: dict[str, Array] = {}
        self.rows: dict[str, tuple[Size, ...]] = {}                 # scratch buffer → the outer axes in front of its own
        self.failed = False

    def number(self, size: SizeLike) -> int:
        return sizes.evaluate(size, self.sizes)

    def array(self, name: str) -> Array:
        """The buffer as an array that shares its storage."""
        buffer = self.buffers[name]
        shape = tuple([self.number(size) for size in buffer.sizes])
        strides = self._strides(buffer, shape)
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if all(shape) else 0
        offset = self.number(buffer.offset) if buffer.alias else 0
        base = self.array(buffer.alias) if buffer.alias else None
        flat = self._flat(name, extent, buffer.dtype) if base is None else self.storage[self.owner(name)]
        while base is not None and self.buffers[buffer.alias].alias:
            buffer = self.buffers[buffer.alias]
            offset += self.number(buffer.offset)
        if offset + extent > flat.size:
            raise IndexError(f"buffer {name} reaches beyond the storage that it shares")
        item = flat.itemsize
        return np.lib.stride_tricks.as_strided(flat[offset:], shape, [s * item for s in strides])

    def owner(self, name: str) -> str:
        while self.buffers[name].alias:
            name = self.buffers[name].alias
        return name

    def _strides(self, buffer: Buffer, shape: tuple[int, ...]) -> tuple[int, ...]:
        if buffer.strides is not None:
            return tuple([self.number(s) for s in buffer.strides])
        return tuple([int(np.prod(shape[k + 1:], dtype=np.int64)) for k in range(len(shape))])

    def _flat(self, name: str, extent: int, dtype: str) -> Array:
        if name not in self.storage:
            self.storage[name] = _held(self.buffers[name].data, dtype) if self.buffers[name].data else np.full(extent, 77, NUMPY[dtype])
        return self.storage[name]

    def step(self, node: Node | Kernel) -> None:
        match node:
            case Compute(out, axes, value):
                scope = self.scope(axes)
                self.array(out)[...] = np.broadcast_to(self.value(value, scope), scope.shape)
            case Update(target, axes, index, value, mode):
                self.store(target, index, value, mode, self.scope(axes))
            case Scan(out, axes, axis, op, value):
                scope = self.scope(axes)
                values = np.broadcast_to(self.value(value, scope), scope.shape)
                self.array(out)[...] = scan(op, values, axes.index(axis), self.buffers[out].dtype)
            case Extern():
                self.extern(node)
            case Kernel():
                self.kernel(node)
            case _:
                raise TypeError(f"not a node of a program: {node!r}")

    def scope(self, axes: Sequence[Axis], outer: Scope | None = None) -> Scope:
        """The axes of `outer` and then `axes`, each along its own dimension."""
        before = outer.shape if outer else ()
        extents = [self.number(axis.extent) for axis in axes]
        rank = len(before) + len(extents)
        old = {} if outer is None else {k: _widen(v, len(axes)) for k, v in outer.axes.items()}
        new = {a.name: np.arange(n).reshape([-1 if d == len(before) + k else 1 for d in range(rank)]) for k, (a, n) in enumerate(zip(axes, extents))}
        scope = Scope(old | new, (*before, *extents))
        if outer is not None:
            scope.vars = {k: _widen(v, len(axes)) for k, v in outer.vars.items()}
            scope.mask = None if outer.mask is None else _widen(outer.mask, len(axes))
        return scope

    def value(self, x: Expr, scope: Scope) -> Array:
        """The values of `x` over the scope's points, as an array that broadcasts to its shape."""
        if id(x) not in scope.known:
            scope.known[id(x)] = self._value(x, scope)
        return scope.known[id(x)]

    def _value(self, x: Expr, scope: Scope) -> Array:
        match x:
            case Literal(value, dtype):
                return convert(np.asarray(value), "float64" if isinstance(value, float) else "int64", dtype)
            case Load():
                return self.load(x, scope)
            case IndexValue(size, dtype):
                return convert(np.asarray(self.size(size, scope), np.int64), "int64", dtype)
            case Op(name, args, dtype):
                return apply(name, [self.value(a, scope) for a in args], dtype, args[-1].dtype)
            case Cast(inner, dtype):
                return convert(self.value(inner, scope), inner.dtype, dtype)
            case Within(conditions, then, other):
                return self.within(conditions, then, other, scope)
            case Reduce(op, axes, inner, dtype):
                inside = self.scope(axes, scope)
                return reduce(op, np.broadcast_to(self.value(inner, inside), inside.shape), len(axes), dtype)
            case CheckIndex(inner, size, wrap):
                return self.check(self.value(inner, scope), self.number(size), wrap, scope)
            case Var(name):
                return scope.vars[name]
            case _:
                raise TypeError(f"not a loop expression: {x!r}")

    def load(self, x: Load, scope: Scope) -> Array:
        array, where = self._place(x.buffer, x.index, scope)
        if not array.size:                                          # nobody looks, or `_place` would have complained
            return np.zeros((), array.dtype)
        return array[where] if where else array.copy()

    def _place(self, name: str, index: Sequence[Index], scope: Scope) -> tuple[Array, tuple[Array, ...]]:
        """The buffer's array and index arrays, kept inside it where the mask says that nobody looks."""
        array, index = self.array(name), (*self.rows.get(name, ()), *index)
        if len(index) != array.ndim:
            raise IndexError(f"{name} has {array.ndim} dimensions, read at {len(index)} coordinates")
        return array, tuple([self._coordinate(at, n, name, scope) for at, n in zip(index, array.shape)])

    def _coordinate(self, at: Index, limit: int, name: str, scope: Scope) -> Array:
        values = np.asarray(self.size(at, scope) if isinstance(at, (int, Size)) else self.value(at, scope))
        outside = (values < 0) | (values >= limit)
        looked = outside if scope.mask is None else outside & scope.mask
        if np.any(np.broadcast_to(looked, np.broadcast_shapes(looked.shape, scope.shape))):
            raise IndexError(f"{name} is read at {at}, outside 0 … {limit - 1}")
        return np.where(outside, 0, values)

    def within(self, conditions: Sequence[Condition], then: Expr, other: Expr, scope: Scope) -> Array:
        holds = np.asarray(True)
        for one in conditions:
            left = self.size(one.left, scope)
            holds = holds & (0 <= left) & (left < self.size(one.right, scope))
        holds = np.asarray(holds)
        yes = self.masked(then, holds, scope)
        no = self.masked(other, ~holds, scope)
        return np.where(holds, yes, no)

    def masked(self, x: Expr, mask: Array, scope: Scope) -> Array:
        """`x` where nobody looks at points outside `mask`; where no point is inside, it is not evaluated."""
        mask = mask if scope.mask is None else mask & scope.mask
        if not np.any(mask):
            return np.zeros((), NUMPY[x.dtype])
        return self.value(x, Scope(scope.axes, scope.shape, scope.vars, mask))

    def check(self, values: Array, size: int, wrap: bool, scope: Scope) -> Array:
        bad = (values >= size) | (values < (-size if wrap else 0))
        looked = np.broadcast_to(bad if scope.mask is None else bad & scope.mask, np.broadcast_shapes(bad.shape, scope.shape))
        self.failed = self.failed or bool(np.any(looked))
        return np.where(bad, 0, np.where(values < 0, values + size, values)).astype(np.int64)

    def size(self, size: SizeLike, scope: Scope) -> Array | int:
        """A size over the scope's axes, as an array."""
        if type(size) is int:
            return size
        total: Array | int = 0
        for monomial, coefficient in size.terms.items():
            term: Array | int = coefficient
            for atom in monomial:
                term = term * self._atom(atom, scope)
            total = total + term
        return total

    def _atom(self, atom: sizes.Atom, scope: Scope) -> Array | int:
        if isinstance(atom, Symbol):
            return scope.axes[atom.name] if atom.name in scope.axes else self.sizes[atom.name]
        left, right = self.size(atom.left, scope), self.size(atom.right, scope)
        match atom:
            case FloorDiv():
                return np.floor_divide(left, right)
            case Mod():
                return np.remainder(left, right)
            case Max():
                return np.maximum(left, right)
            case Min():
                return np.minimum(left, right)
            case _:
                raise TypeError(f"not an atom of a size: {atom!r}")

    def store(self, name: str, index: Sequence[Index], value: Expr, mode: str, scope: Scope) -> None:
        """name[index] (mode)= value at each point, in order of the points."""
        values = np.broadcast_to(self.value(value, scope), scope.shape).reshape(-1)
        array, place = self._place(name, index, scope)
        where = tuple([np.broadcast_to(one, scope.shape).reshape(-1) for one in place])
        if not where:
            where, array = (np.zeros(values.size, np.int64),), array.reshape(1)
        if mode == "set":
            array[where] = values
        elif self.buffers[name].dtype == "bfloat16":
            for position, one in zip(zip(*where), values):
                array[position] = convert(_COMBINE[mode](array[position], one), "float32", "bfloat16")
        else:
            _COMBINE[mode].at(array, where, values)

    def extern(self, node: Extern) -> None:
        if node.op not in self.externs:
            raise KeyError(f"no meaning given for the library call {node.op}")
        results = self.externs[node.op](*[self._argument(a) for a in node.args], **{k: self._argument(v) for k, v in node.kwargs})
        results = results if isinstance(results, (tuple, list)) else (results,)
        for name, array in zip(node.outs, results):
            self.array(name)[...] = array

    def _argument(self, value: object) -> object:
        match value:
            case BufferRef(name):
                return Argument(self.array(name), self.buffers[name].dtype)
            case SizeArg(size):
                return self.number(size)
            case tuple():
                return tuple([self._argument(one) for one in value])
            case _:
                return value

    def kernel(self, kernel: Kernel) -> None:
        """Phases in order for all outer points together; a scratch buffer gets the outer axes in front of its own."""
        outer = self.scope(kernel.outer)
        rows = {buffer.name: Buffer(buffer.name, buffer.dtype, (*outer.shape, *buffer.sizes), None) for buffer in kernel.scratch}
        inside = Machine({**self.buffers, **rows}, self.sizes, self.externs)
        inside.storage = self.storage
        inside.rows = dict.fromkeys(rows, tuple([axis.index for axis in kernel.outer]))
        for phase in kernel.phases:
            inside.phase(phase, outer, kernel.scan)
        for name in rows:
            self.storage.pop(name, None)
        self.failed = self.failed or inside.failed

    def phase(self, phase: Phase, outer: Scope, running: Axis | None) -> None:
        """Lets, then stores, then reductions; with `running`, reductions along it give what they have come to at each point."""
        scope = self.scope(phase.inner, outer)
        for let in phase.lets:
            scope.vars[let.var] = self.value(let.value, scope)
        values = [np.broadcast_to(self.value(r.value, scope), scope.shape) for r in phase.reductions]
        if running is not None and running in phase.inner:
            along = len(outer.shape) + phase.inner.index(running)
            scope.vars.update({r.var: scan(r.op, v, along, r.dtype) for r, v in zip(phase.reductions, values)})
        for store in phase.stores:
            self.store(store.buffer, store.index, store.value, store.mode, scope)
        for reduction, value in zip(phase.reductions, values) if running is None else ():
            outer.vars[reduction.var] = reduce(reduction.op, value, len(phase.inner), reduction.dtype)
        if not phase.inner:
            outer.vars.update({let.var: scope.vars[let.var] for let in phase.lets})


_COMBINE = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _widen(x: Array, count: int) -> Array:
    return np.asarray(x).reshape((*np.shape(x), *([1] * count)))

