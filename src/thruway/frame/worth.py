"""Which frames that plain Python calls below a break are worth a capture: functions that a user or a model library wrote, over tensors.

Left alone are the standard library, torch's own Python (optimizers, data loaders, autograd, utilities: bookkeeping around few operators, with
other objects at each call) and libraries that are no models. Of torch only `forward` of modules that hold others starts a capture, for what
holds none is one call of a kernel that eager makes as well; from user code all of it is still inlined.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, MethodType

import torch

from thruway.core.marks import DISABLED, is_marked
from thruway.frame.skip import is_skipped_module, is_skipped_code, is_standard

LOOKED_AT = 8                      # items of a container in which a tensor is looked for
TORCH_DISABLED = "_torchdynamo_disable"
# Libraries whose functions start no capture of their own. Those of skip.OPAQUE are not even inlined.
NO_MODELS = frozenset({
    "pandas", "scipy", "sklearn", "matplotlib", "PIL", "cv2", "IPython", "ipykernel", "joblib", "dask", "requests", "yaml", "jinja2", "wandb", "tensorboard",
    "mlflow", "coverage", "pydevd", "debugpy", "psutil", "setuptools", "pkg_resources", "attr", "pydantic", "omegaconf", "hydra", "absl",
})
# On 3.11 comprehensions are frames, which draw from an iterator that somebody else made; finalizers run in the middle of anything.
NO_CALLS = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "__del__"})
# What looks at its own frame, or at who called it, wants the frames that the user wrote.
LOOKS_AT_FRAMES = frozenset({"_getframe", "currentframe", "extract_stack", "format_stack", "print_stack", "settrace", "setprofile", "set_trace", "breakpoint"})


@dataclass(frozen=True, slots=True)
class Left:
    """A frame that is left to plain Python. `package` is what reports name, empty where nobody would ask; `below`: what it calls as well."""

    package: str = ""
    below: bool = False


def left_alone(code: CodeType, function: FunctionType) -> Left | None:
    """Why frames of `code` are never captured; None where their arguments decide."""
    module = function.__globals__.get("__name__")
    if not isinstance(module, str) or code.co_name in NO_CALLS or is_skipped_code(code) or is_standard(function):
        return Left()
    if not LOOKS_AT_FRAMES.isdisjoint(code.co_names):
        return Left()
    root, *rest = module.split(".")
    if root == "torch" and TORCH_DISABLED in function.__dict__ or root == "thruway" and is_marked(function, DISABLED):
        return Left(below=True)
    if root == "torch" and not module.startswith("torch.nn.modules."):
        return Left(".".join([root, *rest[:1]]) if rest and not rest[0].startswith("_") else "")
    if root == "torch":
        return None if code.co_name == "forward" else Left()
    return Left("" if root == "thruway" else root) if is_skipped_module(module) or root in NO_MODELS else None


def is_step_of_autograd(arguments: tuple[object, ...]) -> bool:
    """Whether it is `forward` or `backward` of a custom `autograd.Function`, which looks at which tensors come back."""
    return bool(arguments) and issubclass(type(arguments[0]), torch.autograd.function.FunctionCtx)


def is_leaf_of_torch(function: FunctionType, arguments: tuple[object, ...]) -> bool:
    """Whether it is the `forward` of a module of torch's that holds no others."""
    first = arguments[0] if arguments else None
    return str(function.__globals__.get("__name__")).startswith("torch.nn.modules.") and isinstance(first, torch.nn.Module) and not first._modules


def reaches_tensors(function: FunctionType, arguments: tuple[object, ...]) -> bool:
    """Whether a tensor or a module is in reach of the arguments, the closure or the globals that are read."""
    if any(_holds_tensors(value, 2) for value in (*arguments, *(function.__closure__ or ()))):
        return True
    space = function.__globals__
    return any(isinstance(space.get(name), torch.Tensor | torch.nn.Module) for name in function.__code__.co_names)


def _holds_tensors(value: object, depth: int) -> bool:
    """The value, what it contains, or its attributes."""
    kind = type(value)                                           # what an object says of its class may run code of the user's
    if issubclass(kind, torch.Tensor | torch.nn.Module):
        return True
    if not depth or issubclass(kind, type | FunctionType | str | int | float):
        return False
    match value:
        case list():
            inner: Iterable[object] = itertools.islice(list.__iter__(value), LOOKED_AT)
        case tuple():
            inner = itertools.islice(tuple.__iter__(value), LOOKED_AT)
        case dict():
            inner = itertools.islice(dict.values(value), LOOKED_AT)
        case CellType():
            inner = _content(value)
        case MethodType():
            inner = (value.__self__,)
        case _:
            held = getattr(kind, "__dictoffset__", 0) and object.__getattribute__(value, "__dict__")
            inner = itertools.islice(held.values(), LOOKED_AT) if type(held) is dict else ()
    return any(_holds_tensors(one, depth - 1) for one in inner)


def _content(cell: CellType) -> tuple[object, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:                                           # empty
        return ()
