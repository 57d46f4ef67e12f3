"""What representative kernels look like; `test_02_kernels` executes the same programs."""

import pytest

from codegen.cases import CASES
from thruway.artifact import toolchain
from thruway.codegen.sources import PRELUDE, generate
from thruway.core.settings import Settings
from thruway.core.target import Target
from thruway.schedule.build import build_plan

SHOWN = ("sin_plus_cos", "gelu_of_layer_norm", "masked_softmax", "sum_columns", "scale_by_norm", "bf16_rms_norm", "cat_and_pad_inside",
         "gather_rows", "cat_transposed_plus")


@pytest.mark.parametrize("name", SHOWN)
def test_golden(name, golden):
    program, _ = CASES[name]()
    sources = generate(build_plan(program, Target(), Settings()), Target(), units=1)
    comment, kernel = sources.units[0].split("typedef struct", 1)
    golden(f"codegen/{name}.c", f"/* {comment.rsplit('/* ', 1)[1]}typedef struct{kernel}")


def test_prelude_is_what_the_loader_expects():
    assert PRELUDE == toolchain.PRELUDE
