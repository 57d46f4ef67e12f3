"""The operator calls that the tests of `loops` make, noted instead of checked, so that a GPU can be held to the same ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from unittest.mock import MagicMock, patch

import torch

from loops import test_02_pointwise, test_03_reductions, test_04_views, test_05_indexing

MODULES = (test_02_pointwise, test_03_reductions, test_04_views, test_05_indexing)


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """`test`: where it comes from. `scale`: how many times eager's usual tolerance it may be off, `atol` how much at least."""

    test: str
    target: object
    args: tuple
    kwargs: dict
    scale: float
    atol: float


def calls_of(module: ModuleType) -> list[OperatorCall]:
    """Every call with a tensor that the module's tests make; those of hypothesis are left out."""
    found: list[OperatorCall] = []
    for name, test in vars(module).items():
        if name.startswith("test_") and not hasattr(test, "hypothesis"):
            for arguments in _cases(test):
                _note(module, name, test, arguments, found)
    return [call for call in found if any(isinstance(a, torch.Tensor) for a in flat(call.args)) and not _writes(call.target)]


def flat(args: object) -> Iterator[object]:
    for a in args if isinstance(args, tuple | list) else (args,):
        yield from flat(a) if isinstance(a, tuple | list) else (a,)


def _cases(test) -> Iterator[dict[str, object]]:
    """The arguments of every parametrised case."""
    axes = []
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            names = [each.strip() for each in mark.args[0].split(",")] if isinstance(mark.args[0], str) else list(mark.args[0])
            axes.append([dict(zip(names, getattr(value, "values", value) if len(names) > 1 else (value,))) for value in mark.args[1]])
    for combination in itertools.product(*axes):
        yield {name: value for part in combination for name, value in part.items()}


def _note(module: ModuleType, name: str, test, arguments: dict[str, object], found: list[OperatorCall]) -> None:
    def note(target, *args, exact=False, scale=1.0, atol=0.0, extern=False, **kwargs):
        found.append(OperatorCall(name, target, args, kwargs, scale, atol))
        return MagicMock()

    changes = {each: note for each in ("assert_lowers", "run_call") if hasattr(module, each)}
    with patch.multiple(module, **changes):
        try:
            test(**arguments)
        except Exception:                        # what it asserts about the answer means nothing here
            pass


def _writes(target: object) -> bool:
    """Batch norm writes running statistics without saying so."""
    return "batch_norm" in target._schema.name or any(a.alias_info is not None and a.alias_info.is_write for a in target._schema.arguments)
