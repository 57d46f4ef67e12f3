"""What the tests of `runtime` share: a compiler, and a loader of hand-written launch lists for each executor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from thruway.artifact.store import Store
from thruway.artifact.target import open_toolchain
from thruway.artifact.workers import Workers
from thruway.core.launch import LaunchList
from thruway.runtime.load import Runnable, load, native_core

Loader = Callable[..., Runnable]


@pytest.fixture(scope="session")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Workers:
    torch.set_num_threads(1)
    store = Store(tmp_path_factory.mktemp("kernels") / "cache", 64 << 20)
    toolchain = open_toolchain("", store)
    assert toolchain is not None, "these tests need a C compiler"
    return Workers(toolchain, store)


@pytest.fixture(params=["python", "native"])
def loader(request: pytest.FixtureRequest, workers: Workers) -> Loader:
    """loader(launch list, source text, …) → Runnable, once per executor."""
    if request.param == "native" and native_core() is None:
        pytest.skip("the native core was not built")

    def make(launch: LaunchList, source: str = "", **more) -> Runnable:
        libraries = [workers.submit(source).library()] if source else []
        return load(launch, libraries, is_native=request.param == "native", **more)

    return make
