"""The store: whole entries or none, whoever writes and whoever is killed; only what is ours; never above its limit for long."""

from __future__ import annotations

import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thruway.artifact.key import Key
from thruway.artifact.store import Store, StoreRefused, open_store, temporary_store
from thruway.core.settings import Settings

SRC = str(Path(__file__).parents[2] / "src")


def key(name: object) -> Key:
    return Key("kernel", (("source", str(name)),))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", 1 << 20)


def test_put_and_get(store):
    assert store.get(key(1)) is None and store.get_path(key(1)) is None
    path = store.put(key(1), b"payload")
    assert store.get(key(1)) == b"payload" and store.get_path(key(1)) == path
    store.put(key(1), b"other")
    assert store.get(key(1)) == b"other"
    assert list(store.keys("kernel")) == [key(1)]


@settings(max_examples=30, deadline=None)
@given(payload=st.binary(max_size=3000), damage=st.integers(0, 1 << 20), kind=st.sampled_from(["flip", "cut", "grow", "swap"]))
def test_a_damaged_entry_is_refused_and_removed(tmp_path_factory, payload, damage, kind):
    store = Store(tmp_path_factory.mktemp("store") / "cache", 1 << 20)
    path = store.put(key(1), payload)
    data = bytearray(path.read_bytes())
    at = damage % len(data)
    match kind:
        case "flip":
            data[at] ^= 0x41
        case "cut":
            del data[at:]
        case "grow":
            data.insert(at, 0)
        case _:
            data = bytearray(store.put(key(2), payload).read_bytes())
    path.write_bytes(data)
    assert store.get(key(1)) is None
    assert not path.exists()


def test_the_folder_is_made_for_us_alone(tmp_path):
    old = os.umask(0)
    try:
        store = Store(tmp_path / "a" / "b", 1 << 20)
    finally:
        os.umask(old)
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


def test_a_folder_open_to_others_is_refused(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(StoreRefused, match="chmod 700"):
        open_store(Settings(cache_dir=str(folder)))


def test_a_foreign_folder_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(StoreRefused, match="another user"):
        Store(folder, 1)


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefused, match="THRUWAY_CACHE_DIR"):
        Store(tmp_path / "file", 1)
    with pytest.raises(StoreRefused, match="THRUWAY_CACHE_DIR"):
        Store(tmp_path / "file" / "below", 1)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    """Permissions bind nobody who is root, so that the answer of the system is put in its place."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "access", lambda path, wanted, **_: not (path == folder and wanted & os.W_OK))
    with pytest.raises(StoreRefused, match="cannot be written: chmod 700 it, or name another in THRUWAY_CACHE_DIR"):
        Store(folder, 1)


def test_a_temporary_store_goes_with_its_folder():
    store, folder = temporary_store(Settings())
    store.put(key(1), b"x")
    folder.cleanup()
    assert not store.folder.exists()


def total(store: Store) -> int:
    return sum(path.stat().st_size for path in store.folder.iterdir())


def test_least_recently_used_go_first(tmp_path):
    store = Store(tmp_path / "cache", 64 << 10)
    old = time.time() - 100_000
    for i in range(12):
        os.utime(store.put(key(i), bytes(4 << 10)), (old + i, old + i))
    assert store.get(key(0)) is not None                # a use makes it the youngest
    for i in range(12, 20):
        store.put(key(i), bytes(4 << 10))
    assert total(store) <= 64 << 10
    assert store.get(key(0)) is not None and store.get(key(19)) is not None and store.get(key(1)) is None


def test_what_was_just_written_stays_whatever_the_limit(tmp_path):
    store = Store(tmp_path / "cache", 0)
    for i in range(3):
        assert store.put(key(i), bytes(4 << 10)).exists()
    assert [store.get(key(i)) is not None for i in range(3)] == [False, False, True]


def test_what_killed_writers_left_is_swept(store):
    stale, fresh = store.folder / "writing-old", store.folder / "writing-new"
    for path in (stale, fresh):
        path.write_bytes(b"half")
    os.utime(stale, (time.time() - 7200,) * 2)
    store.trim()
    assert not stale.exists() and fresh.exists()


WRITER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from thruway.artifact.key import Key
    from thruway.artifact.store import Store
    store = Store(Path(sys.argv[1]), 1 << 30)
    print("ready", flush=True)
    while True:
        for i in range(8):
            store.put(Key("kernel", (("source", str(i)),)), bytes([i]) * 600_000)
""")


def test_kill_9_while_writing(tmp_path):
    """Twelve processes are killed in the middle of writing; every entry that is seen is whole."""
    store = Store(tmp_path / "cache", 1 << 30)
    seen = 0
    for round_ in range(6):
        writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(store.folder)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": SRC})
                   for _ in range(2)]
        for writer in writers:
            writer.stdout.readline()
        deadline = time.time() + 0.02 + round_ * 0.007
        while time.time() < deadline:
            seen += check_entries(store)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            writer.stdout.close()
        seen += check_entries(store)
    assert seen > 20


def check_entries(store: Store) -> int:
    found = 0
    for i in range(8):
        there = store.path(key(i)).exists()
        data = store.get(key(i))
        assert data is not None or not there, "an entry was seen half-written"
        if data is not None:
            assert data == bytes([i]) * 600_000
            found += 1
    return found


def churn(folder: Path, seed: int) -> None:
    store = Store(folder, 200_000)
    for i in range(150):
        name = (i * 7 + seed) % 40
        data = store.get(key(name))
        if data is not None and data != str(name).encode() * 3000:
            os._exit(2)
        store.put(key(name), str(name).encode() * 3000)
    os._exit(0)


def test_processes_that_write_read_and_trim_at_once(tmp_path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=churn, args=(tmp_path / "cache", seed)) for seed in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    store = Store(tmp_path / "cache", 200_000)
    store.trim()
    assert 0 < total(store) <= 200_000
