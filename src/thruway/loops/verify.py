"""What must hold of every Program and every Kernel; a CompilerBug names the node that breaks it.

Names are defined before they are read, dtypes agree, axes are bound, coordinates match dimensions and, where that can be decided,
stay inside the buffer; reductions stand where the grammar allows them; in-place writes have targets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from thruway.core.dtypes import INTEGERS, ITEMSIZE
from thruway.core.errors import CompilerBug
from thruway.core.sizes import Size, SizeLike, Symbol, bounds, symbols
from thruway.loops.expressions import BOOLEAN_OPS, references
from thruway.loops.ir import (
    OPS,
    REDUCTIONS,
    SCANS,
    UPDATE_MODES,
    Axis,
    Buffer,
    Cast,
    CheckIndex,
    Compute,
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
    Update,
    Var,
    Within,
)

KINDS = frozenset({"input", "weight", "constant", "temp", "size"})
MIXED_OPS = frozenset({"where", "ldexp", "bitcast"})
AXIS_LETTERS = frozenset("ir")


def verify(program: Program) -> None:
    """CompilerBug unless `program` is well formed."""
    for name, buffer in program.buffers.items():
        _buffer(name, buffer, program.buffers)
    given = {name for name, buffer in program.buffers.items() if buffer.kind == "constant"}
    defined = given | set(program.inputs)
    _need(set(program.inputs) <= program.buffers.keys(), "an input has no buffer")
    weights = given | {name for name in program.inputs if program.buffers[name].kind == "weight"}
    derived = set(weights)
    for node in program.derived:
        _node(node, program.buffers, derived)
    defined |= derived
    for node in program.nodes:
        _node(node, program.buffers, defined)
    for name in program.outputs:
        _need(name in program.buffers and _is_defined(name, program.buffers, defined), f"output {name} is never defined")


def verify_kernel(kernel: Kernel, buffers: Mapping[str, Buffer]) -> None:
    """CompilerBug unless `kernel` is well formed over `buffers`: axes bound, Vars defined before use, reads and writes declared."""
    known = {**buffers, **{buffer.name: buffer for buffer in kernel.scratch}}
    scratch = {buffer.name for buffer in kernel.scratch}
    scope = _Scope(known, {*kernel.reads, *kernel.writes, *scratch}, kernel.name)
    scope.bind(kernel.outer)
    for phase in kernel.phases:
        _phase(phase, kernel, scope, scratch)


def _phase(phase: Phase, kernel: Kernel, scope: _Scope, scratch: set[str]) -> None:
    kept = dict(scope.vars)
    scope.bind(phase.inner)
    for let in phase.lets:
        scope.expression(let.value)
        scope.vars[let.var] = let.value.dtype
        if not phase.inner:
            kept[let.var] = let.value.dtype
    for reduction in phase.reductions:
        scope.expression(reduction.value)
        _need(reduction.op in REDUCTIONS or kernel.scan is not None and reduction.op in SCANS, f"{kernel.name}: no reduction {reduction.op}")
        kept[reduction.var] = reduction.dtype
        if kernel.scan is not None:
            scope.vars[reduction.var] = reduction.dtype
    for store in phase.stores:
        scope.expression(store.value)
        _need(store.buffer in scratch or store.buffer in kernel.writes, f"{kernel.name} stores to {store.buffer}, which it does not declare")
        scope.index(store.buffer, store.index)
        _need(store.value.dtype == scope.buffers[store.buffer].dtype, f"{kernel.name} stores {store.value.dtype} into {store.buffer}")
        _need(store.mode in UPDATE_MODES, f"{kernel.name}: no store mode {store.mode}")
    scope.unbind(phase.inner)
    scope.vars = kept


def _need(holds: bool, message: str) -> None:
    if not holds:
        raise CompilerBug("loops", message)


def _buffer(name: str, buffer: Buffer, buffers: Mapping[str, Buffer]) -> None:
    _need(buffer.name == name, f"buffer {buffer.name} is kept under the name {name}")
    _need(buffer.dtype in ITEMSIZE, f"buffer {name} has the unknown dtype {buffer.dtype}")
    _need(buffer.kind in KINDS, f"buffer {name} is of the unknown kind {buffer.kind}")
    _need(buffer.strides is None or len(buffer.strides) == len(buffer.sizes), f"buffer {name} has {buffer.sizes} and strides {buffer.strides}")
    seen = {name}
    while buffer.alias is not None:
        _need(buffer.alias in buffers and buffer.alias not in seen, f"buffer {name} aliases {buffer.alias}, which does not exist or leads back")
        seen.add(buffer.alias)
        buffer = buffers[buffer.alias]


def _is_defined(name: str, buffers: Mapping[str, Buffer], defined: set[str]) -> bool:
    while buffers[name].alias is not None:
        name = buffers[name].alias
    return name in defined


def _node(node: Node, buffers: Mapping[str, Buffer], defined: set[str]) -> None:
    """Checks `node` and adds what it defines."""
    match node:
        case Compute(out, axes, value):
            scope = _Scope(buffers, defined, out)
            _defines(out, axes, value, scope)
            _value(value, scope)
            defined.add(out)
        case Scan(out, axes, axis, op, value):
            scope = _Scope(buffers, defined, out)
            _defines(out, axes, value, scope)
            _need(axis in axes and op in SCANS, f"{out}: a scan by {op} along {axis}")
            scope.expression(value)
            defined.add(out)
        case Update(target, axes, index, value, mode):
            _update(target, axes, index, value, mode, _Scope(buffers, defined, target))
        case Extern():
            _extern(node, _Scope(buffers, defined, node.op))
        case _:
            raise CompilerBug("loops", f"not a node of a program: {node!r}")


def _defines(out: str, axes: Sequence[Axis], value: Expr, scope: _Scope) -> None:
    """`out` is new, a temp, laid out over `axes`, of the value's dtype."""
    _need(out in scope.buffers and out not in scope.defined, f"{out} has no buffer or is defined twice")
    buffer = scope.buffers[out]
    _need(buffer.alias is None and buffer.kind == "temp", f"{out} is an alias or not a temp")
    _need(tuple([axis.extent for axis in axes]) == tuple(buffer.sizes), f"{out} has sizes {buffer.sizes} and axes {axes}")
    _need(buffer.dtype == value.dtype, f"{out} is {buffer.dtype}, its value {value.dtype}")
    scope.bind(axes)


