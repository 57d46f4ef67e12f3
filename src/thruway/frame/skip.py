"""Which code is never captured, as data: thruway itself, the standard library, and the parts of torch that must stay opaque.

Names are module names; a module counts with everything below it. The longest name that fits decides.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from types import CodeType, FunctionType

OPAQUE = frozenset({
    "thruway", "torch", "builtins", "importlib", "sympy", "numpy", "triton", "networkx", "pytest", "_pytest", "hypothesis", "rich", "click", "tqdm",
    "filelock", "huggingface_hub", "safetensors", "tokenizers",
})
# Parts of torch that are plain Python over tensors, written to be read by a compiler.
TRANSPARENT = frozenset({
    "thruway.core.control", "huggingface_hub.dataclasses",                # the latter's methods are those of the models' configurations
    "torch.nn.modules", "torch.nn.functional", "torch.nn.utils.parametrize", "torch.nn.utils.parametrizations", "torch.nn.attention", "torch.nn.parallel",
    "torch.functional", "torch.distributions", "torch.optim", "torch.ao.nn", "torch.ao.quantization",
})
# Parts of the standard library that user code runs through and that are plain Python.
TRANSPARENT_STANDARD = frozenset({
    "collections", "contextlib", "dataclasses", "functools", "itertools", "operator", "copy", "enum", "types", "typing", "math", "statistics", "numbers",
    "abc", "_collections_abc",
})
STANDARD_FOLDER = os.path.realpath(sysconfig.get_path("stdlib"))


def is_skipped(function: FunctionType) -> bool:
    """Whether a function is left to plain Python, by the module it was made in."""
    module = function.__globals__.get("__name__")
    return is_skipped_module(module) if isinstance(module, str) else True


def is_standard(function: FunctionType) -> bool:
    """Whether a function belongs to the standard library: inlined where user code calls it, but nothing to start a capture at."""
    module = function.__globals__.get("__name__")
    return isinstance(module, str) and module.split(".")[0] in sys.stdlib_module_names


def is_skipped_module(name: str) -> bool:
    """The longest listed name that `name` is or lies below decides; names that are not listed are captured, the standard library is not."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in TRANSPARENT or prefix in TRANSPARENT_STANDARD:
            return False
        if prefix in OPAQUE:
            return True
    return parts[0] in sys.stdlib_module_names


class _Own:
    """The last constant of code that capture wrote in the name of the user's."""


def mark_own(code: CodeType) -> CodeType:
    """`code` as one that capture wrote."""
    return code.replace(co_consts=(*code.co_consts, _Own))


def is_skipped_code(code: CodeType) -> bool:
    """Whether frames of `code` are never worth a look: written by capture, made by exec or an import, or of a file of the standard library."""
    if code.co_filename.startswith("<") or code.co_consts[-1:] == (_Own,):
        return True
    path = os.path.realpath(code.co_filename)
    inside = path.startswith(STANDARD_FOLDER + os.sep) and f"{os.sep}site-packages{os.sep}" not in path
    return inside and os.path.splitext(os.path.relpath(path, STANDARD_FOLDER))[0].split(os.sep)[0] not in TRANSPARENT_STANDARD
