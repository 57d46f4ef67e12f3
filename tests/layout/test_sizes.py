"""Files and functions stay small. `pytest tests/layout -s` prints the longest ones."""

from __future__ import annotations

import statistics

from layout import tree

FILE_LIMIT = 700
FUNCTION_LIMIT = 60
MEDIAN_LIMIT = 10
FUNCTIONS = [function for path in tree.files() for function in tree.functions(path)]


def test_no_function_is_longer_than_a_screen():
    long = [f"{f.path.relative_to(tree.ROOT)}:{f.line} {f.name}: {f.lines} lines" for f in FUNCTIONS if f.lines > FUNCTION_LIMIT]
    assert not long, "\n".join(long)


def test_no_file_is_too_long():
    sizes = {path: len(path.read_text().splitlines()) for path in tree.files()}
    long = [f"{path.relative_to(tree.ROOT)}: {lines} lines" for path, lines in sizes.items() if lines > FILE_LIMIT]
    assert not long, "\n".join(long)


def test_the_median_function_is_short():
    lengths = [function.lines for function in FUNCTIONS]
    longest = sorted(FUNCTIONS, key=lambda f: -f.lines)[:10]
    print(f"\n{len(tree.files())} files, {len(FUNCTIONS)} functions, median {statistics.median(lengths)} lines; the longest:")
    print("\n".join(f"  {f.lines:3} {f.path.relative_to(tree.ROOT)}:{f.line} {f.name}" for f in longest))
    assert statistics.median(lengths) <= MEDIAN_LIMIT
