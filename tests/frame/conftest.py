"""`core`: the C core and its Python twin, each in turn; they must give the same answers."""

from __future__ import annotations

from types import ModuleType

import pytest
from thruway import native
from thruway.native import fallback


@pytest.fixture(params=["native", "twin"])
def core(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "twin":
        return fallback
    if not native.prepare():
        pytest.skip(f"no native core: {native.features()['reason']}")
    return native.core()
