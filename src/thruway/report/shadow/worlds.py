"""A world: a function, its arguments, and the variables that its code may read or write: globals, attributes of classes and modules.

`reached` finds those by the names in the code of every function that the call can get at. A copied world can be entered: its variables
then stand in the real namespaces, what the code does to them is taken down on leaving, and the real ones come back.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from thruway.core.marks import is_compiled_type, original_of
from thruway.report.shadow.copies import SHARED, Copies, is_foreign

Owner = dict[str, Any] | type | types.CellType
Place = tuple[int, str]                    # index of the namespace, name
MISSING = object()
CONTENT = "a variable of methods"
DEEPEST = 60


@dataclass(frozen=True, slots=True)
class World:
    """`variables` holds what stands under each place of `owners`; MISSING where nothing does."""

    function: types.FunctionType
    arguments: tuple[Any, ...]
    owners: tuple[Owner, ...]
    variables: dict[Place, Any]

    def copied(self, copies: Copies) -> World:
        variables = {place: value if value is MISSING else copies.copy(value) for place, value in self.variables.items()}
        return World(copies.function(self.function), tuple(map(copies.copy, self.arguments)), self.owners, variables)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The world's variables are the real ones meanwhile; `variables` holds afterwards what has become of them."""
        before = {(i, name): value for i, owner in enumerate(self.owners) for name, value in _data(owner).items()}
        for (i, name), value in self.variables.items():
            _put(self.owners[i], name, value)
        try:
            yield
        finally:
            after = {(i, name): value for i, owner in enumerate(self.owners) for name, value in _data(owner).items()}
            self.variables.update({place: after.get(place, MISSING) for place in self.variables})
            self.variables.update({place: value for place, value in after.items() if place not in before and not place[1].startswith("__")})
            for i, name in before | after:
                _put(self.owners[i], name, before.get((i, name), MISSING))

    def read(self) -> World:
        """The same places as they stand now in the real namespaces."""
        present = {(i, name): value for i, owner in enumerate(self.owners) for name, value in _data(owner).items()}
        return World(self.function, self.arguments, self.owners, {place: present.get(place, MISSING) for place in self.variables})

    @property
    def names(self) -> dict[Place, str]:
        return {(i, name): f"{owner.__qualname__}.{name}" if isinstance(owner := self.owners[i], type) else name for i, name in self.variables}


def reached(function: types.FunctionType, arguments: tuple[Any, ...]) -> tuple[World, list[Any]]:
    """The real world of a call, and the user's functions and classes that it can get at."""
    walk = _Walk()
    walk.visit(function, 0)
    for value in arguments:
        walk.visit(value, 0)
    walk.follow_names()
    owners = tuple(walk.owners.values())
    index = {key: i for i, key in enumerate(walk.owners)}
    variables = {(index[key], name): value for (key, name), value in walk.variables.items()}
    return World(function, arguments, owners, variables), walk.definitions


@dataclass(slots=True)
class _Walk:
    seen: set[int] = field(default_factory=set)
    kept: list[Any] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    owners: dict[int, Owner] = field(default_factory=dict)
    variables: dict[tuple[int, str], Any] = field(default_factory=dict)
    definitions: list[Any] = field(default_factory=list)

    def follow_names(self) -> None:
        """Reads every variable that a name in the code may mean, until no new code comes up."""
        found = -1
        while found != len(self.variables) + len(self.names):
            found = len(self.variables) + len(self.names)
            for key, owner in list(self.owners.items()):
                held = _data(owner)
                for name in held.keys() & self.names:
                    if (key, name) not in self.variables:
                        self.variables[key, name] = held[name]
                        self.visit(held[name], 0)

    def visit(self, value: Any, depth: int) -> None:
        value = original_of(value) if is_compiled_type(type(value)) else value
        if id(value) in self.seen or depth > DEEPEST:
            return
        self.seen.add(id(value))
        self.kept.append(value)
        match value:
            case types.FunctionType():
                self.function(value, depth)
            case types.ModuleType():
                if not is_foreign(value.__name__):
                    self.owners.setdefault(id(value.__dict__), value.__dict__)
            case type():
                self.cls(value, depth)
            case torch.Tensor():
                pass
            case _ if not isinstance(value, SHARED) or isinstance(value, tuple):
                self.parts(value, depth)

    def function(self, value: types.FunctionType, depth: int) -> None:
        if is_foreign(value.__globals__.get("__name__") or ""):
            return
        self.definitions.append(value)
        self.owners.setdefault(id(value.__globals__), value.__globals__)
        self.code(value.__code__)
        for cell in value.__closure__ or ():
            self.visit(cell, depth + 1)
        for one in (value.__defaults__, value.__kwdefaults__, value.__dict__):
            self.visit(one, depth + 1)

    def code(self, code: types.CodeType) -> None:
        self.names.update(code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self.code(constant)

    def cls(self, value: type, depth: int) -> None:
        if is_foreign(value.__module__) or not isinstance(value.__module__, str):
            return
        self.definitions.append(value)
        self.owners.setdefault(id(value), value)
        for one in (*value.__bases__, *vars(value).values()):
            for part in (one, *(getattr(one, name, None) for name in ("__func__", "fget", "fset", "func"))):
                if isinstance(part, types.FunctionType | type):
                    self.visit(part, depth + 1)
                if isinstance(part, types.FunctionType):
                    self.cells(part)

    def cells(self, method: types.FunctionType) -> None:
        """Cells of methods are variables: a class is not copied."""
        for cell in method.__closure__ or ():
            if _is_filled(cell) and not isinstance(cell.cell_contents, type):
                self.owners[id(cell)] = cell
                self.variables[id(cell), CONTENT] = cell.cell_contents

    def parts(self, value: Any, depth: int) -> None:
        self.visit(type(value), depth + 1)
        inner: list[Any] = [getattr(value, "__dict__", None)] if type(value) is not dict else []
        if isinstance(value, dict):
            inner += [*dict.keys(value), *dict.values(value)]
        elif isinstance(value, list | tuple | set | frozenset):
            inner += type(value).__mro__[-2].__iter__(value) if type(value) in (list, tuple, set, frozenset) else list(value)
        elif isinstance(value, types.MethodType):
            inner += [value.__func__, value.__self__]
        elif isinstance(value, types.CellType):
            inner += [value.cell_contents] if _is_filled(value) else []
        for name in ("func", "args", "keywords"):
            if type(value).__name__ == "partial":
                inner.append(getattr(value, name))
        for one in inner:
            self.visit(one, depth + 1)


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _data(owner: Owner) -> dict[str, Any]:
    """A module's, class's or cell's variables; of a class those that hold data."""
    if isinstance(owner, types.CellType):
        return {CONTENT: owner.cell_contents} if _is_filled(owner) else {}
    if not isinstance(owner, type):
        return dict(owner)
    return {name: value for name, value in vars(owner).items() if not name.startswith("__") and not hasattr(type(value), "__get__")}


def _put(owner: Owner, name: str, value: Any) -> None:
    if isinstance(owner, types.CellType):
        if value is not MISSING:
            owner.cell_contents = value
        elif _is_filled(owner):
            del owner.cell_contents
    elif isinstance(owner, type):
        if value is not MISSING and vars(owner).get(name, MISSING) is not value:
            type.__setattr__(owner, name, value)
        elif value is MISSING and name in vars(owner):
            type.__delattr__(owner, name)
    elif value is MISSING:
        owner.pop(name, None)
    elif owner.get(name, MISSING) is not value:
        owner[name] = value
