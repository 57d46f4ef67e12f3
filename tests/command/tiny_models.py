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
