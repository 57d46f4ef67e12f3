"""Programs and kernels as text: one line per node, the user's line above what it caused, shared parts of an expression named once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from thruway.core.sizes import Size
from thruway.core.sizes import show as show_size
from thruway.loops.expressions import children
from thruway.loops.ir import (
    Axis,
    Buffer,
    BufferRef,
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
    SizeArg,
    Update,
    Var,
    Within,
)

SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
         "uint8": "u8", "bool": "b1", "complex64": "c64", "complex128": "c128", "uint16": "u16", "uint32": "u32", "uint64": "u64"}
INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
         "and": "and", "or": "or", "bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>"}
ASSIGN = {"set": "=", "add": "+=", "mul": "*=", "min": "min=", "max": "max="}


def show(program: Program) -> str:
    """The program as readable text."""
    lines = ["inputs"]
    lines += [f"  {show_buffer(program.buffers[name])}" for name in program.inputs]
    constants = [b for b in program.buffers.values() if b.kind == "constant"]
    lines += ["constants", *[f"  {show_buffer(b)}" for b in constants]] if constants else []
    if program.derived:
        lines += ["derived", *_nodes(program.derived, program)]
    lines += ["nodes", *_nodes(program.nodes, program)]
    aliases = [b for b in program.buffers.values() if b.alias]
    lines += ["aliases", *[f"  {show_buffer(b)}" for b in aliases]] if aliases else []
    return "\n".join([*lines, "outputs", f"  {', '.join(program.outputs)}", ""])


def _nodes(nodes: Sequence[Node], program: Program) -> list[str]:
    lines, last = [], None
    for node in nodes:
        if node.origin.line is not None and node.origin.line != last:
            lines.append(f"  # {node.origin.line}")
        last = node.origin.line or last
        lines += [f"  {line}" for line in show_node(node, program.buffers)]
    return lines


def show_node(node: Node, buffers: dict[str, Buffer] | None = None) -> list[str]:
    """One node as lines, named parts of its expression first."""
    match node:
        case Compute(out, axes, value):
            return _assignment(f"{out}[{_axes(axes)}]: {SHORT[value.dtype]} =", value)
        case Update(target, axes, index, value, mode):
            return _assignment(f"for {_axes(axes)}: {target}[{_index(index)}] {ASSIGN[mode]}", value)
        case Scan(out, axes, axis, op, value):
            return _assignment(f"{out}[{_axes(axes)}]: {SHORT[value.dtype]} = running {op} along {axis.name} of", value)
        case Extern():
            return [_extern(node, buffers or {})]
        case _:
            raise TypeError(f"not a node of a program: {node!r}")


def show_kernel(kernel: Kernel) -> str:
    """A kernel with its phases."""
    lines = [f"kernel {kernel.name}({', '.join(kernel.reads)}) -> {', '.join(kernel.writes)}"]
    lines += [f"  # {line}" for line in dict.fromkeys(str(o.line) for o in kernel.origin if o.line is not None)]
    lines += [f"  scratch {show_buffer(b)}" for b in kernel.scratch]
    lines.append(f"  for {_axes(kernel.outer) or 'once'}:")
    for phase in kernel.phases:
        lines += [f"    {line}" for line in _phase(phase, kernel.scan)]
    return "\n".join([*lines, ""])


def _phase(phase: Phase, scan: Axis | None) -> list[str]:
    how = " in order" if scan is not None and scan in phase.inner else ""
    lines = [f"for {_axes(phase.inner)}{how}:"] if phase.inner else ["once:"]
    for let in phase.lets:
        lines += [f"  {line}" for line in _assignment(f"{let.var} =", let.value)]
    for reduction in phase.reductions:
        lines += [f"  {line}" for line in _assignment(f"{reduction.var}: {SHORT[reduction.dtype]} = {reduction.op} of", reduction.value)]
    for store in phase.stores:
        lines += [f"  {line}" for line in _assignment(f"{store.buffer}[{_index(store.index)}] {ASSIGN[store.mode]}", store.value)]
    return lines


def show_buffer(buffer: Buffer) -> str:
    """What a buffer is: name, kind, dtype, sizes, and what it lies in."""
    strides = "" if buffer.strides is None else f" strides ({', '.join(map(_size, buffer.strides))})"
    alias = f" = {buffer.alias} from {_size(buffer.offset)}" if buffer.alias else ""
    return f"{buffer.name}: {buffer.kind} {SHORT[buffer.dtype]}[{', '.join(map(_size, buffer.sizes))}]{strides}{alias}"


def _size(size: object) -> str:
    return show_size(size) if isinstance(size, (int, Size)) else str(size)


def _axes(axes: Sequence[Axis]) -> str:
    return ", ".join(f"{axis.name}<{_size(axis.extent)}" for axis in axes)


def _index(index: Sequence[Index]) -> str:
    return ", ".join(_size(at) if isinstance(at, (int, Size)) else show_expr(at) for at in index)


def _extern(node: Extern, buffers: dict[str, Buffer]) -> str:
    arguments = [_argument(a) for a in node.args] + [f"{key}={_argument(value)}" for key, value in node.kwargs]
    outs = ", ".join(_out(name, buffers) for name in node.outs) + " = " if node.outs else ""
    writes = f"  # writes {', '.join(node.mutates)}" if node.mutates else ""
    return f"{outs}{node.op}({', '.join(arguments)}){writes}"


def _out(name: str, buffers: dict[str, Buffer]) -> str:
    buffer = buffers.get(name)
    return name if buffer is None else f"{name}[{', '.join(map(_size, buffer.sizes))}]: {SHORT[buffer.dtype]}"


def _argument(value: object) -> str:
    match value:
        case BufferRef(name):
            return name
        case SizeArg(size):
            return _size(size)
        case tuple():
            return f"[{', '.join(map(_argument, value))}]"
        case _:
            return repr(value)


def _assignment(start: str, value: Expr) -> list[str]:
    """`start value`, with parts that occur more than once given names on lines of their own."""
    uses: Counter[int] = Counter()
    _count(value, uses)
    names: dict[int, str] = {}
    lines: list[str] = []
    text = _show(value, uses, names, lines)
    return [*lines, f"{start} {text}"]


def _count(x: Expr, uses: Counter[int]) -> None:
    uses[id(x)] += 1
    if uses[id(x)] == 1:
        for child in children(x):
            _count(child, uses)


def show_expr(x: Expr) -> str:
    """An expression on one line."""
    return _show(x, Counter(), {}, [])


def _show(x: Expr, uses: Counter[int], names: dict[int, str], lines: list[str]) -> str:
    if id(x) in names:
        return names[id(x)]
    text = _text(x, lambda part: _show(part, uses, names, lines))
    if uses[id(x)] > 1 and isinstance(x, (Op, Cast, Within)):
        names[id(x)] = f"t{len(names)}"
        lines.append(f"{names[id(x)]}: {SHORT[x.dtype]} = {text.removeprefix('(').removesuffix(')') if _whole(text) else text}")
        return names[id(x)]
    return text


def _whole(text: str) -> bool:
    """Whether the first parenthesis closes only at the end."""
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return position == len(text) - 1
    return False


def _text(x: Expr, show_part) -> str:
    match x:
        case Literal(value, dtype):
            return repr(value)
        case Load(buffer, index):
            return f"{buffer}[{', '.join(_size(at) if isinstance(at, (int, Size)) else show_part(at) for at in index)}]"
        case IndexValue(size, dtype):
            return f"{SHORT[dtype]}<{_size(size)}>"
        case Op(name, (left, right)) if name in INFIX:
            return f"({show_part(left)} {INFIX[name]} {show_part(right)})"
        case Op(name, args):
            return f"{name}({', '.join(show_part(a) for a in args)})"
        case Cast(inner, dtype):
            return f"{SHORT[dtype]}({show_part(inner)})"
        case Within(conditions, then, other):
            tests = " and ".join(f"0 <= {_size(c.left)} < {_size(c.right)}" for c in conditions)
            return f"({show_part(then)} if {tests} else {show_part(other)})"
        case Reduce(op, axes, inner):
            return f"{op}[{_axes(axes)}]({show_part(inner)})"
        case CheckIndex(inner, size, wrap):
            return f"{'wrapped' if wrap else 'checked'}({show_part(inner)}, {_size(size)})"
        case Var(name):
            return name
        case _:
            raise TypeError(f"not a loop expression: {x!r}")
