"""Capture a function, check its guards slowly, run graph and finish with the real tensors, and compare with eager."""

from __future__ import annotations

import copy
import inspect
import types

import torch

from thruway.capture.capture import capture
from thruway.core.errors import Unsupported
from thruway.core.settings import Settings
from thruway.frame.guard import MISSING, GlobalState
from thruway.frame import source as S
from thruway.frame.plain import plain_tensor
from thruway.native.fallback import proxied_dict, viewed_dict

MODES = GlobalState(True, False, (), (False, False), "float32", "cpu", 0, 0)


def bound_arguments(function, args, kwargs):
    """Arguments in co_varnames order."""
    if not kwargs and not function.__code__.co_flags & 12 and len(args) == function.__code__.co_argcount:
        return list(args)
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return [bound.arguments[name] for name in code.co_varnames[:count]]


def resolve(source, function, locals_, kept):
    """The object at a source, slowly."""
    def at(s):
        return resolve(s, function, locals_, kept)
    match source:
        case S.Local(_, index):
            return locals_[index]
        case S.Cell(_, index):
            return function.__closure__[index].cell_contents
        case S.Global(name, None):
            return function.__globals__[name]
        case S.Global(name, module):
            return __import__("sys").modules[module].__dict__[name]
        case S.Builtin(name):
            return getattr(__import__("builtins"), name)
        case S.FunctionGlobal(base, name):
            return at(base).__globals__[name]
        case S.Attr(base, name):
            return getattr(at(base), name)
        case S.DictAttr(base, name):
            return at(base).__dict__[name]
        case S.Item(base, key):
            owner = at(base)
            cls = next((c for c in (dict, list, tuple) if isinstance(owner, c)), None)
            return cls.__getitem__(owner, key) if cls else owner[key]
        case S.DictKey(base, index):
            return list(at(base))[index]
        case S.TypeOf(base):
            return type(at(base))
        case S.ClosureCell(base, index):
            return at(base).__closure__[index].cell_contents
        case S.Default(base, index, None):
            return at(base).__defaults__[index]
        case S.Default(base, None, name):
            return at(base).__kwdefaults__[name]
        case S.MethodSelf(base):
            return at(base).__self__
        case S.Viewed(base):
            return viewed_dict(at(base))
        case S.Length(base):
            return len(at(base))
        case S.Proxied(base):
            return proxied_dict(at(base))
        case S.PlainTensor(base):
            return plain_tensor(at(base))
        case S.MethodFunction(base):
            return at(base).__func__
        case S.Grad(base):
            return at(base).grad
        case S.Made(index):
            return kept[index]
        case _:
            raise TypeError(source)


def holds(guard, at):
    """Whether a guard holds, by plain Python."""
    try:
        obj = at(guard.source)
    except (KeyError, AttributeError, IndexError, TypeError):
        return False
    expected = guard.expected
    match guard.kind:
        case "tensor":
            return (type(obj) is expected.kind and tuple(obj.shape) == expected.sizes and obj.stride() == expected.strides
                    and str(obj.dtype) == f"torch.{expected.dtype}" and obj.requires_grad == expected.requires_grad)
        case "type":
            return type(obj) is expected
        case "identity":
            return obj is expected
        case "equal":
            return type(obj) is type(expected) and repr(obj) == repr(expected) or isinstance(obj, (set, frozenset)) and obj == expected
        case "length":
            return len(obj) == expected
        case "dict_keys":
            return tuple(obj) == expected
        case "has_not":
            return not hasattr(obj, expected)
        case "absent":
            return expected not in obj
        case "type_lookup":
            name, found = expected
            return next((b.__dict__[name] for b in obj.__mro__ if name in b.__dict__), MISSING) is found
        case "code":
            return obj.__code__ is expected
        case "same_object":
            return obj is at(expected)
        case "not_same_object":
            return obj is not at(expected)
        case "no_overlap":
            return obj.untyped_storage().data_ptr() != at(expected).untyped_storage().data_ptr()
        case "truth":
            return bool(obj) == expected
        case "answer":
            return expected(obj)
        case _:
            raise TypeError(guard.kind)


