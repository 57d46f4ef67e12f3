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


class Convolutions(torch.nn.Module):
    """Its last convolution computes in channels_last, and several views of its result leave."""

    def __init__(self, views):
        super().__init__()
        self.first, self.last, self.views = torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 6, 3), views

    def forward(self, x):
        return self.views(self.last(torch.relu(self.first(x))))


SEVERAL = {
    "itself and flat": lambda y: (y, y.flatten(2)), "two": lambda y: (y.flatten(2), y[:, 0]), "turned": lambda y: (y.permute(0, 2, 3, 1), y[:, :, 1]),
    "parts": lambda y: (*y.chunk(2, 1), y), "twice": lambda y: (y, y, y.view(-1)), "with others": lambda y: (y + 1, y, y.mean((2, 3)), y.mT),
    "flat twice": lambda y: (y.view(-1), y.flatten(1)), "written": lambda y: (y.flatten(2).add_(1), y), "only one": lambda y: y[:, 1],
}


@pytest.mark.parametrize("name", SEVERAL)
def test_views_of_one_result_stay_views_of_it(name):
    model, x = Convolutions(SEVERAL[name]).eval(), torch.randn(2, 3, 10, 10)
    compiled, before = thruway.compile(model), thruway.metrics()["eager"]
    with torch.no_grad():
        for _ in range(3):
            wanted, found = (list(out) if isinstance(out, tuple) else [out] for out in (model(x), compiled(x)))
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
            assert [t.stride() for t in found] == [t.stride() for t in wanted]
            for outputs in (wanted, found):
                outputs[-1].zero_()
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert thruway.metrics()["eager"] == before or name == "only one"


WRITTEN = {
    "flat": lambda y: (y.view(-1)[:5].zero_(), y), "both flat": lambda y: (y.view(-1)[:5].zero_(), y.flatten(2)), "rows": lambda y: (y.flatten(2)[:, 0].add_(1), y),
    "strided": lambda y: (y.as_strided((5,), (1,)).zero_(), y), "before": lambda y: (y[:, 0].add_(1), y.view(-1)),
    "all three": lambda y: (lambda z: (z[:5].zero_(), z, y))(y.view(-1)),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_write_through_a_view_reaches_all(name):
    model, x = Convolutions(WRITTEN[name]).eval(), torch.randn(2, 3, 10, 10)
    compiled = thruway.compile(model)
    with torch.no_grad():
        for _ in range(3):
            wanted, found = model(x), compiled(x)
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
            assert [t.stride() for t in found] == [t.stride() for t in wanted] and len({t.untyped_storage().data_ptr() for t in found}) == 1


@pytest.mark.parametrize("join", [lambda x: torch.cat([x]), lambda x: torch.hstack([x]), lambda x: x * 1])
def test_a_view_of_what_was_laid_out_anew(join):
    def joined(x):
        whole = join(x)
        turned = whole.T
        turned.add_(1)
        return whole, turned

    compiled = thruway.compile(joined)
    whole, turned = compiled(torch.zeros(4, 6).t())
    assert whole.stride() == joined(torch.zeros(4, 6).t())[0].stride()
    turned.zero_()
    assert not whole.any()
