"""Writes a script that reproduces a difference, with the values it needs in a file beside it. It runs with torch and thruway alone.

Where a captured graph shows the fault, the script holds that graph as a function; else the user's own functions and classes, as far as the
call reaches them, their source taken out of their files, with the variables that they read.
"""

from __future__ import annotations

import ast
import inspect
import io
import pickle
import re
import textwrap
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from thruway.core.ambient import settings
from thruway.core.marks import is_compiled_type, original_of
from thruway.core.options import CompileOptions
from thruway.frame.guard import GlobalState
from thruway.report.shadow.compare import Difference
from thruway.report.shadow.locate import Finding
from thruway.report.shadow.replay import definition
from thruway.report.shadow.worlds import MISSING, World

FOLDER = "thruway-differences"
HEAD = '''"""Reproduces a difference between compiled code and eager.

{about}

Run it with Python, with torch and thruway installed. It raises thruway.CheckError as long as the difference is there.
"""

import importlib
from pathlib import Path

import thruway
from thruway.report.shadow.replay import replay

{body}

if __name__ == "__main__":
    replay(globals(), thruway.compile, {function!r}, Path(__file__).with_suffix(".pt"){words})
'''


@dataclass(frozen=True, slots=True)
class Saved:
    """A call as the script makes it again: the world before, random states, and torch's modes."""

    world: World
    random: tuple[Any, ...]
    modes: GlobalState

    def surroundings(self) -> dict[str, Any]:
        m = self.modes
        return {"random": self.random, "grad": m.grad_enabled, "inference": m.inference, "autocast": m.autocast, "dtype": m.default_dtype}


def write_script(
    name: str, function: types.FunctionType, saved: list[Saved], definitions: tuple[Any, ...], finding: Finding, found: Difference, options: CompileOptions,
) -> tuple[str, str]:
    """The script's path; empty, with the reason in words, where none is wanted or something in the call cannot be written down."""
    folder = options.settings(settings.current()).check_dir or FOLDER
    if folder == "-":
        return "", "no script was written, as the setting check_dir asks"
    about = f"{found}\nFirst stage that differs: {finding.stage}\n{finding.node}" + (f"\nat {finding.line}" if finding.line else "")
    try:
        text, calls, called = _of_graph(saved[-1], *finding.graph) if finding.graph else _of_user(function, saved, definitions)
        data = io.BytesIO()
        torch.save(calls, data, pickle_module=_Pickling(text.names))
        path = _free_path(Path(folder), name)
        words = "".join(f", {key}={value!r}" for key, value in _words(options))
        path.write_text(HEAD.format(about=about.replace("\\", "/").replace('"""', "'''"), body=text.source(), function=called, words=words))
        path.with_suffix(".pt").write_bytes(data.getvalue())
    except OSError as error:
        if "source code" not in str(error):                  # inspect's own word where a function has no file
            return "", f"no script was written: the folder {folder} cannot be used: {error.strerror or error}"
        return "", f"no script can be made of this call: the source of a function in it is in no file ({error})"
    except Exception as error:                               # a value that cannot be pickled, a name that leads elsewhere
        return "", f"no script can be made of this call: something in it cannot be saved ({type(error).__name__}: {error})"
    return str(path.resolve()), ""


def _words(options: CompileOptions) -> Iterator[tuple[str, Any]]:
    """The arguments of `compile` that differ from their defaults."""
    for key, value, default in (("dynamic", options.dynamic, None), ("backend", options.backend, "thruway"), ("mode", options.mode, "default"),
                                ("options", dict(options.overrides), {})):
        if value != default and isinstance(value, str | bool | dict):
            yield key, value


def _free_path(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"\W+", "_", name).strip("_") or "call"
    return next(path for i in range(1, 100_000) if not (path := folder / f"{stem}_{i}.py").exists())


