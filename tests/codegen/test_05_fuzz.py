"""Random programs: fused, unfused and evaluated must agree."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegen.cases import floats
from codegen.execute import run_plan
from codegen.test_02_kernels import assert_close, plan_of
from schedule.programs import Draft, cast, lit, op
from thruway.core.sizes import symbol
from thruway.loops.evaluate import evaluate, run
from thruway.loops.ir import CheckIndex, Condition, Load, Within
from thruway.schedule.build import plan_unfused

UNARY = ("exp", "tanh", "neg", "abs", "sigmoid", "sin", "floor", "sign")
BINARY = ("add", "sub", "mul", "max", "min")


class Grower:
    """Grows a program node by node; every buffer is (name, dims), all float32 or bfloat16."""

    def __init__(self, draw):
        self.draw, self.d = draw, Draft()
        self.rank = draw(st.integers(1, 3))
        self.dims = tuple(draw(st.sampled_from((1, 2, 3, 5, 17, 40))) for _ in range(self.rank))
        self.values = []
        self.arrays = []
        for k in range(draw(st.integers(1, 3))):
            self.add_input(f"in{k}", tuple(d if draw(st.booleans()) or k == 0 else 1 for d in self.dims))
        self.outputs = set()

    def add_input(self, name, dims):
        self.d.input(name, *dims)
        self.arrays.append(floats(*dims, seed=len(self.arrays)))
        self.values.append((name, dims))

    def pick(self):
        """A value of the full rank, read at the axes of a node over `self.dims`."""
        full = [v for v in self.values if len(v[1]) == self.rank and all(a in (1, b) for a, b in zip(v[1], self.dims, strict=True))]
        name, _ = self.draw(st.sampled_from(full[-5:]))
        x = self.d.at(name)
        return cast(x, "float32") if x.dtype != "float32" else x

    def step(self, k):
        kind = self.draw(st.sampled_from(("unary", "binary", "binary", "reduce", "transpose", "shift", "cat", "round", "gather", "update", "scan")))
        getattr(self, kind)(f"n{k}")

    def keep(self, name, dims):
        self.values.append((name, tuple(dims)))
        if self.draw(st.integers(0, 3)) == 0:
            self.outputs.add(name)

    def bounded(self, x):
        return op("mul", op("tanh", x), lit(1.5))

    def unary(self, name):
        how = self.draw(st.sampled_from(UNARY))
        x = self.pick()
        self.keep(self.d.compute(name, self.dims, op(how, self.bounded(x) if how == "exp" else x)), self.dims)

    def binary(self, name):
        how = self.draw(st.sampled_from(BINARY))
        x = self.bounded(self.pick()) if how == "mul" else self.pick()
        self.keep(self.d.compute(name, self.dims, op(how, x, self.pick())), self.dims)

    def reduce(self, name):
        over = tuple(k for k in range(self.rank) if self.draw(st.booleans())) or (self.rank - 1,)
        how = self.draw(st.sampled_from(("sum", "max", "min")))
        self.d.reduce(name, how, self.bounded(self.pick()), self.dims, over)
        self.keep(name, self.d.buffers[name].sizes)

    def transpose(self, name):
        """Reversed axes there and back: two nodes."""
        if self.rank < 2:
            return self.unary(name)
        back = tuple(reversed(self.dims))
        axes = [symbol(f"i{k}") for k in range(self.rank)]
        full = [v for v in self.values if v[1] == self.dims]
        source, _ = self.draw(st.sampled_from(full[-4:])) if full else self.values[0]
        if self.d.buffers[source].sizes != self.dims:
            return self.unary(name)
        turned = self.d.compute(f"{name}t", back, op("exp", self.bounded(self._wide(self.d.at(source, *reversed(axes))))))
        self.d.compute(name, self.dims, op("neg", self.d.at(turned, *reversed(axes))))
        self.keep(name, self.dims)
        if self.draw(st.booleans()):
            self.outputs.add(turned)

    def _wide(self, x):
        return cast(x, "float32") if x.dtype != "float32" else x

    def _full(self):
        found = [v for v in self.values if v[1] == self.dims]
        return self.draw(st.sampled_from(found[-4:]))[0]

    def shift(self, name):
        """A value read one further along the last axis, 0 behind the end."""
        axes = [symbol(f"i{k}") for k in range(self.rank)]
        read = self._wide(self.d.at(self._full(), *axes[:-1], axes[-1] + 1))
        inside = Within((Condition(axes[-1] + 1, self.dims[-1]),), read, lit(0.0), "float32")
        self.keep(self.d.compute(name, self.dims, op("add", inside, self.pick())), self.dims)

    def cat(self, name):
        """The halves of two values joined along an axis."""
        along = self.draw(st.integers(0, self.rank - 1))
        cut = self.draw(st.integers(0, self.dims[along]))
        axes = [symbol(f"i{k}") for k in range(self.rank)]
        joined = Within((Condition(axes[along], cut),), self._wide(self.d.at(self._full(), *axes)), self._wide(self.d.at(self._full(), *axes)), "float32")
        self.keep(self.d.compute(name, self.dims, joined), self.dims)

    def round(self, name):
        self.keep(self.d.compute(name, self.dims, cast(self.pick(), "bfloat16")), self.dims)

    def gather(self, name):
        along = self.draw(st.integers(0, self.rank - 1))
        size = self.dims[along]
        index = self.d.input(f"{name}at", size, dtype="int64")
        self.arrays.append(np.random.default_rng(len(self.arrays)).integers(-size, size, size))
        axes = [symbol(f"i{k}") for k in range(self.rank)]
        at = list(axes)
        at[along] = CheckIndex(Load(index, (axes[along],), "int64"), size, True)
        self.keep(self.d.compute(name, self.dims, self._wide(self.d.at(self._full(), *at))), self.dims)

    def update(self, name):
        """An input of its own, written in place and then read."""
        self.add_input(name, self.dims)
        axes = tuple(symbol(f"i{k}") for k in range(self.rank))
        before = self.d.compute(f"{name}b", self.dims, op("mul", self.d.at(name, *axes), lit(2.0)))
        self.d.update(name, self.dims, axes, op("add", self.d.at(name, *axes), self.pick()), self.draw(st.sampled_from(("set", "add"))))
        self.d.compute(f"{name}a", self.dims, op("sub", self.d.at(name, *axes), self.d.at(before, *axes)))
        self.keep(f"{name}a", self.dims)

    def scan(self, name):
        along = self.draw(st.integers(0, self.rank - 1))
        self.keep(self.d.scan(name, self.draw(st.sampled_from(("sum", "max"))), self.bounded(self.pick()), self.dims, along), self.dims)


@st.composite
def programs(draw):
    grower = Grower(draw)
    for k in range(draw(st.integers(2, 9))):
        grower.step(k)
    made = [v for v, _ in grower.values if v not in grower.d.inputs]
    outputs = sorted(grower.outputs | set(made[-1:])) or grower.d.inputs[:1]
    return grower.d.program(*outputs), grower.arrays


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_fusion_keeps_the_meaning(made):
    """The plan's kernels, as the evaluator reads them: no compiler, so many examples."""
    program, inputs = made
    wanted = evaluate(program, inputs)
    for plan in (plan_of(program), plan_unfused(program)):
        ran = run(plan.inputs, plan.buffers, plan.steps, plan.outputs, inputs)
        assert_close(ran.outputs, wanted.outputs)
        assert_close(ran.inputs, wanted.inputs)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_compiled_programs_keep_the_meaning(made):
    program, inputs = made
    wanted = evaluate(program, inputs)
    ran = run_plan(plan_of(program), inputs)
    assert_close(ran.outputs, wanted.outputs)
    assert_close(ran.inputs, wanted.inputs)
