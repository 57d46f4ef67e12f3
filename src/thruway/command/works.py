"""What the bench measures: ResNet-50, the small transformer encoder, or the user's own `module:factory`."""

from __future__ import annotations

import importlib
import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


class WorkFailed(ValueError):
    """A work cannot be found or made, or fails in eager: the text says in one sentence what is wrong."""


Work = tuple[Callable[..., Any], Sequence[Any]]


def resnet50(batch: int) -> Work:
    torchvision = _needed("torchvision", "pip install 'thruway[bench]'")
    return torchvision.models.resnet50(), (torch.randn(batch, 3, 224, 224),)


def transformer(batch: int) -> Work:
    """Six encoder layers, 512 wide, over 128 tokens."""
    layer = nn.TransformerEncoderLayer(d_model=512, nhead=8, dim_feedforward=2048, batch_first=True)
    return nn.TransformerEncoder(layer, num_layers=6), (torch.randn(batch, 128, 512),)


WORKS: dict[str, Callable[[int], Work]] = {"resnet50": resnet50, "transformer": transformer}


def takes_batch(name: str) -> bool:
    """Whether the work has a batch size to choose: each of ours, and a user's factory that takes an argument. WorkFailed where there is none."""
    if name in WORKS:
        return True
    factory = _factory(name)
    try:
        parameters = inspect.signature(factory)
    except (TypeError, ValueError):                          # of a builtin
        return True
    if not (_fits(parameters, 1) or _fits(parameters)):
        raise WorkFailed(f"{name} must take a batch size or nothing, but it is {factory.__name__}{parameters}")
    return _fits(parameters, 1)


def _fits(parameters: inspect.Signature, *args: Any) -> bool:
    try:
        parameters.bind(*args)
    except TypeError:
        return False
    return True


def build(name: str, batch: int | None, device: str, dtype: str) -> Work:
    """(model, example inputs) on `device`; floating-point parts in `dtype`; a module in eval mode. WorkFailed where the factory does not fit."""
    factory = WORKS.get(name) or _factory(name)
    with failing(f"{name} fails"):
        made = factory(batch) if batch is not None else factory()
    if not (isinstance(made, tuple) and len(made) == 2):
        raise WorkFailed(f"{name} must return (model, example inputs), not {_what(made)}")
    model, inputs = made
    if not callable(model):
        raise WorkFailed(f"{name} must return a model that can be called, and its inputs; the model is {_what(model)}")
    with failing(f"{name} cannot be moved to {device} as {dtype}"):
        if isinstance(model, nn.Module):
            model = model.to(device=device, dtype=getattr(torch, dtype)).eval()
        return model, tuple(_moved(value, device, dtype) for value in (inputs if isinstance(inputs, tuple | list) else (inputs,)))


@contextmanager
def failing(what: str) -> Iterator[None]:
    """WorkFailed, saying `what`, in place of any error inside, with the line that raised it."""
    try:
        yield
    except WorkFailed:
        raise
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = "" if isinstance(error, SyntaxError) else f" ({os.path.basename(last.filename)}:{last.lineno})"
        said = str(error).strip().splitlines()
        raise WorkFailed(f"{what}: {type(error).__name__}{': ' + said[0] if said else ''}{place}") from error


def _what(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"an object of type {type(value).__name__}"


def _moved(value: Any, device: str, dtype: str) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(device, getattr(torch, dtype)) if value.is_floating_point() else value.to(device)


def _factory(name: str) -> Callable[..., Any]:
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise WorkFailed(f"unknown model {name!r}; known: {', '.join(WORKS)}, or module:factory for your own")
    if os.sep in module or module.endswith(".py"):
        raise WorkFailed(f"{module} is a file; --model takes a module's name, as import does: {os.path.basename(module).removesuffix('.py')}:{attribute}, "
                         "run in the folder that holds it")
    try:
        with failing(f"{module} cannot be imported"):
            found = importlib.import_module(module)
    except WorkFailed as failure:
        error = failure.__cause__
        if isinstance(error, ModuleNotFoundError) and error.name in (module, module.partition(".")[0]):
            raise WorkFailed(f"no module {module!r} in this folder or among the installed ones, which {name!r} needs") from None
        raise
    if not hasattr(found, attribute):
        raise WorkFailed(f"{module} has no {attribute!r}")
    factory = getattr(found, attribute)
    if isinstance(factory, nn.Module) or not callable(factory):
        raise WorkFailed(f"{name} must be a function that returns (model, example inputs), not {_what(factory)}")
    return factory


def _needed(module: str, command: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise WorkFailed(f"{module} is not installed: {command}") from None
