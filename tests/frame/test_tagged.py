"""Code compiled before torch.compile wraps torch.nn.Module's constructor answers after it, and not after a wrapper of the user's own.

Each case runs in a process of its own: the wrapper is put on once, and stays.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import torch, thruway
from thruway.pipeline import journal

class Made(torch.nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by
    def forward(self, x):
        return x * self.by

class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])
    def forward(self, x):
        for layer in self.layers[:2]:
            x = layer(x)
        return Made(3.0)(x)

def patch():
    inner = torch.nn.Module.__init__
    def patched(self, *args, **kwargs):
        inner(self, *args, **kwargs)
        self.by = 1.0
    torch.nn.Module.__init__ = patched

m, x = M().eval(), torch.randn(2, 4)
compiled, captures = thruway.compile(m), lambda: sum(event.kind == "capture" for event in journal.events)
with torch.no_grad():
    {before}
    for _ in range(3):
        torch.testing.assert_close(compiled(x), m(x))
    first = captures()
    {after}
    for _ in range(3):
        torch.testing.assert_close(compiled(x), m(x))
print("captures", first, captures(), torch.nn.Module.__init__.__qualname__)
"""
TORCH_COMPILE = "torch.compile(lambda x: x + 1, backend='eager')(x)"


def run(before: str, after: str) -> list[str]:
    environment = dict(os.environ, PYTHONWARNINGS="ignore")
    program = PROGRAM.replace("{before}", before).replace("{after}", after)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == 0, done.stderr[-1500:]
    return done.stdout.split()[1:4]


@pytest.mark.parametrize("before, after, captures", [
    ("pass", TORCH_COMPILE, ["1", "1"]),
    (TORCH_COMPILE, "pass", ["1", "1"]),
    ("pass", "patch()", ["1", "2"]),
    ("patch()", TORCH_COMPILE, ["1", "2"]),
])
def test_captures_when_the_constructor_is_wrapped(before, after, captures):
    *counts, name = run(before, after)
    assert counts == captures
    assert "patched" in name
