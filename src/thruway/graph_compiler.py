"""From a captured graph to something that runs it: retrace → passes → lower → plan → generate → compile → load.

One `GraphCompiler` per process holds what outlives a compilation: the cache on disk, the C compiler and its workers, the target.
It is made at the first compilation. Without a C compiler the graph runs operator by operator, and the journal says what to install.
"""

from __future__ import annotations

import functools
import resource
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from thruway.artifact.artifact import Artifact
from thruway.artifact.key import graph_key
from thruway.artifact.store import StoreRefused, open_store, temporary_store
from thruway.artifact.target import cpu_target, open_toolchain
from thruway.artifact.toolchain import NO_COMPILER
from thruway.artifact.workers import Workers
from thruway.capture.conditional import Conditional, WhileLoop, forward_of
from thruway.codegen.output_strides import declare_strides
from thruway.codegen.sources import Sources, generate
from thruway.codegen.unfold import unfold
from thruway.core.errors import BreakReason, Unsupported
from thruway.core.journal import Journal
from thruway.core.launch import TensorSpec
from thruway.core.notice import warn
from thruway.core.passes import check_order, run_passes
from thruway.frame.modes import DTYPE_SETTERS, sets_modes, with_autocast
from thruway.core.settings import Settings
from thruway.core.sizes import SizeLike
from thruway.core.target import Target
from thruway.gpu_compiler import compile_on_gpu, is_on_gpu
from thruway.graph.aliases import node_traits
from thruway.graph.cut import Cut, Piece, SideInput, cut, needs_cut, output_places, side_inputs, side_piece
from thruway.graph.evaluate import evaluate
from thruway.graph.numbers import Placed, place_numbers, with_numbers
from thruway.graph.parts import Part, Parts, devices_of, draws, split_by_device, writes_inputs
from thruway.graph.repeats import Folded, fold_repeats
from thruway.graph.retrace import NOTHING, retrace
from thruway.graph.rewrite import Context, copied, values
from thruway.graph.show import show as show_graph
from thruway.graph.stages import CPU_PASSES, GENERAL_PASSES
from thruway.graph.verify import verify as verify_graph
from thruway.loops.lower import lower
from thruway.loops.show import show as show_program
from thruway.loops.simplify import simplify
from thruway.loops.verify import verify as verify_program
from thruway.native import RegionFailed
from thruway.runtime.load import load_artifact
from thruway.runtime.parts import PartsRunnable, Step, or_by_torch
from thruway.runtime.pieces import assumptions, by_operators, guarded, passing
from thruway.runtime.plain import may_write, plain_region
from thruway.schedule.build import build_plan
from thruway.schedule.show import show_plan
from thruway.shapes.equal_sizes import unite
from thruway.shapes.meta import TensorMeta
from thruway.shapes.symbolic import Facts

DERIVED_SHARE = 0.15        # of what the process has used; measured: padding and what compiling leaves behind take the rest of a quarter

PASSES = GENERAL_PASSES + CPU_PASSES
check_order(PASSES)


