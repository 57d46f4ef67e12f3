"""Warnings show the user's line, however deep in the package they arise."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import thruway
from thruway.core import notice
from thruway.core.settings import Settings


def lines_with(text: str) -> set[tuple[str, int]]:
    return {(__file__, i) for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.strip().startswith(text)}


def test_the_line_of_the_direct_caller():
    with pytest.warns(RuntimeWarning, match="^thruway: something$") as heard:
        notice.warn("something")
    assert (heard[0].filename, heard[0].lineno) in lines_with("notice.warn(")


def test_the_users_line_where_settings_are_read():
    with pytest.warns(RuntimeWarning, match="is no setting") as heard:
        Settings.from_environment({"THRUWAY_LOG": "x"})
    assert (heard[0].filename, heard[0].lineno) in lines_with("Settings.from_environment(")


def test_the_users_line_where_a_call_compiles(tmp_path):
    compiled = thruway.compile(lambda x: x.sin() + 1)
    (tmp_path / "file").write_text("")
    with thruway.settings.override(cache_dir=str(tmp_path / "file")), pytest.warns(RuntimeWarning, match="THRUWAY_CACHE_DIR") as heard:
        compiled(torch.ones(3))
    assert (heard[0].filename, heard[0].lineno) in lines_with("compiled(torch")


def test_the_users_line_behind_a_cached_property(tmp_path):
    compiled = thruway.compile(lambda x: x.cos() + 1)
    with thruway.settings.override(compiler="no-such-cc", cache_dir=str(tmp_path)), pytest.warns(RuntimeWarning, match="no program is found") as heard:
        compiled(torch.ones(3))
    assert (heard[0].filename, heard[0].lineno) in lines_with("compiled(torch")


def test_a_program_whose_first_frame_is_of_the_package(monkeypatch):
    monkeypatch.setattr(notice, "HOME", sys.prefix[:1])                   # every frame counts as one of ours
    with pytest.warns(RuntimeWarning, match="^thruway: deep$"):
        notice.warn("deep")
