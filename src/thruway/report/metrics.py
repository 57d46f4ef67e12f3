"""Counts and seconds computed from the journal, as a plain dict of plain values."""

from __future__ import annotations

from typing import Any

from thruway.core.journal import Journal

# Name in the dict → kind of event that it counts.
COUNTS = {
    "graphs": "graph",
    "captures": "capture",
    "graph_breaks": "graph_break",
    "recompiles": "recompile",
    "static": "static",
    "skipped": "skipped",
    "eager": "eager",
    "postponed": "postponed",
    "kept_eager": "kept_eager",
    "cache_hits": "cache_hit",
    "cache_misses": "cache_miss",
    "repacks": "repack",
    "predictions": "predicted",
    "measurements": "measured",
    "in_parts": "parts",
    "cuda_graph_refusals": "cuda_graph_refused",
    "out_of_memory": "out_of_memory",
    "unchecked": "unchecked",
    "recordings_again": "recording_again",
    "bugs": "bug",
}


def summarize(journal: Journal) -> dict[str, Any]:
    """Each count, and `seconds` per stage."""
    counted = journal.count()
    return {name: counted[kind] for name, kind in COUNTS.items()} | {"seconds": stage_seconds(journal)}


def no_metrics() -> dict[str, Any]:
    """What `summarize` gives before anything is compiled."""
    return summarize(Journal())


def stage_seconds(journal: Journal) -> dict[str, float]:
    total: dict[str, float] = {}
    for event in journal.of_kind("stage"):
        total[event.stage] = total.get(event.stage, 0.0) + event.seconds
    return total
