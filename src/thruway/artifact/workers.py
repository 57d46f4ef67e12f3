"""Compiles sources in parallel: a thread per core, each waiting for one compiler process.

A source starts the moment it is handed over, equal sources are compiled once, and what the store holds is not compiled at all. The
caller goes on with other work and asks each `Compilation` for its library at the end. A forked child begins afresh.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from thruway.artifact.key import Key, kernel_key
from thruway.artifact.store import Store
from thruway.artifact.toolchain import Toolchain
from thruway.core.errors import CompilerBug

_TIMEOUT_SECONDS = 600
THREADS = "thruway-compile"                  # how the names of its threads begin
Note = Callable[[str, str], None]            # kind ("cache_hit", "cache_miss") and detail, for the journal


@dataclass(frozen=True, slots=True)
class Compilation:
    """A library in the making."""

    source: str
    workers: Workers
    pid: int
    future: Future[Path]

    def library(self) -> Path:
        """Waits for the library. CompilerBug carries what the compiler said."""
        if self.pid != os.getpid():          # the parent's threads do not exist here
            return self.workers.submit(self.source).future.result()
        return self.future.result()


class Workers:
    """The compiler processes of one process."""

    def __init__(self, toolchain: Toolchain, store: Store):
        self.toolchain = toolchain
        self.store = store
        self._start()

    def submit(self, source: str, note: Note | None = None) -> Compilation:
        """`note` is told whether the store had it."""
        if self._pid != os.getpid():
            self._start()
        key = kernel_key(source, self.toolchain)
        with self._lock:
            future = self._running.get(key.digest)
            if future is None:
                future = self._running[key.digest] = self._find_or_compile(key, source, note or (lambda kind, detail: None))
                future.add_done_callback(lambda _: self._running.pop(key.digest, None))
        return Compilation(source, self, self._pid, future)

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._running: dict[str, Future[Path]] = {}
        self._threads = ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix=THREADS)

    def _find_or_compile(self, key: Key, source: str, note: Note) -> Future[Path]:
        stored = self.store.get_path(key)
        if stored is None:
            note("cache_miss", f"not on disk, so it is compiled: {key.digest}")
            return self._threads.submit(self._compile, key, source)
        note("cache_hit", f"on disk: {key.digest}")
        found: Future[Path] = Future()
        found.set_result(stored)
        return found

    def _compile(self, key: Key, source: str) -> Path:
        with tempfile.TemporaryDirectory(prefix="thruway-") as folder:
            text, library = Path(folder, "kernels.c"), Path(folder, "kernels.so")
            text.write_text(source)
            done = subprocess.run(self.toolchain.command_line(text, library), capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
            if done.returncode != 0:
                raise CompilerBug("artifact", f"the C compiler refused a generated source\n{done.stderr[:4000]}")
            return self.store.put(key, library.read_bytes())
