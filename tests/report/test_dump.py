"""Stage files are numbered, named after their stage, and never overwritten."""

from __future__ import annotations

import pytest

from thruway.core.ambient import settings
from thruway.core.journal import Journal
from thruway.report import dump


def test_numbered_files_per_function(tmp_path):
    journal = Journal()
    dump.attach(journal)
    with settings.override(dump=str(tmp_path / "out")):
        journal.offer("captured", "Net.forward", lambda: "graph")
        journal.offer("guards", "Net.forward", lambda: "guard\n")
        journal.offer("code", "Net.forward", lambda: "int f;")
        journal.offer("captured", "Net.forward", lambda: "again")
        journal.offer("captured", "<lambda>", lambda: "other")
    files = {str(path.relative_to(tmp_path / "out")): path.read_text() for path in (tmp_path / "out").rglob("*.*") if path.is_file()}
    assert files == {
        "Net.forward/001_captured.txt": "graph\n",
        "Net.forward/002_guards.txt": "guard\n",
        "Net.forward/003_code.c": "int f;\n",
        "Net.forward/004_captured.txt": "again\n",
        "lambda/001_captured.txt": "other\n",
    }


def test_nothing_is_made_without_a_folder():
    journal = Journal()
    dump.attach(journal)
    journal.offer("captured", "f", lambda: pytest.fail("made unasked"))


@pytest.mark.parametrize("text, name", [("a/b", "a_b"), ("../up", "up"), ("f.<locals>.g", "f._locals_.g"), ("", "unnamed")])
def test_file_names_are_harmless(text, name):
    assert dump.file_name(text) == name


def test_a_folder_that_cannot_be_written_is_told_once(tmp_path):
    (tmp_path / "file").write_text("")
    journal = Journal()
    dump.attach(journal)
    with settings.override(dump=str(tmp_path / "file" / "out")):
        with pytest.warns(RuntimeWarning, match="nothing more is written to the folder that THRUWAY_DUMP names: .*file"):
            journal.offer("captured", "f", lambda: "graph")
        journal.offer("guards", "f", lambda: pytest.fail("made though nothing can be written"))
