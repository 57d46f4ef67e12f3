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
            blocks = [a.handle.data for a in args]
            return tl.core.tensor(TensorHandle(function(*blocks).astype(blocks[0].dtype), args[0].handle.dtype), args[0].type)
        return call

    module = types.ModuleType("tw_libdevice")
    plain = "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh sqrt floor ceil trunc hypot copysign nextafter fmod fmin fmax".split()
    for name in plain:
        setattr(module, name, wrap(getattr(np, name)))
    renamed = {"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "pow": np.power, "nearbyint": np.rint,
               "erf": np.vectorize(math.erf), "rsqrt": lambda x: 1 / np.sqrt(x), "signbit": np.signbit}
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


_folder = Path(tempfile.mkdtemp(prefix="thruway-triton-"))


def load(source):
    """The jitted function that the text defines. Skips where Triton is the compiler in this process."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs Triton's interpreter, which is off where there is a GPU")
    _take_arrays_of_one_element()
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
    points = sizes.evaluate(source.points, symbols) if not isinstance(source.points, int) else source.points
    flag = torch.zeros(1, dtype=torch.int32)
    arguments = [tensors[name] for name in source.pointers] + ([flag] if source.checks else []) + [symbols[name] for name in source.sizes]
    blocks = {"X": config.x} | ({"R": config.r} if source.row is not None else {})
    load(source)[(max(1, -(-points // config.x)),)](*arguments, **blocks)
    return int(flag.item())
