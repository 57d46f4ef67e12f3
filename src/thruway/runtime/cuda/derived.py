"""Values kept between calls on a GPU: folded and turned weights, made by torch's operators at the first call and again when a weight changed.

A change is seen by identity, address and version, and by a count of optimizer steps, since fused optimizers leave the version alone.
A write through `.data` is not seen: looking at memory would mean waiting for the GPU. Values that one stream makes are waited for on others.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Sequence

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from thruway.runtime.load import native_core

Make = Callable[[Sequence[torch.Tensor]], tuple[torch.Tensor, ...]]


class OptimizerSteps:
    """How many optimizer steps this process has taken since the first that was asked for."""

    def __init__(self) -> None:
        self.count = 0
        self.is_counting = False

    def start(self) -> None:
        if not self.is_counting:
            self.is_counting = True
            register_optimizer_step_post_hook(self._step)

    def _step(self, *_: object) -> None:
        self.count += 1


_steps = OptimizerSteps()
_version, _address = operator.attrgetter("_version"), operator.methodcaller("data_ptr")


class Making:
    """What the current stream of a device has just been given to do."""

    def __init__(self, device: torch.device):
        self.device, self.stream, self.done = device, torch.cuda.current_stream(device), torch.cuda.Event()
        self.done.record(self.stream)

    def waited_for(self) -> Making | None:
        """The current stream goes on behind it. None once it is done; while a stream is recorded nobody may ask."""
        if torch.cuda.is_current_stream_capturing():
            return self
        if self.done.query():
            return None
        current = torch.cuda.current_stream(self.device)
        if current != self.stream:
            current.wait_event(self.done)
        return self


class KeptValues:
    """The derived values of one graph. `watched` are the inputs that they depend on; `report` hears of every time but the first.
    `replaced` is called where values move to other addresses."""

    def __init__(self, make: Make, watched: Sequence[int], report: Callable[[str], None]):
        self.make, self.watched, self.report = make, watched, report
        self.replaced: Callable[[], None] = lambda: None
        self.look: tuple[object, ...] | None = None
        self.references: list[weakref.ref] = []
        self.values: tuple[torch.Tensor, ...] = ()
        self.unfinished: Making | None = None
        self.times = 0
        core = native_core()
        self.look_at: Callable[[list[torch.Tensor]], object] = core.look_at if core is not None else _look
        _steps.start()

    def __call__(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        weights = [inputs[i] for i in self.watched]
        look = (_steps.count, self.look_at(weights))
        if look != self.look:
            self._make_again(inputs, weights, look)
        elif (unfinished := self.unfinished) is not None:         # another thread may see the end meanwhile
            self.unfinished = unfinished.waited_for()
        return self.values

    def _make_again(self, inputs: Sequence[torch.Tensor], weights: list[torch.Tensor], look: tuple[object, ...]) -> None:
        with torch.inference_mode(False), torch.no_grad(), torch.autocast("cuda", enabled=False):
            made = self.make(inputs)
            if len(made) == len(self.values) and all(same_layout(a, b) for a, b in zip(self.values, made)):
                for old, new in zip(self.values, made):
                    old.copy_(new)                    # same addresses: recordings stay valid
            else:
                self.values = made
                self.replaced()
        if made and made[0].is_cuda and not torch.cuda.is_current_stream_capturing():
            self.unfinished = Making(made[0].device)
        self.look, self.references = look, [weakref.ref(w, self._forget) for w in weights]
        self.times += 1
        if self.times > 1:
            self.report(f"a weight changed: {len(made)} derived values made again, for the {self.times}th time")

    def _forget(self, _: object) -> None:
        """A weight is gone: another tensor may come to look just like it."""
        self.look = None


def _look(weights: list[torch.Tensor]) -> tuple[object, ...]:
    """Identities, addresses and versions; inference tensors have none."""
    try:
        versions = list(map(_version, weights))
    except RuntimeError:
        versions = [-1 if w.is_inference() else w._version for w in weights]
    return list(map(id, weights)), list(map(_address, weights)), versions


def same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (a.shape, a.stride(), a.dtype, a.device) == (b.shape, b.stride(), b.dtype, b.device)
