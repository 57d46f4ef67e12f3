"""What the bench measures: ResNet-50, the small transformer encoder, or the user's own `module:factory`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

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
    """Whether the work has a batch size to choose: each of ours, and a user's factory with a parameter."""
    return name in WORKS or bool(inspect.signature(_factory(name)).parameters)


def build(name: str, batch: int | None, device: str, dtype: str) -> Work:
    """(model, example inputs) on `device`; floating-point parts in `dtype`; a module in eval mode. ValueError where the factory does not fit."""
    factory = WORKS.get(name) or _factory(name)
    made = factory(batch) if batch is not None else factory()
    if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0])):
        raise ValueError(f"{name} must return (model, example inputs), not {type(made).__name__}")
    model, inputs = made
    if isinstance(model, nn.Module):
        model = model.to(device=device, dtype=getattr(torch, dtype)).eval()
    return model, tuple(_moved(value, device, dtype) for value in (inputs if isinstance(inputs, tuple | list) else (inputs,)))


def _moved(value: Any, device: str, dtype: str) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(device, getattr(torch, dtype)) if value.is_floating_point() else value.to(device)


def _factory(name: str) -> Callable[..., Any]:
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(f"unknown model {name!r}; known: {', '.join(WORKS)}, or module:factory for your own")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0] and error.name != module:
            raise
        raise ValueError(f"no module {module!r} in this folder or among the installed ones, which {name!r} needs") from None
    return getattr(found, attribute)


def _needed(module: str, command: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise ValueError(f"{module} is not installed: {command}") from None
