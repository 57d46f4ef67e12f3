"""Hand-written launch lists with their hand-written C, used by several tests."""

from __future__ import annotations

from thruway.artifact.toolchain import PRELUDE
from thruway.core.launch import Allocate, Call, Input, Kernel, LaunchList, SlotRef, Step, SymbolBinding, TensorSpec
from thruway.core.sizes import SizeLike, mul, symbol

MULTIPLY_ADD = """
int multiply_add(void **pointers, const long long *sizes)
{
    const float *a = pointers[0], *b = pointers[1], *c = pointers[2];
    float *out = pointers[3];
    #pragma omp simd
    for (long long i = 0; i < sizes[0]; i++)
        out[i] = a[i] * b[i] + c[i];
    return 0;
}
"""

PARALLEL_DOUBLE = PRELUDE + """
static void body(long lo, long hi, void *context)
{
    void **pointers = context;
    const float *x = pointers[0];
    float *out = pointers[1];
    #pragma omp simd
    for (long i = lo; i < hi; i++)
        out[i] = 2 * x[i];
}
int twice(void **pointers, const long long *sizes) { tw_parallel_for(0, sizes[0], 1024, body, pointers); return 0; }
"""

CHECKED_ADD = """
int checked(void **pointers, const long long *sizes)
{
    const long long *index = pointers[0];
    return *index < 0 || *index >= sizes[0] ? 7 : 0;
}
int add_one(void **pointers, const long long *sizes)
{
    float *x = pointers[0];
    for (long long i = 0; i < sizes[0]; i++)
        x[i] += 1;
    return 0;
}
"""


def vector(size: SizeLike) -> TensorSpec:
    return TensorSpec("float32", (size,), (1,))


def matrix(rows: SizeLike, columns: SizeLike) -> TensorSpec:
    return TensorSpec("float32", (rows, columns), (columns, 1))


def launch_list(inputs: tuple[TensorSpec, ...], steps: tuple[Step, ...], outputs: tuple[int, ...], slots: int, **more) -> LaunchList:
    """A launch list whose inputs are ordinary tensors; `weights=(…)` marks inputs."""
    weights = more.pop("weights", ())
    given = tuple(Input(i, spec, weight=i in weights) for i, spec in enumerate(inputs))
    rest = {"symbols": (), "constants": (), "derived": (), "derived_slots": (), "arena_bytes": 0} | more
    return LaunchList(inputs=given, steps=steps, outputs=outputs, slots=slots, **rest)


def multiply_add(size: SizeLike, symbols: tuple[SymbolBinding, ...] = ()) -> LaunchList:
    """a*b + c over vectors."""
    spec = vector(size)
    steps = (Allocate(3, spec), Kernel("multiply_add", (0, 1, 2, 3), (size,)))
    return launch_list((spec,) * 3, steps, (3,), 4, symbols=symbols)


def linear_then_add() -> LaunchList:
    """(x @ w)*y + z for x [batch, 4], w [4, 8]: a library call into the arena, then a kernel."""
    batch = symbol("batch")
    wide = matrix(batch, 8)
    steps = (
        Allocate(4, wide, arena=64),
        Call("aten::mm.out", (SlotRef(0), SlotRef(1)), (("out", SlotRef(4)),)),
        Allocate(5, wide),
        Kernel("multiply_add", (4, 2, 3, 5), (mul(batch, 8),)),
    )
    return launch_list((matrix(batch, 4), matrix(4, 8), wide, wide), steps, (5,), 6, symbols=(SymbolBinding("batch", 0, 0),),
                       arena_bytes=64 + mul(batch, 32))
