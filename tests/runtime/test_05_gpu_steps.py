"""GPU launches of native Programs, without a GPU: the driver is a function of ours that notes its arguments and adds two vectors."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest
import torch
from runtime.programs import launch_list, vector

from thruway.core.launch import Allocate, Kernel
from thruway.native import RegionFailed
from thruway.runtime.cuda import attention
from thruway.runtime.cuda.attention import find_attention, takes_flash
from thruway.runtime.cuda.flatten import Entrances, flat_program, is_flat
from thruway.runtime.load import native_core

LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
STREAM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
CONTEXT, PUSH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)), ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
SIZE = 8


HERE, ELSEWHERE = 7, 8              # contexts


class FakeDriver:
    """`codes`: what the next launches return instead of running. `contexts`: this thread's, the current one last; none of them in a fresh thread."""

    def __init__(self, codes: tuple[int, ...] = (), contexts: tuple[int, ...] = (HERE,)):
        self.codes, self.seen, self.contexts = list(codes), [], list(contexts)
        self.functions = STREAM(self._stream), CONTEXT(self._current), PUSH(self._push), CONTEXT(self._pop), LAUNCH(self._launch)
        self.entrances = Entrances(*(ctypes.cast(each, ctypes.c_void_p).value for each in self.functions))

    def _current(self, into):
        into[0] = self.contexts[-1] if self.contexts else None
        return 0

    def _push(self, context):
        self.contexts.append(context)
        return 0

    def _pop(self, into):
        into[0] = self.contexts.pop()
        return 0

    def _stream(self, device, into):
        into[0] = 1234
        return 0

    def _launch(self, function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra):
        if self.contexts[-1:] != [HERE]:
            return 400
        if self.codes:
            return self.codes.pop(0)
        count = ctypes.cast(arguments[3], ctypes.POINTER(ctypes.c_int32))[0]
        a, b, out = (ctypes.cast(ctypes.cast(arguments[i], ctypes.POINTER(ctypes.c_void_p))[0], ctypes.POINTER(ctypes.c_float)) for i in range(3))
        for i in range(count):
            out[i] = a[i] + b[i]
        self.seen.append((function, gx, bx, shared, stream))
        return 0


def add_list(**more):
    return launch_list((vector(SIZE), vector(SIZE)), (Allocate(2, vector(SIZE)), Kernel("add", (0, 1, 2), (SIZE,), **more)), (2,), 3)


def program(driver: FakeDriver, launch):
    core = native_core()
    if core is None:
        pytest.skip("the native core was not built")
    one = SimpleNamespace(function=ctypes.c_void_p(99), programs=4, threads=64, words=(SIZE, 0), kernel=SimpleNamespace(shared=16))
    made = flat_program(core, launch, {i: one for i, step in enumerate(launch.steps) if isinstance(step, Kernel)}, 0, HERE, driver.entrances)
    return core.Launcher(inputs=2, symbols=(), prepare=lambda: made, watched=())


def test_a_launch_gets_addresses_words_and_the_current_stream():
    driver = FakeDriver()
    run, (a, b) = program(driver, add_list()), torch.randn(2, SIZE)
    (first,), (second,) = run(a, b), run(b, b)
    assert torch.equal(first, a + b) and torch.equal(second, b + b) and driver.seen == [(99, 4, 64, 16, 1234)] * 2


def test_an_odd_address_is_handed_on():
    driver = FakeDriver()
    with pytest.raises(RegionFailed, match="not aligned"):
        program(driver, add_list())(torch.randn(SIZE), torch.randn(SIZE + 1)[1:])
    assert not driver.seen


@pytest.mark.parametrize("contexts", [(), (ELSEWHERE,)])
def test_a_launch_enters_its_device_and_leaves_the_thread_where_it_was(contexts):
    driver, (a, b) = FakeDriver(contexts=contexts), torch.randn(2, SIZE)
    run = program(driver, add_list())
    for _ in range(2):
        assert torch.equal(run(a, b)[0], a + b) and driver.contexts == list(contexts)
    driver.codes = [700]
    with pytest.raises(RegionFailed):
        run(a, b)
    assert driver.contexts == list(contexts)


def test_an_error_of_the_driver_fails_the_region():
    with pytest.raises(RegionFailed) as raised:
        program(FakeDriver((700,)), add_list())(*torch.randn(2, SIZE))
    assert "CUDA error 700" in str(raised.value.__cause__)


def test_written_inputs_count_up():
    driver, (a, b) = FakeDriver(), torch.zeros(2, SIZE).unbind(0)
    launch = launch_list((vector(SIZE), vector(SIZE)), (Kernel("add", (0, 1, 1), (SIZE,), writes_input=True, writes=(1,)),), (1,), 2)
    a.add_(1)
    version = b._version
    (out,) = program(driver, launch)(a, b)
    assert out is b and b._version == version + 1 and torch.equal(b, torch.ones(SIZE))


def test_what_is_flat():
    kernels = {"add": SimpleNamespace(checks=False)}
    assert is_flat(add_list(), kernels) and not is_flat(add_list(), {"add": SimpleNamespace(checks=True)})
    assert not is_flat(launch_list((vector(SIZE), vector(SIZE)), (Allocate(2, vector(SIZE), 0),), (0,), 3, arena_bytes=64), kernels)


def heads(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(sizes, dtype=dtype)


@pytest.mark.parametrize("q, k, fits", [
    (heads(1, 8, 128, 64), heads(1, 8, 128, 64), True),
    (heads(1, 8, 128, 64), heads(1, 8, 64, 64), False),
    (heads(1, 8, 300, 64), heads(1, 8, 300, 64), False),
    (heads(1, 8, 16, 60), heads(1, 8, 16, 60), False),
    (heads(8, 16, 64), heads(8, 16, 64), False),
    (heads(1, 8, 16, 64, dtype=torch.float32), heads(1, 8, 16, 64, dtype=torch.float32), False),
    (heads(0, 8, 16, 64), heads(0, 8, 16, 64), False),
    (heads(1, 8, 64, 16).mT, heads(1, 8, 64, 16).mT, False),
])
def test_where_flash_attention_is_called_by_name(q, k, fits):
    assert takes_flash(q, k, k) == fits


@pytest.mark.parametrize(("capability", "called"), [((9, 0), "aten::_scaled_dot_product_flash_attention"), ((8, 0), "aten::_scaled_dot_product_flash_attention"),
                                                    ((7, 5), "aten::scaled_dot_product_attention")])
def test_gpus_that_flash_attention_is_not_made_for_are_left_to_torch(monkeypatch, capability, called):
    names = []
    monkeypatch.setattr(attention, "find_operator", lambda name: lambda *args, **kwargs: (names.append(name), 0))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    attention.has_flash.cache_clear()
    q = heads(1, 8, 128, 64)
    find_attention()(q, q, q)
    attention.has_flash.cache_clear()
    assert names == [called]
