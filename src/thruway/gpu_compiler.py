"""From a retraced graph on one GPU to something that runs it: passes → split off derived values → lower → plan → Triton → cubins → load.

The GPU's twin of `graph_compiler`, imported for graphs on a GPU alone. Derived values (folded and turned weights) are made by torch's
operators, so that nothing is compiled for what runs once. Without Triton, graphs that are library calls alone still run compiled.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from thruway.artifact.gpu_kernels import GpuKernels, KernelJob
from thruway.artifact.gpu_target import capability, gpu_target
from thruway.artifact.store import Store
from thruway.codegen.gpu_sources import GpuSource, GpuSources, generate_gpu
from thruway.codegen.triton_source import Config
from thruway.core.errors import BreakReason, CompilerBug, Unsupported
from thruway.core.journal import Journal
from thruway.core.launch import GpuKernel
from thruway.core.passes import check_order, run_passes
from thruway.core.settings import Settings
from thruway.core.target import Target
from thruway.graph.evaluate import evaluate
from thruway.graph.gpu_stages import GPU_PASSES
from thruway.graph.parts import devices_of
from thruway.graph.rewrite import Context, erase_unused, make_node, meta
from thruway.graph.show import show as show_graph
from thruway.graph.stages import GENERAL_PASSES
from thruway.graph.verify import verify as verify_graph
from thruway.loops.ir import Program, Update
from thruway.loops.lower import lower
from thruway.loops.lowerings.products import Parts, Product
from thruway.loops.simplify import simplify
from thruway.loops.show import show as show_program
from thruway.loops.verify import verify as verify_program
from thruway.runtime.cuda.derived import KeptValues
from thruway.runtime.cuda.driver import driver
from thruway.runtime.cuda.load import GpuRunnable
from thruway.runtime.cuda.sized import SizedKernels
from thruway.runtime.cuda.plans import PlanTimes
from thruway.runtime.cuda.tune import Candidates, choice_key, choose
from thruway.schedule.build import build_plan
from thruway.schedule.plan import Plan
from thruway.schedule.products import in_libraries, parts_of, trials
from thruway.schedule.rewrite import is_size
from thruway.schedule.show import show_plan
from thruway.schedule.split import split_long_reductions
from thruway.shapes.meta import TensorMeta

PASSES = GENERAL_PASSES + GPU_PASSES
check_order(PASSES)
DERIVED_FLOOR = 256 << 20          # bytes that derived values may take in any case
PRODUCT_SHARE = 1 / 3             # of autotuning's time, for measuring which matrix products are kernels of ours
TRIED = 3                          # configurations of a product that are measured to decide about it
GAIN = 0.003                       # of a plan's time that a choice must save
Runs = Callable[..., tuple[torch.Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Split:
    """`main` takes the graph's inputs and then what `derived` returns for them (None where nothing is derived). `watched`: the
    inputs that `derived` reads."""

    main: Graph
    derived: Graph | None
    watched: tuple[int, ...]


def compile_on_gpu(
    graph: Graph, store: Store, journal: Journal, name: str, settings: Settings, default_float: str, mode: str,
) -> Runs:
    """A callable over the inputs of `graph`, which was retraced. Unsupported where a stage cannot take it."""
    device = device_of(graph)
    target = gpu_target(device.index)
    graph = run_gpu_passes(graph, target, journal, name, settings, _derived_limit(device.index))
    split = split_derived(graph)
    kernels = GpuKernels(store, capability(device.index), lambda kind, detail: journal.add(kind, name, detail))
    choice: Parts = parts_of if target.kernels else in_libraries
    tunes = mode.startswith("max-autotune") and target.kernels
    if tunes:
        def printed(parts: Parts) -> GpuSources:
            return print_graph(split.main, target, str(device), settings, default_float, Journal(), name, parts)
        with journal.time("choose products", name), torch.cuda.device(device):            # events and code belong to the current one
            seconds = settings.tune_seconds * PRODUCT_SHARE
            choice = choose_products(printed, kernels, device, lambda kind, text: _note(journal, name, kind, text), seconds)
    with journal.time("lower", name):
        sources = print_graph(split.main, target, str(device), settings, default_float, journal, name, choice)
    with journal.time("compile", name), torch.cuda.device(device):
        seconds = settings.tune_seconds * (1 - PRODUCT_SHARE)
        made = _kernels(sources, kernels, device, tunes, lambda kind, text: _note(journal, name, kind, text), seconds)
    kept = None
    if split.derived is not None:
        derived = split.derived
        kept = KeptValues(lambda inputs: settled_values(derived, inputs), split.watched, lambda text: journal.add("repack", name, text))
    graphs = not mode.endswith("no-cudagraphs")

    def widen() -> list[GpuKernel]:
        wider = print_graph(split.main, target, str(device), settings, default_float, Journal(), name, choice, wide=True)
        return _kernels(wider, kernels, device, False, lambda kind, text: None, 0.0)
    sized = SizedKernels({k.symbol: k for k in made}, sources.reach, widen if sources.reach else tuple)
    return GpuRunnable(sources.launch, sized, device, graphs, kept, lambda kind, text: _note(journal, name, kind, text))


def _kernels(
    sources: GpuSources, kernels: GpuKernels, device: torch.device, tunes: bool, note: Callable[[str, str], None], seconds: float,
) -> list[GpuKernel]:
    """The kernels as the cost model guesses, or, where autotuning is asked for, as they measure best within `seconds`."""
    if not tunes or not sources.kernels:
        return kernels.get([kernel_job(each, each.source.configs[0]) for each in sources.kernels])
    return choose([_candidates(each, len(each.source.configs)) for each in sources.kernels], kernels, driver(), device, note, seconds)


def _candidates(kernel: GpuSource, count: int) -> Candidates:
    return Candidates(tuple(kernel_job(kernel, config) for config in kernel.source.configs[:count]), kernel.pointer_bytes)


def choose_products(
    printed: Callable[[Parts], GpuSources], kernels: GpuKernels, device: torch.device, note: Callable[[str, str], None], seconds: float,
) -> Parts:
    """Which matrix products are kernels of ours, and in how many parts, by what the whole plan takes with each; each kept in the store.
    Those that the time did not reach stay by rule, and are measured by the next process."""
    found: dict[Product, int] = {}

    def default(product: Product) -> int:
        return found.setdefault(product, parts_of(product))
    base = printed(default)
    ways = {product: trials(product) for product in found}
    keys = {product: choice_key(f"{base.hash} {list(found.items())} {product}", kernels.capability, device) for product, parts in ways.items() if parts}
    known = {product: int(data) for product, key in keys.items() if (data := kernels.store.get(key)) is not None}
    best, unknown = found | known, [product for product in keys if product not in known]
    deadline, times = time.perf_counter() + seconds, PlanTimes(kernels, driver(), device)

    def total(choice: dict[Product, int]) -> float:
        try:
            sources = printed(choice.__getitem__)
        except (Unsupported, CompilerBug):
            return math.inf
        return times.total(sources.launch, {each.source.symbol: _candidates(each, 1 if each.source.tiles is None else TRIED) for each in sources.kernels})
    least = total(found) if unknown else 0.0
    for done, product in enumerate(unknown):
        others = [n for n in (0, *ways[product]) if n != found[product]]
        gains = {n: least - total(found | {product: n}) for n in others if time.perf_counter() < deadline}
        if len(gains) < len(others):
            note("measured", f"{seconds:.0f} s are spent: {len(unknown) - done} matrix products stay as they are by rule")
            break
        best[product] = max((n for n, gain in gains.items() if gain > GAIN * least), key=gains.__getitem__, default=found[product])
        text = ", ".join(f"{gain:.1f} µs less in {n} parts" if n else f"{gain:.1f} µs less by the library" for n, gain in gains.items())
        note("measured", f"{product}: {text}, of {least:.1f} µs with {found[product]} parts")
        kernels.store.put(keys[product], str(best[product]).encode())
    return best.__getitem__


def run_gpu_passes(graph: Graph, target: Target, journal: Journal, name: str, settings: Settings, derived_limit: int | None) -> Graph:
    context = Context(target, settings.numerics, derived_limit, owns_graph=settings.verify < 2)
    verify = verify_graph if settings.verify > 1 else None

    def report(stage: str, seconds: float, changed: bool, value: Graph) -> None:
        journal.add("stage", name, "" if changed or context.owns_graph else "(unchanged)", stage=stage, seconds=seconds)

    graph = run_passes(PASSES, graph, context, verify=verify, report=report)
    context.tell(journal, name)
    journal.offer("graph", name, lambda: show_graph(graph))
    return graph


def print_graph(
    graph: Graph, target: Target, device: str, settings: Settings, default_float: str, journal: Journal, name: str, products: Parts = parts_of,
    wide: bool = False,
) -> GpuSources:
    """Loops, plan and Triton text of a graph whose derived values are inputs. `products`: which matrix products are kernels of ours;
    none is where one of them turns out to be nothing for tensor cores, or cannot be printed. `wide`: with 64-bit indices in any case."""
    try:
        sources = _printed(graph, target, device, settings, default_float, journal, name, products, wide)
        if not any(each.misses_tiles for each in sources.kernels):
            return sources
    except Unsupported:
        pass
    return _printed(graph, target, device, settings, default_float, journal, name, in_libraries, wide)


def _printed(
    graph: Graph, target: Target, device: str, settings: Settings, default_float: str, journal: Journal, name: str, products: Parts, wide: bool,
) -> GpuSources:
    program = simplify(lower(graph, target, default_float, products))
    if settings.verify:
        verify_program(program)
    journal.offer("loops", name, lambda: show_program(program))
    if torch.are_deterministic_algorithms_enabled():
        refuse_unordered(program)
    plan: Plan = build_plan(split_long_reductions(program), target, settings)
    journal.offer("plan", name, lambda: show_plan(plan))
    sources = generate_gpu(plan, device, wide)
    journal.offer("code", name, lambda: sources.text)
    return sources


def refuse_unordered(program: Program) -> None:
    """Unsupported where many threads may write one place: which comes last, or how their sum is rounded, is no number's to say."""
    if any(isinstance(node, Update) and not all(map(is_size, node.index)) for node in program.nodes):
        raise Unsupported("TW704", "writes at computed places have no order on the GPU, and torch.use_deterministic_algorithms asks for one")


