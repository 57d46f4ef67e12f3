"""The house assertion: a compiled function does what eager does, in everything a caller could see.

`assert_same(fn, *args)` runs `fn` eager and compiled on equal inputs and compares outputs (structure, values, dtypes, shapes, strides,
requires_grad, which tensors share memory or are the same object), exceptions (type and text), inputs and module state afterwards,
what `observe()` returns, the state of random generators, and gradients. Both run twice in turn, so that the second call is answered by an entry.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy
import torch
from torch import nn

import thruway

# Allowed difference: relative to each value, and to the largest value of the tensor.
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.complex64: 2e-5, torch.complex128: 1e-11}


@dataclass
class Run:
    """Everything seen of one call. `tensors` are all tensors among inputs, state and outputs, by place, in one order."""

    output: Any
    error: BaseException | None
    inputs: Any
    state: dict[str, torch.Tensor]
    seen: Any
    random: tuple[Any, ...]
    gradients: dict[str, torch.Tensor | None]
    tensors: dict[str, torch.Tensor]


def assert_same(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    graphs: int | None = None,
    breaks: int | None = None,
    backend: Any = "thruway",
    grads: bool = True,
    no_grad: bool = False,
    tolerance: float | None = None,
    prepare: Callable[[], None] | None = None,
    observe: Callable[[], Any] | None = None,
    compile: Callable[[Any], Any] | None = None,
    **compile_words: Any,
) -> Any:
    """Raises AssertionError naming the first difference; returns eager's output.

    `graphs` and `breaks` are the counts that the first compiled call must add to `metrics()`. `prepare` runs before each call (to reset a global,
    say), `observe` after each. `tolerance` replaces the table's. `compile` replaces thruway.compile, to test this assertion itself.
    """
    compile = compile or (lambda target: thruway.compile(target, backend=backend, **compile_words))
    call = _Call(args, dict(kwargs or {}), grads and not no_grad, no_grad, prepare, observe)
    plain, original = (copy.deepcopy(fn), copy.deepcopy(fn)) if isinstance(fn, nn.Module) else (fn, fn)
    compiled = compile(original)
    output = None
    for when in ("first call", "second call"):
        eager = call.run(plain, plain)
        before = thruway.metrics()
        other = call.run(original, compiled)
        after = thruway.metrics()
        _compare(eager, other, when, tolerance)
        if when == "first call":
            output = eager.output
            _compare_count("graphs", graphs, after["graphs"] - before["graphs"])
            _compare_count("graph breaks", breaks, after["graph_breaks"] - before["graph_breaks"])
    return output


@dataclass
class _Call:
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grads: bool
    no_grad: bool
    prepare: Callable[[], None] | None
    observe: Callable[[], Any] | None

    def run(self, target: Any, call: Callable[..., Any]) -> Run:
        """One call on fresh copies of the inputs, from the same random state; `target` is the module whose state is looked at."""
        args, kwargs = copy.deepcopy((self.args, self.kwargs))
        if isinstance(target, nn.Module):
            target.zero_grad(set_to_none=True)
        _seed()
        if self.prepare:
            self.prepare()
        output, error = None, None
        try:
            with torch.no_grad() if self.no_grad else nullcontext():
                output = call(*args, **kwargs)
        except Exception as raised:
            error = raised
        seen = copy.deepcopy(self.observe()) if self.observe else None
        left = _random_state()
        state = {**dict(target.named_parameters()), **dict(target.named_buffers())} if isinstance(target, nn.Module) else {}
        tensors = {**dict(_tensors((args, kwargs), "input")), **{f"state.{k}": v for k, v in state.items()}, **dict(_tensors(output, "output"))}
        gradients = _gradients(output, tensors) if self.grads and error is None else {}
        return Run(output, error, (args, kwargs), state, seen, left, gradients, tensors)


def _seed() -> None:
    torch.manual_seed(1234)
    random.seed(1234)
    numpy.random.seed(1234)


def _random_state() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), str(numpy.random.get_state())


def _gradients(output: Any, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor | None]:
    """Gradients of the sum of all differentiable outputs, each weighted by a fixed ramp so that no difference cancels."""
    wanted = [t for _, t in _tensors(output, "output") if t.requires_grad and t.grad_fn is not None]
    if not wanted:
        return {}
    total = sum((t.abs() if t.is_complex() else t).double().flatten().mul(torch.linspace(0.5, 1.5, t.numel(), dtype=torch.float64)).sum() for t in wanted)
    total.backward()
    return {place: t.grad for place, t in tensors.items() if t.is_leaf and t.requires_grad}


def _tensors(value: Any, place: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor inside nested containers and dataclasses, with its place."""
    for inner_place, inner in _leaves(value, place):
        if isinstance(inner, torch.Tensor):
            yield inner_place, inner


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    match value:
        case torch.Tensor():
            yield place, value
        case Mapping():
            for key in value:
                yield from _leaves(value[key], f"{place}[{key!r}]")
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _leaves(item, f"{place}[{index}]")
        case _ if is_dataclass(value) and not isinstance(value, type):
            for field in fields(value):
                yield from _leaves(getattr(value, field.name), f"{place}.{field.name}")
        case _:
            yield place, value


