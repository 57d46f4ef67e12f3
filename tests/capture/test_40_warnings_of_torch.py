"""What torch's own Python warns of: at every call, once, at the user's line, as in eager; and nothing from files of the compiler."""

import warnings

import pytest
import torch
import torch.nn.functional as F

import thruway

Y, GRID = torch.randn(5), torch.rand(1, 2, 3, 2)
PROGRAMS = {
    "mse_loss": lambda x: F.mse_loss(x, Y),
    "l1_loss": lambda x: F.l1_loss(x, Y) + 1,
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, Y),
    "huber_loss": lambda x: F.huber_loss(x, Y),
    "its module": lambda x: torch.nn.MSELoss()(x, Y),
    "softmax": lambda x: F.softmax(x),
    "log_softmax": lambda x: F.log_softmax(x),
    "softmin": lambda x: F.softmin(x),
    "softmax's module": lambda x: torch.nn.Softmax()(x),
    "size_average": lambda x: F.binary_cross_entropy(x.sigmoid(), x.sigmoid(), size_average=True),
    "reduce": lambda x: F.mse_loss(x, x + 1, reduce=False),
    "kl_div": lambda x: F.kl_div(x.log_softmax(1), x.softmax(1)),
    "grid_sample": lambda x: F.grid_sample(x[None, None], GRID),
    "upsample": lambda x: F.upsample(x[None, None], scale_factor=2),
    "several": lambda x: F.softmax(F.mse_loss(x, Y, reduction="none")),
    "none: sizes": lambda x: F.mse_loss(x, x + 1),
    "none: dim": lambda x: F.softmax(x, 1) + torch.nn.Softmax(0)(x),
    "none: reduction": lambda x: F.kl_div(x.log_softmax(1), x.softmax(1), reduction="batchmean"),
    "none: corners": lambda x: F.grid_sample(x[None, None], GRID, align_corners=True),
}


def told(function, x):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = function(x)
    return result, [(str(one.message), one.category, one.filename, one.lineno) for one in found]


@pytest.mark.parametrize("backend", ["thruway", "eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_warns_as_eager_does(name, backend):
    thruway.reset()
    program = PROGRAMS[name]
    compiled = thruway.compile(program, backend=backend)
    for rows in (3, 3, 4):
        x = torch.randn(rows, 5)
        expected, said = told(program, x)
        found, heard = told(compiled, x)
        assert heard == said
        torch.testing.assert_close(found, expected)
    assert bool(said) != name.startswith("none")


def test_a_warning_made_an_error_is_raised():
    compiled = thruway.compile(PROGRAMS["mse_loss"])
    compiled(torch.randn(3, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="target size"):
            compiled(torch.randn(3, 5))