def plain_function(function):
    """(function, leading arguments) of a module, method or function."""
    if isinstance(function, torch.nn.Module):
        return type(function).__call__, (function,)
    if isinstance(function, types.MethodType):
        return function.__func__, (function.__self__,)
    return function, ()


def capture_call(function, *args, **kwargs):
    function, first = plain_function(function)
    return capture(function, bound_arguments(function, (*first, *args), kwargs), MODES, Settings())


def run_captured(captured, function, args, kwargs):
    function, first = plain_function(function)
    locals_ = bound_arguments(function, (*first, *args), kwargs)

    def at(source):
        return resolve(source, function, locals_, captured.kept)
    inputs = [at(one.source) for one in captured.inputs]
    outs = captured.graph(*inputs) if captured.graph is not None else ()
    if captured.graph is None and captured.finish is None:
        return function(*first, *args, **kwargs)
    if captured.finish is None:
        return outs[0] if captured.single_output else tuple(outs)
    return captured.finish(*locals_, *(function.__closure__ or ()), *outs)


def failing_guards(captured, function, args, kwargs):
    function, first = plain_function(function)
    locals_ = bound_arguments(function, (*first, *args), kwargs)

    def at(source):
        return resolve(source, function, locals_, captured.kept)
    return [g for g in captured.guards.guards if not holds(g, at)]


def same(a, b):
    """Equal by type and content; tensors exactly, nan included."""
    if isinstance(a, torch.Tensor):
        return (type(a) is type(b) and a.shape == b.shape and a.dtype == b.dtype and a.requires_grad == b.requires_grad
                and torch.equal(a.detach().nan_to_num(7), b.detach().nan_to_num(7)))
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b)) and (not hasattr(a, "__dict__") or same(vars(a), vars(b)))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a) and (not hasattr(a, "__dict__") or same(vars(a), vars(b)))
    if isinstance(a, types.FunctionType):
        return a.__code__ == b.__code__
    if hasattr(a, "__dict__") and not isinstance(a, type):
        return same(vars(a), vars(b))
    return a == b


def check(function, *args, **kwargs):
    """Captures, runs, compares results and arguments with eager (on copies); gives the Captured."""
    eager_args, eager_kwargs = copy.deepcopy((args, kwargs))
    torch.manual_seed(0)
    expected = function(*eager_args, **eager_kwargs)
    captured = capture_call(function, *args, **kwargs)
    missed = failing_guards(captured, function, args, kwargs)
    assert not missed, missed[:5]
    torch.manual_seed(0)
    result = run_captured(captured, function, args, kwargs)
    assert same(expected, result), (expected, result)
    assert same(list(eager_args), list(args)) and same(eager_kwargs, kwargs), "arguments differ after the call"
    return captured


class Compiled:
    """A slow compiled callable: captures at each new call whose guards miss, continuations too. `breaks` and `graphs` count captures."""

    def __init__(self, function, counts=None):
        self.function, self.entries = function, []
        self.counts = counts if counts is not None else {"graphs": 0, "breaks": [], "eager": []}

    def __call__(self, *args, **kwargs):
        for captured in self.entries:
            if not failing_guards(captured, self.function, args, kwargs):
                return run_captured(captured, self.function, args, kwargs)
        function, first = plain_function(self.function)
        try:
            captured = capture(function, bound_arguments(function, (*first, *args), kwargs), MODES, Settings(), (), self.compile)
        except Unsupported as error:
            self.counts["eager"].append(error.reason)
            return self.function(*args, **kwargs)
        self.entries.append(captured)
        self.counts["graphs"] += captured.graph is not None
        self.counts["breaks"] += captured.break_reasons
        return run_captured(captured, self.function, args, kwargs)

    def compile(self, function):
        return Compiled(function, self.counts)


def check_breaks(function, *args, **kwargs):
    """As `check`, through continuations; gives the counts."""
    eager_args, eager_kwargs = copy.deepcopy((args, kwargs))
    expected = function(*eager_args, **eager_kwargs)
    compiled = Compiled(function)
    result = compiled(*args, **kwargs)
    assert same(expected, result), (expected, result)
    assert same(list(eager_args), list(args)) and same(eager_kwargs, kwargs), "arguments differ after the call"
    return compiled.counts
