"""The public functions, in torch.compile's words. Arguments are checked here; nothing is compiled before the first call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import FunctionType, MethodType
from typing import Any

from torch import nn

from thruway.core.ambient import changed, settings
from thruway.core.control import check_callable, checked_stance
from thruway.core.marks import DISABLED, disabled_reason, original_of
from thruway.core.options import MODES, CompileOptions
from thruway.report.metrics import no_metrics, summarize
from thruway.surface import lazy, versions
from thruway.surface.proxy import proxy_of


def compile(
    fn_or_module: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "thruway",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    check: int | None = None,
) -> Any:
    """A compiled version of a function, method, module or class; without `fn_or_module`, a decorator.

    `backend`: a name from `list_backends()` or a callable `(graph_module, example_inputs) → callable`. `mode`: one of MODES.
    `options`: settings that this compilation changes. `fullgraph=True` makes anything that cannot be captured an error. `check`: that many
    first calls run eager beside, on copies, and CheckError says where compiled code does another thing (None: as the setting `check` says).
    ValueError lists the known modes, backends or options where one is unknown; TypeError where the argument cannot be compiled.
    """
    if dynamic not in (None, True, False):
        raise ValueError(f"dynamic takes True, False or None, not {dynamic!r}")
    _check_switches(fullgraph=fullgraph, disable=disable)
    if check is not None:
        _check_count("check", check, 0)
    asked = CompileOptions(fullgraph, dynamic, _backend(backend), checked_mode(mode), checked_overrides(options))
    first = asked.settings(settings.current()).check if check is None else check
    asked = replace(asked, check=first, backend_name=backend if isinstance(backend, str) else "")
    if fn_or_module is None:
        return functools.partial(_compiled, options=asked, disable=disable)
    return _compiled(fn_or_module, options=asked, disable=disable)


def explain(fn_or_module: Any, *args: Any, calls: int | None = None, **compile_arguments: Any) -> Callable[..., Any]:
    """`explain(f)(*args)` calls `f`, compiled, and returns an Explanation of what happened: once, or more often where a call leaves no trace
    (it writes nothing, breaks nowhere), so that compiled code is compared with eager. `calls` asks for that many calls in any case."""
    if args:
        raise TypeError("explain takes the function alone, the arguments go to what it gives: explain(f)(x)")
    if calls is not None:
        _check_count("calls", calls, 1)
    compile(None if isinstance(fn_or_module, type) else fn_or_module, **compile_arguments)             # says at once what does not fit

    def explained(*args: Any, **kwargs: Any) -> Any:
        return lazy.explain().explain_call(functools.partial(compile, **compile_arguments), lazy.pipeline(), fn_or_module, args, kwargs, calls,
                                           _why_eager(fn_or_module, compile_arguments.get("disable", False)))

    return explained


def disable(fn: Any = None, *, reason: str = "") -> Any:
    """Marks a function, or a module's forward, so that compiled callers run it as plain Python. `reason` shows in `explain`."""
    if not isinstance(reason, str):
        raise TypeError(f"disable takes a text as reason, not {type(reason).__name__}")
    if fn is None:
        return functools.partial(disable, reason=reason)
    if isinstance(fn, nn.Module):
        fn.forward = disable(fn.forward, reason=reason)
        return fn
    if not callable(fn):
        hint = f"; a reason is given by name: disable(reason={fn!r})" if isinstance(fn, str) else ""
        raise TypeError(f"disable takes a function or a module, not {type(fn).__name__}{hint}")

    @functools.wraps(fn)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        loaded = lazy.loaded_pipeline()
        if not getattr(getattr(loaded, "below", None), "is_installed", False):
            return fn(*args, **kwargs)
        was = loaded.hook.pause()
        try:
            return fn(*args, **kwargs)
        finally:
            loaded.hook.resume(was)

    setattr(disabled, DISABLED, reason)
    return disabled


def reset() -> None:
    """Forgets everything compiled in this process, and the figures of `metrics`. The cache on disk stays."""
    loaded = lazy.loaded_pipeline()
    if loaded is not None:
        loaded.reset()


class set_stance:
    """`set_stance("force_eager")` until it is set again, or `with set_stance(…): …`, or as a decorator.

    default: compile as needed. force_eager: run no compiled code. eager_on_recompile: entries that exist are used, all else runs eager.
    fail_on_recompile: a call that no entry answers raises RecompileError, which names the guard."""

    def __init__(self, stance: str = "default"):
        self.stance, self.before = checked_stance(stance), settings.stance
        lazy.take_stance(stance)

    def __enter__(self) -> None:
        lazy.take_stance(self.stance)

    def __exit__(self, *raised: object) -> None:
        lazy.take_stance(self.before)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        lazy.take_stance(self.before)
        check_callable("set_stance", fn)

        @functools.wraps(fn)
        def under_stance(*args: Any, **kwargs: Any) -> Any:
            with set_stance(self.stance):
                return fn(*args, **kwargs)

        return under_stance


