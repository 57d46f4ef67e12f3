"""Imports go one way, stand at the top of the file, and stay out of what thruway replaces."""

from __future__ import annotations

import re

import pytest

from layout import tree

LATE = "surface/lazy.py"
NO_TORCH = {"core", "loops", "schedule", "codegen"}
NO_COMPILER = {"artifact": {"core", "native", "artifact"}, "runtime": {"core", "native", "artifact", "runtime"}}
REPLACED = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "torch._functorch.compilers", "torch._functorch.partitioners")
TERMINAL = ("rich", "click")
ALL = [one for path in tree.files() for one in tree.imports(path)]


def test_every_room_stands_in_the_list():
    found = {tree.room_of(path) for path in tree.files()}
    assert found <= set(tree.rooms()), f"not in ARCHITECTURE.md: {sorted(found - set(tree.rooms()))}"


def test_no_room_imports_a_later_one():
    order = {room: place for place, room in enumerate(tree.rooms())}
    backward = [
        f"{one.place}: {tree.room_of(one.path)} imports {room}"
        for one in ALL for room in tree.rooms_imported(one) if order[room] > order[tree.room_of(one.path)]
    ]
    assert not backward, "\n".join(backward)


def test_no_cycle_between_files():
    graph = {tree.SOURCE.joinpath(path): set() for path in tree.files()}
    for one in ALL:
        graph[one.path] |= {target for target in _targets(one) if target in graph and target != one.path}
    cycle = _cycle(graph)
    assert not cycle, "files import each other: " + " → ".join(str(path.relative_to(tree.SOURCE)) for path in cycle)


def test_no_import_hides_in_a_function():
    hidden = [f"{one.place}: {one.module} in {one.inside}" for one in ALL if one.inside]
    assert not hidden, "\n".join(hidden)


def test_no_import_hides_behind_type_checking():
    hidden = [one.place for one in ALL if one.type_checking]
    assert not hidden, "\n".join(hidden)


def test_late_imports_have_one_place():
    late = []
    for path in tree.files():
        if str(path.relative_to(tree.SOURCE)) != LATE:
            late += [f"{path.relative_to(tree.ROOT)}: {found}" for found in re.findall(r'(?:import_module|__import__)\("thruway[^)]*\)', path.read_text())]
    assert not late, "\n".join(late)


def test_late_imports_go_one_way_too():
    order = tree.rooms()
    targets = re.findall(r'import_module\("thruway\.(\w+)', (tree.SOURCE / LATE).read_text())
    assert targets and all(order.index(room) < order.index("surface") for room in targets)


@pytest.mark.parametrize("room", sorted(NO_TORCH))
def test_the_middle_needs_no_torch(room):
    used = [one.place for one in ALL if tree.room_of(one.path) == room and one.module.split(".")[0] in {"torch", "sympy"}]
    assert not used, "\n".join(used)


@pytest.mark.parametrize("room", sorted(NO_COMPILER))
def test_a_warm_start_needs_no_compiler_room(room):
    foreign = [
        f"{one.place}: {target}"
        for one in ALL if tree.room_of(one.path) == room for target in tree.rooms_imported(one) if target not in NO_COMPILER[room]
    ]
    assert not foreign, "\n".join(foreign)


def test_what_thruway_replaces_is_not_imported():
    used = [f"{one.place}: {one.module}" for one in ALL if one.module.startswith(REPLACED)]
    assert not used, "\n".join(used)


def test_terminal_libraries_stay_in_the_command_room():
    used = [one.place for one in ALL if one.module.split(".")[0] in TERMINAL and tree.room_of(one.path) != "command"]
    assert not used, "\n".join(used)


def _targets(one):
    base = tree.SOURCE.joinpath(*one.module.split(".")[1:]) if one.module.split(".")[0] == "thruway" else None
    if base is None:
        return
    for name in one.names:
        yield (base / name).with_suffix(".py")
    yield base.with_suffix(".py") if base != tree.SOURCE else base / "__init__.py"


def _cycle(graph):
    """One cycle of files, found by following imports depth first; empty where there is none."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return path[path.index(node):] + [node]
        if node in done:
            return []
        path.append(node)
        for target in sorted(graph[node]):
            found = visit(target)
            if found:
                return found
        path.pop()
        done.add(node)
        return []

    for node in sorted(graph):
        found = visit(node)
        if found:
            return found
    return []
