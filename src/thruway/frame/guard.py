"""Guards: a predicate over a Source, the expected value, and the user's line that needed it. Data only.

`frame.check` turns a GuardSet into a native program (or its Python twin); `report` prints them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from thruway.core.errors import UserLine
from thruway.core.sizes import SizeLike
from thruway.frame.source import Source

KINDS = (
    "tensor",         # expected: TensorExpectation
    "type",           # expected: the exact type
    "identity",       # expected: the object itself, held weakly where it can be; for types, functions, modules, None, sentinels
    "equal",          # expected: a constant of an exact builtin type (int, float, str, bool, bytes, tuple of them, …); floats by bits
    "length",         # expected: len() of an exact builtin container
    "dict_keys",      # expected: the tuple of keys, in order, of an exact dict (constants or identities)
    "ordered_keys",   # the same of an OrderedDict (or a subclass that iterates as it does) with several keys: its own order
    "has_not",        # expected: an attribute name that lookup must not find
    "absent",         # expected: a key that the dict at source must lack
    "type_lookup",    # source is a type; expected: (name, object or MISSING): what lookup along its MRO finds, without binding
    "code",           # expected: the code object of the Python function at source (defaults and closure are guarded apart)
    "same_object",    # expected: another Source; both must be the same object
    "not_same_object",  # expected: another Source
    "no_overlap",     # expected: another Source; two tensors whose memory must not overlap
    "answer",         # expected: a callable that says, of the cached function at source, whether its cache still gives what it gave
    "truth",          # expected: bool(source) for an exact builtin type
    "size",           # expected: a Size symbol; an exact int from 2 to 2**62 - 1, which it binds
    "relation",       # expected: (left, operator, right) over size symbols bound by tensor and size guards; operator in ==, !=, <, <=
)

MISSING = "<missing>"     # in type_lookup guards: no class along the MRO has the name


@dataclass(frozen=True, slots=True)
class Holds:
    """Whether a tensor holds this number."""

    key: int

    def __call__(self, tensor: Any) -> bool:
        return tensor.item() == self.key


@dataclass(frozen=True, slots=True)
class TensorExpectation:
    """Metadata that a tensor must have. A size or stride given as a Size symbol matches any value and binds it; None matches any.
    `dispatch_keys` is the raw key set, `kind` the exact type."""

    kind: type
    dtype: str
    device: str
    requires_grad: bool
    sizes: tuple[SizeLike | None, ...]
    strides: tuple[SizeLike | None, ...]
    dispatch_keys: int = 0


@dataclass(frozen=True, slots=True)
class Guard:
    """`kind` is one of KINDS; `why` the user's line that read the value."""

    kind: str
    source: Source
    expected: object
    why: UserLine | None = None


@dataclass(frozen=True, slots=True)
class GlobalState:
    """What every entry is keyed on besides its guards: torch modes at the call. `word` is the same as `native` reads it at each call;
    it means nothing in another process, where it is empty."""

    grad_enabled: bool
    inference: bool
    autocast: tuple[tuple[str, bool, str], ...]     # (device type, enabled, dtype)
    deterministic: tuple[bool, bool]                # use_deterministic_algorithms, warn only
    default_dtype: str
    default_device: str
    function_modes: int                             # number of active __torch_function__ modes
    dispatch_modes: int
    devices: tuple[object, ...] = ()                # set by default-device contexts around, outermost first
    word: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class GuardSet:
    state: GlobalState
    guards: tuple[Guard, ...]
