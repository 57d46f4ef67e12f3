"""Plans as Triton, run on the CPU by Triton's interpreter, against the reference evaluator; and that each compiles for Hopper without a GPU."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from codegen import triton_harness as harness
from codegen.cases import CASES
from codegen.execute import Run
from codegen.test_02_kernels import assert_close, plan_of
from thruway.codegen.gpu_sources import GpuSources, generate_gpu
from thruway.codegen.sources import Sources
from thruway.codegen.triton_source import Config
from thruway.core import launch, sizes
from thruway.core.errors import Unsupported
from thruway.loops.evaluate import evaluate

pytest.importorskip("triton")



class GpuRun(Run):
    """A launch list whose kernels Triton's interpreter runs, products in tiles of `tile` where it is given."""

    def __init__(self, sources: GpuSources, inputs: list[np.ndarray], tile: Config | None = None):
        self.tile = tile
        self.kernels = {each.source.symbol: each for each in sources.kernels}
        super().__init__(Sources(sources.launch, (), (), ""), inputs)

    def step(self, step: launch.Step) -> None:
        if not isinstance(step, launch.Kernel):
            return super().step(step)
        kernel = self.kernels[step.symbol]
        source = kernel.source
        config = self.tile if self.tile is not None and source.tiles is not None else source.configs[0]
        values = [self.size(s) for s in step.sizes]
        points, block = source.programs(config)
        points = sizes.evaluate(points, dict(zip(source.sizes, values)))
        flag = torch.zeros(1, dtype=torch.int32)
        tensors = [tensor_of(self.memory[slot], dtype) for slot, dtype in zip(step.pointers, kernel.dtypes, strict=True)]
        if points:
            harness.load(source)[(-(-points // block),)](*tensors, *([flag] if source.checks else []), *values, **dict(source.constants(config)))
        self.failed |= bool(flag.item())


def tensor_of(words: np.ndarray, dtype: str) -> torch.Tensor:
    """The memory itself as a tensor."""
    kind = {"bfloat16": np.int16, "float16": np.float16, "bool": np.bool_}.get(dtype, dtype)
    made = torch.from_numpy(words.view(kind))
    return made.view(torch.bfloat16) if dtype == "bfloat16" else made


def on_gpu(plan, wide=False):
    return generate_gpu(replace(plan, buffers={n: replace(b, device="cuda:0") for n, b in plan.buffers.items()}), "cuda:0", wide)


def allowed_error(program) -> float:
    return 2**-7 if any(b.dtype == "bfloat16" for b in program.buffers.values()) else 3e-5


@pytest.mark.parametrize("wide", [False, True], ids=["32", "64"])
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("moments")])      # these are for CPUs alone
def test_triton_computes_what_the_evaluator_says(name, wide):
    """With indices of 32 bits and of 64."""
    program, inputs = CASES[name]()
    wanted = evaluate(program, inputs)
    sources = on_gpu(plan_of(program), wide)
    assert all(each.source.wide == wide for each in sources.kernels)
    ran = GpuRun(sources, inputs)
    assert not ran.failed
    for got, want in zip((*ran.outputs, *ran.inputs), (*wanted.outputs, *wanted.inputs), strict=True):
        got, want = np.asarray(got), np.asarray(want)
        if allowed_error(program) < 1e-4 or want.dtype.kind in "biu":
            assert_close([got], [want])
        else:                                    # the interpreter rounds halves down
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=2**-5, atol=2**-5)


def test_an_index_out_of_range_sets_the_flag():
    program, inputs = CASES["gather_rows"]()
    inputs[1][3] = 50
    assert GpuRun(on_gpu(plan_of(program)), inputs).failed


def test_equal_kernels_are_printed_once():
    program, _ = CASES["shared_space"]()
    sources = on_gpu(plan_of(program))
    texts = [each.source.text.split("def ")[-1].partition("(")[2] for each in sources.kernels]
    assert len(set(texts)) == len(texts)


def test_kernels_that_write_cpu_memory_are_refused():
    program, _ = CASES["sin_plus_cos"]()
    with pytest.raises(Unsupported, match="TW706"):
        generate_gpu(plan_of(program), "cuda:0")
