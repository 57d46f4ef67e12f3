"""Control flow over decoded code: successors, and which fast locals are live where."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType

from thruway.bytecode.decode import Decoded, Instruction, decode
from thruway.bytecode.versions import EXHAUSTED_SKIPS_END_FOR, FREE, LOCALS

RETURNS = frozenset({"RETURN_VALUE", "RETURN_CONST"})
ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})


def successors(decoded: Decoded, index: int) -> list[int]:
    """Indices that may run after `index`, exception handlers included."""
    one = decoded.instructions[index]
    after = [] if one.op in ENDS or index + 1 >= len(decoded.instructions) else [index + 1]
    if one.target is not None:
        after.append(one.target + (EXHAUSTED_SKIPS_END_FOR and one.op == "FOR_ITER"))
    handler = handler_at(decoded, index)
    return after + ([handler] if handler is not None else [])


def handler_at(decoded: Decoded, index: int) -> int | None:
    """Where an exception at `index` goes."""
    return next((r.target for r in decoded.exceptions if r.start <= index < r.end), None)


@functools.lru_cache(maxsize=1024)
def live_locals(code: CodeType) -> tuple[frozenset[str], ...]:
    """Names of the fast locals that may be read before they are written, from each instruction on."""
    decoded = decode(code)
    count = len(decoded.instructions)
    after = [successors(decoded, i) for i in range(count)]
    live: list[frozenset[str]] = [frozenset()] * count
    changed = True
    while changed:
        changed = False
        for i in range(count - 1, -1, -1):
            behind = frozenset().union(*(live[j] for j in after[i])) if after[i] else frozenset()
            now = _before(decoded.instructions[i], behind)
            if now != live[i]:
                live[i], changed = now, True
    return tuple(live)


def _before(one: Instruction, behind: frozenset[str]) -> frozenset[str]:
    name: str = one.value
    if one.op in FREE:                                  # in a continuation the cell is a local
        return behind | {name}
    if one.op not in LOCALS:
        return behind
    if one.op.startswith("STORE"):
        return behind - {name}
    return behind | {name}


@functools.lru_cache(maxsize=1024)
def joins(code: CodeType) -> tuple[int | None, ...]:
    """For each instruction the first one that every path from it to a return passes, paths that raise apart; None where there is none.

    These are the immediate postdominators, found by walking up the tree of those known so far until nothing changes.
    """
    decoded = decode(code)
    count = len(decoded.instructions)                       # stands for "the frame has returned"
    after = [plain_successors(decoded, i) or ([count] if decoded.instructions[i].op in RETURNS else []) for i in range(count)]
    order = _towards_entry(after, count)
    place = {node: i for i, node in enumerate(order)}
    join: dict[int, int] = {count: count}
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            known = [one for one in after[node] if one in join]
            found = functools.reduce(lambda a, b: _common(join, place, a, b), known)
            if join.get(node) != found:
                join[node], changed = found, True
    return tuple(None if (found := join.get(i, count)) == count else found for i in range(count))


def plain_successors(decoded: Decoded, index: int) -> list[int]:
    """Indices that may run after `index` where nothing is raised."""
    one = decoded.instructions[index]
    after = [] if one.op in ENDS or index + 1 >= len(decoded.instructions) else [index + 1]
    return after if one.target is None else [*after, one.target + (EXHAUSTED_SKIPS_END_FOR and one.op == "FOR_ITER")]


def _towards_entry(after: list[list[int]], end: int) -> list[int]:
    """What leads to `end`, in an order in which most instructions come behind those that follow them."""
    before: dict[int, list[int]] = {}
    for node, following in enumerate(after):
        for one in following:
            before.setdefault(one, []).append(node)
    done: list[int] = []
    seen = {end}
    work = [(end, iter(before.get(end, ())))]
    while work:
        node, rest = work[-1]
        following_one = next((one for one in rest if one not in seen), None)
        if following_one is None:
            done.append(node)
            work.pop()
        else:
            seen.add(following_one)
            work.append((following_one, iter(before.get(following_one, ()))))
    return done[::-1]


def _common(join: dict[int, int], place: dict[int, int], a: int, b: int) -> int:
    """Where the ways from `a` and `b` up the tree meet."""
    while a != b:
        while place[a] > place[b]:
            a = join[a]
        while place[b] > place[a]:
            b = join[b]
    return a


@functools.lru_cache(maxsize=1024)
def comes_back(code: CodeType, index: int, stops: frozenset[int] = frozenset()) -> bool:
    """Whether a path from `index` leads to it again before it comes to where its ways join, or to one of `stops`: the test of a loop."""
    decoded = decode(code)
    ends = stops | {joins(code)[index]}
    return index not in stops and index in _reached(plain_successors(decoded, index), lambda one: [] if one in ends else plain_successors(decoded, one))


@functools.lru_cache(maxsize=1024)
def loop_at(code: CodeType, index: int, stops: frozenset[int] = frozenset()) -> tuple[int, frozenset[str]] | None:
    """The loop that the jump at `index` is a test of: where a round of it starts, and the fast locals that rounds may write. None where there
    is none. A `while` has its test twice, before the loop and at the end of a round. `stops`: of loops around it."""
    decoded, ends = decode(code), stops | {joins(code)[index]}

    def after(one: int) -> list[int]:
        return [i for i in plain_successors(decoded, one) if i not in ends]

    reached = _reached([index], after)
    bodies: dict[int, set[int]] = {}
    for source in reached:
        for header in after(source):
            if header <= source and source in _reached([header], after):
                bodies[header] = bodies.get(header, {header}) | _leading_to(source, header, reached, after)
    tested = decoded.instructions[index - 1].position
    same = {i + 1 for i, one in enumerate(decoded.instructions[:-1]) if one.position == tested and _is_test(decoded.instructions[i + 1])}
    before = [one for one, body in bodies.items() if index not in body and body & same]
    around = [one for one, body in bodies.items() if index in body]
    if not before and not around:
        return None
    header = min(before or around, key=lambda one: len(bodies[one]))
    region = _reached([header], after)
    return header, frozenset(decoded.instructions[i].value for i in region if decoded.instructions[i].op.startswith("STORE_FAST"))


def _is_test(one: Instruction) -> bool:
    return "JUMP" in one.op and "_IF_" in one.op


def _leading_to(source: int, header: int, reached: set[int], after: Callable[[int], list[int]]) -> set[int]:
    """What leads to `source` without passing `header`."""
    before: dict[int, list[int]] = {}
    for node in reached:
        for one in after(node):
            before.setdefault(one, []).append(node)
    return _reached([source], lambda one: [] if one == header else before.get(one, []))


@functools.lru_cache(maxsize=1024)
def only_raises(code: CodeType, index: int) -> bool:
    """Whether no path from `index` leads to a return, handlers included."""
    decoded = decode(code)
    return not any(decoded.instructions[one].op in RETURNS for one in _reached([index], lambda one: successors(decoded, one)))


def passes_on(code: CodeType, index: int) -> bool:
    """Whether every path from `index`, where an error is handled, raises the same error again."""
    decoded = decode(code)
    return not any(decoded.instructions[one].op in (*RETURNS, "RAISE_VARARGS") for one in _reached([index], lambda one: successors(decoded, one)))


def _reached(start: list[int], after: Callable[[int], list[int]]) -> set[int]:
    seen: set[int] = set()
    work = list(start)
    while work:
        one = work.pop()
        if one not in seen:
            seen.add(one)
            work += after(one)
    return seen
