"""Installing without a C compiler: it goes on, and says in one sentence what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_without_a_compiler_installing_goes_on_and_says_what_to_install(tmp_path):
    pytest.importorskip("setuptools")
    shutil.copy(ROOT / "setup.py", tmp_path)
    shutil.copytree(ROOT / "src" / "thruway" / "native", tmp_path / "src" / "thruway" / "native", ignore=shutil.ignore_patterns("*.so", "*.pyc"))
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "CFLAGS")} | {"PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("No C compiler was found") == 1 and "install gcc or clang" in done.stderr
    assert not list(tmp_path.rglob("*.so"))
