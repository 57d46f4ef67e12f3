"""Calls with ever new Python objects leave nothing behind, and a deleted compiled module is freed."""

from __future__ import annotations

import memory
import pytest

import thruway


@pytest.mark.parametrize("name", memory.WORKS)
def test_calls_with_ever_new_objects_are_flat(name, monkeypatch):
    monkeypatch.setattr(memory, "CALLS", 200)
    thruway.reset()
    objects, _, captures = memory.grown(*memory.WORKS[name])
    assert objects <= 40 and captures <= 4, (objects, captures)


def test_a_deleted_module_is_freed():
    assert memory.is_freed()