def kernel_job(kernel: GpuSource, config: Config) -> KernelJob:
    source = kernel.source
    points, block = source.programs(config)
    return KernelJob(source.text, source.symbol, kernel.dtypes, (True,) * len(kernel.dtypes), source.checks, source.sizes, source.wide, points, block,
                     source.constants(config), config.warps, config.stages, kernel.floor_bytes)


def is_on_gpu(graph: Graph) -> bool:
    """Whether some value of `graph` lives on a GPU."""
    return any(isinstance(value := node.meta.get("value"), TensorMeta) and value.device.startswith("cuda") for node in graph.nodes)


def device_of(graph: Graph) -> torch.device:
    """The one GPU of the graph. Unsupported where an input is a number, or nothing is on a GPU."""
    if any(not isinstance(node.meta.get("value"), TensorMeta) for node in graph.find_nodes(op="placeholder")):
        raise Unsupported("TW711", "a number among the inputs of a graph on a GPU")
    found = sorted(device for device in devices_of(graph) if device.startswith("cuda"))
    if len(found) != 1:
        raise Unsupported("TW711", f"not one GPU in the graph: {found or 'none'}")
    device = torch.device(found.pop())
    return device if device.index is not None else torch.device("cuda", torch.cuda.current_device())


def split_derived(graph: Graph) -> Split:
    """`graph` with what is derived from weights made an input, and the graph that makes it. The first is `graph` itself, changed."""
    ends = [node for node in graph.nodes if _is_end(node)]
    if not ends:
        return Split(graph, None, ())
    derived = _part_of(graph, ends)
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    for end in ends:
        with graph.inserting_after(last):
            made = make_node(graph, "placeholder", f"kept_{end.name}", (), {}, f"kept_{end.name}")
        made.meta.update(value=meta(end), line=None, weight=True)
        end.replace_all_uses_with(made)
        last = made
    erase_unused(graph)
    placeholders = [node for node in derived.nodes if node.op == "placeholder"]
    return Split(graph, derived, tuple(i for i, node in enumerate(placeholders) if node.users))


