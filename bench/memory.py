"""What stays in memory: after calls with ever new Python objects, and after a compiled module is deleted.

    python bench/memory.py

Objects are those that the collector knows; resident size is the process's own, in MB. Both count from when a tenth of the calls are over.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import torch

import thruway

CALLS = 1000


class Config:
    def __init__(self, scale):
        self.scale = scale
        self.table = {"shift": 1.0, "names": [str(scale)]}


def by_object(x, config):
    return x * config.scale + config.table["shift"]


def by_key(x, table):
    return x + table["shift"]


def with_a_break(x, config):
    y = x * 2
    str.casefold(config.table["names"][0])
    return y + len(config.table)


def by_closure(x, function):
    return function(x) * 2


def made_with(scale):
    return lambda x: x * 2 + len([scale])


WORKS: dict[str, tuple[Callable[..., torch.Tensor], Callable[[int], object]]] = {
    "an object, the same values": (by_object, lambda i: Config(2.0)),
    "an object, other floats": (by_object, lambda i: Config(i + 0.5)),
    "a dict": (by_key, lambda i: {"shift": torch.ones(3)}),
    "an object below a break": (with_a_break, lambda i: Config(2.0)),
    "a closure": (by_closure, made_with),
}


def resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def grown(work: Callable[..., torch.Tensor], make: Callable[[int], object]) -> tuple[int, float, int]:
    """Objects and MB that the last nine tenths of the calls leave behind, and entries made in all."""
    compiled, x = thruway.compile(work), torch.ones(3)
    count = size = 0
    for i in range(CALLS):
        if i == CALLS // 10:
            gc.collect()
            count, size = len(gc.get_objects()), resident()
        compiled(x, make(i))
    gc.collect()
    return len(gc.get_objects()) - count, resident() - size, thruway.metrics()["captures"]


def is_freed() -> bool:
    """Whether a compiled module goes with its last reference, its weights with it."""
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
    compiled = thruway.compile(net)
    with torch.no_grad():
        compiled(torch.ones(2, 64))
    compiled(torch.ones(2, 64)).sum().backward()
    gone = weakref.ref(net[0].weight), weakref.ref(net)
    del net, compiled
    gc.collect()
    return all(each() is None for each in gone)


def main() -> None:
    torch.set_num_threads(1)
    print(f"| {CALLS} calls, each with | objects left | MB left | captures |\n|---|---|---|---|")
    for name, (work, make) in WORKS.items():
        thruway.reset()
        objects, megabytes, captures = grown(work, make)
        print(f"| {name} | {objects} | {megabytes:.2f} | {captures} |")
    print(f"\na deleted compiled module is {'freed' if is_freed() else 'NOT freed'}")


if __name__ == "__main__":
    main()
