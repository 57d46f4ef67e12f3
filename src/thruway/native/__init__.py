"""The native core: guards, dispatch, the frame hook and launch in C, or their slow Python twin where it was not built.

Nothing happens at import but loading the extension. `prepare()`, or the first `core()`, binds the extension to the loaded
torch and runs its self-tests; `core()` is then the module to use: `_core`, or the twin where it is missing or failed.
"""

from __future__ import annotations

from types import ModuleType

import torch

from thruway.native import fallback, probe

try:
    from thruway.native import _core
except ImportError:
    _core = None

RegionFailed: type[Exception] = fallback.RegionFailed
_chosen: dict[str, object] = {}


def prepare() -> bool:
    """Whether the C core can be used."""
    return bool(_choose()["native"])


def core() -> ModuleType:
    """The module that holds GuardProgram, Entry, Compiled, read_state and RegionFailed."""
    return _choose()["module"]


def features() -> dict[str, object]:
    """`native`: the C core is used; `state`: it reads torch's modes itself; `hook`: frames can be taken over; `reason`: why not native;
    `layout`: the probed offsets."""
    return {name: value for name, value in _choose().items() if name != "module"}


def _choose() -> dict[str, object]:
    if not _chosen:
        _chosen.update(_bind() if _core is not None else _twin("the extension was not built; install a C compiler and reinstall"))
    return _chosen


def _bind() -> dict[str, object]:
    try:
        with torch.inference_mode(False), torch.enable_grad():      # the probes look at tensors that autograd knows
            layout = probe.bind(_core)
        _core.bind_module(torch.nn.Module)
        state = _core.bind_state() and _state_follows_modes()
        if not state:
            _core.set_state_reader(fallback.read_state)
    except (ImportError, RuntimeError, AttributeError) as error:
        return _twin(f"the self-test failed: {error}")
    return {"module": _core, "native": True, "state": state, "hook": hasattr(_core, "hook_enter"), "reason": "", "layout": layout}


def _twin(reason: str) -> dict[str, object]:
    return {"module": fallback, "native": False, "state": False, "hook": False, "reason": reason, "layout": {}}


def _state_follows_modes() -> bool:
    """Whether the state that C reads changes with each mode, and comes back."""
    contexts = (
        torch.no_grad if torch.is_grad_enabled() else torch.enable_grad, lambda: torch.inference_mode(not torch.is_inference_mode_enabled()),
        lambda: torch.autocast("cpu", torch.float16, enabled=True), torch.overrides.BaseTorchFunctionMode, torch._C._DisableTorchDispatch,
    )
    before = _core.read_state()
    for context in contexts:
        with context():
            inside = _core.read_state()
        if inside == before or _core.read_state() != before:
            return False
    return True
