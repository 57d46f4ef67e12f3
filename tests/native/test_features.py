"""What is chosen where the C core is there, missing, or fails its self-test; and that nothing heavy is imported for it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from thruway import native
from thruway.native import probe


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_twin_stands_in_for_a_missing_core():
    assert run("""
import sys
sys.modules["thruway.native._core"] = None
from thruway import native
print(native.prepare(), native.core().__name__, native.features()["reason"])
""") == "False thruway.native.fallback the extension was not built; install a C compiler and reinstall"


def test_the_twin_stands_in_for_a_core_that_fails_its_test():
    assert run("""
from thruway import native
from thruway.native import probe
def broken(core): raise RuntimeError("sizes differ")
probe.self_test = broken
print(native.prepare(), native.features()["reason"])
""") == "False the self-test failed: sizes differ"


def test_nothing_heavy_is_imported():
    assert run("""
import sys
from thruway import native
native.features()
print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
""") == "[]"


@pytest.mark.skipif(not native.prepare(), reason="no native core here")
def test_every_offset_is_found_and_read():
    layout = native.features()["layout"]
    assert all(value >= 0 for value in layout.values()), layout
    for t in probe.key_samples():
        assert native.core().describe(t)[5] == probe.key_set(t)


@pytest.mark.skipif(not native.prepare(), reason="no native core here")
def test_fresh_tensors_are_torchs():
    core = native.core()
    for dtype in probe.DTYPES:
        t = core.empty_strided((4, 5), (1, 4), probe.dtype_code(dtype), probe.device_code(torch.device("cpu")))
        assert (t.dtype, t.shape, t.stride(), t.requires_grad) == (dtype, (4, 5), (1, 4), False)
        t.fill_(1)
        assert t.sum() == 20
    with pytest.raises(ValueError):
        core.empty_strided((4, 5), (1,), 6)


@pytest.mark.skipif(not native.prepare(), reason="no native core here")
def test_memory_that_does_not_exist_is_not_read():
    assert native.core().peek(8, 16) is None
