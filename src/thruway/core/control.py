"""What users say about compiling, in torch.compiler's words: marks on functions and tensors, the stance, breaks as errors.

Plain Python sees plain functions here; capture has rows for them (`capture/known_calls/control`). The state stands in `core.ambient`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from thruway.core.ambient import settings
from thruway.core.marks import ALLOWED, CONSTANT, STATIC, mark
from thruway.core.settings import STANCES


def is_compiling() -> bool:
    """True inside captured code, where capture answers this call itself; False in plain Python, which is where this body runs."""
    return False


def allow_in_graph(fn: Any) -> Any:
    """Calls of `fn` become one node of the graph; its body is not read. It must only compute tensors from its arguments."""
    if isinstance(fn, list | tuple):
        return [allow_in_graph(one) for one in fn]
    check_callable("allow_in_graph", fn)
    return mark(fn, ALLOWED, True)


def assume_constant_result(fn: Any) -> Any:
    """`fn` is called once per capture, and what it gives stands for every later call: no guard watches it."""
    check_callable("assume_constant_result", fn)
    return mark(fn, CONSTANT, True)


def mark_static(tensor: Any, dim: int | tuple[int, ...] | list[int] | None = None) -> None:
    """Sizes of `tensor` along `dim` (None: all) stay fixed numbers in compiled code, also after they changed between calls."""
    if not callable(getattr(tensor, "dim", None)):
        raise TypeError(f"mark_static takes a tensor, not {type(tensor).__name__}")
    dims = range(tensor.dim()) if dim is None else tuple(dim) if isinstance(dim, tuple | list) else (dim,)
    if any(type(each) is not int for each in dims):
        raise TypeError(f"mark_static takes a dimension, or a tuple or list of them, not {dim!r}")
    if wrong := [each for each in dims if not -tensor.dim() <= each < tensor.dim()]:
        raise IndexError(f"mark_static: the tensor has {tensor.dim()} dimension{'s' * (tensor.dim() != 1)}, so none is {wrong[0]}")
    setattr(tensor, STATIC, getattr(tensor, STATIC, frozenset()) | {each % tensor.dim() for each in dims})


class error_on_graph_break:
    """`with error_on_graph_break(): …` or as a decorator: what cannot be captured is an error meanwhile, as with fullgraph=True; with False
    it is a break again. In captured code it holds up to the first break inside."""

    def __init__(self, on: bool = True):
        if on is not True and on is not False:
            raise TypeError("error_on_graph_break takes True or False; as a decorator it is written @error_on_graph_break()")
        self.on = on

    def __enter__(self) -> None:
        self.before = settings.error_on_break
        settings.error_on_break = self.on

    def __exit__(self, *raised: object) -> None:
        settings.error_on_break = self.before

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        check_callable("error_on_graph_break", fn)
        on = self.on

        @functools.wraps(fn)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with error_on_graph_break(on):
                return fn(*args, **kwargs)

        return checked


def check_callable(name: str, fn: object) -> None:
    if not callable(fn):
        raise TypeError(f"{name} takes a function, not {type(fn).__name__}")


def checked_stance(stance: str) -> str:
    if stance not in STANCES:
        raise ValueError(f"unknown stance {stance!r}; known: {', '.join(STANCES)}")
    return stance
