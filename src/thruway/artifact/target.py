"""What this machine offers: the compiler, probed once and remembered in the store, and the limits of its CPU."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch

from thruway.artifact.key import Key
from thruway.artifact.store import Store
from thruway.artifact.toolchain import Toolchain, cpu_identity, find_command, is_found, probe, stamp
from thruway.core.notice import warn
from thruway.core.target import Target

_VECTOR_BYTES = {"AVX512": 64, "AVX2": 32, "SVE256": 32, "DEFAULT": 16}
_CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def open_toolchain(setting: str, store: Store, environ: Mapping[str, str] = os.environ) -> Toolchain | None:
    """The compiler to use, or None where there is none (`toolchain.NO_COMPILER` says what to install). Probed once per compiler and CPU."""
    command = find_command(setting, environ)
    if setting and not is_found(setting):
        instead = " ".join(command) if command else "nothing"
        warn(f"no program is found for the C compiler {setting!r} that THRUWAY_CC names; {instead} is used")
    if command is None:
        return None
    cpu = cpu_identity()
    key = Key("toolchain", (("stamp", stamp(command, cpu)),))
    stored = store.get(key)
    if stored is not None:
        fields = json.loads(stored)
        return Toolchain(tuple(fields["command"]), fields["identity"], tuple(fields["flags"]), fields["cpu"])
    found = probe(command, cpu)
    if found is not None:
        store.put(key, json.dumps(asdict(found)).encode())
    return found


def cpu_target(kernels: bool) -> Target:
    """The Target of this CPU; `kernels` says whether there is a compiler."""
    capability = torch.backends.cpu.get_cpu_capability()
    return Target(
        kind="cpu",
        vector_bytes=_VECTOR_BYTES.get(capability, 16),
        caches=_caches(),
        library_calls=_library_calls(),
        kernels=kernels,
    )


def _library_calls() -> frozenset[str]:
    """mkl and onednn where torch was built with them; onednn_bf16 and onednn_fp16 where the CPU computes in these types itself, amx
    where it has matrix tiles, bf16_pairs where it multiplies pairs of bfloat16; mkl_fast where MKL takes its AVX-512 path, which it does on
    Intel's CPUs alone."""
    found = set()
    if torch.backends.mkl.is_available():
        found.add("mkl")
        if "vendor_id: GenuineIntel" in cpu_identity():
            found.add("mkl_fast")
    if torch.cpu._is_amx_tile_supported():
        found.add("amx")
    if "avx512_bf16" in cpu_identity().split():
        found.add("bf16_pairs")
    if torch.backends.mkldnn.is_available():
        found.add("onednn")
        if torch.ops.mkldnn._is_mkldnn_bf16_supported():
            found.add("onednn_bf16")
        if torch.ops.mkldnn._is_mkldnn_fp16_supported():
            found.add("onednn_fp16")
    return frozenset(found)


def _caches() -> tuple[int, int, int]:
    """Bytes of L1 data, L2 and last-level cache of the first core; the defaults of Target where the system does not tell."""
    sizes = dict(zip((1, 2, 3), Target().caches))
    for index in _CPU_CACHES.glob("index*"):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction" and int(level) in sizes:
            sizes[int(level)] = int(size.rstrip("KM")) << (20 if size.endswith("M") else 10)
    return sizes[1], sizes[2], sizes[3]
