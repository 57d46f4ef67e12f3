"""Classes with `__torch_function__`, tensor subclasses and function modes: the user's handlers run symbolically."""

import collections
import functools

import pytest
import torch
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function_unary

import thruway
from capture.beside_eager import alike, check

X = torch.linspace(-1, 2, 12).reshape(3, 4)


class Plain(torch.Tensor):
    """Says nothing: results have the class."""


class Counted(torch.Tensor):
    calls = collections.Counter()

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls[getattr(func, "__name__", "?")] += 1
        return super().__torch_function__(func, types, args, kwargs or {})


class Named(torch.Tensor):
    @staticmethod
    def __new__(cls, data, label="none"):
        return torch.as_tensor(data).as_subclass(cls)

    def __init__(self, data, label="none"):
        self.label = label

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and func is not torch.Tensor.detach:
            result = result.as_subclass(cls)
            labels = [a.label for a in args if isinstance(a, cls) and hasattr(a, "label")]
            result.label = "+".join(labels)
        return result

    def twice(self):
        return self * 2


class Meta:
    """Wraps a tensor and carries notes along."""

    def __init__(self, data, notes=()):
        self.data, self.notes = torch.as_tensor(data), list(notes)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        notes = [note for a in args if isinstance(a, cls) for note in a.notes]
        args = [a.data if isinstance(a, cls) else a for a in args]
        return cls(func(*args, **(kwargs or {})), [*notes, func.__name__])


HANDLERS = {}


def implements(function):
    def register(handler):
        HANDLERS[function] = functools.wraps(function)(handler)
        return handler
    return register


class Diagonal:
    def __init__(self, size, value):
        self.size, self.value = size, value

    def dense(self):
        return self.value * torch.eye(self.size)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in HANDLERS or not all(issubclass(t, (torch.Tensor, Diagonal)) for t in types):
            return NotImplemented
        return HANDLERS[func](*args, **(kwargs or {}))


@implements(torch.mean)
def mean(diagonal):
    return diagonal.value / diagonal.size


@implements(torch.add)
def add(left, right):
    return Diagonal(left.size, left.value + right.value) if isinstance(right, Diagonal) else left.dense() + right


@implements(torch.nn.functional.relu)
def relu(diagonal, inplace=False):
    return Diagonal(diagonal.size, max(diagonal.value, 0.0))


class Log(TorchFunctionMode):
    def __init__(self):
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(torch.overrides.resolve_name(func) or func.__name__)
        return func(*args, **(kwargs or {}))


