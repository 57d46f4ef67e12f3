"""Finds where this torch keeps what the native core reads of a tensor, and proves it.

Takes the loaded torch and the extension; gives a layout (byte offsets) for `set_layout`. Each offset must fit every
sample and be the only one that does, else it stays -1 and the C code asks torch. Afterwards `self_test` compares what C
reads with what torch says over many tensors; RuntimeError names the first difference.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable
from types import ModuleType

import torch
from torch.utils._python_dispatch import _disable_current_modes

Peek = Callable[[int, int], bytes | None]         # (address, count) → the bytes, or None where they cannot be read

IMPL_BYTES = 200
META_BYTES = 192
COUNTER_BYTES = 32
ROUNDS = 8
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.complex64, torch.float16, torch.float64)


def bind(core: ModuleType) -> dict[str, int]:
    """Binds the extension to the loaded torch and gives it the probed layout, which is returned."""
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    libraries = tuple(os.path.join(folder, name) for name in ("libtorch_cpu.so", "libc10.so", "libtorch_python.so"))
    steal = torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr
    core.bind_torch(libraries, torch.Tensor, torch.nn.Parameter, torch._C.TensorBase, steal)
    with _disable_current_modes():                 # a capture may be under way, which sees to all that is made
        layout = find_whole_layout(core.peek)
        core.set_layout(**layout)
        self_test(core)
    return layout


def find_whole_layout(peek: Peek) -> dict[str, int]:
    """A layout with every offset where one of a few rounds finds it: what lies in padding can make one round undecided, never wrong."""
    layout = find_layout(peek)
    for _ in range(ROUNDS):
        if min(layout.values()) >= 0:
            break
        again = find_layout(peek)
        layout = {name: at if at >= 0 else again[name] for name, at in layout.items()}
    return layout


def find_layout(peek: Peek) -> dict[str, int]:
    samples = key_samples()
    layout = {
        "handle": _one(_handle_candidates(peek, t) for t in samples),
        "keys": _one(_words_equal(peek, t, key_set(t)) for t in samples),
        "geometry": _one(_geometry_candidates(peek, t) for t in _geometry_samples()),
        "dtype": _one(_dtype_candidates(peek, t) for t in _dtype_samples()),
        "device": _one(_device_candidates(peek, t) for t in _device_samples()),
    }
    layout |= _probe_autograd(peek) | _probe_version(peek)
    return layout


def key_set(tensor: torch.Tensor) -> int:
    """The raw dispatch key set of the tensor itself, without what the thread adds."""
    return torch._C._dispatch_keys(tensor).raw_repr()


def key_samples() -> tuple[torch.Tensor, ...]:
    """Tensors whose key sets differ."""
    zero = torch.ones(2, dtype=torch.complex64)
    return (
        torch.ones(3), torch.ones(3, requires_grad=True), torch.zeros(2, device="meta"), torch.eye(3).to_sparse(),
        zero.conj(), zero.conj().imag, _inference(),
    )


def self_test(core: ModuleType) -> None:
    """RuntimeError where C reads a tensor otherwise than torch does."""
    for t in (*_geometry_samples(), *_dtype_samples(), *_device_samples(), *_grad_samples()):
        sizes, strides, dtype, device, grad, keys, data, version = core.describe(t)
        pairs = {
            "sizes": (sizes, tuple(t.shape)), "strides": (strides, tuple(t.stride())), "requires_grad": (grad, t.requires_grad),
            "keys": (keys, key_set(t)), "data": (data, t.data_ptr() if t.device.type != "meta" else data),
            "dtype": (dtype, dtype_code(t.dtype)), "device": (device, device_code(t.device)),
            "version": (version, -1 if version < 0 else t._version),
        }
        for what, (seen, expected) in pairs.items():
            if seen != expected:
                raise RuntimeError(f"the native core reads {what} of a tensor as {seen}, torch says {expected}")
    _test_fresh_tensor(core)


def _test_fresh_tensor(core: ModuleType) -> None:
    fresh = core.empty_strided((2, 3), (3, 1), dtype_code(torch.float32), device_code(torch.device("cpu")))
    if type(fresh) is not torch.Tensor or fresh.shape != (2, 3) or fresh.dtype != torch.float32 or not fresh.is_contiguous():
        raise RuntimeError("the native core cannot allocate a tensor")
    before = fresh._version
    if core.bump_version(fresh) and fresh._version != before + 1:
        raise RuntimeError("the native core cannot raise a tensor's version")


def dtype_code(dtype: torch.dtype) -> int:
    """torch's number of a dtype, as the C shim gives it: found through a table, since Python has no name for it."""
    return _DTYPE_CODES[str(dtype).removeprefix("torch.")]


def device_code(device: torch.device) -> int:
    """Device type and index in one number: (type << 8) | (index & 255)."""
    index = -1 if device.index is None else device.index
    return _DEVICE_CODES[device.type] << 8 | index & 255