def _value(value: Expr, scope: _Scope) -> None:
    """A Compute's value, where a Reduce may stand at the top or below one Cast."""
    inner = value.x if isinstance(value, Cast) else value
    if not isinstance(inner, Reduce):
        scope.expression(value)
    else:
        _reduce(inner, scope)


def _reduce(x: Reduce, scope: _Scope) -> None:
    _need(x.op in REDUCTIONS and bool(x.axes), f"{scope.name}: a reduction by {x.op} over {x.axes}")
    wanted = "int64" if x.op.startswith("arg") else x.x.dtype
    _need(x.dtype == wanted, f"{scope.name}: {x.op} of {x.x.dtype} gives {x.dtype}")
    scope.bind(x.axes)
    scope.expression(x.x)


def _update(target: str, axes: Sequence[Axis], index: Sequence[Index], value: Expr, mode: str, scope: _Scope) -> None:
    _need(target in scope.buffers and _is_defined(target, scope.buffers, scope.defined), f"an update of {target}, which does not exist yet")
    _need(mode in UPDATE_MODES, f"an update of {target} by {mode}")
    _need(value.dtype == scope.buffers[target].dtype, f"an update of {target} by a {value.dtype}")
    scope.bind(axes)
    scope.index(target, index)
    scope.expression(value)


def _extern(node: Extern, scope: _Scope) -> None:
    for name in references((*node.args, *[value for _, value in node.kwargs])):
        _need(name in scope.buffers and _is_defined(name, scope.buffers, scope.defined), f"{node.op} reads {name} before it is defined")
    for name in node.mutates:
        _need(name in scope.buffers and _is_defined(name, scope.buffers, scope.defined), f"{node.op} writes {name}, which does not exist yet")
    for name in node.outs:
        _need(name in scope.buffers and name not in scope.defined, f"{node.op}: {name} has no buffer or is defined twice")
        scope.defined.add(name)


