"""Whole models, compiled beside eager: right numbers, graphs, breaks and their reasons, processor seconds of the first call.

usage: python bench/zoo.py [torchvision detection transformers generate timm] [--only REGEX] [--dtype float32] [--backends eager,thruway]
       [--timeout 300] [--results FOLDER] [--again] [--page docs/models.md]
Each model runs in a process of its own, forked after the imports; nothing is downloaded. With `--results` each result is a file of its own:
what has one is not run again (`--again` runs it), and several of these commands may share a folder, each taking the next free model.
Without `--only`, bfloat16 takes a sample. `--page` writes the table of all results in the folder.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import fcntl
import importlib
import json
import multiprocessing
import re
import resource
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import zoo_models

import thruway

SUITES = ("torchvision", "detection", "transformers", "generate", "timm")
ALLOWED = {"float32": 2e-3, "bfloat16": 1e-1}          # largest difference, as a share of the largest value
DEEP, MOST_POSTPONED = 12, 9
STARTED = time.time()


def main() -> None:
    asked = arguments()
    importlib.import_module("thruway.pipeline")        # once, here: the forked processes have it
    for name in asked.suites:
        for model, maker in zoo_models.suite(name).items():
            if re.search(asked.only or (zoo_models.SAMPLE if asked.dtype != "float32" else ""), model):
                run_once(f"{name}/{model}/{asked.dtype}", maker, asked)
    if asked.page:
        Path(asked.page).write_text(page(read_results(Path(asked.results))))


def run_once(key: str, maker: zoo_models.Maker, asked: argparse.Namespace) -> None:
    """One model's run, unless its result is there or another process is at it; the file shows up whole."""
    if not asked.results:
        print(line(key, run_apart(maker, asked)), flush=True)
        return
    file = Path(asked.results, key.replace("/", "~") + ".json")
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)     # falls with the process
        except BlockingIOError:
            return
        if file.exists() and (not asked.again or file.stat().st_mtime > STARTED):
            return
        found = run_apart(maker, asked)
        part = file.with_suffix(".part")
        part.write_text(json.dumps({key: found}, indent=1))
        part.rename(file)
        print(line(key, found), flush=True)


def read_results(folder: Path) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for file in sorted(folder.glob("*.json")):
        known |= json.loads(file.read_text())
    return known


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", default=[])
    parser.add_argument("--only", default="")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--backends", default="eager,thruway")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--results", default="")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--page", default="")
    return parser.parse_args()


