"""What lowerings build with: tensors as handles on buffers, and a Builder that collects buffers and nodes.

A lowering row is a function `row(b, *args, **kwargs) -> Tensor | tuple`, with its operator's argument names, that emits
Computes, Updates and Scans through the Builder `b`. Axes of a node are named by position (`i0`, `i1`, …; reduced ones `r0`, …)
so that equal nodes look equal; each node has its own scope.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from thruway.core.errors import Unsupported
from thruway.core.sizes import Size, SizeLike, Symbol, as_symbol, substitute, symbol, symbols
from thruway.loops.expressions import cast, loads, rename_loads
from thruway.loops.ir import Axis, Buffer, Compute, Expr, Index, Load, Node, Origin, Scan, Update
from thruway.shapes.meta import TensorMeta, contiguous_strides


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value on the way down: the buffer that holds it and its metadata. A view also knows its `source` and, per dimension of
    the source, the coordinate as a size over this view's axes. `detached`: a copy of what is a view in eager, so that it must
    neither be written nor leave the graph."""

    name: str
    meta: TensorMeta
    source: Tensor | None = None
    index: tuple[SizeLike, ...] = ()
    version: int = 0
    detached: bool = False

    @property
    def sizes(self) -> tuple[SizeLike, ...]:
        return self.meta.sizes

    @property
    def dtype(self) -> str:
        return self.meta.dtype

    @property
    def rank(self) -> int:
        return len(self.meta.sizes)

    @property
    def root(self) -> Tensor:
        tensor = self
        while tensor.source is not None:
            tensor = tensor.source
        return tensor


Value = Tensor | SizeLike | tuple
AXIS_POSITIONS = {Symbol(f"i{k}"): k for k in range(64)}


@lru_cache(maxsize=4096)
def axis(position: int, extent: SizeLike) -> Axis:
    return Axis(f"i{position}", extent)


@lru_cache(maxsize=4096)
def reduced_axis(position: int, extent: SizeLike) -> Axis:
    return Axis(f"r{position}", extent)


@lru_cache(maxsize=64)
def axis_index(position: int) -> Size:
    return symbol(f"i{position}")


@lru_cache(maxsize=64)
def axis_indices(rank: int) -> tuple[Size, ...]:
    return tuple(axis_index(k) for k in range(rank))


def axes_of(sizes: Sequence[SizeLike]) -> tuple[Axis, ...]:
    return tuple([axis(k, size) for k, size in enumerate(sizes)])


def load(x: Tensor, index: Sequence[Index]) -> Load:
    """The element of `x` at `index`; a dimension of size 1 is read at 0."""
    return Load(x.name, tuple([0 if size == 1 else at for at, size in zip(index, x.meta.sizes, strict=True)]), x.meta.dtype)


def load_broadcast(x: Tensor, rank: int) -> Load:
    """The element of `x` that stands at the axes of a result of `rank` dimensions."""
    return load(x, axis_indices(rank)[rank - x.rank:])


