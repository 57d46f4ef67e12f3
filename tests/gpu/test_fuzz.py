"""The random programs of tests/codegen, printed as Triton and run on a GPU, against the reference evaluator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from codegen.test_02_kernels import plan_of
from codegen.test_05_fuzz import programs
from thruway.artifact.gpu_kernels import GpuKernels
from thruway.artifact.gpu_target import capability
from thruway.artifact.store import Store
from thruway.codegen.gpu_sources import generate_gpu
from thruway.core.errors import Unsupported
from thruway.gpu_compiler import kernel_job
from thruway.loops.evaluate import evaluate
from thruway.runtime.cuda.load import GpuRunnable
from thruway.runtime.cuda.sized import SizedKernels

pytestmark = pytest.mark.gpu
EXAMPLES = 40


def on_gpu(program, inputs: list[np.ndarray], folder) -> tuple[tuple[torch.Tensor, ...], list[torch.Tensor]]:
    """Outputs and inputs after one run on the GPU."""
    plan = plan_of(program)
    sources = generate_gpu(replace(plan, buffers={name: replace(buffer, device="cuda:0") for name, buffer in plan.buffers.items()}), "cuda:0")
    kernels = GpuKernels(Store(folder, 1 << 30), capability(0), lambda kind, detail: None)
    made = kernels.get([kernel_job(each, each.source.configs[0]) for each in sources.kernels])
    runnable = GpuRunnable(sources.launch, SizedKernels({k.symbol: k for k in made}), torch.device("cuda", 0), False, None, lambda kind, text: None)
    tensors = [torch.from_numpy(np.ascontiguousarray(each)).cuda() for each in inputs]
    return runnable(*tensors), tensors


@pytest.mark.parametrize("number", range(4))
def test_programs_on_a_gpu_keep_the_meaning(number, tmp_path):
    @seed(number)
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None, phases=[Phase.generate])
    @given(programs())
    def check(made):
        program, inputs = made
        wanted = evaluate(program, inputs)
        try:
            outputs, after = on_gpu(program, inputs, tmp_path)
        except Unsupported:
            return
        error = 2**-6 if any(buffer.dtype == "bfloat16" for buffer in program.buffers.values()) else 1e-4
        for got, want in zip((*outputs, *after), (*wanted.outputs, *wanted.inputs), strict=True):
            np.testing.assert_allclose(got.double().cpu().numpy(), np.asarray(want).astype(np.float64), rtol=error, atol=error)

    check()
