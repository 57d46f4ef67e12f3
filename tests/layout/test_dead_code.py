"""What a file of the package defines at its top is named somewhere else too: in the package, in C, in a test or in a tool."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from layout import tree

FOLDERS, ENDS = ("src", "tests", "bench", "tools"), ("py", "c", "h")


def _words(text):
    return Counter(re.findall(r"[A-Za-z_]\w*", text))


def _defined(text):
    """name → the node, of functions, classes and constants at the top of a file; a decorator may be what uses its function."""
    for node in ast.parse(text).body:
        match node:
            case ast.FunctionDef(name=name, decorator_list=[]) | ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name, node


def _unnamed(text, named):
    """What nobody names but its own definition."""
    return [name for name, node in _defined(text) if not name.startswith("__") and named[name] <= _words(ast.unparse(node))[name]]


def test_everything_defined_is_named_elsewhere():
    named = _words("\n".join(path.read_text() for folder in FOLDERS for end in ENDS for path in (tree.ROOT / folder).rglob(f"*.{end}")))
    dead = [f"{path.relative_to(tree.ROOT)}: {name}" for path in tree.files() for name in _unnamed(path.read_text(), named)]
    assert not dead, "nobody names\n" + "\n".join(dead)


@pytest.mark.parametrize("text, dead", [
    ("def once(x):\n    return x\n", ["once"]),
    ("def again(x):\n    return again(x - 1)\n", ["again"]),
    ("LIMIT = 3\n", ["LIMIT"]),
    ("class Kind:\n    pass\n", ["Kind"]),
    ("def once(x):\n    return x\nTABLE = {'a': once}\nprint(TABLE)\n", []),
    ("@register\ndef once(x):\n    return x\n", []),
])
def test_what_counts_as_named(text, dead):
    assert _unnamed(text, _words(text)) == dead
