"""What a call costs before its graph runs: guards of a large model, and the dispatch of a small function.

    python bench/call_overhead.py

Prints nanoseconds, the 20th percentile over rounds that interleave all variants, so that load on the machine hits them alike.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import torch
from thruway import native
from thruway.frame.check import compile_check
from thruway.frame.entries import make_entry
from thruway.frame.guard import Guard, GuardSet, TensorExpectation
from thruway.frame.source import Attr, Local, Source
from thruway.frame.state import read_state

ROUNDS, CALLS = 25, 400


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
    layers = [torch.nn.Linear(width, width) for _ in range(parameters // 2)]
    return torch.nn.Sequential(*layers, *(torch.nn.ReLU() for _ in range(modules - 1 - len(layers))))


def percentile(values: list[float]) -> float:
    return sorted(values)[len(values) // 5]


def measure(variants: dict[str, Callable[[], object]]) -> dict[str, float]:
    seen: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(ROUNDS):
        gc.collect()
        for name, run in variants.items():
            start = time.perf_counter_ns()
            for _ in range(CALLS):
                run()
            seen[name].append((time.perf_counter_ns() - start) / CALLS)
    return {name: percentile(values) for name, values in seen.items()}


def forward(net, x):
    return net(x)


def small(a, b, c):
    return a * b + c


def main() -> None:
    torch.set_num_threads(1)
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

    def call_model():
        program.check(forward, arguments)

    figures = measure({
        "nothing": lambda: None,
        "guards of 160 parameters and 100 modules": call_model,
        "the graph callable alone": lambda: graph(x, x, x),
        "small function, compiled: three tensor guards": lambda: compiled(x, x, x),
        "small function, compiled, by keyword": lambda: compiled(x, x, c=x),
        "small function, compiled, no guards": lambda: unguarded(x, x, x),
        "small function, eager": lambda: small(x, x, x),
    })
    print(f"{native.features()['native'] and 'C core' or 'Python twin'}, torch {torch.__version__}; {program.stats()}")
    for name, nanoseconds in figures.items():
        print(f"{nanoseconds:9.0f} ns  {name}")


if __name__ == "__main__":
    main()
