"""Tiles: a pointwise kernel that writes along one axis and reads, somewhere, along another.

Work goes in squares of TILE × TILE elements. What is read across is first turned into a small array that stands in the cache,
4-byte elements by an in-register transpose; then the square is computed row by row like any other pointwise kernel.
"""

from __future__ import annotations

from thruway.codegen.ctypes_c import memory_type
from thruway.codegen.expressions import Emitter
from thruway.codegen.loops_c import Body, emit_leaf, emit_range
from thruway.codegen.printer import DEEP, decode
from thruway.codegen.rows_c import Rows
from thruway.codegen.scope import block
from thruway.codegen.shape import TILE, across_axis, is_across, work_per_row
from thruway.core import sizes
from thruway.core.dtypes import ITEMSIZE
from thruway.core.sizes import SizeLike, Symbol
from thruway.loops.ir import Axis

ITEM_ROWS = 64            # rows of squares' elements in one item


class Tiles(Rows):
    @property
    def along(self) -> Axis:
        return self.kernel.outer[-1]

    @property
    def across(self) -> Axis:
        axis = across_axis(self.flat)
        if axis is None:
            raise ValueError("a kernel without an access across its rows is no kernel of tiles")
        return axis

    @property
    def others(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.kernel.outer if a not in (self.along, self.across))

    def launch(self, e: Emitter) -> list[str]:
        strips = sizes.floordiv(sizes.add(self.across.extent, ITEM_ROWS - 1), ITEM_ROWS)
        count: SizeLike = sizes.mul(sizes.product(a.extent for a in self.others), strips)
        return self.run(f"{self.name}_rows", count, sizes.mul(work_per_row(self.flat, (self.along,)), ITEM_ROWS), e)

    def is_flat_loop(self) -> bool:
        return False

    def row_loop(self, e: Emitter) -> None:
        extent = e.size(self.across.extent)
        scope = e.push(deeper=True)
        scope.add(f"const long strips = ({extent} + {ITEM_ROWS - 1}) / {ITEM_ROWS}, strip = row % strips * {ITEM_ROWS}, other = row / strips;")
        scope.add(f"const long strip_end = tw_minl(strip + {ITEM_ROWS}, {extent});")
        decode(e, self.others, "other")
        self.add_lets(e, self.kernel.phases[0])
        body = Body(lambda: None, self.roots(self.kernel.phases[0]))
        emit_range(e, self.across, "strip", "strip_end", body, lambda a, b: self.strip(e, a, b))
        e.pop()
        e.scope.lines += block("for (long row = lo; row < hi; row++)", scope)

    def strip(self, e: Emitter, first: str, last: str) -> None:
        body = Body(lambda: None, self.roots(self.kernel.phases[0]))
        emit_range(e, self.along, "0", e.size(self.along.extent), body, lambda a, b: self.squares(e, first, last, a, b))

    def squares(self, e: Emitter, first: str, last: str, lo: str, hi: str) -> None:
        scope = e.push(deeper=True)
        full = self.square(e, "u0", f"u0 + {TILE}", "v0", f"v0 + {TILE}", True)
        edge = self.square(e, "u0", f"tw_minl(u0 + {TILE}, {last})", "v0", f"tw_minl(v0 + {TILE}, {hi})", False)
        scope.lines += [f"if (u0 + {TILE} <= {last} && v0 + {TILE} <= {hi}) {{", *full, "} else {", *edge, "}"]
        e.pop()
        inner = block(f"for (long v0 = {lo}; v0 < {hi}; v0 += {TILE})", scope)
        e.scope.lines += [f"for (long u0 = {first}; u0 < {last}; u0 += {TILE}) {{", *inner, "}"]

    def square(self, e: Emitter, u0: str, u1: str, v0: str, v1: str, is_full: bool) -> list[str]:
        """The loops over one square; a full one reads what lies across from turned copies."""
        u, v = self.across, self.along
        guard = e.push(guard=True)
        outside = e.push(deeper=True)
        e.set_axis(Symbol(u.name), u.name, outside.level)
        e.turned = {} if is_full else None
        e.turn = (lambda buffer, index: is_across(buffer, index, u, v, self.flat)) if is_full else None
        e.turned_place = f"[{u.name} - u0][{v.name} - v0]"
        phase = self.kernel.phases[0]
        emit_leaf(e, v, v0, v1, Body(lambda: self.stores(e, phase), self.roots(phase)), simd=self.vectorises(self.roots(phase)))
        turned = dict(e.turned or {})
        e.turned, e.turn = None, None
        e.pop()
        e.set_axis(Symbol(u.name), u.name, DEEP)
        lines = [*guard.lines, *self.turn_lines(e, turned), *block(f"for (long {u.name} = {u0}; {u.name} < {u1}; {u.name}++)", outside)]
        e.pop()
        return ["    " + line if not line.startswith("#") else line for line in lines]

    def turn_lines(self, e: Emitter, turned: dict) -> list[str]:
        """The turned copies: T[k][j] is the element at u0 + k, v0 + j."""
        lines = []
        u, v = Symbol(self.across.name), Symbol(self.along.name)
        for (buffer, index), name in turned.items():
            kind = memory_type(self.flat.buffers[buffer].dtype)
            e.set_axis(u, "u0", DEEP)
            e.set_axis(v, "v0", DEEP)
            at = e.size(index)
            stride = e.size(sizes.add(sizes.substitute(index, {v: sizes.add(self.along.index, 1)}), sizes.mul(index, -1)))
            e.set_axis(u, self.across.name, DEEP)
            e.set_axis(v, self.along.name, DEEP)
            lines.append(f"{kind} {name}[{TILE}][{TILE}] __attribute__((aligned(64)));")
            source = f"{e.pointers[buffer]} + {at}"
            if ITEMSIZE[self.flat.buffers[buffer].dtype] == 4:
                lines.append(f"tw_turn16({source}, {stride}, {name});")
            else:
                lines.append(f"for (long j = 0; j < {TILE}; j++) for (long k = 0; k < {TILE}; k++) {name}[k][j] = ({source})[k + j*({stride})];")
        return lines
