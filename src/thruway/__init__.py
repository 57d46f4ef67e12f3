"""thruway compiles ordinary PyTorch code and says, in the user's own source lines, what happened and what it cost.

    import thruway
    model = thruway.compile(model)

Names here follow torch.compile. Importing costs next to nothing: the compiler is loaded when something is compiled.
"""

from thruway.core.ambient import settings
from thruway.core.control import allow_in_graph, assume_constant_result, error_on_graph_break, is_compiling, mark_static
from thruway.core.errors import BackendError, CheckError, FullGraphError, RecompileError, ThruwayError
from thruway.surface.api import compile, disable, explain, list_backends, metrics, reset, set_stance

__version__ = "0.1.0"

__all__ = [
    "BackendError", "CheckError", "FullGraphError", "RecompileError", "ThruwayError", "allow_in_graph", "assume_constant_result", "compile", "disable",
    "error_on_graph_break", "explain", "is_compiling", "list_backends", "mark_static", "metrics", "reset", "set_stance", "settings",
]
