"""Programs for tests, written with numpy-like shorthands over the loop IR."""

from __future__ import annotations

from thruway.core.sizes import Symbol, symbol
from thruway.loops.ir import Axis, Buffer, BufferRef, Cast, Compute, Extern, Literal, Load, Op, Origin, Program, Reduce, Scan, Update
from thruway.schedule.rewrite import substitute


class Draft:
    """Collects a Program. Values are buffer names; `at(x)` loads a buffer at the node's axes i0, i1, … (size 1 reads at 0)."""

    def __init__(self):
        self.buffers, self.nodes, self.inputs = {}, [], []

    def input(self, name, *dims, dtype="float32", kind="input", strides=None):
        strides = strides or _contiguous(dims)
        self.buffers[name] = Buffer(name, dtype, dims, strides, kind)
        self.inputs.append(name)
        return name

    def at(self, name, *index):
        b = self.buffers[name]
        index = index or tuple(0 if d == 1 else symbol(f"i{k}") for k, d in enumerate(b.sizes))
        return Load(name, tuple(index), b.dtype)

    def compute(self, name, dims, value):
        self.buffers[name] = Buffer(name, value.dtype, tuple(dims), None)
        axes = tuple(Axis(f"i{k}", d) for k, d in enumerate(dims))
        self.nodes.append(Compute(name, axes, value, Origin((name,))))
        return name

    def reduce(self, name, op, x, dims, over, dtype=None):
        """`op` over the dimensions `over` of x's full space `dims`, kept as size 1."""
        out = tuple(1 if k in over else d for k, d in enumerate(dims))
        names = {f"i{k}": f"r{k}" for k in over}
        value = _renamed(x, names)
        axes = tuple(Axis(f"r{k}", dims[k]) for k in over)
        return self.compute(name, out, Reduce(op, axes, value, dtype or x.dtype))

    def scan(self, name, how, x, dims, along):
        self.buffers[name] = Buffer(name, x.dtype, tuple(dims), None)
        axes = tuple(Axis(f"i{k}", d) for k, d in enumerate(dims))
        self.nodes.append(Scan(name, axes, axes[along], how, x, Origin((name,))))
        return name

    def matmul(self, name, a, b):
        dims = (self.buffers[a].sizes[0], self.buffers[b].sizes[1])
        self.buffers[name] = Buffer(name, "float32", dims, (dims[1], 1))
        self.nodes.append(Extern("aten::mm", (BufferRef(a), BufferRef(b)), (), (name,), origin=Origin((name,))))
        return name

    def update(self, target, dims, index, value, mode="set"):
        axes = tuple(Axis(f"i{k}", d) for k, d in enumerate(dims))
        self.nodes.append(Update(target, axes, tuple(index), value, mode, Origin((f"update_{target}",))))

    def program(self, *outputs):
        return Program(tuple(self.inputs), self.buffers, tuple(self.nodes), outputs)


def _contiguous(dims):
    strides, step = [], 1
    for d in reversed(dims):
        strides.append(step)
        step = step * (1 if d == 0 else d)
    return tuple(reversed(strides))


def _renamed(x, names):
    return substitute(x, {Symbol(a): symbol(b) for a, b in names.items()})


def op(name, *args, dtype=None):
    compare = name in {"eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "isnan"}
    return Op(name, args, dtype or ("bool" if compare else args[-1].dtype))


def lit(value, dtype="float32"):
    return Literal(value, dtype)


def cast(x, dtype):
    return Cast(x, dtype)


def softmax(d, name, x, dims):
    """Row softmax of expression x over `dims`' last dimension."""
    last = len(dims) - 1
    m = d.reduce(f"{name}_max", "max", x, dims, (last,))
    e = d.compute(f"{name}_exp", dims, op("exp", op("sub", x, d.at(m))))
    s = d.reduce(f"{name}_sum", "sum", d.at(e), dims, (last,))
    return d.compute(name, dims, op("div", d.at(e), d.at(s)))


def layer_norm(d, name, x, dims, w, b, eps=1e-5):
    last = len(dims) - 1
    n = lit(float(dims[last]))
    s = d.reduce(f"{name}_sum", "sum", x, dims, (last,))
    mean = d.compute(f"{name}_mean", d.buffers[s].sizes, op("div", d.at(s), n))
    c = op("sub", x, d.at(mean))
    q = d.reduce(f"{name}_sq", "sum", op("mul", c, c), dims, (last,))
    r = d.compute(f"{name}_rstd", d.buffers[q].sizes, op("rsqrt", op("add", op("div", d.at(q), n), lit(eps))))
    weight, bias = (Load(v, (symbol(f"i{last}"),), "float32") for v in (w, b))
    return d.compute(name, dims, op("add", op("mul", op("mul", c, d.at(r)), weight), bias))


def gelu(x):
    return op("mul", op("mul", lit(0.5), x), op("add", lit(1.0), op("erf", op("mul", x, lit(0.7071067811865476)))))
