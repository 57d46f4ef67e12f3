"""Python functions that are never inlined, by the module they were made in: a call of one is a break at the caller's line.

Inside torch most of the Python code is plain and gets inlined; what talks to autograd, transforms functions, records or trains does not.
"""

from __future__ import annotations

import functools

from thruway.frame.skip import is_skipped_module

TORCH = (
    "torch.autograd", "torch.utils.checkpoint", "torch._functorch", "torch.func", "torch.optim", "torch.jit", "torch.fx", "torch.distributed", "torch._compile",
    "torch.utils.data", "torch.utils.hooks", "torch._tensor", "torch.random", "torch.serialization", "torch._dynamo", "torch._inductor", "torch.export",
    "torch.compiler", "torch.profiler", "torch.multiprocessing", "torch.hub", "torch.onnx", "torch.testing", "torch._higher_order_ops", "torch._tensor_str",
    "torch.utils.cpp_extension", "torch.library", "torch._library", "torch.cuda.graphs", "torch.cuda.random",
)
ALLOWED = ("torch.autograd.grad_mode", "torch.autograd.function", "torch._higher_order_ops.associative_scan",
           "torch._dynamo.mutation_guard")                                               # wraps Module.__init__ once torch.compile was used
BOOKKEEPING = frozenset({("torch._dynamo.mutation_guard", "GenerationTracker.tag")})    # notes of torch.compile on modules made inside: skipped
STANDARD = frozenset({"argparse", "os", "re", "heapq", "string", "weakref", "inspect", "posixpath", "textwrap"})  # read settings, build texts

CHOOSERS = frozenset({
    ("torch.jit._trace", "_script_if_tracing.<locals>.wrapper"),      # of the function itself, where nothing is scripted or traced
    ("torch.distributed", "is_available"), ("torch.distributed.distributed_c10d", "is_initialized"),
    ("torch.distributed.distributed_c10d", "_WorldMeta.WORLD"), ("torch.distributed.distributed_c10d", "_World.default_pg"),
})

# Inference mode has its own kind of tensors and no plain switch; the two calls are breaks with a name, at the line that opens the block.
SWITCHES = frozenset({("torch.autograd.grad_mode", "inference_mode.__enter__"), ("torch.autograd.grad_mode", "inference_mode.__exit__")})

PLAIN = ("thruway.capture.known_calls.plain_iterators", "thruway.capture.known_calls.library", "thruway.capture.values.length")


def is_refused(module: str | None, name: str) -> bool:
    """Whether calls of the function `name` of that module stay calls."""
    return (module, name) in SWITCHES or is_refused_module(module) and (module, name) not in CHOOSERS


@functools.lru_cache(maxsize=4096)
def is_refused_module(name: str | None) -> bool:
    """Whether functions of that module stay calls."""
    if name is None:
        return False
    if name == "torch" or name.startswith("torch."):
        return is_below(name, TORCH) and not is_below(name, ALLOWED)
    return is_skipped_module(name) and name not in STANDARD and name not in PLAIN


def is_below(name: str, roots: tuple[str, ...]) -> bool:
    """Whether a dotted name is one of `roots`, or lies in it."""
    return any(name == root or name.startswith(root + ".") for root in roots)