@dataclass(slots=True)
class Text:
    """Imports and definitions by name, in the order in which they are written; `names` are the objects that saved values refer to."""

    lines: dict[str, str] = field(default_factory=dict)
    names: dict[int, tuple[Any, str]] = field(default_factory=dict)

    def source(self) -> str:
        return "\n".join(self.lines.values())

    def define(self, value: Any, name: str, text: str) -> None:
        self.lines[name] = text
        self.names[id(value)] = value, name


# -- a captured graph ----------------------------------------------------------------------------------------------------------------------

def _of_graph(saved: Saved, module: torch.fx.GraphModule, inputs: tuple[Any, ...]) -> tuple[Text, list[dict[str, Any]], str]:
    code = module.graph.python_code("self")
    text = Text()
    function = next(one for one in ast.parse(code.src).body if isinstance(one, ast.FunctionDef))
    function.args.args.pop(0)
    function.name, function.returns = "captured", None
    for one in ast.walk(function):
        if isinstance(one, ast.arg):
            one.annotation = None
    used = {one.id for one in ast.walk(_WithoutTypes().visit(function)) if isinstance(one, ast.Name)}
    text.lines |= {name: f"{name} = {_import_of(value, name)}" for name, value in code.globals.items() if name in used}
    text.lines["captured"] = "\n\n" + ast.unparse(ast.fix_missing_locations(function)) + "\n"
    return text, [{"args": inputs, "kwargs": {}, "variables": {}, "attributes": [], **saved.surroundings()}], "captured"


class _WithoutTypes(ast.NodeTransformer):
    """Annotated assignments become plain ones; those without a value go."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return ast.copy_location(ast.Assign([node.target], node.value), node) if node.value is not None else None


def _import_of(value: Any, name: str) -> str:
    """An expression that imports `value`. ValueError where it cannot be imported."""
    if isinstance(value, types.ModuleType):
        return f"importlib.import_module({value.__name__!r})"
    if value is None or isinstance(value, int | float | str):
        return f"float({str(value)!r})" if isinstance(value, float) else repr(value)
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return f"importlib.import_module('torch').{value!r}".replace("'torch').torch.", "'torch').").replace("'torch').device(", "'torch').device(")
    module, path = getattr(value, "__module__", None) or "builtins", getattr(value, "__qualname__", getattr(value, "__name__", name))
    found: Any = __import__("sys").modules.get(module)
    for part in path.split("."):
        found = getattr(found, part)
    if found is not value:
        raise ValueError(f"{module}.{path} is another object")
    return f"importlib.import_module({module!r}).{path}"


# -- the user's own code --------------------------------------------------------------------------------------------------------------------

def _of_user(function: types.FunctionType, saved: list[Saved], definitions: tuple[Any, ...]) -> tuple[Text, list[dict[str, Any]], str]:
    text, tops = Text(), [one for one in definitions if _is_top(one, definitions)]
    owned = {id(one) for one in definitions}
    for one in tops:
        _define_names(text, one, owned)
    for one in tops:
        text.define(one, one.__name__ if one.__name__.isidentifier() else f"function_{len(text.names)}", _source(one, one.__name__, len(text.names)))
    called = next((text.names[id(one)][1] for one in tops if one is function), None)
    if called is None:
        owner = next((one for one in tops if isinstance(one, type) and vars(one).get(function.__name__) is not None), None)
        called = f"{text.names[id(owner)][1]}.{function.__name__}" if owner else ""
    if not called and not (saved[-1].world.arguments and isinstance(saved[-1].world.arguments[0], nn.Module)):
        raise ValueError("the function's source cannot be found")
    return text, [_call(one, text) for one in saved], called


def _is_top(value: Any, definitions: tuple[Any, ...]) -> bool:
    """Whether a definition stands for itself: not a method, whose class is written."""
    head, _, last = value.__qualname__.rpartition(".")
    return isinstance(value, type) or not any(isinstance(one, type) and one.__qualname__ == head and last in vars(one) for one in definitions)


def _define_names(text: Text, value: Any, owned: set[int]) -> None:
    """Imports of what the code of a definition names: modules, and functions and classes of others."""
    for function in [value] if isinstance(value, types.FunctionType) else [one for one in vars(value).values() if isinstance(one, types.FunctionType)]:
        cells = {name: _content(cell) for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ())}
        for name, one in (function.__globals__ | cells).items():
            one = original_of(one) if is_compiled_type(type(one)) else one
            if name in _names_in(function.__code__) and isinstance(one, types.ModuleType | types.FunctionType | type) and id(one) not in owned:
                try:
                    text.lines[name] = f"{name} = {_import_of(one, name)}"
                except (ValueError, AttributeError):
                    continue
    for base in getattr(value, "__mro__", ())[1:]:
        if id(base) not in owned and base is not object and base.__name__ not in text.lines:
            text.lines[base.__name__] = f"{base.__name__} = {_import_of(base, base.__name__)}"


def _names_in(code: types.CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    return {*code.co_names, *code.co_freevars}.union(*map(_names_in, inner))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _source(value: Any, name: str, number: int) -> str:
    """The source of a function or class by itself: without decorators that compile or test, outer variables as globals."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(value)))
    found: Any = next((one for one in ast.walk(tree) if getattr(one, "name", None) == name), None)
    if found is None:
        lambdas = [one for one in ast.walk(tree) if isinstance(one, ast.Lambda)]
        if len(lambdas) != 1:
            raise ValueError("several lambdas in one line")
        return f"function_{number} = {ast.unparse(lambdas[0])}\n"
    found.decorator_list = [one for one in found.decorator_list if "compile" not in ast.unparse(one) and "pytest" not in ast.unparse(one)]
    for one in ast.walk(found):
        if isinstance(one, ast.FunctionDef):
            one.body = [ast.Global(each.names) if isinstance(each, ast.Nonlocal) and found is one else each for each in one.body]
    return "\n\n" + ast.unparse(found) + "\n"


