"""Finding a compiler, and compiling with it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from thruway.artifact import target as target_module
from thruway.artifact import toolchain as chain
from thruway.artifact.store import Store
from thruway.artifact.target import cpu_target, open_toolchain
from thruway.artifact.workers import Workers
from thruway.core.errors import CompilerBug

SRC = str(Path(__file__).parents[2] / "src")
ANSWER = "int answer(void **pointers, const long long *sizes) { return %d; }\n"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", 64 << 20)


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def note(notes):
    return lambda kind, detail: notes.append(kind)


@pytest.fixture
def workers(store) -> Workers:
    toolchain = open_toolchain("", store)
    assert toolchain is not None, "these tests need a C compiler"
    return Workers(toolchain, store)


def ask(library: Path) -> int:
    return ctypes.CDLL(str(library)).answer(None, None)


def executable(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_order_of_search(tmp_path, monkeypatch):
    mine, theirs = executable(tmp_path / "mine", ""), executable(tmp_path / "theirs", "")
    assert chain.find_command(mine, {"CC": theirs}) == (mine,)
    assert chain.find_command("", {"CC": f"{theirs} -m64"}) == (theirs, "-m64")
    monkeypatch.setenv("PATH", str(tmp_path))
    executable(tmp_path / "clang", "")
    assert chain.find_command("no-such-compiler", {}) == (str(tmp_path / "clang"),)
    executable(tmp_path / "gcc", "")
    assert chain.find_command("", {}) == (str(tmp_path / "gcc"),)


def test_the_ziglang_wheel_comes_last_and_then_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(chain, "find_spec", lambda name: name == "ziglang" or None)
    assert chain.find_command("", {}) == (sys.executable, "-m", "ziglang", "cc")
    monkeypatch.setattr(chain, "find_spec", lambda name: None)
    assert chain.find_command("", {}) is None
    assert "install" in chain.NO_COMPILER


def test_probed_once(store, monkeypatch):
    found = open_toolchain("", store)
    monkeypatch.setattr(chain.subprocess, "run", lambda *a, **k: pytest.fail("a process was started"))
    assert open_toolchain("", store) == found


def test_flags_that_a_compiler_refuses_are_left_out(tmp_path, store):
    picky = executable(tmp_path / "picky", 'for a in "$@"; do [ "$a" = -fno-math-errno ] && exit 1; done; exec cc "$@"')
    found = open_toolchain(picky, store)
    assert "-fno-math-errno" not in found.flags and "-fno-trapping-math" in found.flags and "-O3" in found.flags


def test_a_compiler_that_cannot_compile_is_none(tmp_path, store):
    assert open_toolchain(executable(tmp_path / "broken", "exit 1"), store) is None


def test_a_changed_compiler_is_probed_again(tmp_path, store):
    path = tmp_path / "wrapped"
    assert open_toolchain(executable(path, 'exec cc "$@"'), store) is not None
    assert open_toolchain(executable(path, "exit 1 # changed"), store) is None


def test_compiles_in_parallel_and_once(workers, note, notes):
    waiting = [workers.submit(ANSWER % (i % 3), note) for i in range(9)]
    assert [ask(each.library()) for each in waiting] == [0, 1, 2] * 3
    assert notes.count("cache_miss") == 3


def test_a_second_process_finds_what_the_first_compiled(workers, store, note, notes):
    workers.submit(ANSWER % 5).library()
    again = Workers(workers.toolchain, Store(store.folder, store.limit))
    assert ask(again.submit(ANSWER % 5, note).library()) == 5
    assert notes == ["cache_hit"]


def test_a_damaged_library_is_compiled_again(workers, note, notes):
    path = workers.submit(ANSWER % 6, note).library()
    path.write_bytes(path.read_bytes()[:-100] + bytes(100))
    assert ask(workers.submit(ANSWER % 6, note).library()) == 6
    assert notes == ["cache_miss", "cache_miss"]


def test_an_error_names_what_the_compiler_said_and_is_not_kept(workers):
    for _ in range(2):
        with pytest.raises(CompilerBug, match="nonsense"):
            workers.submit("nonsense here").library()


def test_the_prelude_runs_alone_and_takes_a_service(workers):
    source = chain.PRELUDE + textwrap.dedent("""
        static void body(long lo, long hi, void *context) { *(long *)context += hi - lo; }
        int answer(void **pointers, const long long *sizes) { tw_parallel_for(0, sizes[0], 1, body, pointers[0]); return 0; }
    """)
    library = ctypes.CDLL(str(workers.submit(source).library()))
    total, calls = ctypes.c_long(0), []

    def run() -> None:
        library.answer((ctypes.c_void_p * 1)(ctypes.addressof(total)), (ctypes.c_longlong * 1)(100))

    run()
    assert total.value == 100
    parallel_for = ctypes.CFUNCTYPE(None, ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    service = parallel_for(lambda begin, end, grain, body, context: calls.append((begin, end, grain)))
    library.tw_init((ctypes.c_void_p * 1)(ctypes.cast(service, ctypes.c_void_p)))
    run()
    assert calls == [(0, 100, 1)] and total.value == 100


def test_after_a_fork_workers_start_afresh(workers):
    before = workers.submit(ANSWER % 1)
    child = os.fork()
    if child == 0:
        good = ask(before.library()) == 1 and ask(workers.submit(ANSWER % 2).library()) == 2
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ask(workers.submit(ANSWER % 3).library()) == 3


INTERRUPTED = textwrap.dedent("""
    import signal
    import sys
    from pathlib import Path
    from thruway.artifact.store import Store
    from thruway.artifact.toolchain import Toolchain
    from thruway.artifact.workers import Workers
    signal.signal(signal.SIGINT, signal.default_int_handler)     # a shell's background jobs ignore it
    workers = Workers(Toolchain((sys.argv[2],), "", (), ""), Store(Path(sys.argv[1]), 1 << 20))
    waiting = [workers.submit(f"int f{i};") for i in range(4)]
    try:
        print("ready", flush=True)
        waiting[0].library()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
""")


def test_an_interrupt_leaves_no_process_behind(tmp_path):
    slow = executable(tmp_path / "slow", f"echo $$ >> {tmp_path}/pids; exec sleep 0.5")
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(tmp_path / "cache"), slow], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": SRC})
    assert process.stdout.readline() == "ready\n"
    while not (tmp_path / "pids").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert out == "interrupted\n" and process.returncode == 0, err
    assert not [pid for pid in (tmp_path / "pids").read_text().split() if Path("/proc", pid).exists()]


def test_target_of_this_cpu():
    target = cpu_target(kernels=True)
    assert target.kind == "cpu" and target.vector_bytes in {16, 32, 64} and target.kernels
    first, second, last = target.caches
    assert 4 << 10 <= first <= second <= last


def test_a_compiler_that_is_not_found_is_told(store):
    with pytest.warns(RuntimeWarning, match="no program is found for the C compiler 'no-such-cc' that THRUWAY_CC names; .* is used"):
        open_toolchain("no-such-cc", store)


def test_matrix_tiles_and_vendor_are_seen(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setattr(target_module, "cpu_identity", lambda: "vendor_id: GenuineIntel")
    assert {"amx", "mkl_fast"} <= cpu_target(kernels=True).library_calls
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(target_module, "cpu_identity", lambda: "vendor_id: AuthenticAMD")
    assert not {"amx", "mkl_fast"} & cpu_target(kernels=True).library_calls
