"""Compiles printed Triton kernels to machine code, several at a time. No GPU is needed for it; triton is.

Only `pipeline` imports this file, and only for a CUDA target, so that a machine without triton runs everything else.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import triton
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from thruway.core.launch import GpuKernel
from thruway.core.sizes import SizeLike

POINTERS = {
    "bool": "*i1", "uint8": "*u8", "int8": "*i8", "int16": "*i16", "int32": "*i32", "int64": "*i64", "uint16": "*u16", "uint32": "*u32",
    "uint64": "*u64", "float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32", "float64": "*fp64",
}
VERSION = triton.__version__


def compile_kernel(
    text: str, symbol: str, dtypes: Sequence[str], aligned: Sequence[bool], checks: bool, size_names: Sequence[str], wide: bool, points: SizeLike,
    block: int, constants: Sequence[tuple[str, int]], warps: int, capability: int, folder: Path, stages: int = 0, floor_bytes: int | None = None,
) -> GpuKernel:
    """One kernel as a cubin. `dtypes`: element type behind each pointer, `aligned`: whether it is a multiple of 16 bytes; `block`: points of a
    program; `constants`: what the text leaves open; `stages`: steps of a loop whose loads are under way, 0 for Triton's own choice;
    `capability`: 90 for Hopper; `folder` gets the source file, which tracebacks and profilers then show."""
    function = getattr(_module(text, folder), symbol)
    names = [f"p{i}" for i in range(len(dtypes))]
    signature = dict(zip(names, (POINTERS[d] for d in dtypes)))
    if checks:
        signature["flag"] = "*i32"
    signature |= dict.fromkeys(size_names, "i64" if wide else "i32")
    signature |= {name: "constexpr" for name, _ in constants}
    facts = {(i,): [["tt.divisibility", 16]] for i, is_aligned in enumerate(aligned) if is_aligned}
    source = ASTSource(fn=function, signature=signature, constexprs=dict(constants), attrs=facts)
    options = {"num_warps": warps, "enable_fp_fusion": False} | ({"num_stages": stages} if stages else {})
    made, facts_of = _compile(source, GPUTarget("cuda", capability, 32), options)
    given = len(dtypes) + checks + len(size_names)
    extra = _parameters(made["ptx"]) - given
    return GpuKernel(symbol, made["cubin"], facts_of["name"], points, block, warps, facts_of["shared"], checks, wide, extra, tuple(size_names), floor_bytes)


def _compile(source: ASTSource, target: GPUTarget, options: Mapping[str, object]) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """What each stage of Triton's compiler gave, and what it says about the kernel. `triton.compile` would look into its own cache first,
    whose keys hash all of Triton: 0.4 s in every process that compiles, and ours is keyed already."""
    try:
        backend = make_backend(target)
        parsed = backend.parse_options({**options, **source.parse_options()})
        stages: dict[str, Callable[[object, dict], object]] = {}
        backend.add_stages(stages, parsed, source.language)
        arguments = backend.get_codegen_implementation(parsed), backend.get_module_map()
    except (AttributeError, TypeError):              # another Triton than the one this was written for
        made = triton.compile(source, target=target, options=dict(options))
        return made.asm, made.metadata._asdict()
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    given: dict[str, object] = {"hash": "", "target": target, **vars(parsed)}
    value, texts = source.make_ir(target, parsed, *arguments, context), {}
    for name in list(stages)[list(stages).index(source.ext):]:
        value = texts[name] = stages[name](value, given)
    return texts, given


def compile_all(jobs: Sequence[Mapping[str, object]]) -> list[GpuKernel]:
    """`compile_kernel(**job)` for each, in as many threads as there are cores: the passes and ptxas run outside the interpreter lock."""
    if len(jobs) == 1:
        return [compile_kernel(**jobs[0])]
    with ThreadPoolExecutor(min(len(jobs), os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda job: compile_kernel(**job), jobs))


def _module(text: str, folder: Path) -> ModuleType:
    """The text as a module with a file: triton reads a kernel's source from there."""
    name = "thruway_kernel_" + hashlib.sha256(text.encode()).hexdigest()[:20]
    if name in sys.modules:
        return sys.modules[name]
    path = folder / f"{name}.py"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        partial.write_text(text)
        partial.replace(path)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module


def _parameters(ptx: str) -> int:
    """How many parameters the kernel's entry takes."""
    entry = re.search(r"\.entry[^(]*\((.*?)\)", ptx, re.S)
    return entry.group(1).count(".param") if entry else 0