class _Scope:
    """Names in force inside one node: buffers, axes with their ranges, Vars; `lazy` while a Within decides what is read."""

    def __init__(self, buffers: Mapping[str, Buffer], defined: set[str], name: str):
        self.buffers, self.defined, self.name = buffers, defined, name
        self.axes: dict[Symbol, tuple[int, int | None]] = {}
        self.vars: dict[str, str] = {}
        self.lazy = 0
        self.seen: set[tuple[int, bool]] = set()

    def bind(self, axes: Sequence[Axis]) -> None:
        for axis in axes:
            symbol = Symbol(axis.name)
            _need(symbol not in self.axes, f"{self.name}: the axis {axis.name} is bound twice")
            self.axes[symbol] = (0, axis.extent - 1 if type(axis.extent) is int else None)

    def unbind(self, axes: Sequence[Axis]) -> None:
        for axis in axes:
            del self.axes[Symbol(axis.name)]

    def size(self, size: SizeLike) -> None:
        for symbol in symbols(size):
            if symbol not in self.axes and symbol.name[0] in AXIS_LETTERS and symbol.name[1:].isdigit():
                raise CompilerBug("loops", f"{self.name}: the axis {symbol.name} is not bound in {size}")

    def index(self, buffer: str, index: Sequence[Index]) -> None:
        sizes = self.buffers[buffer].sizes
        _need(len(index) == len(sizes), f"{self.name}: {buffer} of {sizes} at {len(index)} coordinates")
        for at, size in zip(index, sizes):
            if isinstance(at, (int, Size)):
                self.size(at)
                self.inside(buffer, at, size)
            else:
                _need(at.dtype in INTEGERS, f"{self.name}: {buffer} is read at a {at.dtype}")
                self.expression(at)

    def inside(self, buffer: str, at: SizeLike, size: SizeLike) -> None:
        """Bounds of an affine coordinate are exact, so one that leaves the buffer is an error unless a Within guards it."""
        if self.lazy or type(size) is not int or any(high is not None and high < 0 for _, high in self.axes.values()):
            return
        if not all(len(m) <= 1 and all(isinstance(a, Symbol) and a in self.axes for a in m) for m in getattr(at, "terms", {(): at})):
            return
        low, high = bounds(at, self.axes)
        _need(low is None or low >= 0, f"{self.name}: {buffer} is read at {at}, which goes down to {low}")
        _need(high is None or high < size, f"{self.name}: {buffer} is read at {at}, which goes up to {high} of {size}")

    def expression(self, x: Expr) -> None:
        key = (id(x), self.lazy > 0)
        if key in self.seen:
            return
        self.seen.add(key)
        match x:
            case Literal(_, dtype):
                _need(dtype in ITEMSIZE, f"{self.name}: a literal of dtype {dtype}")
            case Load(buffer, index, dtype):
                self.load(buffer, index, dtype)
            case IndexValue(size):
                self.size(size)
            case Op():
                self.op(x)
            case Cast(inner):
                self.expression(inner)
            case Within(conditions, then, other, dtype):
                self.within(x)
            case CheckIndex(inner, size):
                self.size(size)
                _need(inner.dtype == "int64" and x.dtype == "int64", f"{self.name}: an index check of {inner.dtype}")
                self.expression(inner)
            case Var(name, dtype):
                _need(self.vars.get(name) == dtype, f"{self.name}: {name} is read as {dtype} and known as {self.vars.get(name)}")
            case _:
                raise CompilerBug("loops", f"{self.name}: {type(x).__name__} may not stand here")

    def load(self, buffer: str, index: Sequence[Index], dtype: str) -> None:
        _need(buffer in self.buffers and _is_defined(buffer, self.buffers, self.defined), f"{self.name} reads {buffer} before it is defined")
        _need(self.buffers[buffer].dtype == dtype, f"{self.name} reads {buffer}, which is {self.buffers[buffer].dtype}, as {dtype}")
        self.index(buffer, index)

    def op(self, x: Op) -> None:
        _need(OPS.get(x.name) == len(x.args), f"{self.name}: {x.name} of {len(x.args)} arguments")
        operands = x.args[1:] if x.name == "where" else x.args
        if x.name == "where":
            _need(x.args[0].dtype == "bool", f"{self.name}: where of a {x.args[0].dtype}")
        if x.name not in MIXED_OPS or x.name == "where":
            _need(len({a.dtype for a in operands}) == 1, f"{self.name}: {x.name} of {[a.dtype for a in x.args]}")
        if x.name != "bitcast":
            wanted = "bool" if x.name in BOOLEAN_OPS else operands[0].dtype
            _need(x.dtype == wanted, f"{self.name}: {x.name} of {operands[0].dtype} gives {x.dtype}")
        for argument in x.args:
            self.expression(argument)

    def within(self, x: Within) -> None:
        _need(x.then.dtype == x.other.dtype == x.dtype, f"{self.name}: Within of {x.then.dtype} and {x.other.dtype} gives {x.dtype}")
        for condition in x.conditions:
            self.size(condition.left)
            self.size(condition.right)
        self.lazy += 1
        self.expression(x.then)
        self.expression(x.other)
        self.lazy -= 1
