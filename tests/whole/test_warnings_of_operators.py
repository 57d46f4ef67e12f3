"""What an operator warns of in C is heard once for a call of eager's, never from a run that nobody asked for: compiling, and measuring torch's operators."""

import warnings

import pytest
import torch

import thruway

PROGRAMS = {
    "a copy of a tensor": lambda x: torch.tensor(x) + 1,
    "a range": lambda x: torch.range(0, 4) + x.sum(),
    "too few for a deviation": lambda x: x[:1].std() + x.sum(),
    "dropout of planes": lambda x: torch.nn.functional.dropout2d(x[None], training=False) + 1,
    "nothing": lambda x: x + 1,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_call_warns_more_often_than_eager(name):
    thruway.reset()
    compiled = thruway.compile(PROGRAMS[name])
    for _ in range(6):
        said = []
        for function in (PROGRAMS[name], compiled):
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                function(torch.ones(3))
            said.append({str(one.message) for one in found})
            assert len(found) <= len(said[0]) and not any(one.filename.startswith("<eval") or one.filename.endswith("retrace.py") for one in found)
        assert said[1] <= said[0]
