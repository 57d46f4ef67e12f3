"""The disk store: bytes under a key's digest, in a folder that is ours alone.

Each entry is one file: payload, its key, a hash over both. It is written to a temporary file and renamed, so a reader sees a whole entry or none,
whoever else writes and whenever a process is killed. Loading an entry executes it, so a folder that others could write is refused, and
a file whose hash does not fit is removed unread. The folder is kept under its size limit, least recently used first.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from thruway.artifact.key import Key
from thruway.core.errors import ThruwayError
from thruway.core.settings import Settings

_MAGIC = b"thruway1"
_TAIL = struct.Struct("<I32s8s")             # length of the key's text, sha256 of payload and key's text, magic
_SUFFIX = {"kernel": ".so", "graph": ".graph", "toolchain": ".json", "cubin": ".cubin", "tune": ".tune"}
_STALE_SECONDS = 3600                        # a temporary file this old was left by a killed process
_TOUCH_SECONDS = 600                         # a use is noted at most this often


class StoreRefused(ThruwayError):
    """The cache folder cannot be trusted or written; the message says what to do."""


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    size: int
    used: float


class Store:
    """Entries below `folder`, together at most `limit` bytes. Safe for any number of threads and processes."""

    def __init__(self, folder: Path, limit: int):
        _own(folder)
        self.folder = folder
        self.limit = limit
        self._unseen = limit                 # bytes written since the last trim; starts full, so that the first write trims

    def path(self, key: Key) -> Path:
        return self.folder / (key.digest + _SUFFIX[key.kind])

    def get(self, key: Key) -> bytes | None:
        """The payload under `key`, or None where there is none or it fails its hash (then the file goes)."""
        path = self.path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        found = _unpack(data)
        if found is None or found[1] != key.text.encode():
            path.unlink(missing_ok=True)
            return None
        _note_use(path)
        return found[0]

    def get_path(self, key: Key) -> Path | None:
        """The file of `key`, once its hash has been verified; the loader of shared libraries ignores what follows the payload."""
        return self.path(key) if self.get(key) is not None else None

    def put(self, key: Key, payload: bytes) -> Path:
        """Stores `payload`; a second writer of the same key replaces the entry by an equal one."""
        path, data = self.path(key), _pack(payload, key.text.encode())
        handle, name = tempfile.mkstemp(dir=self.folder, prefix="writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        self._unseen += len(data)
        if self._unseen * 16 >= self.limit:
            self.trim(path)
        return path

    def keys(self, kind: str) -> Iterator[Key]:
        """The stored keys of one kind, to explain a miss."""
        for path in self.folder.glob("*" + _SUFFIX[kind]):
            found = _unpack(path.read_bytes())
            if found is not None:
                name, *entries = json.loads(found[1])
                yield Key(name, tuple((entry, text) for entry, text in entries))

    def trim(self, spared: Path | None = None) -> None:
        """Removes the least recently used entries above the limit, down to 7/8 of it, and what killed writers left. One process at a time.
        `spared` stays whatever the limit: it was just written, to be opened next."""
        try:
            with FileLock(self.folder / "trim.lock", timeout=0):
                self._unseen = 0
                self._remove_stale()
                self._remove_least_used(spared)
        except Timeout:
            pass                             # another process is at it

    def _remove_stale(self) -> None:
        for file in _files(self.folder, "writing-*"):
            if time.time() - file.used > _STALE_SECONDS:
                file.path.unlink(missing_ok=True)

    def _remove_least_used(self, spared: Path | None) -> None:
        files = [file for suffix in _SUFFIX.values() for file in _files(self.folder, "*" + suffix)]
        total = sum(file.size for file in files)
        if total <= self.limit:
            return
        for file in sorted(files, key=lambda file: file.used):
            if total <= self.limit * 7 // 8:
                break
            if file.path != spared:
                file.path.unlink(missing_ok=True)
                total -= file.size


def open_store(settings: Settings) -> Store:
    """The store that `settings` name, in the user's cache folder by default. StoreRefused says why there is none."""
    folder = Path(settings.cache_dir).expanduser() if settings.cache_dir else user_cache_path("thruway", appauthor=False)
    return Store(folder.absolute(), settings.cache_size_mb << 20)


def temporary_store(settings: Settings) -> tuple[Store, tempfile.TemporaryDirectory]:
    """A store for this process alone, where the cache folder is refused; its folder goes with the second value."""
    folder = tempfile.TemporaryDirectory(prefix="thruway-", ignore_cleanup_errors=True)
    return Store(Path(folder.name), settings.cache_size_mb << 20), folder


def _own(folder: Path) -> None:
    """Makes `folder` with mode 0700, or checks that it is ours alone."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        state = folder.stat()
    except OSError as error:
        raise StoreRefused(f"the cache folder {folder} cannot be made ({error.strerror}): name another in THRUWAY_CACHE_DIR") from error
    if state.st_uid != os.geteuid():
        raise StoreRefused(f"the cache folder {folder} belongs to another user: name another in THRUWAY_CACHE_DIR")
    if stat.S_IMODE(state.st_mode) & 0o077:
        raise StoreRefused(f"the cache folder {folder} is open to others: chmod 700 it, or name another in THRUWAY_CACHE_DIR")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise StoreRefused(f"the cache folder {folder} cannot be written: chmod 700 it, or name another in THRUWAY_CACHE_DIR")


def _files(folder: Path, pattern: str) -> Iterator[_File]:
    for path in folder.glob(pattern):
        try:
            state = path.stat()
        except FileNotFoundError:
            continue                         # another process was faster
        yield _File(path, state.st_size, state.st_mtime)


def _note_use(path: Path) -> None:
    try:
        if time.time() - path.stat().st_mtime > _TOUCH_SECONDS:
            os.utime(path)
    except FileNotFoundError:
        pass                                 # trimmed meanwhile; the caller has the bytes


def _pack(payload: bytes, key_text: bytes) -> bytes:
    return b"".join((payload, key_text, _TAIL.pack(len(key_text), hashlib.sha256(payload + key_text).digest(), _MAGIC)))


def _unpack(data: bytes) -> tuple[bytes, bytes] | None:
    """(payload, key's text) where the hash fits."""
    if len(data) < _TAIL.size:
        return None
    length, digest, magic = _TAIL.unpack_from(data, len(data) - _TAIL.size)
    body = data[:-_TAIL.size]
    if magic != _MAGIC or length > len(body) or hashlib.sha256(body).digest() != digest:
        return None
    return body[:len(body) - length], body[len(body) - length:]
