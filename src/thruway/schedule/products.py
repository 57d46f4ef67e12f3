"""Matrix products among loops: which ones a GPU runs as kernels of ours where nothing is measured, and how to tell one in an expression.

A product of one row reads each weight once, so memory decides, and a loop takes along what stands before and behind it. Products of a few
hundred rows leave much of the GPU idle in a library; larger ones stay there unless autotuning measures otherwise (docs/decisions, GPU).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from thruway.loops.ir import Axis, Cast, Expr, Op, Reduce
from thruway.loops.lowerings.products import Product
from thruway.schedule.rewrite import strip_reduce, symbols, weigh

LONGEST_ROW = 16384          # inner elements that one program keeps in registers
LEAST_SIDE, TILE = 16, 64
MOST_WORK = 1 << 36           # multiplications up to which a library's product may lose
SHORTEST_PART, FEW_TILES, MOST_TILES = 256, 48, 264
# What won on an H200 against cuBLASLt, from 8 to 256 rows; 1024 rows and more lose.
WON_ROWS, WON_COLUMNS, WON_INNER, WON_TILES = 256, 4096, 2048, 256
LONGEST_PART = 1024
SHORT = frozenset({"bfloat16", "float16"})


@dataclass(frozen=True, slots=True)
class Factors:
    """A summed product of short floats. Axes of the result belong to `rows` (left alone), `columns` (right alone) or `batch` (both)."""

    left: Expr
    right: Expr
    rows: frozenset[str]
    columns: frozenset[str]
    batch: frozenset[str]


def parts_of(product: Product) -> int:
    """In how many parts along `inner` a product is a kernel of ours; 0 where it stays a library call."""
    if product.rows == 1:
        return int(type(product.inner) is int and product.inner <= LONGEST_ROW)
    tried = trials(product)
    known = bool(tried) and product.along and product.batch == 1 and product.rows <= WON_ROWS and product.columns <= WON_COLUMNS
    if not known or product.inner > WON_INNER or _tiles(product) > WON_TILES:
        return 0
    starves = product.inner // tried[-1] > LONGEST_PART and _tiles(product) < FEW_TILES        # few programs with long sums
    return 0 if starves else tried[-1]


def in_libraries(product: Product) -> int:
    """As `parts_of`: none is a kernel of ours."""
    return 0


def trials(product: Product) -> tuple[int, ...]:
    """In how many parts a product is worth measuring as a kernel of ours: in one, and in as many as fill the GPU where tiles are few, sums
    long, and what reads the result can add the parts up."""
    batch, rows, columns, inner = product.batch, product.rows, product.columns, product.inner
    if not all(type(n) is int for n in (batch, rows, columns, inner)) or product.dtype not in SHORT or rows == 1:
        return ()
    if columns < LEAST_SIDE or inner < LEAST_SIDE or batch * rows * columns * inner > MOST_WORK:
        return ()
    tiles = _tiles(product)
    parts = [n for n in (8, 4, 2) if inner % (n * TILE) == 0 and inner // n >= SHORTEST_PART and tiles * n <= MOST_TILES]
    return (1, *(parts[:1] if product.joins and tiles <= FEW_TILES else ()))


def _tiles(product: Product) -> int:
    return weigh(product.batch) * -(-weigh(product.rows) // TILE) * -(-weigh(product.columns) // TILE)


def is_product(value: Expr) -> bool:
    """Whether a value is a sum of products of two factors, short floats both."""
    match strip_reduce(value)[0]:
        case Reduce("sum", _, Op("mul", (Cast(a), Cast(b)), "float32")):
            return a.dtype in SHORT and b.dtype in SHORT and a != b
        case _:
            return False


def factors(summed: Expr, outer: Iterable[Axis]) -> Factors | None:
    """`summed` as a product of two factors of short floats, each with axes of the result that the other lacks: what tensor cores take."""
    match summed:
        case Op("mul", (Cast(a), Cast(b)), "float32") if a.dtype in SHORT and a.dtype == b.dtype:
            names = {axis.name for axis in outer}
            left, right = ({s.name for s in symbols(x)} & names for x in (a, b))
        case _:
            return None
    if left | right != names or not left - right or not right - left:
        return None
    first = next(axis.name for axis in outer if (axis.name in left) != (axis.name in right))
    if first in right:                                   # rows come first in the result
        a, b, left, right = b, a, right, left
    return Factors(a, b, frozenset(left - right), frozenset(right - left), frozenset(left & right))