def metrics() -> dict[str, Any]:
    """Counts since the start or the last `reset`, and `seconds` per stage of compiling, computed from the journal.

    graphs: captured and compiled. captures: symbolic runs over frames, whatever they gave. graph_breaks: stretches that run in plain
    Python. recompiles: calls for which there were entries and none answered. static: functions whose changing sizes gave no graph, so that
    sizes are fixed. skipped: frames below a break left to Python. eager: frames or graphs left to eager as a whole. postponed: calls that ran
    as they are, so that the next is captured better. kept_eager: compiled code that measured slower than eager. cache_hits, cache_misses:
    kernels found on disk or compiled. repacks: weights packed or folded again since they changed. predictions, measurements: choices for a
    GPU. in_parts: graphs over several devices. cuda_graph_refusals, recordings_again, out_of_memory: steps not replayed as one CUDA graph,
    recorded again, given up for memory. unchecked: calls that shadow mode could not compare. bugs: errors of thruway's own; the stretch ran eager.
    """
    loaded = lazy.loaded_pipeline()
    return no_metrics() if loaded is None else summarize(loaded.journal)


def list_backends() -> list[str]:
    """Names that `backend=` takes here: thruway's own, installed ones, and torch's as far as they are known without loading them."""
    return lazy.backends().known_names()


def checked_mode(mode: str | None) -> str:
    if mode is not None and mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    return mode or "default"


def _backend(backend: Any) -> Any:
    return backend if backend == "thruway" else lazy.backends().resolve(backend)


def checked_overrides(options: Mapping[str, Any] | None) -> tuple[tuple[str, object], ...]:
    if options is None:
        return ()
    if not isinstance(options, Mapping):
        raise TypeError(f"options takes a mapping of settings to values, not {type(options).__name__}")
    found = changed(settings.current(), dict(options), "option")
    return tuple((name, getattr(found, name)) for name in options)


def _check_switches(**switches: object) -> None:
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} takes True or False, not {value!r}")


def _check_count(name: str, value: object, least: int) -> None:
    if type(value) is not int:
        raise TypeError(f"{name} takes a number of calls, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} takes a number of calls of at least {least}, not {value}")


def _compiled(target: Any, *, options: CompileOptions, disable: bool) -> Any:
    """`target` compiled according to its kind; `target` itself where compiling is switched off or not supported here."""
    if _why_eager(target, disable):
        return target
    target = original_of(target)
    if isinstance(target, nn.Module):
        return proxy_of(target, options)
    if isinstance(target, type):
        return _compiled_class(target, options)
    if isinstance(target, staticmethod | classmethod):
        return type(target)(_compiled(target.__func__, options=options, disable=False))
    if isinstance(target, functools.partial):
        return functools.partial(_compiled(target.func, options=options, disable=False), *target.args, **target.keywords)
    if not callable(target):
        raise TypeError(f"thruway.compile takes a function, a module, a class or an object with __call__, not {type(target).__name__}")
    return lazy.compile_callable(_python_function(target), options)


def _why_eager(target: Any, disable: bool) -> str:
    """Why nothing of `target` is to be compiled; empty where it is."""
    if disable or settings.disable:
        return "disable=True was given" if disable else "thruway is switched off (THRUWAY_DISABLE or settings.disable)"
    if not versions.is_supported():
        return "this version of Python or torch is not supported"
    original = original_of(target)
    why = disabled_reason(original) if isinstance(original, FunctionType | MethodType) else None
    return "" if why is None else f"marked with thruway.disable{why and f' ({why})'}"


def _compiled_class(cls: type, options: CompileOptions) -> type:
    """A class is compiled in place: `forward` of a module class, `__call__` of any other."""
    name = "forward" if issubclass(cls, nn.Module) else "__call__"
    method = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)       # not through the metaclass
    if method is None:
        raise TypeError(f"class {cls.__qualname__} has no {name} to compile")
    setattr(cls, name, _compiled(method, options=options, disable=False))
    return cls


def _python_function(target: Any) -> Any:
    """`target` as something with bytecode: a function, a bound method, or a small function around a builtin."""
    if inspect.isfunction(target) or (inspect.ismethod(target) and inspect.isfunction(target.__func__)):
        return target
    call = getattr(target, "__call__", None)                              # noqa: B004 (the bound method itself is wanted)
    if inspect.ismethod(call) and inspect.isfunction(call.__func__):
        return call

    @functools.wraps(target, updated=())
    def builtin(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    builtin.__annotations__ = {}                                          # its own, where the builtin has none
    return builtin
