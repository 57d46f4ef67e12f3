"""Compiled kernels against the reference evaluator: fused, unfused, and the plan's kernels as the evaluator reads them."""

import numpy as np
import pytest

from codegen.cases import CASES
from codegen.execute import run_plan
from thruway.core.settings import Settings
from thruway.core.target import Target
from thruway.loops.evaluate import evaluate, run
from thruway.schedule.build import build_plan, plan_unfused


def plan_of(program):
    return build_plan(program, Target(), Settings())


def assert_close(got, wanted):
    for a, b in zip(got, wanted, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape
        if b.dtype.kind in "biu":
            assert (a == b).all()
        else:
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=2e-5, atol=3e-5)


@pytest.mark.parametrize("name", CASES)
def test_fused_unfused_and_evaluated_agree(name):
    program, inputs = CASES[name]()
    wanted = evaluate(program, inputs)
    plan = plan_of(program)
    evaluated = run(plan.inputs, plan.buffers, (*plan.derived, *plan.steps), plan.outputs, inputs)
    assert_close(evaluated.outputs, wanted.outputs)
    for each in (plan, plan_unfused(program)):
        ran = run_plan(each, inputs)
        assert_close(ran.outputs, wanted.outputs)
        assert_close(ran.inputs, wanted.inputs)
        assert ran.failed is False


@pytest.mark.parametrize("name, steps", [
    ("gelu_of_layer_norm", 1), ("masked_softmax", 1), ("scale_by_norm", 1), ("bf16_swiglu", 1), ("bf16_rms_norm", 1), ("group_norm", 1),
    ("merged_view_of_norm", 1), ("rotate_within_row", 1), ("column_softmax", 1), ("shared_space", 1), ("cat_transposed_plus", 1),
    ("cat_and_pad_inside", 1), ("cache_write", 3),
])
def test_fused_into(name, steps):
    program, _ = CASES[name]()
    assert len(plan_of(program).steps) == steps


def test_an_index_out_of_range_is_reported():
    program, inputs = CASES["gather_rows"]()
    inputs[1][3] = 50
    assert run_plan(plan_of(program), inputs).failed


def test_a_failed_check_comes_before_the_first_write():
    program, inputs = CASES["cache_write"]()
    inputs[1] = np.array([5, 16])
    plan = plan_of(program)
    assert [bool(step.writes) for step in plan.steps] == [False, True, True]
    assert run_plan(plan, inputs).failed


def test_division_of_integers_by_zero_is_reported():
    program, inputs = CASES["integer_arithmetic"]()
    inputs[1][7] = 0
    assert run_plan(plan_of(program), inputs).failed