def _part_of(graph: Graph, ends: Sequence[Node]) -> Graph:
    """A graph of its own, with the same inputs, that gives `ends` alone."""
    needed, waiting = set(ends), list(ends)
    while waiting:
        more = [node for node in waiting.pop().all_input_nodes if node not in needed]
        needed.update(more)
        waiting += more
    part, twins = Graph(), {}
    for node in graph.nodes:
        if node in needed or node.op == "placeholder":
            twin = twins[node] = make_node(part, node.op, node.target, *map_arg((node.args, node.kwargs), twins.__getitem__), node.name)
            twin.meta.update(node.meta)
    part.output(tuple(twins[end] for end in ends))
    return part


def _is_end(node: Node) -> bool:
    """A derived tensor that something not derived reads."""
    if not node.meta.get("derived") or not isinstance(meta(node), TensorMeta):
        return False
    return any(not user.meta.get("derived") for user in node.users)


def settled_values(graph: Graph, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The graph's results in the layouts that its metadata promises, in memory of their own."""
    values: list[torch.Tensor] = []
    for value, node in zip(evaluate(graph, inputs), graph.output_node().args[0]):
        promised = meta(node)
        if value.stride() != promised.strides or value.data_ptr() % 16:
            value = torch.empty_strided(promised.sizes, promised.strides, dtype=value.dtype, device=value.device).copy_(value)
        values.append(value)
    return tuple(values)


def _derived_limit(index: int) -> int:
    """Bytes that derived values may take: a quarter of what this GPU has held at most so far."""
    return max(DERIVED_FLOOR, torch.cuda.max_memory_allocated(index) // 4)


def _note(journal: Journal, name: str, kind: str, text: str) -> None:
    reason: Any = BreakReason("TW712", text) if kind == "cuda_graph_refused" else None
    journal.add(kind, name, text, reason=reason)
