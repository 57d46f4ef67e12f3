"""Whole models: retraced, lowered, evaluated against eager, with fixed and with symbolic batch; and the time that lowering takes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import thruway
from loops.against_eager import TorchExterns, assert_close, lowered, meta_of, to_numpy
from loops.works import BATCH, Decoder, make_symbolic, works
from thruway.graph.retrace import retrace_callable
from thruway.loops.evaluate import evaluate
from thruway.loops.ir import Compute, Extern
from thruway.loops.lower import lower
from thruway.loops.show import show
from thruway.loops.simplify import simplify
from thruway.loops.verify import verify

NAMES = tuple(works(torch.float32))
LIBRARY = {"aten::linear", "aten::matmul", "aten::convolution", "aten::conv2d", "aten::max_pool2d", "aten::adaptive_avg_pool2d", "aten::addmm",
           "aten::bmm", "aten::baddbmm", "aten::scaled_dot_product_attention", "aten::mm", "aten::max_pool2d_with_indices",
           "aten::_native_multi_head_attention", "aten::_adaptive_avg_pool2d"}


def check(program, fn, arguments, weights, scale):
    """`program` on these arguments gives what `fn` gives, and leaves written arguments as `fn` leaves them."""
    copies = [a.clone() for a in arguments]
    with torch.no_grad():
        out = fn(*copies)
    result = evaluate(program, [to_numpy(t) for t in (*arguments, *weights)], TorchExterns())
    assert not result.failed
    for ours, eager in zip(result.outputs, out if isinstance(out, tuple) else (out,), strict=True):
        assert_close(ours, eager, scale=scale, atol=scale * 1e-5 if eager.dtype == torch.float32 else 0.06)
    for ours, eager in zip(result.inputs, copies):
        assert_close(ours, eager, scale=scale, atol=scale * 1e-5)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_models(name, dtype):
    fn, make = works(dtype)[name]
    arguments = make(2)
    program, tensors = lowered(fn, *arguments)
    assert {node.op for node in program.nodes if isinstance(node, Extern)} <= LIBRARY
    assert show(program)
    for one in (program, simplify(program)):
        verify(one)
        check(one, fn, arguments, tensors[len(arguments):], 4)


@pytest.mark.parametrize("name", NAMES)
def test_one_lowering_for_every_batch(name):
    fn, make = works(torch.float32)[name]
    with torch.no_grad():
        traced = retrace_callable(fn, [meta_of(a) for a in make(BATCH)])
    make_symbolic(traced.graph)
    program = simplify(lower(traced.graph))
    verify(program)
    assert "s0" in show(program) and str(BATCH) not in show(program).replace("s0", "")
    for batch in (1, 2, 7):
        check(program, fn, make(batch), traced.lifted, 4)


def test_a_cache_that_is_written_in_place_is_not_copied():
    fn, make = works(torch.float32)["decode"]
    program, _ = lowered(fn, *make(1))
    cache = program.buffers[program.inputs[3]]
    per_block = tuple(cache.sizes[2:])
    assert not [n for n in program.nodes if isinstance(n, Compute) and tuple(program.buffers[n.out].sizes) in (per_block, tuple(cache.sizes))]


def test_lowering_is_quick():
    """At most 0.15 ms a node; 24 blocks, the best of three runs, in CPU time."""
    with torch.no_grad():
        graph = retrace_callable(Decoder(blocks=24).eval(), [meta_of(torch.randint(0, 64, (2, 9)))]).graph
    times = []
    for _ in range(3):
        start = time.process_time()
        lower(graph)
        times.append(time.process_time() - start)
    assert min(times) < 0.15e-3 * len(graph.nodes)


ALONE = """
import sys, types
package = types.ModuleType("thruway")
package.__path__ = [sys.argv[1]]
sys.modules["thruway"] = package
import thruway.loops.lower, thruway.loops.simplify, thruway.loops.show, thruway.loops.verify, thruway.loops.evaluate
assert not {"torch", "sympy"} & sys.modules.keys()
"""


def test_loops_needs_no_torch():
    """Without the package's front door, which imports torch, nothing here does."""
    subprocess.run([sys.executable, "-c", ALONE, str(Path(thruway.__file__).parent)], check=True)


def test_derived_nodes_stand_apart():
    """What depends on weights alone is computed in `derived`, and the rest reads it."""
    with torch.no_grad():
        traced = retrace_callable(lambda x, w: x @ (w.t() * 2).contiguous() + w.sum(), [meta_of(torch.randn(3, 4)), meta_of(torch.randn(5, 4))])
    weight = [node for node in traced.graph.nodes if node.op == "placeholder"][1]
    weight.meta["weight"] = True
    known = {weight}
    for node in traced.graph.nodes:
        if node.op == "call_function" and set(node.all_input_nodes) <= known:
            node.meta["derived"] = True
            known.add(node)
    program = lower(traced.graph)
    verify(program)
    assert len(program.derived) >= 2 and program.buffers["arg_1"].kind == "weight"
    x, w = torch.randn(3, 4), torch.randn(5, 4)
    result = evaluate(simplify(program), [to_numpy(x), to_numpy(w)], TorchExterns())
    assert_close(result.outputs[0], x @ (w.t() * 2) + w.sum(), scale=8)
