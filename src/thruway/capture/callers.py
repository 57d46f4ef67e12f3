"""Functions that stand at a line of somebody's file, for calls that look at the line of their caller."""

from __future__ import annotations

import ast
import types
from typing import Any

from thruway.capture.state import Frame


def caller_at(frame: Frame, line: int) -> types.FunctionType:
    """A function that calls what it is given from the frame's file, line and module."""
    return caller_in(frame.code.co_filename, line, frame.code.co_name, frame.code.co_qualname, frame.namespace.real)


def caller_in(filename: str, line: int, name: str, qualname: str, namespace: dict[str, Any]) -> types.FunctionType:
    """The same from any place."""
    tree = ast.parse("def caller(function, *args, **kwargs): return function(*args, **kwargs)")
    ast.increment_lineno(tree, line - 1)
    code = next(one for one in compile(tree, filename, "exec").co_consts if isinstance(one, types.CodeType))
    return types.FunctionType(code.replace(co_name=name, co_qualname=qualname), namespace)
