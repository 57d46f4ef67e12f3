"""thruway in a process where torch.compile was used: torch then wraps `nn.Module.__init__`, and code that makes modules inside still captures."""

import pytest
import torch
from torch import nn
from whole.assert_same import assert_same


class Tail(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[1:]:                   # a slice makes a new ModuleList
            x = layer(x).relu()
        return x


@pytest.mark.filterwarnings("ignore")
def test_a_module_made_inside_after_torch_compile():
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert_same(Tail().eval(), torch.randn(2, 4), graphs=1, breaks=0, no_grad=True)