class Builder:
    """Collects a Program. `begin` says which graph node the next emissions come from, and the metadata expected of it."""

    def __init__(self, default_float: str = "float32") -> None:
        self.buffers: dict[str, Buffer] = {}
        self.nodes: list[Node] = []
        self.versions: dict[str, int] = {}
        self.default_float = default_float
        self.name = ""
        self.meta: object = None
        self.origin = Origin()

    def begin(self, name: str, meta: object, origin: Origin, nodes: list[Node]) -> None:
        self.name, self.meta, self.origin, self.nodes = name, meta, origin, nodes

    @property
    def out(self) -> TensorMeta:
        """The metadata of the graph node's only result."""
        if not isinstance(self.meta, TensorMeta):
            raise Unsupported("TW501", f"the result of {self.name} has no tensor metadata")
        return self.meta

    def unique(self, name: str) -> str:
        """`name`, or with the first number behind it that makes it new."""
        if name not in self.buffers:
            return name
        count = 1
        while f"{name}_{count}" in self.buffers:
            count += 1
        return f"{name}_{count}"

    def new(self, meta: TensorMeta, suffix: str = "", kind: str = "temp") -> Tensor:
        name = self.unique(f"{self.name}_{suffix}" if suffix else self.name)
        self.buffers[name] = Buffer(name, meta.dtype, meta.sizes, meta.strides, kind, meta.device)
        return Tensor(name, meta)

    def dense(self, sizes: Sequence[SizeLike], dtype: str) -> TensorMeta:
        """Row-major metadata on the device of the node at hand."""
        sizes = tuple(sizes)
        return TensorMeta(sizes, contiguous_strides(sizes), dtype, self.device)

    @property
    def device(self) -> str:
        meta = self.meta[0] if isinstance(self.meta, tuple) and self.meta else self.meta
        return meta.device if isinstance(meta, TensorMeta) else "cpu"

    def compute(self, meta: TensorMeta, value: Expr, suffix: str = "") -> Tensor:
        """A new buffer laid out as `meta` with `value` over axes i0 … in its dtype, or in that of `value` where it says none (in place)."""
        meta = meta if meta.dtype else replace(meta, dtype=value.dtype)
        out = self.new(meta, suffix)
        self.nodes.append(Compute(out.name, axes_of(meta.sizes), cast(value, meta.dtype), self.origin))
        return out

    def temp(self, sizes: Sequence[SizeLike], value: Expr, suffix: str) -> Tensor:
        return self.compute(self.dense(sizes, value.dtype), value, suffix)

    def scan(self, meta: TensorMeta, dim: int, op: str, value: Expr, suffix: str = "") -> Tensor:
        out = self.new(meta, suffix)
        axes = axes_of(meta.sizes)
        self.nodes.append(Scan(out.name, axes, axes[dim], op, value, self.origin))
        return out

    def view(self, x: Tensor, index: Sequence[SizeLike], meta: TensorMeta | None = None) -> Tensor:
        """A view of `x` laid out as `meta` (the node's): a copy through `index`, and a handle that knows its source."""
        meta = meta or self.out
        plain = TensorMeta(meta.sizes, contiguous_strides(meta.sizes), meta.dtype, meta.device)
        copy = self.compute(plain, load(x, index))
        return Tensor(copy.name, meta, x, tuple(index), self.versions.get(x.root.name, 0))

    def coordinates(self, x: Tensor, index: Sequence[Index]) -> tuple[Index, ...]:
        """Where element `index` of the view `x` stands in its root."""
        coordinates = tuple(index)
        while x.source is not None:
            coordinates = tuple([_through(at, coordinates) for at in x.index])
            x = x.source
        return coordinates

    def write(self, x: Tensor, index: Sequence[Index], value: Expr, axes: Sequence[Axis], mode: str = "set") -> Tensor:
        """x[index] = value at each point of `axes`, in the storage that `x` views; the handle on what is there afterwards."""
        if mode in ("add", "mul") and x.dtype == "bool":
            raise Unsupported("TW518", "sums and products of truth values in place")
        root = x.root
        where = self.coordinates(x, index)
        value = self._apart(cast(value, x.dtype), root, where)
        self.nodes.append(Update(root.name, tuple(axes), where, value, mode, self.origin))
        return self.written(x)

    def here(self, x: Tensor) -> Load:
        """The element of `x` at axes i0 … as it stands in its storage now."""
        return Load(x.root.name, self.coordinates(x, axis_indices(x.rank)), x.dtype)

    def written(self, x: Tensor) -> Tensor:
        """The handle on `x` after its root has been written."""
        root = x.root
        version = self.versions.get(root.name, 0) + 1
        self.versions[root.name] = version
        return replace(x, version=version) if x.source is None else self.reread(x)

    def reread(self, x: Tensor) -> Tensor:
        """The view `x` read again from its root as it is now."""
        root = x.root
        plain = TensorMeta(x.sizes, contiguous_strides(x.sizes), x.dtype, x.meta.device)
        copy = self.compute(plain, self.here(x), "now")
        return replace(x, name=copy.name, version=self.versions.get(root.name, 0))

    def current(self, x: Tensor) -> Tensor:
        """`x` with the elements that stand in its storage now."""
        if x.source is None or x.version == self.versions.get(x.root.name, 0):
            return x
        return self.reread(x)

    def _apart(self, value: Expr, root: Tensor, where: tuple[Index, ...]) -> Expr:
        """`value` reading a copy of `root` where it reads other elements of it than the one at `where`."""
        plain = tuple([0 if size == 1 else at for at, size in zip(where, root.sizes, strict=True)])
        if not any(read.index not in (where, plain) for read in loads(value, root.name)):
            return value
        copy = self.temp(root.sizes, load(root, axis_indices(root.rank)), "before")
        return rename_loads(value, root.name, copy.name)


def _through(at: SizeLike, coordinates: tuple[Index, ...]) -> Index:
    """`at`, a size over i0 …, with those axes replaced by `coordinates`; an expression can replace only a bare axis."""
    if type(at) is int:
        return at
    symbol_at = as_symbol(at)
    if symbol_at in AXIS_POSITIONS:
        return coordinates[AXIS_POSITIONS[symbol_at]]
    sizes = {}
    for symbol_ in symbols(at):
        if symbol_ in AXIS_POSITIONS:
            coordinate = coordinates[AXIS_POSITIONS[symbol_]]
            if not isinstance(coordinate, (int, Size)):
                raise Unsupported("TW502", "a computed index written through a view that merges or splits dimensions")
            sizes[symbol_] = coordinate
    return substitute(at, sizes)
