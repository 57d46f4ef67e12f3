"""Results have eager's strides also in dimensions of size 1, where they mean nothing but what `stride()` tells."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import thruway

CONV = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
LINEAR = torch.nn.Linear(8, 4)

PROGRAMS = {
    "pool": lambda x: F.adaptive_avg_pool2d(x, 1),
    "pool and more": lambda x: F.adaptive_avg_pool2d(x, 1) + 1,
    "also read by a product": lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, 1).flatten(1) @ torch.ones(3, 3)),
    "behind a convolution": lambda x: F.adaptive_avg_pool2d(F.relu(CONV(x)), 1),
    "also read by a convolution": lambda x: (lambda y: (y, F.conv2d(y, torch.ones(5, 3, 1, 1))))(F.adaptive_avg_pool2d(x, 1)),
    "flat": lambda x: LINEAR(F.adaptive_avg_pool2d(F.relu(CONV(x)), 1).flatten(1)),
    "squeezed": lambda x: F.adaptive_avg_pool2d(x, 1).squeeze(-1),
    "twice": lambda x: (lambda y: (y, y))(F.adaptive_avg_pool2d(x, 1)),
    "mean": lambda x: x.mean((2, 3), keepdim=True),
    "one channel": lambda x: CONV(x)[:, :1].contiguous(),
    "gate": lambda x: x * torch.sigmoid(F.adaptive_avg_pool2d(x, 1)),
    "view of an input": lambda x: x[:1].transpose(0, 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_strides_of_outputs(name):
    function = PROGRAMS[name]
    thruway.reset()
    compiled = thruway.compile(function)
    with torch.no_grad():
        for sizes in ((2, 3, 7, 6), (4, 3, 9, 8), (1, 3, 5, 5)):
            for layout in (torch.channels_last, torch.contiguous_format):
                x = torch.randn(sizes).contiguous(memory_format=layout)
                expected, found = ([one] if isinstance(one, torch.Tensor) else one for one in (function(x), compiled(x)))
                assert [one.stride() for one in found] == [one.stride() for one in expected]
                torch.testing.assert_close(list(found), list(expected))
    assert thruway.metrics()["graphs"] and not thruway.metrics()["graph_breaks"]
