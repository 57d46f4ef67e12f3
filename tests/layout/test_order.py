"""The reader of ARCHITECTURE.md itself: the order has its known ends, and each kind of fault in a tree is found."""

from __future__ import annotations

import ast
from pathlib import Path

from layout import tree


def test_the_order_has_its_known_ends():
    rooms = tree.rooms()
    assert rooms[0] == "core" and rooms[-3:] == ["__init__", "command", "__main__"]
    assert len(rooms) == len(set(rooms))


def _one(text: str, name: str = "graph/sample.py") -> list[tree.Import]:
    return list(tree._imports(ast.parse(text), tree.SOURCE / Path(name), "", False))


def test_imports_inside_functions_are_seen():
    (one,) = _one("def f():\n    if x:\n        from thruway.loops import ir\n")
    assert one.inside == "f" and tree.rooms_imported(one) == ["loops"]


def test_type_checking_imports_are_seen():
    (one,) = _one("if TYPE_CHECKING:\n    import thruway.loops.ir\n")
    assert one.type_checking and one.module == "thruway.loops.ir"


def test_relative_imports_are_resolved():
    (near, far) = _one("from . import rewrite\nfrom ..loops import ir\n")
    assert near.module == "thruway.graph" and far.module == "thruway.loops"


def test_names_taken_from_the_package_are_rooms_or_the_surface():
    (one,) = _one("from thruway import pipeline, compile\n")
    assert tree.rooms_imported(one) == ["pipeline", "__init__"]
