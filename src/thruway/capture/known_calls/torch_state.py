"""Torch's modes: grad mode is followed and put into the graph; questions about tracing and modes are answered."""

from __future__ import annotations

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.effects import ALWAYS
from thruway.capture.state import State
from thruway.capture.values.base import FALSE, NONE, Constant, Value
from thruway.capture.values.compare import boolean
from thruway.capture.values.constants import from_python

Args = list[Value]
Kwargs = dict[str, Value]


def set_grad_enabled(state: State, args: Args, kwargs: Kwargs) -> Value:
    """Changes the mode for the trace too; `capture` puts the caller's mode back."""
    wanted = bool(args[0].value)
    before = torch.is_grad_enabled()
    if wanted != before:
        torch._C._set_grad_enabled(wanted)
        state.effects.remember(lambda: torch._C._set_grad_enabled(before), ALWAYS)
        node = state.graph.create_node("call_function", torch._C._set_grad_enabled, (wanted,))
        node.meta["line"] = state.where()
    return NONE


def always(value: Value):
    return lambda state, args, kwargs: value


def being_compiled(state: State, args: Args, kwargs: Kwargs) -> Value:
    """TransformerEncoder asks so that a compiler need not look at its mask, and then gives other numbers in padded rows: it hears no."""
    if state.frames and state.frames[-1].code is torch.nn.TransformerEncoder.forward.__code__:
        return FALSE
    state.heard_compiling = not state.hides_compiling
    return boolean(state.heard_compiling)


def now(question):
    """Asks torch at capture: entries are keyed on these modes."""
    return lambda state, args, kwargs: from_python(state, question(*(a.value for a in args)))


def changes_state(name: str):
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        raise unsupported(state, "TW109", name)
    return handler


QUESTIONS = (
    torch.is_grad_enabled, torch.is_inference_mode_enabled, torch.get_default_dtype, torch.are_deterministic_algorithms_enabled,
    torch.is_autocast_enabled, torch.is_autocast_cache_enabled, torch.get_autocast_dtype, torch.is_anomaly_enabled,
    torch.cuda.is_available, torch.backends.mha.get_fastpath_enabled,
    torch.is_deterministic_algorithms_warn_only_enabled, torch._C._is_any_autocast_enabled, torch.amp.is_autocast_available,
    torch._C._get_cudnn_enabled, torch._C._is_autocast_available,
)
CHANGES = {
    torch.manual_seed: "torch.manual_seed", torch.set_num_threads: "torch.set_num_threads",
    torch.use_deterministic_algorithms: "torch.use_deterministic_algorithms", torch.set_default_device: "torch.set_default_device",
    torch.set_rng_state: "torch.set_rng_state", torch.seed: "torch.seed",
}
ROWS = {
    torch._C._set_grad_enabled: set_grad_enabled,
    **{question: now(question) for question in QUESTIONS},
    **{function: changes_state(name) for function, name in CHANGES.items()},
    torch._C._get_tracing_state: always(NONE), torch.jit.is_tracing: always(FALSE), torch.jit.is_scripting: always(FALSE),
    torch._jit_internal.is_scripting: always(FALSE),
    torch.compiler.is_compiling: being_compiled, torch.compiler.is_dynamo_compiling: being_compiled, torch.compiler.is_exporting: always(FALSE),
    torch._C._len_torch_dispatch_stack: always(Constant(0)),         # entries are for calls without modes; the trace's own do not count
    torch._C._log_api_usage_once: always(NONE), torch._assert: lambda state, args, kwargs: checked(state, args),
}


def checked(state: State, args: Args) -> Value:
    if isinstance(args[0], Constant) and args[0].value:
        return NONE
    raise unsupported(state, "TW101", "torch._assert")
