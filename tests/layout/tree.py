"""Reads the source tree for the layout tests: rooms in order, files, their imports, their functions. Parses; imports nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "thruway"


@dataclass(frozen=True, slots=True)
class Import:
    """`inside` is the function whose body holds the import, or empty at the top of the file; `names` what is taken from the module."""

    path: Path
    line: int
    module: str
    names: tuple[str, ...]
    inside: str
    type_checking: bool

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True, slots=True)
class Function:
    path: Path
    line: int
    name: str
    lines: int


def rooms() -> list[str]:
    """The rooms in order, from the block marked `rooms` in ARCHITECTURE.md."""
    block = re.search(r"```rooms\n(.*?)```", (ROOT / "ARCHITECTURE.md").read_text(), re.S)
    assert block, "ARCHITECTURE.md has no block marked `rooms`"
    return [line.split()[0] for line in block[1].splitlines() if line.strip()]


def files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imports(path: Path) -> Iterator[Import]:
    yield from _imports(ast.parse(path.read_text(), str(path)), path, "", False)


def _imports(node: ast.AST, path: Path, inside: str, type_checking: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names):
                for name in names:
                    yield Import(path, child.lineno, name.name, (), inside, type_checking)
            case ast.ImportFrom(module, names, level):
                yield Import(path, child.lineno, _absolute(path, module, level), tuple(n.name for n in names), inside, type_checking)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from _imports(child, path, inside or name, type_checking)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from _imports(child, path, inside, True)
            case _:
                yield from _imports(child, path, inside, type_checking)


def _absolute(path: Path, module: str | None, level: int) -> str:
    if level == 0:
        return module or ""
    package = ["thruway", *path.relative_to(SOURCE).parts[:-1]]
    return ".".join([*package[: len(package) - level + 1], *([module] if module else [])])


def rooms_imported(one: Import) -> list[str]:
    """The rooms of thruway that an import reaches; the package itself counts as `__init__`."""
    parts = one.module.split(".")
    if parts[0] != "thruway":
        return []
    if len(parts) > 1:
        return [parts[1]]
    known = set(rooms())
    return [name if name in known else "__init__" for name in one.names or ("__init__",)]


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(path, node.lineno, node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
