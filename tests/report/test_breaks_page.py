"""The catalogue of break reasons and docs/breaks.md say the same."""

from __future__ import annotations

import re
from pathlib import Path

from thruway.capture.breaks import CATALOGUE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "breaks.md").read_text()


def test_every_code_of_the_catalogue_has_a_section_with_its_words():
    sections = dict(re.findall(r"^### (TW\d+)\n\n\*(.+)\*$", PAGE, re.M))
    assert sections == {code: re.sub(r"\{\d\}", "…", what) for code, (what, _) in CATALOGUE.items()}


def test_every_code_of_the_catalogue_has_a_hint():
    assert [code for code, (_, hint) in CATALOGUE.items() if not hint] == []


def test_every_code_in_the_source_is_on_the_page():
    used = {code for path in (ROOT / "src").rglob("*.py") for code in re.findall(r"\"(TW\d+)\"", path.read_text())}
    assert sorted(code for code in used if code not in PAGE) == []
