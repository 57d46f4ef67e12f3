"""What every test gets: one thread, fixed seeds, a cache folder of its own run, `--update-golden`, and the `gpu` mark.

torch is not imported here, so that the tests of `loops`, `schedule` and `codegen` start in milliseconds.
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("THRUWAY_VERIFY", "2")
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")      # Triton is its interpreter or its compiler for a whole process, from its import on
if "THRUWAY_CACHE_DIR" not in os.environ:                             # neither the user's cache nor what an earlier run left
    os.environ["THRUWAY_CACHE_DIR"] = tempfile.mkdtemp(prefix="thruway-tests-")
    atexit.register(shutil.rmtree, os.environ["THRUWAY_CACHE_DIR"], ignore_errors=True)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:                  # a shell's background jobs ignore interrupts, which tests send
    signal.signal(signal.SIGINT, signal.default_int_handler)

SOURCE = str(Path(__file__).parents[1] / "src")                     # for the processes that tests start
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden from what the code prints now")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    wants_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if wants_gpu and not _has_gpu():
        for item in wants_gpu:
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(autouse=True)
def no_fault_of_thruway(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test whose results are right because a fault of thruway's left them to eager fails, unless it is marked `faults`."""
    faults: list[str] = []
    journal = sys.modules["thruway.pipeline"].journal if "thruway.pipeline" in sys.modules else None
    if journal is None or request.node.get_closest_marker("faults"):
        yield
        return
    listener = lambda event: faults.append(event.detail) if event.kind == "bug" else None
    journal.listeners.append(listener)
    yield
    if listener in journal.listeners:
        journal.listeners.remove(listener)
    assert not faults, f"faults of thruway itself, left to eager: {faults}"


@pytest.fixture(autouse=True)
def same_start_for_every_test() -> None:
    random.seed(0)
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.set_num_threads(1)
        torch.manual_seed(0)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("loops/softmax.txt", text)` compares with tests/golden/loops/softmax.txt; `--update-golden` writes it."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} does not exist yet; write it with pytest --update-golden"
        assert text == path.read_text(), f"differs from {path}; if that is meant: pytest --update-golden"

    return check
