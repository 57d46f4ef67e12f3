"""Where a tensor begins in its storage: what counts from there is another thing for a slice of the same shape, and divmod of tensors is refused."""

import pytest
import torch

import thruway


def by_absolute_place(x):
    return x.as_strided((2,), (1,), 1) * 1, torch.as_strided(x, (2,), (1,), storage_offset=2) + 1


def written(x):
    y = x.as_strided((2,), (1,), 1)
    y.add_(10)
    return y


def offsets(x):
    return x[1:].storage_offset(), x.view(2, 2)[1].storage_offset(), (x * 1)[1:].storage_offset(), x + 1


def through_views(x):
    return x.view(2, 2)[1].as_strided((3,), (1,), 0) * 2, (x * 1)[1:].as_strided((2,), (1,), 0)


def by_own_place(x):
    return x.as_strided((2,), (2,)) * 2, x.clone().as_strided((2,), (1,), 2)


@pytest.mark.parametrize("function, entries", [(by_absolute_place, 4), (written, 4), (offsets, 4), (through_views, 4), (by_own_place, 1)])
def test_slices_of_one_shape_from_several_places(function, entries):
    thruway.reset()
    compiled = thruway.compile(function)
    for offset in (0, 4, 8, 3, 8, 0):
        expected, found = torch.arange(20.0), torch.arange(20.0)
        assert repr(function(expected[offset:offset + 4])) == repr(compiled(found[offset:offset + 4]))
        assert torch.equal(expected, found)
    assert thruway.metrics()["captures"] == entries


def test_tensors_have_no_divmod():
    def divided(x, other):
        try:
            return divmod(x, other)
        except TypeError as error:
            return x + 1, str(error)
    compiled = thruway.compile(divided)
    for pair in ((torch.arange(3), 2), (7, torch.tensor(2)), (torch.tensor(5), torch.tensor(3)), (7, 2)):
        assert repr(divided(*pair)) == repr(compiled(*pair))
