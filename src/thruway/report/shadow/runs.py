"""One run of a world, so that nobody sees it: output caught, log records dropped, warnings held back, every compiled function eager."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from thruway import pipeline
from thruway.native.fallback import call_bound
from thruway.report.shadow.compare import Difference, Places, Walk, tensors_in
from thruway.report.shadow.copies import WIDE, Copies
from thruway.report.shadow.worlds import World


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call left: its result or error, the world afterwards, random states, and gradients by the number of the tensor."""

    result: Any
    error: BaseException | None
    world: World
    random: tuple[Any, ...]
    gradients: tuple[torch.Tensor | None, ...] | str = ()

    def roots(self) -> dict[str, Any]:
        """Every value to compare, by its name in messages."""
        code, names = self.world.function.__code__, self.world.names
        found = {"result": self.result}
        found |= {f"argument {name}": value for name, value in zip(code.co_varnames, self.world.arguments)}
        found |= {f"variable {names[place]}": value for place, value in self.world.variables.items()}
        found |= {f"closure variable {name}": cell for name, cell in zip(code.co_freevars, self.world.function.__closure__ or ())}
        return found | {"defaults": (self.world.function.__defaults__, self.world.function.__kwdefaults__), "gradients": self.gradients}


def run_eager(world: World, pairs: list[tuple[torch.Tensor, torch.Tensor]], call: Callable[..., Any] | None = None) -> Outcome:
    """Runs a copied world, unseen. `call` replaces the world's function, in the same variables."""
    result, error = None, None
    with world.entered(), unseen(), pipeline.all_eager() if call is None else contextlib.nullcontext():
        try:
            result = call_bound(call or world.function, world.function.__code__, world.arguments)
        except Exception as raised:
            error = raised
        after = random_state()
        gradients = gradients_of(result, [copy for _, copy in pairs])
    return Outcome(result, error, world, after, gradients)


def run_wide(pristine: World) -> Places | None:
    """The tensors of a float64 run by place; None where the function does not run in float64."""
    copies, default = Copies(wide=True), torch.get_default_dtype()
    torch.set_default_dtype(WIDE.get(default, default))
    try:
        outcome = run_eager(pristine.copied(copies), copies.pairs)
    finally:
        torch.set_default_dtype(default)
    if outcome.error is not None:
        return None
    found: Places = {}
    for name, value in outcome.roots().items():
        tensors_in(value, name, found, {})
    return found


def compare_outcomes(eager: Outcome, ours: Outcome, wide: Callable[[], Places | None]) -> Difference | None:
    """The first difference in what two runs left."""
    if found := _compare_errors(eager.error, ours.error):
        return found
    walk, others = Walk(wide), ours.roots()
    for name, value in eager.roots().items():
        if found := walk.compare(value, others.get(name), name):
            return found
    names = ("torch's CPU", "CUDA's", "Python's", "numpy's")
    for name, one, other in zip(names, eager.random, ours.random):
        if not _same_state(one, other):
            return Difference(f"{name} random state", "it is another one than after eager's run")
    return None


def _compare_errors(eager: BaseException | None, ours: BaseException | None) -> Difference | None:
    if type(eager) is type(ours) and str(eager) == str(ours):
        return None
    one, other = (f"raises {type(error).__name__}: {error}" if error else "returns" for error in (eager, ours))
    return Difference("the call", f"eager {one}, compiled code {other}")


def _same_state(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, tuple | list):
        return all(map(_same_state, one, other))
    return bool(numpy.array_equal(one, other))


def gradients_of(result: Any, wanted: list[torch.Tensor]) -> tuple[torch.Tensor | None, ...] | str:
    """Gradients of all differentiable results, each weighted by a ramp so that nothing cancels, for the tensors that want them. Nothing where
    hooks of the user's would run; the error's text where there is one."""
    wanted = [each for each in wanted if each.requires_grad]
    found = tensors_in(result, "", {}, {}).values()
    outputs = [each for each in found if each.requires_grad and each.grad_fn is not None and each.layout is torch.strided]
    if not outputs or not wanted or any(getattr(each, "_backward_hooks", None) for each in wanted):
        return ()
    try:
        with torch.enable_grad():
            total = sum((torch.view_as_real(one) if one.is_complex() else one).double().flatten() @ _ramp(one) for one in outputs)
            return torch.autograd.grad(total, wanted, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        return str(error)


def _ramp(t: torch.Tensor) -> torch.Tensor:
    return torch.linspace(0.5, 1.5, t.numel() * (2 if t.is_complex() else 1), dtype=torch.float64, device=t.device)


# -- what surrounds a run ------------------------------------------------------------------------------------------------------------------

def random_state() -> tuple[Any, ...]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return torch.get_rng_state(), cuda, random.getstate(), numpy.random.get_state(legacy=True)


def set_random_state(state: tuple[Any, ...]) -> None:
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])
    random.setstate(state[2])
    numpy.random.set_state(state[3])


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Nothing that code prints, logs or warns of reaches anybody."""
    dropped = logging.Logger.callHandlers
    logging.Logger.callHandlers = lambda logger, record: None           # type: ignore[method-assign]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings(record=True):
            yield
    finally:
        logging.Logger.callHandlers = dropped                            # type: ignore[method-assign]
