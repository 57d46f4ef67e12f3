"""From guards to a program: a GuardSet and the sources of the graph's inputs become the steps of one native GuardProgram.

Each source is loaded once into a register, before the first guard that needs it; guards keep their order, except that
relations between sizes come last, when every symbol is bound. The program numbers each step with the guard it serves.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from thruway import native
from thruway.core.errors import CompilerBug, Unsupported
from thruway.core.sizes import Atom, FloorDiv, Max, Min, Mod, Size, SizeLike, Symbol
from thruway.frame import source as sources
from thruway.frame.guard import MISSING, GlobalState, Guard, GuardSet, TensorExpectation
from thruway.frame.source import Source
from thruway.frame.modes import has_only_device_mode, present_devices
from thruway.frame.plain import plain_tensor
from thruway.native.fallback import proxied_dict
from thruway.frame.state import read_state
from thruway.frame.tagged import is_still, is_taggable
from thruway.native import probe

NO_GUARD = -1
SMALLEST = 2            # what tracing takes a symbolic size to be at least (shapes/symbolic.py)
OPERATORS = {"<": 0, "<=": 1, "==": 2, "!=": 3}
EXACT, ANY, BIND, SAME = range(4)                                # kinds of a dim in native/guard.h
CONST, SYMBOL, ADD, MUL, FLOORDIV, MOD, MAX, MIN = range(8)     # words of a postfix program in native/checks.c


@dataclass(frozen=True, slots=True)
class Check:
    """`program` checks and gives the inputs; `word` is the native form of the state that it is for."""

    program: Any
    word: bytes
    guards: GuardSet


def compile_check(guards: GuardSet, inputs: Sequence[Source] = (), kept: tuple[object, ...] = (), core: ModuleType | None = None) -> Check:
    """The native program of `guards`; `kept` is what Made sources index. CompilerBug where a guard cannot be checked, Unsupported where
    it counts beyond 64 bits."""
    builder = _Builder(kept)
    for index, guard in enumerate(guards.guards):
        builder.add(index, guard)
    if guards.state.function_modes or guards.state.dispatch_modes:
        builder.add_state(guards.state)
    registers = tuple(builder.load(each, NO_GUARD) for each in inputs)
    try:
        program = (core or native.core()).GuardProgram((*builder.steps, *builder.relations()), registers, len(builder.symbols))
    except OverflowError:
        raise Unsupported("TW302", "a guard counts beyond 64 bits") from None
    return Check(program, guards.state.word or _present_word(guards.state), guards)


def _present_word(state: GlobalState) -> bytes:
    """The word of a state that came from another process: known only while it holds."""
    now = read_state()
    if now != state:
        raise CompilerBug("frame", "guards of another state than the present one have no native word")
    return now.word


@dataclass(slots=True)
class _Builder:
    kept: tuple[object, ...]
    steps: list[tuple[str, int, int, int, object, int]] = field(default_factory=list)
    registers: dict[object, int] = field(default_factory=dict)
    symbols: dict[object, int] = field(default_factory=dict)
    waiting: list[tuple[SizeLike, str, SizeLike, int, int]] = field(default_factory=list)   # relations: left, operator, right, register, guard
    loads: int = 0

    # ---- loads

    def load(self, source: Source, guard: int) -> int:
        """The register of `source`."""
        known = self.registers.get(source)
        if known is None:
            known = self.registers[source] = self._load(source, guard)
        return known

    def _load(self, source: Source, guard: int) -> int:
        match source:
            case sources.Local(_, index):
                return self._emit("local", index, 0, None, guard)
            case sources.Cell(_, index):
                return self._emit("cell", index, 0, None, guard)
            case sources.Global(name, None):
                return self._emit("item", self._root("globals", guard), 0, name, guard)
            case sources.Global(name, module):
                return self._emit("item", self._module_dict(module, guard), 0, name, guard)
            case sources.Builtin(name):
                self._check("absent", self._root("globals", guard), 0, name, guard)
                return self._emit("item", self._root("builtins", guard), 0, name, guard)
            case sources.Own():
                return self._emit("function", 0, 0, None, guard)
            case sources.Made(index):
                return self._emit("const", 0, 0, self.kept[index], guard)
            case _:
                base = sources.base_of(source)
                return self._load_through(source, self.load(base, guard), guard)

    def _load_through(self, source: Source, base: int, guard: int) -> int:
        match source:
            case sources.FunctionGlobal(_, name):
                return self._emit("item", self._emit("function_globals", base, 0, None, guard), 0, name, guard)
            case sources.Attr(_, name):
                return self._emit("attr", base, 0, name, guard)
            case sources.DictAttr(_, name):
                return self._emit("dict_attr", base, 0, name, guard)
            case sources.Item(_, key):
                return self._emit("item", base, 0, key, guard)
            case sources.DictKey(_, index):
                return self._emit("dict_key", base, index, None, guard)
            case sources.TypeOf():
                return self._emit("type", base, 0, None, guard)
            case sources.ClosureCell(_, index):
                return self._emit("closure", base, index, None, guard)
            case sources.Default(_, _, str(name)):
                return self._emit("kwdefault", base, 0, name, guard)
            case sources.Default(_, int(index), _):
                return self._emit("default", base, index, None, guard)
            case sources.WeakTarget():
                return self._emit("weak", base, 0, None, guard)
            case sources.MethodSelf():
                return self._emit("method_self", base, 0, None, guard)
            case sources.MethodFunction():
                return self._emit("method_function", base, 0, None, guard)
            case sources.Viewed():
                return self._emit("viewed", base, 0, None, guard)
            case sources.Proxied():
                return self._emit("call", base, 0, proxied_dict, guard)
            case sources.Length(_, of):
                return self._emit("call", base, 0, sources.LENGTHS[of], guard)
            case sources.PlainTensor():
                return self._emit("call", base, 0, plain_tensor, guard)
            case sources.Grad():
                return self._emit("getattr", base, 0, "grad", guard)
            case _:
                raise CompilerBug("frame", f"no way to load {source!r}")

    def _root(self, step: str, guard: int) -> int:
        if step not in self.registers:
            self.registers[step] = self._emit(step, 0, 0, None, guard)
        return self.registers[step]

    def _module_dict(self, module: str, guard: int) -> int:
        key = ("module", module)
        if key not in self.registers:
            if module not in sys.modules:
                raise CompilerBug("frame", f"guard on a global of {module}, which is not imported")
            self.registers[key] = self._emit("const", 0, 0, sys.modules[module].__dict__, guard)
        return self.registers[key]

    def _emit(self, name: str, a: int, b: int, argument: object, guard: int) -> int:
        self.steps.append((name, self.loads, a, b, argument, guard))
        self.loads += 1
        return self.loads - 1

    def _check(self, name: str, a: int, b: int, argument: object, guard: int) -> None:
        self.steps.append((name, 0, a, b, argument, guard))

    # ---- checks

    def add(self, index: int, guard: Guard) -> None:
        """The steps of one guard, the `index`-th."""
        expected, at = guard.expected, self.load(guard.source, index)
        match guard.kind:
            case "answer":
                self._check("python", at, 0, expected, index)
            case "relation":
                self.waiting.append((*expected, at, index))
            case "tensor":
                self._check("tensor", at, 0, self._tensor(expected, at, index), index)
            case "type":
                self._check("is_type", at, 0, expected, index)
            case "identity":
                self._check(*_identity(expected, at), index)
            case "equal" | "dict_keys" | "has_not" | "absent" | "code" | "ordered_keys":
                self._check(guard.kind, at, 0, expected, index)
            case "type_lookup":
                name, found = expected
                wanted = (name,) if found is MISSING else (name, found, is_still(found)) if is_taggable(found) else (name, found)
                self._check("type_lookup", at, 0, wanted, index)
            case "size":
                self._check("size", at, self.symbols.setdefault(_symbol_of(expected).name, len(self.symbols)), None, index)
            case "length" | "truth":
                self._check(guard.kind, at, int(expected), None, index)
            case "same_object" | "not_same_object" | "no_overlap":
                self._check(guard.kind.removesuffix("_object"), at, self.load(expected, index), None, index)
            case _:
                raise CompilerBug("frame", f"no guard kind {guard.kind!r}")

    def add_state(self, state: GlobalState) -> None:
        """Modes are objects, of which the native word only has the number: ask Python."""
        at = self._emit("const", 0, 0, None, NO_GUARD)
        devices = state.devices
        self._check("python", at, 0, lambda _: has_only_device_mode() and present_devices() == devices, NO_GUARD)

    def _tensor(self, expected: TensorExpectation, at: int, guard: int) -> tuple[object, ...]:
        dtype, device = getattr(torch, expected.dtype), torch.device(expected.device)
        keys = expected.dispatch_keys or _plain_keys(dtype, device)
        dims = tuple(self._dim(size, at, guard) for size in (*expected.sizes, *expected.strides))
        return expected.kind, probe.dtype_code(dtype), probe.device_code(device), expected.requires_grad, keys, dims

    def _dim(self, size: SizeLike | None, at: int, guard: int) -> tuple[int, int]:
        """A dim of the native tensor check; what is no plain symbol gets a symbol of its own and a relation at the end."""
        match size:
            case None:
                return ANY, 0
            case int():
                return EXACT, size
            case Size(terms=terms) if len(terms) == 1 and (only := _symbol_of(size)):
                known = only.name in self.symbols
                if not known:
                    self.waiting.append((SMALLEST, "<=", size, at, guard))
                return (SAME if known else BIND), self.symbols.setdefault(only.name, len(self.symbols))
            case Size():
                number = self.symbols.setdefault(("seen", len(self.symbols)), len(self.symbols))
                self.waiting.append((number, "seen", size, at, guard))
                return BIND, number
            case _:
                raise CompilerBug("frame", f"no size of a tensor: {size!r}")

    def relations(self) -> list[tuple[str, int, int, int, object, int]]:
        """The steps that compare sizes, once all symbols are bound."""
        steps = []
        for left, operator, right, at, guard in self.waiting:
            seen = operator == "seen"
            words = (SYMBOL, left) if seen else self._postfix(left)
            steps.append(("relation", 0, at, 0, (words, OPERATORS["==" if seen else operator], self._postfix(right)), guard))
        return steps

    def _postfix(self, size: SizeLike) -> tuple[int, ...]:
        """The size as pairs (operation, operand) for the native stack machine."""
        if isinstance(size, int):
            return CONST, size
        words: tuple[int, ...] = ()
        for monomial, coefficient in size.terms.items():
            term: tuple[int, ...] = (CONST, coefficient)
            for one in monomial:
                term = (*term, *self._postfix_of_atom(one), MUL, 0)
            words = (*words, *term, ADD, 0) if words else term
        return words or (CONST, 0)

    def _postfix_of_atom(self, node: Atom) -> tuple[int, ...]:
        match node:
            case Symbol(name):
                if name not in self.symbols:
                    raise CompilerBug("frame", f"the size {name} in a guard is bound by no guard")
                return SYMBOL, self.symbols[name]
            case FloorDiv() | Mod() | Max() | Min():
                code = {FloorDiv: FLOORDIV, Mod: MOD, Max: MAX, Min: MIN}[type(node)]
                return *self._postfix(node.left), *self._postfix(node.right), code, 0
            case _:
                raise CompilerBug("frame", f"not an atom of a size: {node!r}")


def _symbol_of(size: Size) -> Symbol | None:
    """The symbol that `size` just is, or None."""
    ((monomial, coefficient),) = size.terms.items()
    return monomial[0] if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Symbol) else None


def _identity(expected: object, at: int) -> tuple[str, int, int, object]:
    """Held weakly where it can be, so that a guard keeps nothing of the user's alive."""
    try:
        return "is_weak", at, 0, weakref.ref(expected)
    except TypeError:
        return "is", at, 0, expected


def _plain_keys(dtype: torch.dtype, device: torch.device) -> int:
    """The dispatch keys of an ordinary dense tensor."""
    with torch.inference_mode(False):
        return probe.key_set(torch.empty(0, dtype=dtype, device=device))
