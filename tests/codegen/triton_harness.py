"""Runs printed Triton text on the CPU through Triton's interpreter, which tests/conftest.py chooses where there is no GPU."""

import functools
import hashlib
import importlib.util
import math
import os
import sys
import tempfile
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from thruway.core import sizes


def _numpy_libdevice() -> types.ModuleType:
    """The functions of libdevice, which the interpreter lacks, on numpy."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def wrap(function):
        def call(*args):
            like = max((a for a in args if isinstance(a, tl.core.tensor)), key=lambda a: a.handle.data.ndim)
            kind = like.handle.data.dtype
            blocks = [a.handle.data if isinstance(a, tl.core.tensor) else kind.type(a) for a in args]
            return tl.core.tensor(TensorHandle(function(*blocks).astype(kind), like.handle.dtype), like.type)
        return call

    module = types.ModuleType("tw_libdevice")
    plain = "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh sqrt floor ceil trunc hypot copysign nextafter fmod fmin fmax".split()
    for name in plain:
        setattr(module, name, wrap(getattr(np, name)))
    renamed = {"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "pow": np.power, "nearbyint": np.rint,
               "fast_dividef": np.divide, "erf": np.vectorize(math.erf), "rsqrt": lambda x: 1 / np.sqrt(x), "signbit": np.signbit}
    for name, function in renamed.items():
        setattr(module, name, wrap(function))
    return module


@functools.cache
def _take_arrays_of_one_element() -> None:
    """Triton 3.6's interpreter asks numpy for the integer of an array of one element, which numpy 2.5 refuses: a loop's end may be one."""
    from triton.runtime import interpreter
    patch = interpreter._patch_lang_tensor

    def patched(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


@functools.cache
def _multiply_short_floats() -> None:
    """Triton's interpreter keeps bfloat16 as the integers of its bits and multiplies those."""
    from triton.runtime import interpreter
    plain = interpreter.InterpreterBuilder.create_dot

    def dot(self, a, b, d, *rest):
        if a.dtype.is_bf16():
            left, right = ((x.data.astype(np.uint32) << 16).view(np.float32) for x in (a, b))
            return interpreter.TensorHandle(np.matmul(left, right) + d.data, d.dtype.scalar)
        return plain(self, a, b, d, *rest)

    interpreter.InterpreterBuilder.create_dot = dot


_folder = Path(tempfile.mkdtemp(prefix="thruway-triton-"))


def load(source):
    """The jitted function that the text defines. Skips where Triton is the compiler in this process."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs Triton's interpreter, which is off where there is a GPU")
    _take_arrays_of_one_element()
    _multiply_short_floats()
    path = _folder / f"k{hashlib.sha256(source.text.encode()).hexdigest()[:16]}.py"
    sys.modules.setdefault("tw_libdevice", _numpy_libdevice())
    path.write_text(source.text.replace("from triton.language.extra import libdevice", "import tw_libdevice as libdevice"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, source.symbol)


def run(source, tensors: dict[str, torch.Tensor], config=None, **symbols: int) -> int:
    """Launches over `tensors` by buffer name; gives the failure flag."""
    config = config or source.configs[0]
    points, block = source.programs(config)
    points = sizes.evaluate(points, symbols)
    flag = torch.zeros(1, dtype=torch.int32)
    arguments = [tensors[name] for name in source.pointers] + ([flag] if source.checks else []) + [symbols[name] for name in source.sizes]
    load(source)[(max(1, -(-points // block)),)](*arguments, **dict(source.constants(config)))
    return int(flag.item())
