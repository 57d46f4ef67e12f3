"""What no file of the repository may hold: paths of one machine, addresses of package registries, notes to do something later."""

from __future__ import annotations

import re
import subprocess

from layout import tree

PLACES = re.compile(r"(?<![\w.])/(?:root|home|Users|work)/\w|(?:pypi|npmjs|debian)\.org|files\.pythonhosted|--(?:extra-)?index-url")
LATER = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")


def _texts():
    names = subprocess.run(["git", "ls-files"], cwd=tree.ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        path = tree.ROOT / name
        if path.suffix in {".py", ".c", ".h", ".md", ".toml", ".txt", ".sh", ""} and path.is_file() and path.name != "test_text.py":
            yield name, path.read_text(errors="replace")


def _found(pattern):
    return [f"{name}:{n}: {line.strip()}" for name, text in _texts() for n, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


def test_no_machine_path_and_no_registry_address():
    assert not _found(PLACES), "\n".join(_found(PLACES))


def test_nothing_is_left_for_later_in_a_comment():
    assert not _found(LATER), "\n".join(_found(LATER))
