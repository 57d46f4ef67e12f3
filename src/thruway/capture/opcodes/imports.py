"""import statements inside functions: of modules that are loaded already. Loading one would be an effect."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from thruway.bytecode.decode import Instruction
from thruway.capture.breaks import unsupported
from thruway.capture.opcodes.stack import push
from thruway.capture.state import Frame, Inline, State, UserRaise
from thruway.capture.values.attribute import get_attribute
from thruway.capture.values.base import NONE, Constant, Value
from thruway.capture.values.constants import as_python
from thruway.capture.values.errors import raise_error
from thruway.capture.wrap import wrap
from thruway.frame.source import Global, Item


def import_name(state: State, frame: Frame, ins: Instruction) -> None:
    names, level = frame.stack.pop(), frame.stack.pop().value
    name = ins.value
    if level:
        package = frame.namespace.real.get("__package__") or ""
        name = importlib.util.resolve_name("." * level + name, package)
    elif names is NONE:
        _loaded(state, name)
        name = name.partition(".")[0]
    module = _loaded(state, name)
    if names is not NONE and isinstance(module, Constant):        # what stands for a module may be any object
        _require_submodules(state, module.value, as_python(state, names))
    frame.stack.append(module)


def _require_submodules(state: State, package: ModuleType, names: tuple[str, ...]) -> None:
    """`from package import name` loads a submodule where the package has no such attribute."""
    if type(package) is not ModuleType or "__getattr__" in vars(package) or "__path__" not in vars(package):
        return
    for name in names:
        below = f"{package.__name__}.{name}"
        if name not in vars(package) and below not in sys.modules and importlib.util.find_spec(below) is not None:
            _loaded(state, below)


def _loaded(state: State, name: str) -> Value:
    module = sys.modules.get(name)
    if module is None:
        raise unsupported(state, "TW100", f"import of {name}, which is not loaded yet,", hint="import it before the call")
    return wrap(state, module, Item(Global("modules", "sys"), name))


def import_from(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    module = frame.stack[-1]
    try:
        return push(frame, get_attribute(state, module, ins.value))
    except UserRaise:
        if not isinstance(module, Constant):
            raise unsupported(state, "TW100", f"import of {ins.value} from an object that stands for a module") from None
        below = f"{module.value.__name__}.{ins.value}"
        if below in sys.modules:
            frame.stack.append(_loaded(state, below))
            return None
        raise_error(state, ImportError, f"cannot import name {ins.value!r} from {module.value.__name__!r}")


HANDLERS = {"IMPORT_NAME": import_name, "IMPORT_FROM": import_from}
