"""Factories for the bench's tests."""

import torch
from torch import nn


def linear(batch):
    print("a model that talks")
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU()), (torch.randn(batch, 8),)


def function():
    return lambda x: {"double": x * 2}, torch.arange(4)


def broken(batch):
    raise RuntimeError("no weights here")


NUMBER, MODULE = 5, nn.Linear(2, 2)


def wants_two(batch, size):
    return linear(batch)


def three(batch):
    return nn.Linear(2, 2), torch.ones(batch, 2), 3


def alone(batch):
    return nn.Linear(2, 2)


def no_model(batch):
    return 5, torch.ones(batch)


def leaves(batch):
    raise SystemExit


def only_named(*, size=8):
    return linear(size)


def fails_in_eager(batch):
    return nn.Linear(2, 2), torch.ones(batch, 3)