class Double(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.sin or func is torch.Tensor.sin else result


def same(function, *args, graphs=1):
    return check(function, *args, graphs=graphs)


def test_a_class_that_says_nothing():
    def f(x):
        y = x + 1
        z = torch.cat([y, x]).sum(0)
        return y, z, x.shape, (-x).abs(), 1 - x, x @ x.T, x > 0, x[0], x.unbind(0), torch.max(x, 1)
    same(f, X.as_subclass(Plain))


def test_made_inside():
    def f(x):
        a = x.as_subclass(Plain)
        b = Plain([1.0, 2.0])
        c = torch.Tensor._make_subclass(Plain, x * 2)
        return a, b, c, a + c, isinstance(a * 2, Plain), type(b).__name__, Plain(x)
    same(f, X)


def test_handlers_that_count():
    def f(x):
        return (x * 2 + 1).relu().sum(dim=0), torch.nn.functional.relu(x), x.shape[0]
    x = X.as_subclass(Counted)
    Counted.calls.clear()
    f(x)
    wanted = dict(Counted.calls)
    Counted.calls.clear()
    compiled = thruway.compile(f, fullgraph=True)
    compiled(x)
    assert dict(Counted.calls) == wanted
    compiled(x)
    assert dict(Counted.calls) == {name: 2 * count for name, count in wanted.items()}
    same(f, x, graphs=None)


def test_attributes_of_instances():
    def f(x, y):
        a = Named(x, "a")
        b = a * y + a.twice()
        return b, b.label, (y * a).label, hasattr(a.detach(), "label")
    y = Named(X + 1, "y")
    same(f, X, y)
    compiled = thruway.compile(f)
    compiled(X, y)
    other = Named(X + 1, "z")
    assert compiled(X, other)[1] == f(X, other)[1] == "a+z+a"


def test_attributes_written_on_an_argument():
    def f(x):
        x.label = x.label + "!"
        return x * 2
    one, other = Named(X, "n"), Named(X, "n")
    f(one)
    thruway.compile(f, fullgraph=True)(other)
    assert one.label == other.label == "n!"


def test_wrapped_tensors():
    def f(x):
        m = Meta(x, ["start"])
        r = torch.tanh(torch.add(m, x))
        return r.data, r.notes
    same(f, X)

    def g(m, x):
        r = torch.cat([torch.stack([x, x])]).sum()
        return torch.mul(m, r).data, torch.nn.functional.dropout(m, 0.0, False).notes
    same(g, Meta(X), X)


def test_a_table_of_handlers():
    def f(x):
        d = Diagonal(4, 2.5)
        return torch.mean(d), torch.add(d, x), torch.add(d, d).value, torch.nn.functional.relu(d).value
    same(f, torch.ones(4, 4))
    alike(f(torch.ones(4, 4)), thruway.compile(f, fullgraph=True)(torch.ones(4, 4)))


def test_handlers_that_all_decline_raise_as_eager_does():
    def f():
        return torch.sin(Diagonal(2, 1.0))
    with pytest.raises(TypeError, match="NotImplemented"):
        thruway.compile(f)()


def test_the_derived_class_is_asked_first():
    class Base(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "base"

    class Derived(Base):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return ["derived", len(types)]

    def f(a, b):
        return torch.add(a, b), a + b, b + a, torch.add(b, a), a.sin()
    same(f, X.as_subclass(Base), X.as_subclass(Derived), graphs=None)


def test_writes_in_place():
    def f(x):
        y = x.add_(1)
        x[0] = 0
        x *= 2
        return y is x, x, y
    one, other = X.clone().as_subclass(Plain), X.clone().as_subclass(Plain)
    expected, found = f(one), thruway.compile(f, fullgraph=True)(other)
    alike(expected, found)
    assert found[1] is other
    alike(one, other)


def test_gradients_reach_the_leaf():
    def f(x):
        return (x.as_subclass(Plain) * 3).sum()
    x = X.clone().requires_grad_()
    f(x).backward()
    y = X.clone().requires_grad_()
    found = thruway.compile(f)(y)
    assert type(found) is Plain
    found.backward()
    alike(x.grad, y.grad)


def test_a_subclass_then_a_plain_tensor():
    def f(x):
        return x * 2
    compiled = thruway.compile(f)
    for x in (X, X.as_subclass(Plain), X, X.as_subclass(Counted)):
        alike(f(x), compiled(x))


def test_switched_off_around_the_call():
    def f(x):
        return x * 2
    x = X.as_subclass(Counted)
    compiled = thruway.compile(f)
    alike(f(x), compiled(x))
    with torch._C.DisableTorchFunctionSubclass():
        alike(f(x), compiled(x))
    alike(f(x), compiled(x))


def test_switched_off_inside():
    def f(x):
        with torch._C.DisableTorchFunctionSubclass():
            y = x * 2
        return y, x * 2
    same(f, X.as_subclass(Plain))


def test_a_function_that_asks_by_itself():
    def halve(x):
        if has_torch_function_unary(x):
            return handle_torch_function(halve, (x,), x)
        return x / 2

    def f(x):
        return halve(x)
    same(f, X)


def test_a_mode_that_notes_names():
    def f(x):
        with Log() as log:
            y = torch.sin(x) + x.cos()
            z = y[0].sum()
            n = x.shape
        w = y * 2
        return y, z, w, n, log.names
    same(f, X)


def test_modes_in_modes():
    def f(x):
        with Log() as log:
            with Double():
                y = torch.sin(x)
            z = x.sin()
        return y, z, log.names
    same(f, X)


def test_a_mode_over_factories_and_modules():
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

    def f(x):
        with Log() as log:
            y = layer(x) + torch.ones(4)
        return y, log.names
    same(f, X)


def test_a_mode_and_a_subclass():
    def f(x):
        with Double():
            y = torch.sin(x)
        return y
    same(f, X.as_subclass(Plain))


def test_a_break_inside_a_mode():
    def f(x):
        with Log() as log:
            y = torch.sin(x)
            thruway.graph_break() if hasattr(thruway, "graph_break") else breaks()
            z = y + 1
        return z, log.names
    alike(f(X), thruway.compile(f)(X))
    assert torch._C._len_torch_function_stack() == 0


@thruway.disable
def breaks():
    return None


def test_a_break_where_functions_are_off():
    def f(x):
        with torch._C.DisableTorchFunctionSubclass():
            y = x * 2
            breaks()
            z = x + y
        return y, z, x + 1
    x = X.as_subclass(Plain)
    for _ in range(2):
        alike(f(x), thruway.compile(f)(x))
    assert torch._C._is_torch_function_enabled()


def test_a_mode_whose_handler_raises():
    class Refuses(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise ValueError(func.__name__)

    def f(x):
        try:
            with Refuses():
                return x.sin()
        except ValueError as error:
            return str(error), x + 1
    same(f, X)


def test_dispatch_subclasses_stay_with_python():
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*[a.inner if isinstance(a, cls) else a for a in args], **(kwargs or {}))

    def f(x):
        return x * 2 + 1
    for _ in range(2):
        alike(f(Wrapper(X)), thruway.compile(f)(Wrapper(X)))


def test_an_own_operator_beside_the_handler():
    class Own(torch.Tensor):
        def __add__(self, other):
            return "own"

        def size(self):
            return "mine"

    def f(x, y):
        return x + 1, 1 + x, y + x, x.size(), x - 1
    same(f, X.as_subclass(Own), X)


def test_truth_length_and_iteration():
    def f(x):
        rows = [row * 2 for row in x]
        return len(x), rows, x.numel(), x.dim()
    same(f, X.as_subclass(Plain))
    same(f, X.as_subclass(Counted), graphs=None)


def test_sizes_that_change():
    def f(x):
        return x * 2 + x.shape[0]
    compiled = thruway.compile(f)
    for n in (3, 4, 5, 6):
        x = torch.arange(float(n)).as_subclass(Plain)
        alike(f(x), compiled(x))


def test_containers_of_subclasses():
    def f(xs):
        return torch.stack(xs), torch.cat([xs[0], xs[1].as_subclass(torch.Tensor)], dim=0)
    same(f, [X.as_subclass(Plain), X.as_subclass(Plain)])


def test_a_subclass_in_a_module():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.layer(x).relu()
    net = Net()
    with torch.no_grad():
        same(lambda x: net(x), X.as_subclass(Plain))
    same(lambda x: net(x), X.as_subclass(Plain))


def test_modes_hear_of_every_function():
    def f(x):
        with Log() as log:
            a = torch.tensor([1.0, 2.0])
            b = torch.as_tensor(x)
            c = torch.full((2,), 3.0)
            with torch.no_grad():
                d = x * 2
            try:
                x.nothing
            except AttributeError as error:
                text = str(error)
        return a, b + 0, c, d, text, log.names
    same(f, X)

    def g(x):
        with Log() as log, torch.device("cpu"):
            y = torch.ones(2)
        return y + x.sum(), log.names
    same(g, X, graphs=None)

    def h(x):
        with Log() as log, torch.autocast("cpu"):
            y = x @ x.T
        return y, log.names
    same(h, X, graphs=None)


def test_what_a_leaf_becomes():
    def f(x):
        y = x.as_subclass(Plain)
        return y.requires_grad, y.is_leaf, y.grad_fn is None, x.is_leaf
    same(f, X.clone().requires_grad_(), graphs=None)
    same(f, X, graphs=None)

    def g(y):
        return y.is_leaf, y.grad is None, y + 1
    same(g, X.clone().requires_grad_().as_subclass(Plain), graphs=None)


def test_keys_that_are_functions():
    def f(x):
        return HANDLERS.get(torch.nn.functional.relu) is None, HANDLERS.get(alike), torch.nn.functional.gelu in HANDLERS, x + 1
    same(f, X)


def test_explaining_a_miss_asks_nobody() -> None:
    """What differs from the calls before is read off the arguments without their `__torch_function__`."""
    asked: list[str] = []

    class Noted(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            asked.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    def fn(x, y):
        return torch.relu(x * 2 + y)

    compiled = thruway.compile(fn)
    pairs = [(torch.ones(3).as_subclass(Noted), torch.ones(3)), (torch.ones(3).as_subclass(Noted), torch.ones(3).as_subclass(Noted)),
             (torch.ones(4).as_subclass(Noted), torch.ones(4)), (torch.ones(5, 2).t().as_subclass(Noted), torch.ones(5).as_subclass(Noted))]
    for x, y in pairs:
        seen = []
        for function in (fn, compiled):
            asked.clear()
            function(x, y)
            seen.append(tuple(asked))
        assert seen[0] == seen[1]
