"""Products of one row become multiply and sum: same values, rounded once; products of more rows stay calls."""

import pytest
import torch

from graph.build import Build, run, targets
from thruway.core.target import Target
from thruway.graph.patterns.cpu_few_rows import open_few_rows
from thruway.graph.rewrite import Context, aten
from thruway.graph.verify import verify

CPU = Context(Target())


def rnd(*sizes, dtype=torch.float32):
    return torch.randn(*sizes).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1), (2, 3)])
def test_a_linear_of_few_rows(dtype, bias, transposed, sizes):
    b = Build()
    x = b.input(rnd(*sizes, 96, dtype=dtype))
    weight = b(aten.t.default, b.weight(rnd(96, 40, dtype=dtype))) if transposed else b.weight(rnd(40, 96, dtype=dtype))
    graph = b.done(b(aten.linear.default, x, weight, b.weight(rnd(40, dtype=dtype)) if bias else None))
    opened = open_few_rows(graph, CPU)
    verify(opened)
    assert "linear.default" not in targets(opened)
    assert_near(run(opened, b.tensors)[0], run(graph, b.tensors)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_bmm_of_one_query(dtype, transposed):
    b = Build()
    keys = b.input(rnd(6, 50, 16, dtype=dtype))
    query = b.input(rnd(6, 1, 16 if transposed else 50, dtype=dtype))
    graph = b.done(b(aten.bmm.default, query, b(aten.transpose.int, keys, 1, 2) if transposed else keys))
    opened = open_few_rows(graph, CPU)
    verify(opened)
    assert "bmm.default" not in targets(opened)
    assert_near(run(opened, b.tensors)[0], run(graph, b.tensors)[0])


def assert_near(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Within one rounding of low precision; sums of float32 and float64 within their order's error."""
    digits = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}[wanted.dtype]
    torch.testing.assert_close(found, wanted, rtol=digits, atol=digits)


def test_a_low_precision_sum_is_rounded_once():
    b = Build()
    x, w = torch.full((1, 512), 1.0, dtype=torch.bfloat16), torch.full((3, 512), 1.0078125, dtype=torch.bfloat16)
    opened = open_few_rows(b.done(b(aten.linear.default, b.input(x), b.weight(w))), CPU)
    assert run(opened, b.tensors)[0].tolist() == [[516.0] * 3]


@pytest.mark.parametrize("context, rows, dtype", [
    (CPU, 16, torch.float32), (Context(Target()), 9, torch.bfloat16), (CPU, 0, torch.float32), (CPU, 1, torch.int64),
    (Context(Target(kernels=False)), 1, torch.float32), (Context(Target(kind="cuda")), 1, torch.float32),
])
def test_near_misses(context, rows, dtype):
    b = Build()
    x, w = torch.ones(rows, 8, dtype=dtype), torch.ones(4, 8, dtype=dtype)
    graph = b.done(b(aten.linear.default, b.input(x), b.weight(w)))
    assert open_few_rows(graph, context) is graph
