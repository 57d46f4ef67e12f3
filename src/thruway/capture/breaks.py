"""The catalogue of reasons why something is not captured: code → what and hint. Each has its section in docs/breaks.md."""

from __future__ import annotations

from thruway.capture.refused import is_below
from thruway.core.errors import Unsupported, UserLine
from thruway.shapes.refuse import ELEMENTS

CATALOGUE: dict[str, tuple[str, str]] = {
    "TW100": ("instruction {0} is not captured", "move the construct out of the compiled function"),
    "TW101": ("call of {0} is not captured", "call it outside; a function of yours that only computes tensors may be marked with thruway.allow_in_graph"),
    "TW102": ("attribute {0} of {1} is not captured", "read it before the call and pass the value in"),
    "TW103": ("the value of a tensor is needed in Python: {0}",
              ELEMENTS),
    "TW104": ("operator {0} on {1} is not captured", "convert the operands first, or compute this outside"),
    "TW105": ("iteration over {0} is not captured", "turn it into a list before the call"),
    "TW106": ("write to {0} is not captured", "return the value instead and store it outside"),
    "TW107": ("the code raises {0}", "expected errors are fine; catch them inside, and they are part of the capture"),
    "TW108": ("a tensor subclass {0} is not captured", "convert it to a plain tensor, or leave the function to eager with thruway.disable"),
    "TW109": ("state of the process is changed by {0}", "set it outside the compiled function"),
    "TW110": ("{0} cannot be rebuilt after the graph", "keep it inside the captured part, or make it outside and pass it in"),
    "TW111": ("comparison of {0} and {1} is not captured", "compare plain values"),
    "TW112": ("torch refuses {0} over metadata: {1}", "check the shapes; eager raises the same error when it gets there"),
    "TW113": ("generators and coroutines as compiled functions are left to Python: {0}", "compile the functions that they call"),
    "TW114": ("object {0} is used as a dict key or set member", "use strings, numbers or types as keys"),
    "TW115": ("a generator made outside is advanced: {0}", "pass a list"),
    "TW116": ("the frame has {0} instructions: too many to unroll", "move the loop out of the compiled function"),
    "TW118": ("a function or dispatch mode, or a transform of torch, is on around the call", "call it outside the mode"),
    "TW119": ("the content of the list {0} is needed, whose length changes between calls", "pass a list of one length, or a tensor"),
    "TW117": ("{0} is written and shares memory with {1}", "pass tensors that do not overlap"),
    "TW120": ("an error of {0} would be caught here, after a tensor from outside was written", "move the operator, or the write, out of the `try`"),
    "TW130": ("{0} is marked with thruway.disable{1}", "remove the mark where the function may be captured"),
}


OF_SIDES = "let both sides end with values of the same kinds, shapes and dtypes, or choose with torch.where"
OF_ROUNDS = "let every round keep kinds, shapes and dtypes, and print and store behind the loop"
OF_NUMPY = "use torch's function in place of numpy's, or accept the break"
# Of calls, by the dotted name of the callee or of what it lies in; of what is not written in Python the last one.
HINTS_OF_CALLS = {
    "thruway": "call thruway's own functions outside compiled code; the function that they give may be called inside",
    "torch.optim": "call the optimizer outside the compiled function: it runs there as torch runs it",
    "torch.autograd.grad_mode.inference_mode": "open inference mode around the call of the compiled function, or take torch.no_grad inside",
    "torch.autograd": "ask for gradients outside the compiled function, of what it returns",
    "torch._tensor.Tensor.backward": "call backward outside the compiled function, on what it returns",
}
OF_NAMES = "it asks for the names of the function around it, which is left to Python for that: move the call into a function of its own"
OF_PLAIN = "call it outside, or accept the break: the call runs in plain Python"


def hint_of_call(module: str | None, name: str, in_python: bool = True) -> str:
    """The hint that fits a call of the function `name` made in `module`; empty where the usual one does."""
    hint = next((hint for root, hint in HINTS_OF_CALLS.items() if is_below(f"{module}.{name}", (root,))), "")
    return hint or ("" if in_python or (module or "").partition(".")[0] == "torch" else OF_PLAIN)


def unsupported(state, code: str, *parts: object, hint: str = "") -> Unsupported:
    """The Unsupported for a catalogue entry at the user's line, with the entry's hint where no other fits better."""
    what, usual = CATALOGUE[code]
    where: UserLine | None = state.where()
    return Unsupported(code, what.format(*parts), hint or usual, where)
