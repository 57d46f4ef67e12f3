"""Counts and seconds from a journal."""

from __future__ import annotations

import re

import thruway
from thruway.core.journal import KINDS, Journal
from thruway.report.metrics import COUNTS, no_metrics, summarize


def test_every_count_names_a_kind_of_event():
    assert set(COUNTS.values()) <= set(KINDS)
    assert set(KINDS) - set(COUNTS.values()) == {"stage", "called", "effects", "copied", "whole", "numerics", "unpacked", "layout"}


def test_counts_and_seconds():
    journal = Journal()
    journal.add("graph", "f")
    journal.add("graph", "g")
    journal.add("eager", "h")
    with journal.time("lower", "f"):
        pass
    got = summarize(journal)
    assert got["graphs"] == 2 and got["eager"] == 1 and got["bugs"] == 0
    assert set(got["seconds"]) == {"lower"} and got["seconds"]["lower"] >= 0


def test_nothing_yet():
    assert no_metrics() == {name: 0 for name in COUNTS} | {"seconds": {}}


def test_every_key_is_explained():
    words = set(re.findall(r"\w+", thruway.metrics.__doc__))
    assert set(no_metrics()) <= words
