"""Pages that must follow the code: the settings page is what its generator writes, and pages link to what exists."""

from __future__ import annotations

import importlib.util
import re

import thruway
from layout import tree
from thruway.surface import versions


def _settings_page():
    spec = importlib.util.spec_from_file_location("settings_page", tree.ROOT / "tools" / "settings_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_settings_page_is_up_to_date():
    page = _settings_page()
    assert page.PAGE.read_text() == page.render(), "docs/settings.md is out of date: make settings"


def test_pages_name_files_that_exist():
    missing = []
    for page in [*tree.ROOT.glob("*.md"), *tree.ROOT.glob("docs/*.md")]:
        for name in re.findall(r"`((?:docs|src|tests|tools|bench)/[\w./-]+)`|\]\(((?!http)[\w./-]+)\)", page.read_text()):
            path = name[0] or name[1]
            if not (tree.ROOT / path).exists() and not (page.parent / path).exists():
                missing.append(f"{page.name}: {path}")
    assert not missing, "\n".join(missing)


def test_the_readme_names_every_public_word():
    text = (tree.ROOT / "README.md").read_text()
    assert [name for name in thruway.__all__ if f"{name}" not in text] == []


def test_the_readme_lists_every_numeric_exception():
    text = " ".join((tree.ROOT / "README.md").read_text().split())
    named = {name for path in tree.files() for name in re.findall(r'\.allows\("([^"]+)"', path.read_text())}
    assert len(named) > 5 and [name for name in sorted(named) if name not in text] == []


def test_the_oldest_torch_is_the_same_everywhere():
    oldest = ".".join(map(str, versions.OLDEST_TORCH))
    assert f'"torch>={oldest}"' in (tree.ROOT / "pyproject.toml").read_text()
    assert f"torch {oldest} to " in (tree.ROOT / "README.md").read_text()


def test_the_glossary_is_in_order():
    terms = re.findall(r"^\*\*(.+?)\*\*", (tree.ROOT / "GLOSSARY.md").read_text(), re.M)
    assert len(terms) >= 20 and terms == sorted(terms, key=str.lower)
