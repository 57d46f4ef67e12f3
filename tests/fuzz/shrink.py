"""Makes a failing program small: drops statements, unwraps blocks, replaces expressions by their parts, as long as it fails the same way."""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterator

Check = Callable[[str], bool]
Edit = Callable[[], None]


def shrink(text: str, fails: Check, seconds: float = 40.0) -> str:
    """The smallest text found within `seconds` for which `fails` holds. Passes over all places until one changes nothing."""
    end = time.monotonic() + seconds
    before = None
    while text != before:
        before = text
        for edits in (_statement_edits, _statement_edits, _expression_edits):
            text = _pass(text, edits, fails, end)
    return text


def _pass(text: str, edits: Callable[[ast.AST], Iterator[Edit]], fails: Check, end: float) -> str:
    """Tries each edit of each node once, keeping those after which the text still fails."""
    place = 0
    while time.monotonic() < end:
        nodes = list(ast.walk(ast.parse(text)))
        if place >= len(nodes):
            break
        smaller = next((c for c in _candidates(text, place, edits) if len(c) < len(text) and time.monotonic() < end and _compiles(c) and fails(c)), None)
        if smaller is None:
            place += 1
        else:
            text = smaller
    return text


def _candidates(text: str, place: int, edits: Callable[[ast.AST], Iterator[Edit]]) -> Iterator[str]:
    count = sum(1 for _ in edits(_at(ast.parse(text), place)))
    for number in range(count):
        tree = ast.parse(text)
        next(edit for i, edit in enumerate(edits(_at(tree, place))) if i == number)()
        yield ast.unparse(ast.fix_missing_locations(copy.deepcopy(tree))) + "\n"


def _compiles(text: str) -> bool:
    try:
        compile(text, "<shrink>", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _at(tree: ast.AST, place: int) -> ast.AST:
    return next(node for i, node in enumerate(ast.walk(tree)) if i == place)


def _statement_edits(node: ast.AST) -> Iterator[Edit]:
    """Fewer statements in a block of `node`, or the inside of a compound one in its place."""
    for name, body in ast.iter_fields(node):
        if not (isinstance(body, list) and body and isinstance(body[0], ast.stmt)):
            continue
        empty = [] if name in ("orelse", "finalbody") else [ast.Pass()]
        for size in (len(body) // 2, len(body) // 4, 1):
            for start in range(0, len(body), size or len(body)):
                yield lambda name=name, body=body, start=start, size=size: setattr(node, name, body[:start] + body[start + size:] or empty)
        for i, statement in enumerate(body):
            for inner in ("body", "orelse", "finalbody"):
                nested = getattr(statement, inner, None)
                if isinstance(nested, list) and nested and not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                    yield lambda name=name, body=body, i=i, nested=nested: setattr(node, name, body[:i] + nested + body[i + 1:])


def _expression_edits(node: ast.AST) -> Iterator[Edit]:
    """An expression of `node` replaced by one of its parts; fewer items in a call or display."""
    for name, value in ast.iter_fields(node):
        if isinstance(value, list) and isinstance(node, ast.Call | ast.List | ast.Tuple | ast.Dict | ast.With | ast.arguments):
            for i in range(len(value)):
                yield lambda i=i, value=value: value.pop(i) and None
                if isinstance(value[i], ast.expr):
                    yield from (lambda i=i, part=part, value=value: value.__setitem__(i, part) for part in _parts(value[i]))
        elif isinstance(value, ast.expr):
            yield from (lambda name=name, part=part: setattr(node, name, part) for part in _parts(value))


def _parts(value: ast.expr) -> list[ast.expr]:
    parts = [part for part in ast.walk(value) if isinstance(part, ast.expr) and part is not value]
    return parts[:12] if isinstance(value, ast.Constant) else [*parts[:12], ast.Constant(1)]
