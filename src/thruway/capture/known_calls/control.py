"""thruway's own words inside captured code: `is_compiling`, and blocks in which breaks are errors."""

from __future__ import annotations

from thruway.capture.state import State
from thruway.capture.values.attribute import get_attribute
from thruway.capture.values.base import NONE, TRUE, Value
from thruway.capture.values.call import run_inline
from thruway.capture.values.truth import truth
from thruway.core.control import error_on_graph_break, is_compiling

Args = list[Value]
Kwargs = dict[str, Value]


def enter_block(state: State, args: Args, kwargs: Kwargs) -> Value:
    state.strict.append(truth(state, run_inline(state, get_attribute(state, args[0], "on"))))
    state.effects.remember(state.strict.pop)
    return NONE


def exit_block(state: State, args: Args, kwargs: Kwargs) -> Value:
    """Nothing to leave in a continuation that starts inside the block."""
    if state.strict:
        was = state.strict.pop()
        state.effects.remember(lambda: state.strict.append(was))
    return NONE


ROWS = {
    is_compiling: lambda state, args, kwargs: TRUE,
    error_on_graph_break.__enter__: enter_block,
    error_on_graph_break.__exit__: exit_block,
}
