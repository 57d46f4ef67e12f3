"""A piece of a graph whose sizes depend on elements: compiled code where it holds for the sizes of this call, else torch's operators.

Compiled code takes every size to be at least 2, and what it assumed beside is checked here at each call, for the price of a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thruway.core.sizes import SizeLike, as_symbol, show
from thruway.native import RegionFailed

Run = Callable[..., tuple[torch.Tensor, ...]]
Relation = tuple[SizeLike, str, SizeLike]
Layout = tuple[tuple[SizeLike, ...], tuple[SizeLike, ...], bool]         # sizes, strides, whether the tensor is sure to have them


def guarded(compiled: Run, plain: Run, convert: Callable[..., tuple[torch.Tensor, ...]] | None, holds: Callable[..., bool]) -> Run:
    """`convert` makes tensors of the piece's inputs; `holds` asks whether `compiled` may take them."""
    def piece(*inputs: object) -> tuple[torch.Tensor, ...]:
        try:
            made = convert(*inputs) if convert else inputs
            if holds(*made):
                return compiled(*made)
        except RegionFailed:                          # nothing older than the piece was written
            pass
        return plain(*inputs)

    return piece


def passing(run: Run, places: Sequence[tuple[bool, int]]) -> Run:
    """`run`, whose inputs may be among what it gives: each place is an input (True) or a result of `run`, by its index."""
    def side(*inputs: Any) -> tuple[Any, ...]:
        made = run(*inputs)
        return tuple([inputs[i] if is_input else made[i] for is_input, i in places])

    return side


def by_operators(plain: Run) -> Run:
    """A piece that torch's operators run, as a function of its own."""
    def piece(*inputs: object) -> tuple[torch.Tensor, ...]:
        return plain(*inputs)

    return piece


def assumptions(layouts: Sequence[Layout], relations: Sequence[Relation]) -> Callable[..., bool]:
    """A function of tensors: whether they have these layouts (as those do that are trusted), with sizes of at least 2 for which `relations` hold."""
    names: dict[str, str] = {}
    tests: list[str] = []
    for k, (sizes, _, _) in enumerate(layouts):
        for dim, size in enumerate(sizes):
            if (found := as_symbol(size)) is not None and found.name not in names:
                names[found.name] = f"t{k}.size({dim})"
    for k, (sizes, strides, is_trusted) in enumerate(layouts):
        if not is_trusted:
            tests += [f"t{k}.size({dim}) == {show(size)}" for dim, size in enumerate(sizes)]
            tests += [f"t{k}.stride({dim}) == {show(stride)}" for dim, stride in enumerate(strides) if sizes[dim] != 1]
    tests = [f"{name} > 1" for name in names] + tests + [f"{show(left)} {sign} {show(right)}" for left, sign, right in relations]
    bound = "".join(f"    {name} = {place}\n" for name, place in names.items())
    text = f"def holds({', '.join(f't{k}' for k in range(len(layouts)))}):\n{bound}    return {' and '.join(tests) or True}\n"
    space: dict[str, Callable[..., bool]] = {}
    exec(compile(text, "<thruway assumptions>", "exec"), space)
    return space["holds"]