class GraphCompiler:
    """Compiles captured graphs into `journal`'s sight."""

    def __init__(self, journal: Journal):
        self.journal = journal
        self._machines: dict[tuple[str, str], Machine] = {}

    def compile(
        self, graph_module: GraphModule, metas: Sequence[TensorMeta | SizeLike], weights: Sequence[bool], name: str, settings: Settings,
        default_float: str = "float32", mode: str = "default", facts: Facts | None = None,
    ) -> Callable[..., tuple[torch.Tensor, ...]]:
        """A callable over the graph's inputs. Unsupported where a stage cannot take the graph."""
        if needs_cut(graph_module.graph):
            if sets_modes(graph_module.graph, DTYPE_SETTERS):
                raise Unsupported("TW808", "sizes depend on elements, and autocast is switched inside")
            known = [(weight, True) for weight in weights]
            run = self._compile_pieces(cut(graph_module, metas, weights), known, name, settings, default_float, mode, facts or Facts())
            return plain_region(graph_module.graph, run)
        machine = self.machine(settings)
        placed = place_numbers(graph_module, metas, weights)
        return with_numbers(self._compile_tensors(placed, name, settings, machine, default_float, mode, facts or Facts()), placed.convert)

    def _compile_pieces(
        self, pieces: Cut, known: Sequence[tuple[bool, bool]], name: str, settings: Settings, default_float: str, mode: str, facts: Facts,
    ) -> Callable[..., Any]:
        """The outer graph, which runs compiled pieces where they are compiled. `known`: of its inputs, whether they are weights, and trusted."""
        for k, piece in enumerate(pieces.pieces):
            piece.call.target = self._piece(piece, f"{name}.{k}", settings, default_float, mode, facts)
        inputs = dict(zip(pieces.outer.graph.find_nodes(op="placeholder"), known))
        for k, node in enumerate(pieces.outer.graph.nodes):
            if isinstance(node.target, Conditional | WhileLoop):
                node.target = node.target.driver(*(self._side(node, side, side_inputs(node, side, inputs), f"{name}.{k}.{i}", settings, default_float,
                                                              mode, facts) for i, side in enumerate(node.target.sides)))
        pieces.outer.recompile()
        return pieces.outer.forward

    def _side(
        self, node: Node, side: GraphModule, inputs: Sequence[SideInput], name: str, settings: Settings, default_float: str, mode: str, facts: Facts,
    ) -> Callable[..., Any]:
        """What runs a side of a conditional, or a round of a loop."""
        if (piece := side_piece(node, side, inputs)) is not None:
            run = self._piece(piece, name, settings, default_float, mode, facts)
            places = output_places(side)
            return run if places == [(False, i) for i in range(len(places))] else passing(run, places)
        if not needs_cut(side.graph) or any(one.meta is None for one in inputs) or sets_modes(side.graph, DTYPE_SETTERS):
            return by_operators(forward_of(side))
        weights, trusted = [one.weight for one in inputs], [one.trusted for one in inputs]
        pieces = cut(side, [one.meta for one in inputs], weights, trusted)
        return self._compile_pieces(pieces, list(zip(weights, trusted)), name, settings, default_float, mode, facts)

    def _piece(self, piece: Piece, name: str, settings: Settings, default_float: str, mode: str, facts: Facts) -> Callable[..., Any]:
        plain = by_operators(forward_of(piece.module))
        try:
            if piece.overlaps and may_write(piece.module.graph):
                raise Unsupported("TW807", "a piece writes one of two tensors that may share memory")
            return self._compile_piece(piece, plain, name, settings, default_float, mode, facts)
        except Unsupported as failure:
            self.journal.add("eager", name, "a piece of the graph runs by torch's operators", reason=failure.reason)
        return plain

    def _compile_piece(
        self, piece: Piece, plain: Callable[..., Any], name: str, settings: Settings, default_float: str, mode: str, facts: Facts,
    ) -> Callable[..., Any]:
        """A piece compiled for sizes of at least 2, and for what else it assumes; other calls run `plain`."""
        placed = place_numbers(piece.module, piece.metas, piece.weights)
        assumed = Facts(dict(facts.hints), known=facts.known)
        unrecorded = "default-no-cudagraphs" if mode in ("default", "reduce-overhead") else "max-autotune-no-cudagraphs"
        note_unrecorded(self.journal, name, placed.metas, "only a run knows sizes or values that lie between its pieces")
        compiled = self._compile_tensors(placed, name, settings, self.machine(settings), default_float, unrecorded, assumed, is_guarded=True)
        layouts = [(meta.sizes, meta.strides, trusted) for meta, trusted in zip(placed.metas, _trusted(piece, placed))]
        holds = assumptions(layouts, [(fact.left, fact.operator, fact.right) for fact in assumed.recorded])
        return guarded(compiled, plain, placed.convert, holds)

    def _compile_tensors(
        self, placed: Placed, name: str, settings: Settings, machine: Machine, default_float: str, mode: str, facts: Facts, is_guarded: bool = False,
    ) -> Callable[..., Any]:
        """`is_guarded`: what is assumed of sizes is checked at each call."""
        metas, facts = unite(placed.metas, facts)
        compile_blocks = functools.partial(self._compile_blocks, placed.module, metas, placed.weights, name, settings, machine, default_float, mode, facts,
                                           is_guarded)
        folded = fold_repeats(placed.module.graph, metas, placed.weights, _derived_limit())
        if folded is not None and machine.target.kernels:
            try:
                return compile_blocks(folded)
            except _Unlike:
                self.journal.add("whole", name, "equal blocks are compiled one by one after all: their steps differ")
        return compile_blocks(None)

    def _compile_blocks(
        self, module: GraphModule, metas: Sequence[TensorMeta], weights: Sequence[bool], name: str, settings: Settings, machine: Machine, default_float: str,
        mode: str, facts: Facts, is_guarded: bool, folded: Folded | None,
    ) -> Callable[..., Any]:
        """With `folded`, of equal blocks only those that it keeps; _Unlike where they cannot stand for all."""
        with self._stage("retrace", name, settings):
            graph = retrace(module, metas, weights, facts, folded.left_out if folded else NOTHING)
        with with_autocast(()):                                     # its casts are operators of the graph now
            return self._compile_operators(graph, name, settings, machine, default_float, mode, facts, is_guarded, folded)

    def _compile_operators(
        self, graph: Graph, name: str, settings: Settings, machine: Machine, default_float: str, mode: str, facts: Facts, is_guarded: bool,
        folded: Folded | None = None,
    ) -> Callable[..., Any]:
        if is_on_gpu(graph):
            if folded is not None:
                raise _Unlike
            if not is_guarded:
                refuse_assumed_sizes(facts)
            if len(devices_of(graph)) > 1:
                return self._compile_parts(split_by_device(graph), name, settings, machine, default_float, mode)
            return compile_on_gpu(graph, machine.store, self.journal, name, settings, default_float, mode)
        in_eager = values(graph.output_node().args[0])
        graph = self._passes(graph, machine.target, facts, name, settings, folded)
        _refuse_what_is_elsewhere(graph, machine.target)
        if not is_guarded:
            refuse_assumed_sizes(facts)
        if not machine.target.kernels:
            self.journal.add("eager", name, reason=BreakReason("TW801", NO_COMPILER))
            return plain_region(graph, functools.partial(_run_operators, graph))
        with self._stage("lower", name, settings):
            program = simplify(lower(graph, machine.target, default_float))
        if settings.verify:
            verify_program(program)
        self.journal.offer("loops", name, lambda: show_program(program))
        with self._stage("plan", name, settings):
            plan = build_plan(program, machine.target, settings)
        self.journal.offer("plan", name, lambda: show_plan(plan))
        if plan.predictions:
            gain = sum(each.microseconds for each in plan.predictions)
            saves = "1 fusion saves" if len(plan.predictions) == 1 else f"{len(plan.predictions)} fusions save"
            without = ", those of copied blocks not counted" if folded else ""
            self.journal.add("predicted", name, f"{saves} {gain:.3g} µs a call{without}")
        with self._stage("generate", name, settings):
            sources = generate(plan, machine.target)
            if folded is not None:
                sources = _unfolded(sources, folded)
                self.journal.add("copied", name, f"the steps of {folded.copies} of {len(folded.fold.blocks)} equal blocks are copies")
        sources = replace(sources, launch=declare_strides(sources.launch, _other_strides(values(graph.output_node().args[0]), in_eager)))
        self.journal.offer("code", name, lambda: "\n".join(sources.units))
        call = self._load(sources, machine, name, settings)
        return _restoring_random_state(call) if any(map(_draws, graph.nodes)) else call

    def _compile_parts(self, parts: Parts, name: str, settings: Settings, machine: Machine, default_float: str, mode: str) -> Callable[..., Any]:
        """The parts of a graph over several devices, each compiled for its own."""
        steps = []
        for part in parts.steps:
            run = self._part(part, f"{name}.{len(steps)}", settings, machine, default_float, mode)
            steps.append(Step(run, part.inputs, part.outputs, writes_inputs(part.graph)))
        devices = [part.device for part in parts.steps if part.device]
        self.journal.add("parts", name, f"{' and '.join(devices)}, with {len(steps) - len(devices)} moves between devices")
        return PartsRunnable(steps, parts.inputs, parts.outputs, any(draws(part.graph) for part in parts.steps))

    def _part(self, part: Part, name: str, settings: Settings, machine: Machine, default_float: str, mode: str) -> Callable[..., Any]:
        """A part compiled, or run by torch's operators: a move, or one that no stage takes."""
        if part.device is None:
            return functools.partial(_run_move, part.graph)
        by_torch = functools.partial(_run_part, copied(part.graph))
        try:
            return or_by_torch(self._compile_operators(part.graph, name, settings, machine, default_float, mode, Facts(), True), by_torch)
        except Unsupported as failure:
            self.journal.add("eager", name, f"a part on {part.device} runs by torch's operators", reason=failure.reason)
            return by_torch

    @contextmanager
    def _stage(self, stage: str, name: str, settings: Settings) -> Iterator[None]:
        with self.journal.time(stage, name):
            yield
        if settings.stop == stage:
            raise Unsupported("TW803", f"THRUWAY_STOP asks to stop after {stage}")

    def _passes(self, graph: Graph, target: Target, facts: Facts, name: str, settings: Settings, folded: Folded | None) -> Graph:
        limit, denied = (folded.limit, folded.denied) if folded else (_derived_limit(), frozenset[str]())
        context = Context(target, settings.numerics, limit, denied=denied, owns_graph=settings.verify < 2)
        verify = functools.partial(verify_graph, facts=facts) if settings.verify > 1 else None

        def report(stage: str, seconds: float, changed: bool, value: Graph) -> None:
            self.journal.add("stage", name, "" if changed or context.owns_graph else "(unchanged)", stage=stage, seconds=seconds)

        graph = run_passes(PASSES, graph, context, verify=verify, report=report)
        context.tell(self.journal, name)
        self.journal.offer("graph", name, lambda: show_graph(graph))
        return graph

    def _load(self, sources: Sources, machine: Machine, name: str, settings: Settings) -> Callable[..., tuple[torch.Tensor, ...]]:
        key = graph_key(sources.hash, settings, machine.target, torch.__version__, "")
        artifact = Artifact(key, sources.units, sources.launch)
        with self.journal.time("compile", name):
            runnable = load_artifact(artifact, machine.workers, report=lambda detail: self.journal.add("repack", name, str(detail)),
                                     note=lambda kind, detail: self.journal.add(kind, name, detail))
        return runnable.call

    def machine(self, settings: Settings) -> Machine:
        """What compiles here under these settings."""
        key = (settings.cache_dir, settings.compiler)
        if key not in self._machines:
            self._machines[key] = Machine(settings, self.journal)
        return self._machines[key]


