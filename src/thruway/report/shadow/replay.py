"""What a script that reproduces a difference calls: it loads the saved calls and makes them, checked."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from thruway.core.ambient import settings
from thruway.report.shadow.runs import set_random_state

_definitions: dict[str, Any] = {}


def definition(name: str) -> Any:
    """What the script defines under that name; saved objects refer to it."""
    return _definitions[name]


def replay(script: dict[str, Any], compile: Callable[..., Any], function: str, file: Path, **words: Any) -> None:
    """Calls what the script calls `function` as it was called, compiled by `compile` and checked: CheckError says again what differs."""
    _definitions.update(script)
    calls = torch.load(file, weights_only=False, pickle_module=pickle)
    compiled: Callable[..., Any] | None = None
    with settings.override(check_dir="-"):
        for call in calls:
            script.update(call["variables"])
            for owner, name, value in call["attributes"]:
                setattr(definition(owner), name, value)
            set_random_state(call["random"])
            args, kwargs = call["args"], call["kwargs"]
            target = _target(script, function, args)
            compiled = compiled or compile(target, check=len(calls), **words)
            with _modes(call):
                compiled(*(args[1:] if isinstance(target, nn.Module) else args), **kwargs)
    print(f"{function}: compiled code does what eager does in {len(calls)} calls")


@contextmanager
def _modes(call: dict[str, Any]) -> Iterator[None]:
    """torch's modes as they were at the call."""
    default = torch.get_default_dtype()
    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, default)
        torch.set_default_dtype(getattr(torch, call["dtype"]))
        stack.enter_context(torch.inference_mode(call["inference"]))
        stack.enter_context(torch.set_grad_enabled(call["grad"]))
        for device, is_on, dtype in call["autocast"]:
            if is_on:
                stack.enter_context(torch.autocast(device, getattr(torch, dtype)))
        yield


def _target(script: dict[str, Any], function: str, args: tuple[Any, ...]) -> Any:
    """The function; where it is a method of torch's own module class, the module."""
    if not function:
        return args[0]
    head, *rest = function.split(".")
    found = script[head]
    for name in rest:
        found = getattr(found, name)
    return found
