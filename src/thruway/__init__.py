"""thruway compiles ordinary PyTorch code and says, in the user's own source lines, what happened and what it cost.

    import thruway
    model = thruway.compile(model)

Names here follow torch.compile. Importing costs next to nothing: the compiler is loaded when something is compiled.
"""

from thruway.core.ambient import settings
from thruway.core.errors import FullGraphError, ThruwayError
from thruway.surface.api import compile, disable, explain, is_compiling, list_backends, metrics, reset

__version__ = "0.1.0"

__all__ = [
    "FullGraphError", "ThruwayError", "compile", "disable", "explain", "is_compiling", "list_backends", "metrics", "reset", "settings",
]