def _trusted(piece: Piece, placed: Placed) -> list[bool]:
    """`piece.trusted` for the tensors that it takes after numbers were placed; those that carry numbers are our own."""
    known = {node.name: trusted for node, trusted in zip(piece.module.graph.find_nodes(op="placeholder"), piece.trusted)}
    return [known.get(node.name, True) for node in placed.module.graph.find_nodes(op="placeholder")]


class Machine:
    """The store, the workers (None without a compiler) and the target of this machine. A GPU asks for no C compiler."""

    def __init__(self, settings: Settings, journal: Journal):
        self.settings, self.journal = settings, journal
        try:
            self.store = open_store(settings)
        except StoreRefused as refused:
            warn(f"{refused}. Until then kernels are kept for this process alone.")
            self.store, self._folder = temporary_store(settings)

    @functools.cached_property
    def workers(self) -> Workers | None:
        toolchain = open_toolchain(self.settings.compiler, self.store)
        if toolchain is None:
            return None
        return Workers(toolchain, self.store)

    @functools.cached_property
    def target(self) -> Target:
        return cpu_target(kernels=self.workers is not None)


class _Unlike(Exception):
    """Blocks that are equal in the captured graph became different steps."""


def _unfolded(sources: Sources, folded: Folded) -> Sources:
    """`sources` for all the blocks of the graph."""
    launch = unfold(sources.launch, folded.fold)
    if launch is None:
        raise _Unlike
    return replace(sources, launch=launch)


