"""Artifacts: plain data that comes back equal, in another process too, and nothing else."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from thruway.artifact.artifact import Artifact, from_bytes
from thruway.artifact.key import Key
from thruway.artifact.store import Store
from thruway.artifact.target import open_toolchain
from thruway.artifact.workers import Workers
from thruway.core.launch import Allocate, Call, Input, Kernel, LaunchList, SizeRef, SlotRef, SymbolBinding, TensorSpec
from thruway.core.sizes import floordiv, mul, symbol
from thruway.runtime.load import load_artifact

SRC = str(Path(__file__).parents[2] / "src")
SOURCE = """
int double_it(void **pointers, const long long *sizes)
{
    const float *x = pointers[0];
    float *out = pointers[1];
    for (long long i = 0; i < sizes[0]; i++)
        out[i] = 2 * x[i];
    return 0;
}
"""


def artifact() -> Artifact:
    n = symbol("n")
    spec = TensorSpec("float32", (n,), (1,))
    steps = (
        Allocate(1, spec), Kernel("double_it", (0, 1), (n,)),
        Call("aten::narrow", (SlotRef(1), 0, 0, SizeRef(floordiv(mul(n, 3), 4))), (), (2,)),
        Call("aten::_to_copy", (SlotRef(2),), (("dtype", torch.float64), ("device", torch.device("cpu")), ("memory_format", torch.contiguous_format)), (3,)),
    )
    launch = LaunchList((Input(0, spec),), (SymbolBinding("n", 0, 0),), (), (), (), steps, (3,), 0, 4)
    return Artifact(Key("graph", (("graph", "double"),)), (SOURCE,), launch, (("guards", ("x is a vector",)),))


def test_comes_back_equal():
    assert from_bytes(artifact().to_bytes()) == artifact()


def test_runs_in_a_process_with_other_hashes(tmp_path):
    """Symbolic sizes keep no hash of the process that wrote them."""
    (tmp_path / "artifact").write_bytes(artifact().to_bytes())
    check = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_04_artifact as here; from pathlib import Path\n"
        "assert here.from_bytes(Path(sys.argv[2]).read_bytes()) == here.artifact()\n"
        "assert not {'sympy', 'torch._dynamo', 'torch._inductor'} & {*sys.modules}"
    )
    done = subprocess.run([sys.executable, "-c", check, str(Path(__file__).parent), str(tmp_path / "artifact")], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": SRC, "PYTHONHASHSEED": "123"})
    assert done.returncode == 0, done.stderr


class Harmful:
    def __reduce__(self):
        return os.system, ("true",)


@pytest.mark.parametrize("content", [Harmful(), print, subprocess.Popen, open_toolchain])
def test_only_data_is_read(content):
    data = pickle.dumps(Artifact(Key("graph", ()), (), artifact().launch, (("more", content),)))
    with pytest.raises(pickle.UnpicklingError, match="no place in an artifact"):
        from_bytes(data)


def test_no_way_through_what_an_allowed_module_imports():
    sly = b"\x80\x04\x8c\x18thruway.artifact.workers\x8c\x14subprocess.getoutput\x93\x8c\x04true\x85R."
    assert pickle.loads(sly) == ""                       # plain pickle would run it
    with pytest.raises(pickle.UnpicklingError, match="no place in an artifact"):
        from_bytes(sly)


def test_something_else_is_refused():
    with pytest.raises(pickle.UnpicklingError, match="not an artifact"):
        from_bytes(pickle.dumps((1, 2)))


def test_stored_and_loaded(tmp_path):
    store = Store(tmp_path / "cache", 64 << 20)
    workers = Workers(open_toolchain("", store), store)
    made = artifact()
    store.put(made.key, made.to_bytes())
    run = load_artifact(from_bytes(store.get(made.key)), workers)
    x = torch.randn(8)
    assert torch.equal(run(x)[0], (2 * x[:6]).double())
    for path in store.folder.glob("*.so"):
        path.unlink()                                    # trimmed: compiled again from the artifact's sources
    assert torch.equal(load_artifact(from_bytes(store.get(made.key)), workers)(x)[0], (2 * x[:6]).double())