def _compare(eager: Run, other: Run, when: str, tolerance: float | None) -> None:
    _compare_errors(eager.error, other.error, when)
    for name in ("output", "inputs", "state", "seen", "gradients"):
        _compare_values(getattr(eager, name), getattr(other, name), name, when, tolerance)
    assert _sharing(eager.tensors, _storage) == _sharing(other.tensors, _storage), f"{when}: other tensors share memory than in eager"
    assert _sharing(eager.tensors, id) == _sharing(other.tensors, id), f"{when}: other places hold the same tensor object than in eager"
    assert eager.random == other.random, f"{when}: random generators end in another state than in eager"


def _compare_errors(eager: BaseException | None, other: BaseException | None, when: str) -> None:
    if eager is None and other is not None:
        raise AssertionError(f"{when}: eager returns, compiled raises {other!r}") from other
    assert type(eager) is type(other) and str(eager) == str(other), f"{when}: eager raises {eager!r}, compiled {other!r}"


def _compare_values(eager: Any, other: Any, name: str, when: str, tolerance: float | None) -> None:
    left, right = dict(_leaves(eager, name)), dict(_leaves(other, name))
    assert type(eager) is type(other), f"{when}: {name} is {type(eager).__name__} in eager, {type(other).__name__} compiled"
    assert list(left) == list(right), f"{when}: {name} has another structure: {sorted(set(left) ^ set(right))}"
    for place in left:
        _compare_leaf(left[place], right[place], f"{when}: {place}", tolerance)


def _compare_leaf(eager: Any, other: Any, place: str, tolerance: float | None) -> None:
    assert type(eager) is type(other), f"{place} is {type(eager).__name__} in eager, {type(other).__name__} compiled"
    if isinstance(eager, torch.Tensor):
        _compare_tensors(eager, other, place, tolerance)
    elif isinstance(eager, numpy.ndarray):
        numpy.testing.assert_array_equal(eager, other, place)
    elif type(eager).__eq__ is not object.__eq__:
        assert eager == other or (eager != eager and other != other), f"{place} is {eager!r} in eager, {other!r} compiled"


def _compare_tensors(eager: torch.Tensor, other: torch.Tensor, place: str, tolerance: float | None) -> None:
    for attribute in ("dtype", "device", "shape", "layout", "requires_grad"):
        a, b = getattr(eager, attribute), getattr(other, attribute)
        assert a == b, f"{place}.{attribute} is {a} in eager, {b} compiled"
    if eager.layout is not torch.strided:
        eager, other = eager.to_dense(), other.to_dense()
    a, b = _strides(eager), _strides(other)
    assert a == b, f"{place} has strides {a} in eager, {b} compiled (shape {tuple(eager.shape)})"
    eager, other = eager.detach(), other.detach()
    if eager.dtype not in TOLERANCE:
        assert torch.equal(eager, other), f"{place} differs: {eager} in eager, {other} compiled"
    elif eager.numel():
        allowed = TOLERANCE[eager.dtype] if tolerance is None else tolerance
        finite = eager.abs().double()[torch.isfinite(eager)]
        largest = finite.max().item() if finite.numel() else 0.0
        torch.testing.assert_close(other, eager, rtol=allowed, atol=allowed * largest, equal_nan=True, msg=lambda text: f"{place}: {text}")


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides that matter: those of dimensions with more than one element, where there are elements."""
    return tuple(s for s, n in zip(tensor.stride(), tensor.shape) if n > 1) if tensor.numel() else ()


def _storage(tensor: torch.Tensor) -> Any:
    """What two tensors have in common when they share memory; tensors without memory share with nobody."""
    if tensor.layout is not torch.strided or not tensor.untyped_storage().nbytes():
        return ("alone", id(tensor))
    return tensor.untyped_storage().data_ptr()


def _sharing(tensors: dict[str, torch.Tensor], key: Callable[[torch.Tensor], Any]) -> set[frozenset[str]]:
    """The groups of two or more places whose tensors have the same `key`."""
    groups: dict[Any, set[str]] = {}
    for place, tensor in tensors.items():
        groups.setdefault(key(tensor), set()).add(place)
    return {frozenset(places) for places in groups.values() if len(places) > 1}


def _compare_count(what: str, wanted: int | None, got: int) -> None:
    assert wanted is None or wanted == got, f"{got} {what}, {wanted} expected"