_DTYPE_NAMES = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 qint32 bfloat16 quint4x2 quint2x4 "
    "bits1x8 bits2x4 bits4x2 bits8 bits16 float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz uint16 uint32 uint64"
).split()
_DTYPE_CODES = {name: code for code, name in enumerate(_DTYPE_NAMES)}
_DEVICE_NAMES = "cpu cuda mkldnn opengl opencl ideep hip fpga maia xla vulkan metal xpu mps meta hpu ve lazy ipu mtia privateuseone".split()
_DEVICE_CODES = {name: code for code, name in enumerate(_DEVICE_NAMES)}


def _one(candidates: Iterable[set[int]]) -> int:
    """The only offset in every set, or -1."""
    common = set.intersection(*candidates)
    return common.pop() if len(common) == 1 else -1


def _words(data: bytes | None) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8]) if data else ()


def _handle_candidates(peek: Peek, tensor: torch.Tensor) -> set[int]:
    words = _words(peek(id(tensor), 64))
    return {8 * i for i, word in enumerate(words) if word == tensor._cdata and i >= 2}


def _words_equal(peek: Peek, tensor: torch.Tensor, value: int) -> set[int]:
    return {8 * i for i, word in enumerate(_words(peek(tensor._cdata, IMPL_BYTES))) if word == value}


def _geometry_samples() -> tuple[torch.Tensor, ...]:
    return (
        torch.empty_strided((3, 5, 7, 11, 13), (1, 3, 15, 105, 1155), device="meta"),
        torch.empty_strided((2, 9), (41, 4)), torch.empty((4, 6, 5), device="meta").transpose(0, 2), torch.empty(17),
        torch.empty((2, 3, 4, 5)).to(memory_format=torch.channels_last),
    )


def _geometry_candidates(peek: Peek, tensor: torch.Tensor) -> set[int]:
    words, n = _words(peek(tensor._cdata, IMPL_BYTES)), tensor.dim()
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return {8 * i for i, word in enumerate(words) if word == n and words[i + 1 : i + 1 + n] == shape and words[i + 6 : i + 6 + n] == strides}


def _dtype_samples() -> tuple[torch.Tensor, ...]:
    return tuple(torch.empty((5, 3), dtype=dtype, device="meta") for dtype in DTYPES)


def _dtype_candidates(peek: Peek, tensor: torch.Tensor) -> set[int]:
    data, code = peek(tensor._cdata, IMPL_BYTES) or b"", dtype_code(tensor.dtype).to_bytes(2, "little")
    return {i for i in range(0, len(data) - 1, 2) if data[i : i + 2] == code}


def _device_samples() -> tuple[torch.Tensor, ...]:
    """Of the GPUs the current one: a tensor on another would start CUDA there, for 130 ms and half a gigabyte."""
    cuda = (torch.empty(3, device="cuda"),) if torch.cuda.is_initialized() else ()
    return (torch.empty(3), torch.empty((2, 1), dtype=torch.int8), torch.empty(3, device="meta"), torch.empty((2, 4), device="meta"), *cuda)


def _device_candidates(peek: Peek, tensor: torch.Tensor) -> set[int]:
    code = device_code(tensor.device)
    data, pair = peek(tensor._cdata, IMPL_BYTES) or b"", bytes((code >> 8, code & 255))
    return {i for i in range(len(data) - 1) if data[i : i + 2] == pair}


def _inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(3)


def _grad_samples() -> tuple[torch.Tensor, ...]:
    leaf = torch.ones(3, requires_grad=True)
    frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    view = torch.ones(4)[1:]
    base = torch.ones(4)
    late_view = base[1:]
    base.mul_(leaf[0].detach().requires_grad_())
    return (torch.ones(2), leaf, frozen, leaf * 2, (leaf * 2)[1:], leaf[1:], view, late_view, leaf.detach(), _inference(), torch.nn.Parameter(torch.ones(1)))


def _probe_autograd(peek: Peek) -> dict[str, int]:
    """Where the AutogradMeta hangs, and in it the flag and the pointer that together say requires_grad."""
    grad = [torch.ones(n, requires_grad=True) for n in (2, 3)] + [torch.nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=True) * 2]
    plain = [torch.ones(n) for n in (2, 3)] + [torch.zeros(4, dtype=torch.int32), torch.empty(3, device="meta"), torch.ones(2, 2).T.clone()]
    unset = [{8 * i for i, word in enumerate(_words(peek(t._cdata, IMPL_BYTES))) if word == 0} for t in plain]
    is_set = [_pointers(peek, t) for t in grad]
    meta = _first(set.intersection(*unset, *is_set), peek, grad)
    if meta < 0:
        return {"autograd_meta": -1, "requires_grad": -1, "grad_fn": -1, "forward_grad": -1, "plain_autograd": 0}
    flag = _one(_flag_candidates(peek, meta, n) for n in range(2, 8))
    vtables = {_words(_meta_of(peek, meta, t))[0] for t in grad}
    pointers = flag // 8 if flag >= 0 else 0        # the flags stand last in an AutogradMeta; behind them the memory is not its own
    return {
        "autograd_meta": meta, "requires_grad": flag,
        "grad_fn": _grad_fn(peek, meta, pointers), "forward_grad": _forward_grad(peek, meta, pointers),
        "plain_autograd": vtables.pop() if len(vtables) == 1 else 0,
    }


