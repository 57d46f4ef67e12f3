"""Runs a program's `f` on each of its ARGUMENTS, eager and compiled, in two fresh namespaces, and says where the first difference is.

What is compared: result or exception (type, text, causes), arguments afterwards, the module's globals, printed text, random state and
gradients; tensors by bits (or within a tolerance, where compiled kernels run), objects by identity as well as by content.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import linecache
import random
import re
import struct
import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import thruway
from thruway.surface import lazy

SCALARS = (int, str, bytes, bool, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout, range, slice)

NUMBER = re.compile(r"(\d+\.\d+(?:e[+-]?\d+)?)")
LOOSER = {torch.bfloat16: 200, torch.float16: 40}
DEEPEST_CHAIN = 100         # causes of an error
UNFAIR = ("recursion depth", "RecursionError", "MemoryError", "allocate memory")         # in what eager gives: how far it came hangs on the process
GLOBALS = ("COUNT", "LOG", "TABLE", "WEIGHT", "Box", "Counted")


@dataclass(frozen=True)
class Difference:
    """`kind` is what a shrunk program must keep: result, exception, arguments, …; `text` shows both sides."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Snapshot:
    """A value as nested tuples that compare equal where nothing a program can see differs. Objects are numbered as they come up."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.keep: list[Any] = []
        self.storages: dict[int, int] = {}

    def printed(self, text: str) -> Any:
        """The text; the numbers in it within the tolerance, where there is one."""
        return [self.of(float(part)) if i % 2 else part for i, part in enumerate(NUMBER.split(text))] if Tensor.tolerance else text

    def of(self, value: Any) -> Any:
        if isinstance(value, float) and Tensor.tolerance:
            return "float", Tensor((), torch.tensor(value, dtype=torch.float64), None)
        if isinstance(value, float):
            return "float", "nan" if value != value else struct.pack("d", value).hex() + f" {value!r}"
        if isinstance(value, SCALARS):
            return type(value).__name__, repr(value)
        known = self.seen.get(id(value))
        if known is not None:
            return "same object as", known
        if type(value) is not tuple:
            self.seen[id(value)] = len(self.seen)
            self.keep.append(value)
        return self.content(value)

    def content(self, value: Any) -> Any:
        match value:
            case torch.Tensor():
                return self.tensor(value)
            case type():
                return "type", value.__qualname__, self.of({k: v for k, v in vars(value).items() if not k.startswith("_") and isinstance(v, int | list)})
            case types.FunctionType():
                cells = [cell.cell_contents for cell in value.__closure__ or () if cell is not None and _is_filled(cell)]
                return "function", value.__qualname__, self.of(value.__defaults__), self.of(value.__kwdefaults__), tuple(map(self.of, cells))
            case types.MethodType():
                return "method", value.__func__.__qualname__, self.of(value.__self__)
            case dict() | collections.Counter():
                return type(value).__name__, tuple((self.of(k), self.of(v)) for k, v in value.items())
            case list() | tuple() | collections.deque():
                return type(value).__name__, tuple(map(self.of, value))
            case set() | frozenset():
                return type(value).__name__, tuple(sorted(map(repr, map(self.of, value))))
            case BaseException():
                return self.error(value)
            case types.ModuleType():
                return "module", value.__name__
            case _ if hasattr(value, "__next__"):
                return self.iterator(value)
            case _:
                return type(value).__qualname__, self.of(vars(value)) if hasattr(value, "__dict__") else ()

    def iterator(self, value: Any) -> Any:
        items = []
        try:
            for _, item in zip(range(20), value):
                items.append(self.of(item))
        except Exception as error:
            items.append(self.error(error))
        return "iterator", hasattr(value, "send"), tuple(items)

    def tensor(self, t: torch.Tensor) -> Any:
        storage = self.storages.setdefault(t.untyped_storage().data_ptr(), len(self.storages)) if t.numel() else "empty"
        strides = tuple(s for s, n in zip(t.stride(), t.shape) if n > 1) if t.numel() else ()
        head = type(t).__name__, str(t.dtype), tuple(t.shape), strides, t.requires_grad, t.is_leaf, storage, t.storage_offset()
        return Tensor(head, t.detach().clone(), None if not t.is_leaf or t.grad is None else t.grad.detach().clone())

    def error(self, error: BaseException | None, depth: int = 0) -> Any:
        if error is None:
            return None
        if depth > DEEPEST_CHAIN:
            return UNFAIR[0]
        chain = tuple(self.error(one, depth + 1) for one in (error.__cause__, error.__context__))
        extra = {k: v for k, v in vars(error).items() if isinstance(v, int)}
        return "raises", type(error).__qualname__, str(error), repr(extra), chain, error.__suppress_context__


class Tensor:
    """A tensor in a snapshot: equal by head, and by bits or within `tolerance`."""

    tolerance = 0.0

    def __init__(self, head: tuple, value: torch.Tensor, grad: torch.Tensor | None):
        self.head, self.value, self.grad = head, value, grad

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tensor) or self.head != other.head or (self.grad is None) != (other.grad is None):
            return False
        return self._close(self.value, other.value) and (self.grad is None or self._close(self.grad, other.grad))

    def _close(self, a: torch.Tensor, b: torch.Tensor) -> bool:
        if a.is_complex():
            return self._close(torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj()))
        if a.dtype.is_floating_point and self.tolerance:
            allowed = self.tolerance * LOOSER.get(a.dtype, 1)
            largest = a[a.isfinite()].abs().max().item() if a.isfinite().any() else 0.0
            return torch.allclose(a, b, allowed, allowed * max(largest, 1e-3), equal_nan=True)
        return torch.equal(torch.nan_to_num(a, 7.5), torch.nan_to_num(b, 7.5)) if a.dtype.is_floating_point else torch.equal(a, b)

    def __repr__(self) -> str:
        return f"{self.head}{self.value.tolist()}" + (f" grad {self.grad.tolist()}" if self.grad is not None else "")


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def _faults(*rows: Any) -> str:
    """Type and text of the exceptions of both sides, and which causes they carry, so that a shrunk program keeps them."""
    return "".join(f" {row[1:3]} {[one and one[1] for one in row[4]]}" for row in rows if isinstance(row, tuple) and row[0] == "raises")


def _narrow(a: Any, b: Any) -> tuple[Any, Any]:
    """The innermost parts that differ."""
    while isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        a, b = next((one, other) for one, other in zip(a, b) if one != other)
    return a, b


@functools.lru_cache(maxsize=1)
def _compiled(text: str, file: str) -> types.CodeType:
    return compile(text, file, "exec")


def load(text: str, name: str) -> dict[str, Any]:
    """The program's namespace. `name` is its module and file name, where tracebacks find the text."""
    linecache.cache[f"{name}.py"] = len(text), None, text.splitlines(keepends=True), f"{name}.py"
    module = sys.modules[name] = types.ModuleType(name)
    space = vars(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(_compiled(text, f"{name}.py"), space)
    return space


def run(space: dict[str, Any], call: Callable[..., Any]) -> list[dict[str, Any]]:
    """One row per call: everything that can be seen after it."""
    rows = []
    for make in space["ARGUMENTS"]:
        torch.default_generator.manual_seed(5)             # torch.manual_seed would write down a traceback for GPUs to come
        random.seed(5)
        arguments = make()
        older = [] if Tensor.tolerance else _tensors(arguments, *map(space.get, GLOBALS))       # kernels may write once more
        printed, snapshot, row = io.StringIO(), Snapshot(), {}
        result = None
        with contextlib.redirect_stdout(printed):
            try:
                result = call(*arguments)
            except Exception as error:
                row["exception"] = snapshot.error(error)
            row["random"], row["backward"] = torch.rand(1).item(), _differentiate(result)
            row |= {"result": snapshot.of(result), "arguments": snapshot.of(arguments), "written": [t._version > 0 for t in older]}
            row["globals"] = snapshot.of({name: space.get(name) for name in GLOBALS})
        row["printed"] = snapshot.printed(printed.getvalue())
        rows.append(row)
    return rows


def _tensors(*values: Any) -> list[torch.Tensor]:
    """Those in the values, without running an iterator. Tensors that a call makes need not be written as often as eager's."""
    found, waiting, seen = [], [*values], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | types.FunctionType):
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            found.append(one)
        elif isinstance(one, list | tuple | dict | collections.deque):
            waiting += one.values() if isinstance(one, dict) else one
        elif hasattr(one, "__dict__"):
            waiting.append(vars(one))
    return found


