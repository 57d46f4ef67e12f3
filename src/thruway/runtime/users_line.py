"""An error of a captured graph that torch's operators run, raised again as if at the line of the user's code that the failing node comes from."""

from __future__ import annotations

import linecache
import re
from types import TracebackType
from typing import NoReturn

from torch.fx import Graph, Node

from thruway.core.errors import UserLine, out_of_range

_SELECT = re.compile(r"select\(\): index (-?\d+) out of range for tensor of size \[([\d, ]*)\] at dimension (-?\d+)")


def raise_at_users_line(error: Exception, graph: Graph) -> NoReturn:
    """Raises `error`. Where a node of `graph` is found behind it, a frame of the user's function at that line stands last in its traceback."""
    node = _failed_node(error.__traceback__, graph)
    line = None if node is None else node.meta.get("line")
    if not isinstance(line, UserLine):
        raise error
    error = _as_subscript(error, node)
    code = compile("\n" * (line.line - 1) + "raise error", line.file, "exec").replace(co_name=line.function, co_qualname=line.function)
    exec(code, {"error": error.with_traceback(None)})
    raise error


def _failed_node(traceback: TracebackType | None, graph: Graph) -> Node | None:
    """The node that the last line of generated code in the traceback assigns."""
    text = ""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file.startswith("<eval_with_key>"):
            text = linecache.getline(file, traceback.tb_lineno)
        traceback = traceback.tb_next
    name = text.strip().partition(" ")[0].rstrip(":")
    return next((node for node in graph.nodes if node.name == name), None)


def _as_subscript(error: Exception, node: Node) -> Exception:
    """What the user's subscript says where the graph selects."""
    found = _SELECT.fullmatch(str(error))
    if "subscript" not in node.meta or found is None:
        return error
    return IndexError(out_of_range(int(found[1]), node.meta["subscript"], int(found[2].split(",")[int(found[3])])))