def note_unrecorded(journal: Journal, name: str, metas: Iterable[object], why: str) -> None:
    """Where some input is on a GPU: why the step is not one CUDA graph."""
    if any(isinstance(meta, TensorMeta) and meta.device.startswith("cuda") for meta in metas):
        journal.add("cuda_graph_refused", name, why, reason=BreakReason("TW712", why))


def _other_strides(made: Sequence[Any], wanted: Sequence[Any]) -> dict[int, TensorSpec]:
    """Outputs whose strides the passes changed, which they may where a dimension has size 1."""
    pairs = [(k, a, b) for k, (a, b) in enumerate(zip(made, wanted, strict=True)) if isinstance(a, TensorMeta) and isinstance(b, TensorMeta)]
    return {k: TensorSpec(b.dtype, b.sizes, b.strides, b.device) for k, a, b in pairs if a.strides != b.strides and a.sizes == b.sizes and 0 not in b.sizes}


def _derived_limit() -> int:
    """Bytes that folded and packed weights may take, so that the whole stays within a quarter more than the process has used so far:
    packed forms are padded, and compiling takes memory of its own."""
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 * DERIVED_SHARE)


def _refuse_what_is_elsewhere(graph: Graph, target: Target) -> None:
    """Unsupported where a value lives on another device than the target's."""
    for node in graph.nodes:
        value = node.meta.get("value")
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, TensorMeta) and one.device.partition(":")[0] != target.kind:
                raise Unsupported("TW805", f"{node.name} is on {one.device}; kernels are made for {target.kind} here")