def _call(saved: Saved, text: Text) -> dict[str, Any]:
    world = saved.world
    code, arguments = world.function.__code__, list(world.arguments)
    count, only = code.co_argcount, code.co_kwonlyargcount
    rest = arguments[count + only:]
    args = tuple(arguments[:count]) + (rest.pop(0) if code.co_flags & 4 else ())
    kwargs = dict(zip(code.co_varnames[count:count + only], arguments[count:count + only])) | (rest.pop(0) if code.co_flags & 8 else {})
    variables = {name: value for (i, name), value in world.variables.items() if isinstance(world.owners[i], dict) and _is_saved(name, value, text)}
    variables |= {name: content for name, cell in zip(code.co_freevars, world.function.__closure__ or ()) if _is_saved(name, content := _content(cell), text)}
    classes = {id(value): name for value, name in text.names.values()}
    attributes = [(classes[id(owner)], name, value) for (i, name), value in world.variables.items()
                  if id(owner := world.owners[i]) in classes and value is not MISSING]
    return {"args": args, "kwargs": kwargs, "variables": variables, "attributes": attributes, **saved.surroundings()}


def _is_saved(name: str, value: Any, text: Text) -> bool:
    foreign = isinstance(value, types.ModuleType | types.FunctionType | types.BuiltinFunctionType | type) or is_compiled_type(type(value))
    return value is not MISSING and name not in text.lines and not name.startswith("__") and not foreign


class _Pickling:
    """A pickle module for torch.save whose pickler refers to what the script defines by its name there."""

    def __init__(self, names: dict[int, tuple[Any, str]]):
        class Pickler(pickle.Pickler):
            def reducer_override(self, value: Any) -> Any:
                return (definition, (names[id(value)][1],)) if id(value) in names and names[id(value)][0] is value else NotImplemented

        self.Pickler, self.__name__ = Pickler, "pickle"
        self.dump, self.dumps = pickle.dump, pickle.dumps
