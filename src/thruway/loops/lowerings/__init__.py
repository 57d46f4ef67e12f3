"""The lowering tables: operator name → row. A row takes the Builder and the operator's arguments under its schema's names."""

from __future__ import annotations

from collections.abc import Callable

from thruway.loops.lowerings import activations, copies, factories, indexing, norms, pointwise, pooling, reductions, softmax, views

TABLES = (pointwise, activations, reductions, softmax, norms, pooling, views, copies, indexing, factories)


def _merge() -> dict[str, Callable]:
    rows: dict[str, Callable] = {}
    for table in TABLES:
        twice = rows.keys() & table.ROWS.keys()
        if twice:
            raise ValueError(f"operators lowered twice: {sorted(twice)}")
        rows |= table.ROWS
    return rows


ROWS: dict[str, Callable] = _merge()