def refuse_assumed_sizes(facts: Facts) -> None:
    """Unsupported where sizes were assumed that no guard knows."""
    if facts.recorded:
        raise Unsupported("TW806", f"the sizes have to satisfy {next(iter(facts.recorded))}, which no guard checks")


def _draws(node: Node) -> bool:
    return (traits := node_traits(node)) is not None and traits.random


def _restoring_random_state(call: Callable[..., tuple[torch.Tensor, ...]]) -> Callable[..., tuple[torch.Tensor, ...]]:
    """`call`, giving back what it drew where it fails."""
    def drawing(*inputs: Any) -> tuple[torch.Tensor, ...]:
        state = torch.get_rng_state()
        try:
            return call(*inputs)
        except RegionFailed:
            torch.set_rng_state(state)
            raise

    return drawing


def _run_part(graph: Graph, *inputs: Any) -> tuple[Any, ...]:
    with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
        return _run_move(graph, *inputs)


def _run_move(graph: Graph, *inputs: Any) -> tuple[Any, ...]:
    with torch.no_grad():
        return tuple(_laid_out(value, node.meta["value"]) for value, node in zip(evaluate(graph, inputs), graph.output_node().args[0]))


def _laid_out(value: torch.Tensor, promised: TensorMeta) -> torch.Tensor:
    """`value` in the layout that later parts count on."""
    if all(a == b or size == 1 for a, b, size in zip(value.stride(), promised.strides, promised.sizes)):
        return value
    return torch.empty_strided(promised.sizes, promised.strides, dtype=value.dtype, device=value.device).copy_(value)


def _run_operators(graph: Graph, *inputs: Any) -> tuple[Any, ...]:
    with torch.no_grad():
        return evaluate(graph, inputs)