def run_apart(maker: zoo_models.Maker, asked: argparse.Namespace) -> dict[str, Any]:
    """The result of one model, from a forked process; "crash" or "timeout" where it does not say."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_child, args=(sender, maker, asked))
    child.start()
    sender.close()
    try:
        result = receiver.recv() if receiver.poll(asked.timeout) else {"verdict": "timeout"}
    except EOFError:
        child.join()
        result = {"verdict": "crash", "error": f"exit code {child.exitcode}"}
    if child.is_alive():
        child.join(2)
        child.kill()
    child.join()
    return result


def _child(sender: Any, maker: zoo_models.Maker, asked: argparse.Namespace) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    try:
        result = examine(maker, getattr(torch, asked.dtype), asked.backends.split(","), ALLOWED[asked.dtype])
    except Exception as error:
        result = {"verdict": "no eager", "error": f"{type(error).__name__}: {error}"[:300]}
    sender.send(result)


def examine(maker: zoo_models.Maker, dtype: torch.dtype, backends: list[str], allowed: float) -> dict[str, Any]:
    torch.manual_seed(0)
    target, args, kwargs = maker()
    module = target if isinstance(target, torch.nn.Module) else target.model
    module.to(dtype)
    args, kwargs = _cast((args, kwargs), dtype)
    with torch.no_grad():
        expected, eager_seconds = _timed(target, args, kwargs)
        results = {backend: _compare(backend, target, args, kwargs, expected, allowed) for backend in backends}
    worst = min((found["verdict"] for found in results.values()), key=("error", "wrong", "right").index)
    return {"verdict": worst, "eager": eager_seconds, "backends": results}


def _compare(backend: str, target: Any, args: tuple, kwargs: dict, expected: Any, allowed: float) -> dict[str, Any]:
    thruway.reset()
    pipeline = sys.modules.get("thruway.pipeline")

    def compile(function: Any) -> Any:
        return thruway.compile(function, backend=backend)

    target = copy.deepcopy(target)
    compiled = target.compiled(compile) if hasattr(target, "compiled") else compile(target)
    found: dict[str, Any] = {}
    try:
        first, found["first"] = _timed(compiled, args, kwargs)
        _settle(compiled, args, kwargs)
        second, found["second"] = _timed(compiled, args, kwargs)
        counted = thruway.metrics()
        third, found["third"] = _timed(compiled, args, kwargs)
        found["error"] = max(_difference(expected, got) for got in (first, second, third))
        found["verdict"] = "right" if found["error"] <= allowed else "wrong"
    except Exception as error:
        found |= {"verdict": "error", "trace": "".join(traceback.format_exception(error))[-1500:], "error": f"{type(error).__name__}: {error}"[:300]}
        counted = thruway.metrics()
    pipeline = sys.modules["thruway.pipeline"]
    found |= {name: counted[name] for name in ("graphs", "graph_breaks", "eager", "bugs", "recompiles")}
    found["recompiles_later"] = thruway.metrics()["recompiles"] - counted["recompiles"]
    found["reasons"] = [_reason(event) for event in pipeline.journal.events if event.kind in ("graph_break", "eager")]
    return found


def _settle(compiled: Any, args: tuple, kwargs: dict) -> None:
    """Calls until no capture waits any more for an answer that a call of the function itself gives."""
    waited = 0
    while waited < (waited := thruway.metrics()["postponed"]) <= MOST_POSTPONED:
        _timed(compiled, args, kwargs)


def _reason(event: Any) -> str:
    reason = event.reason
    text = f"{reason.code}: {reason.what}" if reason else event.detail
    where = reason.where if reason else None
    return f"{event.kind}: {text}" + (f" [{Path(where.file).name}:{where.line} {where.text[:80]}]" if where else "")


def _timed(call: Any, args: tuple, kwargs: dict) -> tuple[Any, float]:
    args, kwargs = copy.deepcopy((args, kwargs))
    torch.manual_seed(1)
    start = processor_seconds()
    result = call(*args, **kwargs)
    return result, processor_seconds() - start


def processor_seconds() -> float:
    """Of this process and of the compilers that it has waited for: other programs' load is not in it."""
    return sum(one.ru_utime + one.ru_stime for one in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def _cast(value: Any, dtype: torch.dtype) -> Any:
    match value:
        case torch.Tensor():
            return value.to(dtype) if value.is_floating_point() else value
        case dict():
            return {key: _cast(each, dtype) for key, each in value.items()}
        case list() | tuple():
            return type(value)(_cast(each, dtype) for each in value)
        case _:
            return value


def leaves(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """The tensors in nested containers, dataclasses and plain objects (caches), in order."""
    match value:
        case torch.Tensor():
            yield value
        case Mapping():
            for each in value.values():
                yield from leaves(each, depth + 1)
        case list() | tuple():
            for each in value:
                yield from leaves(each, depth + 1)
        case _ if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                yield from leaves(getattr(value, field.name), depth + 1)
        case _ if depth < DEEP and type(value).__module__.startswith("transformers") and hasattr(value, "__dict__"):
            for each in vars(value).values():
                yield from leaves(each, depth + 1)


def _difference(expected: Any, got: Any) -> float:
    """The largest difference of any tensor as a share of its largest value; infinite where structure, dtypes, shapes or nans differ."""
    if type(expected) is not type(got):
        return float("inf")
    wanted, found = list(leaves(expected)), list(leaves(got))
    if [(a.shape, a.dtype) for a in wanted] != [(b.shape, b.dtype) for b in found]:
        return float("inf")
    return max((_apart(a, b) for a, b in zip(wanted, found)), default=0.0)


def _apart(a: torch.Tensor, b: torch.Tensor) -> float:
    if not a.numel():
        return 0.0
    if not a.is_floating_point():
        return 0.0 if torch.equal(a, b) else float("inf")
    a, b = a.double(), b.double()
    usual = torch.isfinite(a)
    if not torch.equal(usual, torch.isfinite(b)) or not torch.equal(a[~usual].nan_to_num(0), b[~usual].nan_to_num(0)):
        return float("inf")
    return ((a - b)[usual].abs().max() / a[usual].abs().max().clamp(min=1e-30)).item() if usual.any() else 0.0


def line(name: str, found: dict[str, Any]) -> str:
    parts = [f"{name:40s} {found['verdict']:8s}"]
    for backend, one in found.get("backends", {}).items():
        error = one["error"] if isinstance(one["error"], str) else f"{one['error']:.0e}"
        parts.append(f"{backend}: {one['graphs']} graphs {one['graph_breaks']} breaks {one['eager']} eager {one['bugs']} bugs "
                     f"err {error} first {one.get('first', 0):.1f}s")
    reasons = Counter(reason for one in found.get("backends", {}).values() for reason in one["reasons"])
    return " | ".join(parts) + "".join(f"\n      {count}x {reason}" for reason, count in reasons.most_common(6)) + (f"  {found['error']}" if "error" in found else "")


def page(known: dict[str, Any]) -> str:
    """docs/models.md."""
    lines = ["# Whole models", "", "Made by `python bench/zoo.py … --page docs/models.md`; do not edit it here.", "",
             "Each model runs compiled beside eager with random weights at a small size, without gradients, on one CPU thread. *Error* is the largest",
             "difference as a share of the largest value; *first* is the processor's seconds of the first call, which compiles. One graph and no break is",
             "the aim.", ""]
    for suite in SUITES:
        rows = {key: one for key, one in known.items() if key.startswith(suite + "/")}
        if rows:
            lines += [f"## {suite}", "", summary(rows), "", "| model | dtype | result | graphs | breaks | eager | error | first s | reasons |",
                      "|---|---|---|---|---|---|---|---|---|", *(row(key, one) for key, one in sorted(rows.items())), ""]
    return "\n".join(lines)


def summary(rows: dict[str, Any]) -> str:
    results = [one["backends"]["thruway"] for one in rows.values() if "thruway" in one.get("backends", {})]
    whole = sum(one["graphs"] == 1 and not one["graph_breaks"] and not one["eager"] and not one["bugs"] for one in results)
    right = sum(one["verdict"] == "right" for one in results)
    return f"{len(rows)} runs: {right} right, {whole} of them one graph without a break."


def row(key: str, found: dict[str, Any]) -> str:
    _, model, dtype = key.split("/")
    one = found.get("backends", {}).get("thruway")
    if one is None:
        return f"| {model} | {dtype} | {found['verdict']} | | | | | | {_short(found.get('error', ''))} |"
    error = one["error"] if isinstance(one["error"], str) else f"{one['error']:.0e}"
    reasons = "; ".join(f"{count} × {_short(reason)}" for reason, count in Counter(map(_short, one["reasons"])).most_common(3))
    return f"| {model} | {dtype} | {found['verdict']} | {one['graphs']} | {one['graph_breaks']} | {one['eager']} | {error} | {one.get('first', 0):.1f} | {reasons} |"


def _short(reason: str) -> str:
    return re.sub(r"\s+", " ", reason).replace("|", "/")[:110]


if __name__ == "__main__":
    main()
