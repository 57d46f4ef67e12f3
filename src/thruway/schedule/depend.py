"""Which node must come before which: reads and writes of storages, in program order, in-place writes included.

A storage is named by its root buffer (`alias` followed to the end). Sets of nodes are bit masks, bit i for node i.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from thruway.loops.ir import Buffer, BufferRef, Compute, Expr, Extern, Load, Node, Scan, Update
from thruway.schedule.rewrite import cost, is_size, loads

PINNED = "the order of pinned calls"         # stands for a storage that each of them writes


def root(name: str, buffers: Mapping[str, Buffer]) -> str:
    """The buffer that owns the storage of `name`."""
    while (alias := buffers[name].alias) is not None:
        name = alias
    return name


def values_of(node: Node) -> tuple[Expr, ...]:
    """The expressions that a node evaluates."""
    match node:
        case Compute(value=value) | Scan(value=value):
            return (value,)
        case Update(index=index, value=value):
            return (value, *(i for i in index if not is_size(i)))
        case Extern():
            return ()
        case _:
            raise TypeError(f"not a node of a program: {node!r}")


def buffers_in(argument: object) -> Iterable[str]:
    """Names of the buffers in an argument of an Extern, lists included."""
    match argument:
        case BufferRef(name):
            yield name
        case tuple() | list():
            for item in argument:
                yield from buffers_in(item)


def loads_of(node: Node) -> list[Load]:
    """Every distinct load in a node's expressions; not to be changed."""
    found = node.found.get("loads")
    if found is None:
        found = node.found["loads"] = loads(*values_of(node))
    return found


def cost_of(node: Node) -> int:
    """The cost of one element of a node's expressions."""
    found = node.found.get("cost")
    if found is None:
        found = node.found["cost"] = cost(*values_of(node))
    return found


def read_buffers(node: Node) -> frozenset[str]:
    """Buffers that `node` reads, under the names it uses; a combining Update reads its target."""
    found = node.found.get("reads")
    if found is None:
        found = node.found["reads"] = _read_buffers(node)
    return found


def _read_buffers(node: Node) -> frozenset[str]:
    match node:
        case Extern(args=args, kwargs=kwargs):
            return frozenset((*buffers_in(args), *buffers_in(tuple(v for _, v in kwargs))))
        case Update(target=target, mode=mode):
            own = () if mode == "set" else (target,)
            return frozenset((*own, *(x.buffer for x in loads_of(node))))
        case _:
            return frozenset([x.buffer for x in loads_of(node)])


def written_buffers(node: Node) -> tuple[str, ...]:
    match node:
        case Compute(out=out) | Scan(out=out):
            return (out,)
        case Update(target=target):
            return (target,)
        case Extern(outs=outs, mutates=mutates):
            return (*outs, *mutates)
        case _:
            raise TypeError(f"not a node of a program: {node!r}")


def changed_buffers(node: Node) -> tuple[str, ...]:
    """Buffers that existed before `node` and that it writes in place."""
    match node:
        case Update(target=target):
            return (target,)
        case Extern(mutates=mutates):
            return mutates
        case _:
            return ()


def is_pinned(node: Node) -> bool:
    return isinstance(node, Extern) and node.pinned


def predecessors(nodes: Sequence[Node], buffers: Mapping[str, Buffer]) -> list[int]:
    """For each node the mask of nodes that must run before it: writers of what it reads, readers and writers of what it writes.

    Pinned calls keep their order among themselves and with writes that are seen outside.
    """
    last_write: dict[str, int] = {}
    reads_since: dict[str, int] = {}
    result = []
    for i, node in enumerate(nodes):
        before = 0
        reads = {root(b, buffers) for b in read_buffers(node)}
        writes = {root(b, buffers) for b in written_buffers(node)}
        if is_pinned(node):
            writes.add(PINNED)
        elif any(buffers[root(b, buffers)].kind != "temp" for b in changed_buffers(node)):
            reads.add(PINNED)
        for name in reads:
            before |= last_write.get(name, 0)
        for name in writes:
            before |= last_write.get(name, 0) | reads_since.get(name, 0)
        for name in reads:
            reads_since[name] = reads_since.get(name, 0) | 1 << i
        for name in writes:
            # several in-place writes stay ordered among themselves through `before`; a reader waits for the last, which waits for the rest
            last_write[name] = 1 << i
            reads_since[name] = 0
        result.append(before & ~(1 << i))
    return result


def members(mask: int) -> Iterable[int]:
    """The bit positions set in `mask`, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
