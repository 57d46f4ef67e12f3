"""What a call costs beside its graph: guards of a large module tree, dispatch of a small function, a graph break.

    python bench/call_overhead.py

First the figures with a bar: whole compiled calls whose graphs give a ready answer, so that what is left is thruway's own work; a nested
module's eager hooks and lookups are gone with it. Then single parts. Nanoseconds are the 20th percentile over rounds that interleave all
variants; CPU time of the thread, which load on the machine touches least.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

import torch

import thruway
from thruway import native
from thruway.frame.check import compile_check
from thruway.frame.entries import make_entry
from thruway.frame.guard import Guard, GuardSet, TensorExpectation
from thruway.frame.source import Attr, Local, Source
from thruway.frame.state import read_state

ROUNDS, CALLS = 25, 200
BARS = {"module tree": (20_000, 8_000), "plain function": (1_000, 300), "one break": (10_000, 10_000)}          # must, aim; nanoseconds


def expectation(t: torch.Tensor) -> TensorExpectation:
    return TensorExpectation(type(t), str(t.dtype).removeprefix("torch."), str(t.device), t.requires_grad, tuple(t.shape), tuple(t.stride()))


def module_guards(module: torch.nn.Module, source: Source) -> list[Guard]:
    """What capture guards of a module tree: classes, modes, that no hooks are there, and the metadata of every parameter."""
    guards = [Guard("type", source, type(module)), Guard("identity", Attr(source, "training"), module.training)]
    guards += [Guard("length", Attr(source, name), 0) for name in ("_forward_hooks", "_forward_pre_hooks")]
    guards += [Guard("tensor", Attr(source, name), expectation(p)) for name, p in module._parameters.items() if p is not None]
    for name, child in module._modules.items():
        guards += module_guards(child, Attr(source, name))
    return guards


def model(width: int, modules: int, parameters: int) -> torch.nn.Module:
    """A tree of that many modules, its root among them, three levels deep, with that many parameters."""
    layers: list[torch.nn.Module] = [torch.nn.Linear(width, width) for _ in range(parameters // 2)]
    blocks = 10
    layers += [torch.nn.ReLU() for _ in range(modules - 1 - blocks - len(layers))]
    return torch.nn.Sequential(*(torch.nn.Sequential(*layers[i::blocks]) for i in range(blocks)))


def percentile(values: list[float]) -> float:
    return sorted(values)[len(values) // 5]


def measure(variants: dict[str, Callable[[], object]]) -> dict[str, float]:
    seen: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(ROUNDS):
        gc.collect()
        for name, run in variants.items():
            start = time.thread_time_ns()
            for _ in range(CALLS):
                run()
            seen[name].append((time.thread_time_ns() - start) / CALLS)
    return {name: percentile(values) for name, values in seen.items()}


def forward(net, x):
    return net(x)


def small(a, b, c):
    return a * b + c


def whole(a, b):
    c = a * b
    return (c + b).relu()


def broken(a, b):
    c = a * b
    sys.intern("a")
    return (c + b).relu()


def ready(graph_module, inputs):
    """A backend whose graphs give what they gave the first time."""
    outputs = graph_module(*inputs)
    return lambda *tensors: outputs


def barred() -> dict[str, float]:
    """Nanoseconds of whole calls, and of the same without thruway, by the names of the bars."""
    net, x = model(4, 300, 500).eval(), torch.ones(2, 4)
    count = sum(1 for _ in net.modules()), sum(1 for _ in net.parameters())
    assert count == (300, 500), count
    with torch.no_grad():
        tree = thruway.compile(net, backend=ready)
        function, one, two = (thruway.compile(each, backend=ready) for each in (small, whole, broken))
        answer = (x,)
        nothing = lambda *tensors: answer
        runs = {
            "tree": lambda: tree(x), "small": lambda: function(x, x, x), "nothing": lambda: nothing(x, x, x), "whole": lambda: one(x, x),
            "broken": lambda: two(x, x), "step": lambda: sys.intern("a"),
        }
        for run in runs.values():
            run()
        found = measure(runs)
    assert thruway.metrics()["graph_breaks"] == 1 and thruway.metrics()["recompiles"] == 0
    return {"module tree": found["tree"] - found["nothing"], "plain function": found["small"] - found["nothing"],
            "one break": found["broken"] - found["whole"] - found["step"]}


def parts() -> dict[str, float]:
    core, state = native.core(), read_state()
    net, x = model(4, 100, 160), torch.ones(16)
    guards = GuardSet(state, tuple(module_guards(net, Local("net", 0))))
    program = compile_check(guards).program
    arguments = (net, x)
    tensors = tuple(Guard("tensor", Local(name, i), expectation(x)) for i, name in enumerate("abc"))
    result = (x,)
    record = make_entry("small", GuardSet(state, tensors), [guard.source for guard in tensors], lambda a, b, c: result, single_output=True)
    compiled = core.Compiled(small, lambda *call: None)
    compiled.entries = (record.entry,)
    alone = make_entry("alone", GuardSet(state, ()), (), None, lambda *call: x)
    unguarded = core.Compiled(small, lambda *call: None)
    unguarded.entries = (alone.entry,)
    graph = record.entry.graph
    figures = measure({
        "nothing": lambda: None,
        "guards of 160 parameters and 100 modules": lambda: program.check(forward, arguments),
        "the graph callable alone": lambda: graph(x, x, x),
        "small function, compiled: three tensor guards": lambda: compiled(x, x, x),
        "small function, compiled, by keyword": lambda: compiled(x, x, c=x),
        "small function, compiled, no guards": lambda: unguarded(x, x, x),
        "small function, eager": lambda: small(x, x, x),
    })
    print(f"{native.features()['native'] and 'C core' or 'Python twin'}, torch {torch.__version__}; {program.stats()}")
    return figures


def main() -> None:
    torch.set_num_threads(1)
    print("| what thruway adds to a call | µs | must | aim |\n|---|---|---|---|")
    for name, nanoseconds in barred().items():
        must, aim = BARS[name]
        print(f"| {name} | {nanoseconds / 1e3:.3f} | {must / 1e3:g} | {aim / 1e3:g} |{' missed' if nanoseconds > must else ''}")
    for name, nanoseconds in parts().items():
        print(f"{nanoseconds:9.0f} ns  {name}")


if __name__ == "__main__":
    main()
