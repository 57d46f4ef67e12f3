"""Compiling loads nothing of what thruway replaces, and not sympy, which costs more than a small function may."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PROGRAM = """
import sys, torch, thruway
if sys.argv[1] == "convolutions":                       # resnet50 is torchvision's, which loads torch._dynamo itself
    from loops.works import Convolutions
    fn, make = Convolutions().eval(), lambda batch: (torch.randn(batch, 3, 32, 32),)
else:
    import works
    fn, make = works.build(sys.argv[1], "cpu", torch.float32, 2)
replaced = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "sympy")
assert not [name for name in replaced if name in sys.modules], "the work itself loads it"
compiled = thruway.compile(fn)
with torch.no_grad():
    for batch in (2, 3):
        compiled(*make(batch))
found = thruway.metrics()
print(found["graphs"], found["eager"], [name for name in replaced if name in sys.modules])
"""


@pytest.mark.parametrize("work", ["tiny", "convolutions", "transformer", "decoder"])
def test_nothing_that_thruway_replaces(work):
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "bench"), os.environ["PYTHONPATH"]])
    done = subprocess.run([sys.executable, "-c", PROGRAM, work], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.stdout.strip() == "2 0 []", done.stdout + done.stderr
