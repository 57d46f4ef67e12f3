"""How a rule says no. The frame then runs eager, which raises eager's own error or does what no rule describes."""

from __future__ import annotations

import operator as operators
from collections.abc import Callable
from typing import Any, NoReturn

from thruway.core.errors import Unsupported

DATA_DEPENDENT = "TW301"
ILL_SHAPED = "TW302"
NO_RULE = "TW303"
METADATA_MUTATION = "TW304"
ELEMENTS = "keep it in torch's operators (torch.where, masks, clamp), or accept the break"         # where Python needs a tensor's value


def refuse(what: str) -> NoReturn:
    """The call is one that eager rejects, or may reject."""
    raise Unsupported(ILL_SHAPED, what, "eager decides, and raises its own error where the call is wrong")


def require(holds: bool, what: str) -> None:
    if not holds:
        refuse(what)


def expect(left: Any, operator: str, right: Any, what: str) -> None:
    """`require` of a comparison. Where it depends on elements the operator itself checks it, at every run."""
    for one, sign, other in ((left, operator, right), (right, _TURNED[operator], left)):
        if getattr(one, "is_free", False):
            return require(one.expect(sign, other), what)
    require(_COMPARE[operator](left, right), what)


def is_checked(*sizes: Any) -> bool:
    """Whether one of the sizes depends on elements, so that the operator checks as it runs how they fit."""
    for one in sizes:
        if getattr(one, "is_free", False):
            one.facts.defer()
            return True
    return False


_TURNED = {"==": "==", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"==": operators.eq, "<": operators.lt, ">": operators.gt, "<=": operators.le, ">=": operators.ge}


class NumberWanted(Unsupported):
    """Torch itself reads the only element of `tensor`."""

    def __init__(self, op: str, tensor: Any):
        super().__init__(DATA_DEPENDENT, f"{op} depends on the elements of a tensor", "keep values in tensors, or accept a graph break here")
        self.tensor = tensor


def data_dependent(op: str) -> NoReturn:
    raise Unsupported(DATA_DEPENDENT, f"{op} depends on the elements of a tensor", "keep values in tensors, or accept a graph break here")
