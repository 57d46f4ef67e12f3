"""What the plan promises: order, in-place writes, checks first, memory that is never shared by two living buffers."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from codegen.cases import CASES
from codegen.test_05_fuzz import programs
from schedule.programs import Draft, lit, op
from thruway.core import sizes
from thruway.core.errors import Unsupported
from thruway.core.settings import Settings
from thruway.core.sizes import symbol
from thruway.core.target import Target
from thruway.loops.evaluate import run
from thruway.loops.ir import Axis, BufferRef, CheckIndex, Extern, Kernel, Load
from thruway.schedule.build import build_plan
from thruway.schedule.depend import predecessors
from thruway.schedule.memory import byte_size, reads_of, writes_of
from thruway.schedule.space import is_injective, refine


def plan_of(program):
    return build_plan(program, Target(), Settings())


def lifetimes(plan):
    """name → (first, last) step of each buffer in the arena."""
    found = {}
    for at, step in enumerate(plan.steps):
        for name in (*reads_of(step), *writes_of(step)):
            while plan.buffers[name].alias:
                name = plan.buffers[name].alias
            if plan.placements[name].where == "arena":
                first, _ = found.get(name, (at, at))
                found[name] = (first, at)
    return found


def assert_memory_is_sound(plan, values=None):
    lives = lifetimes(plan)
    number = lambda size: sizes.evaluate(size, values or {})    # noqa: E731
    for (a, x), (b, y) in itertools.combinations(lives.items(), 2):
        if x[0] <= y[1] and y[0] <= x[1]:
            low_a, low_b = number(plan.placements[a].offset), number(plan.placements[b].offset)
            apart = low_a + number(byte_size(plan.buffers[a])) <= low_b or low_b + number(byte_size(plan.buffers[b])) <= low_a
            takes_over = x[1] == y[0] or y[1] == x[0]
            assert apart or takes_over and low_a == low_b, (a, b)
    for name in lives:
        assert number(plan.placements[name].offset) + number(byte_size(plan.buffers[name])) <= number(plan.arena_bytes)


@pytest.mark.parametrize("name", CASES)
def test_memory_of_the_cases(name):
    assert_memory_is_sound(plan_of(CASES[name]()[0]))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_memory_of_random_programs(made):
    assert_memory_is_sound(plan_of(made[0]))


def chain(batch):
    """Values that are needed far apart, around library calls that keep them from fusing."""
    d = Draft()
    d.input("x", batch, 16), d.input("w", 16, 16)
    value, old = "x", "x"
    for k in range(5):
        d.compute(f"a{k}", (batch, 16), op("add", op("tanh", d.at(value)), d.at(old)))
        old = value = d.matmul(f"m{k}", f"a{k}", "w")
    return d.program(d.compute("y", (batch, 16), op("exp", d.at(value))))


def test_arena_is_reused():
    plan = plan_of(chain(8))
    assert plan.arena_bytes <= 3 * 8 * 16 * 4
    assert_memory_is_sound(plan)


def test_symbolic_arena_is_reused():
    plan = plan_of(chain(symbol("s0")))
    for batch in (1, 2, 7, 100):
        assert_memory_is_sound(plan, {"s0": batch})
        assert sizes.evaluate(plan.arena_bytes, {"s0": batch}) <= 4 * batch * 16 * 4


def test_a_read_does_not_cross_an_in_place_write():
    """y reads x before it is overwritten; inlining y into its reader behind the write would read the new x."""
    d = Draft()
    d.input("x", 8)
    i = symbol("i0")
    d.compute("y", (8,), op("add", d.at("x"), lit(1.0)))
    d.update("x", (8,), (i,), lit(0.0))
    d.compute("z", (8,), op("mul", d.at("y"), lit(2.0)))
    plan = plan_of(d.program("z"))
    x = np.arange(8, dtype=np.float32)
    ran = run(plan.inputs, plan.buffers, plan.steps, plan.outputs, [x])
    assert (ran.outputs[0] == (x + 1) * 2).all() and (ran.inputs[0] == 0).all()


def test_in_place_write_joins_the_producer_of_its_value():
    program, _ = CASES["cache_write"]()
    kernels = [s for s in plan_of(program).steps if "cache" in s.writes]
    assert len(kernels) == 1 and set(kernels[0].reads) == {"pos", "k"}


def test_an_index_known_only_after_a_write_is_refused():
    d = Draft()
    d.input("x", 8), d.input("at", 8, dtype="int64")
    i = symbol("i0")
    d.update("at", (8,), (i,), lit(1, "int64"))
    d.compute("y", (8,), Load("x", (CheckIndex(Load("at", (i,), "int64"), 8, False),), "float32"))
    program = d.program("y")
    with pytest.raises(Unsupported):
        plan_of(program)


def test_writes_follow_reads_and_earlier_writes():
    d = Draft()
    d.input("x", 4)
    i = symbol("i0")
    d.compute("a", (4,), op("exp", d.at("x")))
    d.update("x", (4,), (i,), lit(0.0))
    d.compute("b", (4,), op("exp", d.at("x")))
    d.update("x", (4,), (i,), lit(1.0))
    program = d.program("a", "b")
    assert predecessors(program.nodes, program.buffers) == [0b0, 0b1, 0b10, 0b110]


def test_a_library_call_between_keeps_two_kernels_apart():
    d = Draft()
    d.input("x", 4, 4)
    d.compute("a", (4, 4), op("exp", d.at("x")))
    m = d.matmul("m", "a", "a")
    d.compute("y", (4, 4), op("add", d.at("a"), d.at(m)))
    steps = plan_of(d.program("y")).steps
    assert [type(s) for s in steps] == [Kernel, Extern, Kernel] and steps[1].args == (BufferRef("a"), BufferRef("a"))


def test_refinement_of_merged_dimensions():
    names = itertools.count()
    parts, first, second = refine([Axis("a", 6), Axis("b", 4)], [Axis("c", 2), Axis("d", 12)], names)
    assert [p.extent for p in parts] == [2, 3, 4]
    assert len(first) == len(second) == 2
    assert refine([Axis("a", 6)], [Axis("c", 4)], names) is None


def test_injective_indices():
    a, b = Axis("a", 3), Axis("b", 5)
    assert is_injective((a.index, b.index), (a, b))
    assert is_injective((5 * a.index + b.index,), (a, b))
    assert not is_injective((4 * a.index + b.index,), (a, b))
    assert not is_injective((a.index,), (a, b))
    assert not is_injective((Load("p", (a.index,), "int64"), b.index), (a, b))
