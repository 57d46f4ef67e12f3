"""An error of a captured graph that torch's operators run, raised again as if at the line of the user's code that the failing node comes from."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Iterator
from typing import NoReturn

from torch.fx import Graph, Node

from thruway.core.errors import UserLine, out_of_range

_SELECT = re.compile(r"select\(\): index (-?\d+) out of range for tensor of size \[([\d, ]*)\] at dimension (-?\d+)")


def raise_at_users_line(error: Exception, graph: Graph) -> NoReturn:
    """Raises `error`. Where a node of `graph` is found behind it, a frame of the user's function at that line stands last in its traceback."""
    node = _first_of(_assigned(error)[::-1], _with_sides(graph))
    line = None if node is None else node.meta.get("line")
    if not isinstance(line, UserLine):
        raise error
    error = _as_subscript(error, node)
    code = compile("\n" * (line.line - 1) + "raise error", line.file, "exec").replace(co_name=line.function, co_qualname=line.function)
    exec(code, {"error": error.with_traceback(None)})
    raise error


def failed_node(error: Exception, graph: Graph) -> Node | None:
    """The node of `graph` in which the error arose: a branch where one of its sides failed."""
    return _first_of(_assigned(error), graph.nodes)


def _assigned(error: Exception) -> list[str]:
    """The names that the lines of generated code in the traceback assign, outermost first: pieces and sides have code of their own."""
    names, traceback = [], error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file.startswith("<eval_with_key>"):
            names.append(linecache.getline(file, traceback.tb_lineno).strip().partition(" ")[0].rstrip(":"))
        traceback = traceback.tb_next
    return names


def _with_sides(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        for side in getattr(node.target, "sides", ()):
            yield from _with_sides(side.graph)
        yield node


def _first_of(names: list[str], nodes: Iterable[Node]) -> Node | None:
    known = {node.name: node for node in nodes}
    return next((known[name] for name in names if name in known), None)


def _as_subscript(error: Exception, node: Node) -> Exception:
    """What the user's subscript says where the graph selects."""
    found = _SELECT.fullmatch(str(error))
    if "subscript" not in node.meta or found is None:
        return error
    return IndexError(out_of_range(int(found[1]), node.meta["subscript"], int(found[2].split(",")[int(found[3])])))
