"""What every test on a GPU ends with."""

from __future__ import annotations

import pytest

import thruway
from thruway.pipeline import journal


@pytest.fixture(autouse=True)
def no_recording_fails(request):
    """Refusals are fine, failures are not."""
    yield
    if request.node.get_closest_marker("gpu") is None:
        return
    failed = [event.detail for event in journal.events if event.kind == "cuda_graph_refused" and "failed" in event.detail]
    bugs = [event.detail for event in journal.events if event.kind == "bug"]
    thruway.reset()
    assert not failed and not bugs, (failed, bugs)
