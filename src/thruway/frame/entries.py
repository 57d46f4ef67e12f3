"""The entries of one compiled function: made from what capture gives, bounded by memory, and able to say why a call missed.

`Entries` keeps the records beside the native entries; the target (a native Compiled, or the frame hook's code) holds a
tuple that is replaced, never edited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType, WrapperDescriptorType
from typing import Any, Protocol

import torch

from thruway import native
from thruway.frame.check import compile_check
from thruway.frame.guard import GlobalState, Guard, GuardSet
from thruway.frame.source import Source, tell
from thruway.frame.state import read_state
from thruway.native.fallback import bind_arguments


class Target(Protocol):
    """What holds native entries: it tries them in order at each call."""

    entries: tuple[Any, ...]


HINTS = {
    "tensor": "sizes stay symbolic once they have changed; for dtypes, strides and devices pass tensors of one kind, or expect an entry for each",
    "number": "a number that has changed becomes an input; where its value decides what is computed, expect an entry for each",
    "equal": "one entry per value; where there are many, pass a tensor, or split the function at the place that needs the value",
    "type": "one entry per type of argument",
    "identity": "make the object once, outside, and pass the same one",
    "same_object": "pass the same objects in the same places",
    "not_same_object": "pass different objects in these places",
    "no_overlap": "pass tensors that share no memory",
    "length": "pass containers of one length, or one tensor",
    "dict_keys": "pass dicts with the same keys in the same order",
    "ordered_keys": "pass dicts with the same keys in the same order",
    "absent": "set the key before the first call",
    "has_not": "set the attribute before the first call",
    "type_lookup": "change classes before the first call",
    "code": "define the function once, outside",
    "answer": "one entry per answer of the cached function",
    "truth": "one entry for the empty and one for the filled container",
    "relation": "one entry for each side of the comparison",
    "size": "one entry for 0, one for 1 and one for all other values",
}


@dataclass(frozen=True, slots=True)
class Miss:
    """Why an entry did not answer a call: the guard (None where torch's modes differ), the value it wants and the one it saw."""

    guard: Guard | None
    old: str
    new: str

    def __str__(self) -> str:
        if self.guard is None:
            return f"{self.old} was {self.new}"
        place = f"; needed at {self.guard.why}" if self.guard.why else ""
        return f"{self.guard.kind} of {tell(self.guard.source)}: {self.old} → {self.new}{place}"

    @property
    def hint(self) -> str:
        """What would stop calls from missing by this guard."""
        if self.guard is None:
            return "call it in one mode, or expect one entry per mode"
        if self.guard.kind == "equal" and isinstance(self.guard.expected, int | float) and not isinstance(self.guard.expected, bool):
            return HINTS["number"]
        return HINTS.get(self.guard.kind, HINTS["identity"])


@dataclass(eq=False, slots=True)
class Record:
    """One entry: `entry` is the native object, `nbytes` what it is estimated to hold, `used` its hits when last looked at."""

    name: str
    entry: Any
    guards: GuardSet
    nbytes: int
    used: int = 0

    @property
    def hits(self) -> int:
        return self.entry.hits


def make_entry(
    name: str,
    guards: GuardSet,
    inputs: Sequence[Source],
    graph: Callable[..., Sequence[object]] | None,
    finish: Callable[..., object] | None = None,
    *,
    single_output: bool = False,
    kept: tuple[object, ...] = (),
    nbytes: int = 0,
    hooked: int = 0,
    failed: Callable[[Exception], None] | None = None,
    below: int = 0,
) -> Record:
    """An entry that runs `graph` on `inputs`, then `finish`; with neither, the original function. `hooked`: the region in which the frame hook is
    on meanwhile, 0 (as around the call) or hook.OFF; `below`: on a code object, the region whose frames it answers.
    `failed` hears of a graph that gave up where the function itself did not fail."""
    core = native.core()
    check = compile_check(guards, inputs, kept, core)
    entry = core.Entry(check.program, check.word, graph, finish, single_output, kept, hooked, failed, below)
    return Record(name, entry, guards, nbytes + _size_of(guards))


def _size_of(guards: GuardSet) -> int:
    """A rough count of the bytes of a guard program: steps, nodes and registers."""
    return 512 * len(guards.guards)


UNUSED = 32                  # a model with a break in each of its layers has as many entries for what follows it as layers, after one call


@dataclass(slots=True)
class Patience:
    """Where calls miss by what is new each time, a capture per call would cost more than it gives: each waits for twice as many misses as the
    one before. An entry that answers again ends that."""

    misses: int = 0
    wanted: int = 0

    def is_over(self, entries: Entries) -> bool:
        """Whether this miss is worth a capture."""
        if not entries.are_new_to_each_call():
            self.misses = self.wanted = 0
            return True
        self.misses += 1
        if self.misses <= self.wanted:
            return False
        self.misses, self.wanted = 0, 2 * self.wanted + 1
        return True


@dataclass(eq=False, slots=True)
class Entries:
    """The records of one target, newest first. `limit` bounds the sum of their `nbytes`; the newest always stays."""

    target: Target
    limit: int
    records: list[Record] = field(default_factory=list)

    def add(self, record: Record) -> list[Record]:
        """Installs `record` and gives the ones that had to go: least used since the last time, oldest first."""
        gone = self._evict(record.nbytes)
        self.records = [record, *(each for each in self.records if each not in gone)]
        for each in self.records:
            each.used = each.hits
        self._install()
        return gone

    def remove(self, record: Record) -> None:
        self.records = [each for each in self.records if each is not record]
        self._install()

    def clear(self) -> None:
        self.records = []
        self._install()

    @property
    def nbytes(self) -> int:
        return sum(record.nbytes for record in self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def are_new_to_each_call(self) -> bool:
        """Whether the newest `UNUSED` records answered no call but the one that each was made for."""
        return len(self.records) >= UNUSED and all(record.hits <= 1 for record in self.records[:UNUSED])

    def _evict(self, wanted: int) -> list[Record]:
        excess, gone = self.nbytes + wanted - self.limit, []
        for record in sorted(reversed(self.records), key=lambda each: each.hits - each.used):
            if excess <= 0:
                break
            gone.append(record)
            excess -= record.nbytes
        return gone

    def _install(self) -> None:
        self.target.entries = tuple(record.entry for record in self.records)


def explain_miss(record: Record, function: FunctionType, args: tuple[object, ...], kwargs: dict[str, object]) -> Miss | None:
    """The first guard of `record` that this call fails; None where all hold."""
    return explain_bound(record, function, bind_arguments(function, args, kwargs))


def explain_bound(record: Record, function: FunctionType, arguments: tuple[object, ...] | None) -> Miss | None:
    """The same for arguments that are bound; None: they do not fit the function."""
    now = read_state()
    if now != record.guards.state:
        return _state_difference(record.guards.state, now)
    failed = record.entry.guards.explain(function, arguments) if arguments is not None else None
    if failed is None:
        return None
    index, found, value = failed
    if index < 0:
        return Miss(None, "an input of the graph", "not found")
    guard = record.guards.guards[index]
    return Miss(guard, _show_expected(guard), _show_seen(guard, value) if found else "not found")


def _state_difference(old: GlobalState, new: GlobalState) -> Miss:
    for name in ("grad_enabled", "inference", "autocast", "deterministic", "default_dtype", "default_device", "function_modes", "dispatch_modes"):
        if getattr(old, name) != getattr(new, name):
            return Miss(None, f"torch's {name} is {getattr(new, name)!r} and", repr(getattr(old, name)))
    return Miss(None, "torch's state", "another")


def _show_expected(guard: Guard) -> str:
    match guard.kind:
        case "tensor":
            e = guard.expected
            return f"{e.kind.__name__} {e.dtype} {e.device} {_dims(e.sizes)} strides {_dims(e.strides)}{' requires_grad' if e.requires_grad else ''}"
        case "type":
            return guard.expected.__name__
        case "same_object" | "not_same_object" | "no_overlap":
            return tell(guard.expected)
        case "answer":
            return f"the same answer for {_short(guard.expected.key)}"
        case "size":
            return "an int from 2"
        case "relation":
            return " ".join(map(str, guard.expected))
        case _:
            return _short(guard.expected)


def _show_seen(guard: Guard, value: object) -> str:
    match guard.kind:
        case "tensor" | "relation" if isinstance(value, torch.Tensor):
            return _show_tensor(value)
        case "tensor" | "type":
            return type(value).__name__
        case "length":
            return str(len(value)) if isinstance(getattr(type(value), "__len__", None), WrapperDescriptorType) else type(value).__name__
        case "dict_keys" | "ordered_keys":
            return _short(tuple(value)) if isinstance(value, dict) else type(value).__name__
        case "code":
            return _short(getattr(value, "__code__", value))
        case _:
            return _short(value)


def _show_tensor(value: torch.Tensor) -> str:
    with torch._C.DisableTorchFunctionSubclass():                # the user's `__torch_function__` is not asked about these questions
        grad = " requires_grad" if value.requires_grad else ""
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{type(value).__name__} {dtype} {value.device} {_dims(value.shape)} strides {_dims(value.stride())}{grad}"


def _dims(sizes: Sequence[object]) -> str:
    return "[" + ", ".join("*" if size is None else str(size) for size in sizes) + "]"


def _short(value: object) -> str:
    """repr of constants; the type's name where a repr might be long or run code of the user's."""
    if type(value) in {int, float, complex, bool, str, bytes, tuple, type(None)} or isinstance(value, type):
        text = repr(value)
        return text if len(text) <= 80 else text[:77] + "..."
    return f"a {type(value).__name__} at {id(value):#x}"