def _pointers(peek: Peek, tensor: torch.Tensor) -> set[int]:
    words = _words(peek(tensor._cdata, IMPL_BYTES))
    return {8 * i for i, word in enumerate(words) if word > 4096 and word % 8 == 0 and peek(word, META_BYTES)}


def _first(candidates: set[int], peek: Peek, grad: list[torch.Tensor]) -> int:
    """The one candidate whose target has the same first word (a vtable) for all samples, or -1."""
    fitting = {at for at in candidates if len({_words(_meta_of(peek, at, t))[0] for t in grad}) == 1}
    return fitting.pop() if len(fitting) == 1 else -1


def _meta_of(peek: Peek, offset: int, tensor: torch.Tensor) -> bytes:
    (address,) = _words(peek(tensor._cdata + offset, 8))
    return peek(address, META_BYTES) or b""


def _flag_candidates(peek: Peek, meta: int, size: int) -> set[int]:
    """Bytes of the AutogradMeta that follow requires_grad_()."""
    p = torch.nn.Parameter(torch.ones(size))
    on = _meta_of(peek, meta, p)
    off = _meta_of(peek, meta, p.requires_grad_(False))
    again = _meta_of(peek, meta, p.requires_grad_(True))
    return {i for i in range(min(map(len, (on, off, again)))) if (on[i], off[i], again[i]) == (1, 0, 1)}


def _grad_fn(peek: Peek, meta: int, count: int) -> int:
    """The pointer (one word, or two where it is a std::shared_ptr) that is set for results of operators and null for leaves."""
    x = torch.ones(3, requires_grad=True)
    leaves = [_words(_meta_of(peek, meta, t)) for t in (x, torch.nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=True))]
    results = [_words(_meta_of(peek, meta, t)) for t in (x * 2, x.sum(), x + x, (x * 3).exp())]
    found = _set_only(results, leaves, count)
    return 8 * found[0] if len(found) == 1 or len(found) == 2 and found[1] == found[0] + 1 else -1


def _forward_grad(peek: Peek, meta: int, count: int) -> int:
    """The pointer (one word, or two where it is a std::shared_ptr) that only a dual tensor of forward-mode differentiation has."""
    grad = torch.ones(3, requires_grad=True)
    plain = [_words(_meta_of(peek, meta, t)) for t in (grad, torch.nn.Parameter(torch.ones(2)), grad * 2, grad[1:], grad.exp())]
    level = torch._C._enter_dual_level()            # below torch.autograd.forward_ad, which loads the decompositions
    try:
        duals = [torch._VF._make_dual(torch.ones(n), torch.ones(n), level=level) for n in (2, 3, 4, 5)]
        dual = [_words(_meta_of(peek, meta, t)) for t in duals]
    finally:
        torch._C._exit_dual_level(level=level)
    found = _set_only(dual, plain, count)
    return 8 * found[0] if len(found) == 1 or len(found) == 2 and found[1] == found[0] + 1 else -1


def _set_only(those: list[tuple[int, ...]], others: list[tuple[int, ...]], count: int) -> list[int]:
    """The first `count` words that look like pointers in all of `those` and are null in all `others`."""
    words = range(min(count, *map(len, those + others)))
    return [i for i in words if all(w[i] > 4096 for w in those) and all(w[i] == 0 for w in others)]


def _probe_version(peek: Peek) -> dict[str, int]:
    """The version counter: a pointer in the TensorImpl to an object in which one number follows in-place writes."""
    t = torch.zeros(3)
    found = set()
    for at in _pointers(peek, t):
        seen = [_counter(peek, at, t)]
        for _ in range(3):
            t.add_(1)
            seen.append(_counter(peek, at, t))
        found |= {(at, i) for i in range(0, COUNTER_BYTES, 4) if [s[i // 4] - seen[0][i // 4] for s in seen] == [0, 1, 2, 3]}
    (counter, version) = found.pop() if len(found) == 1 else (-1, -1)
    return {"version_counter": counter, "version": version}


def _counter(peek: Peek, offset: int, tensor: torch.Tensor) -> tuple[int, ...]:
    (address,) = _words(peek(tensor._cdata + offset, 8))
    return struct.unpack("<8I", peek(address, COUNTER_BYTES) or bytes(COUNTER_BYTES))