def _differentiate(result: Any) -> Any:
    """Gradients of the result's tensors into the leaves."""
    parts = result if isinstance(result, list | tuple) else result.values() if isinstance(result, dict) else [result]
    wanted = [t for t in parts if isinstance(t, torch.Tensor) and t.requires_grad and t.grad_fn is not None]
    try:
        if wanted:
            sum(t.sum() for t in wanted).backward()
    except RuntimeError as error:
        return str(error)
    return len(wanted)


def difference(text: str, backend: Any = "eager", name: str = "fuzz_program") -> Difference | None:
    """The first difference between eager and compiled; a fault of thruway's own counts as one even where it fell back to eager.
    Where eager's own outcome hangs on how deep the process stands, or on where objects lie in memory (the order of a set of functions), none is."""
    found = _difference(text, backend, name)
    return found if found is not None and is_settled(text, name) else None


def is_settled(text: str, name: str) -> bool:
    """Whether eager gives the same at every run."""
    limit = sys.getrecursionlimit()
    rows = []
    for less in (0, 90, 0, 0, 0, 0):
        sys.setrecursionlimit(limit - less)
        try:
            rows.append(run((space := load(text, name)), space["f"]))
        finally:
            sys.setrecursionlimit(limit)
    return all(one == rows[0] for one in rows)


def _difference(text: str, backend: Any, name: str) -> Difference | None:
    Tensor.tolerance = 0.0 if backend == "eager" else 1e-4
    expected = run((space := load(text, name)), space["f"])
    if any(sign in repr(expected) for sign in UNFAIR):
        return None
    pipeline = lazy.pipeline()
    thruway.reset()
    space = load(text, name)
    try:
        found = run(space, thruway.compile(space["f"], backend=backend))
    except SystemError as error:
        return Difference("SystemError", str(error))
    for call, (a, b) in enumerate(zip(expected, found)):
        for key in ("exception", "printed", "result", "arguments", "written", "globals", "random", "backward"):
            if a.get(key) != b.get(key):
                one, other = _narrow(a.get(key), b.get(key))
                return Difference(f"{key}{_faults(a.get(key), b.get(key))}", f"call {call}\n  eager    {one}\n  compiled {other}")
    bugs = [event.detail for event in pipeline.journal.of_kind("bug") if not event.detail.startswith("RecursionError")]    # some recurse without end
    return Difference(f"bug {bugs[0].split(':')[0]} {bugs[0].rsplit('(', 1)[-1]}", bugs[0]) if bugs else None
