"""What changes between calls is seen: modes of torch, weights by every route, hooks, methods, classes, globals, closures, defaults; and threads."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable
from contextlib import nullcontext

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import thruway
from whole.assert_same import assert_same

X = torch.linspace(-1, 1, 12).reshape(3, 4)


# -- random numbers -----------------------------------------------------------------------------------------------------------------------

RANDOM = {
    "dropout": lambda x: F.dropout(x, 0.5), "two dropouts": lambda x: F.dropout(F.dropout(x, 0.3) + 1, 0.3), "dropout in place": lambda x: F.dropout(x.clone(), 0.5, inplace=True),
    "no dropout": lambda x: F.dropout(x, 0.5, training=False), "dropout of nothing": lambda x: (F.dropout(x, 0.0), torch.rand(1)), "dropout of all": lambda x: F.dropout(x, 1.0),
    "mixed": lambda x: (torch.rand(3), torch.randn(3), torch.rand_like(x), torch.randint(9, (3,)), torch.randperm(5)),
    "order": lambda x: torch.randn(3) - torch.randn(3), "unused": lambda x: (torch.randn(7), x + torch.randn(4))[1], "bernoulli": lambda x: torch.bernoulli(x.abs()),
    "multinomial": lambda x: torch.multinomial(x.abs() + 0.1, 2), "normal": lambda x: (torch.normal(x, 1.0), x.clone().normal_()), "uniform": lambda x: x.clone().uniform_(-2, 2),
    "exponential": lambda x: x.clone().exponential_(), "seeded": lambda x: (torch.manual_seed(5), torch.rand(2))[1], "alpha": lambda x: F.alpha_dropout(x, 0.5, True),
    "feature": lambda x: F.dropout1d(x[None], 0.5), "noise": lambda x: F.gumbel_softmax(x), "rrelu": lambda x: F.rrelu(x, training=True),
    "generator": lambda x: torch.rand(3, generator=torch.Generator().manual_seed(1)), "python": lambda x: x * random.random() + random.randint(1, 9),
    "shuffled": lambda x: x[random.sample(range(3), 3)], "numpy": lambda x: x * float(numpy.random.rand()), "between": lambda x: torch.rand(2) + random.random() + torch.rand(2),
    "branch": lambda x: torch.rand(1) + 1 if x.sum() > -9 else torch.randn(1), "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5),
    "half": lambda x: F.dropout(x.bfloat16(), 0.5),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random(name):
    assert_same(RANDOM[name], X)


def test_random_numbers_go_on_between_calls():
    for function in RANDOM.values():
        compiled = thruway.compile(function)
        for call in (function, compiled):
            torch.manual_seed(1), random.seed(1), numpy.random.seed(1)
            results = [call(X) for _ in range(4)]
            after = torch.get_rng_state(), random.getstate(), numpy.random.rand()
            if call is function:
                wanted, wanted_after = results, after
        for one, other in zip(wanted, results):
            for a, b in zip(one if isinstance(one, tuple) else (one,), other if isinstance(other, tuple) else (other,)):
                torch.testing.assert_close(b, a)
        assert torch.equal(after[0], wanted_after[0]) and after[1:] == wanted_after[1:]


# -- modes --------------------------------------------------------------------------------------------------------------------------------

def uses_modes(x, weight):
    y = F.linear(x, weight) + torch.ones(3) * 0.1
    made = torch.tensor([1.5]), torch.arange(2.0), torch.zeros(2) + 1, torch.full((1,), 0.1)
    flags = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    return y, made, flags


class DefaultDtype:
    def __enter__(self):
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *_):
        torch.set_default_dtype(torch.float32)


class Deterministic:
    def __enter__(self):
        torch.use_deterministic_algorithms(True)

    def __exit__(self, *_):
        torch.use_deterministic_algorithms(False)


MODES: dict[str, Callable[[], object]] = {
    "plain": nullcontext, "no grad": torch.no_grad, "inference": torch.inference_mode, "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default dtype": DefaultDtype, "deterministic": Deterministic, "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "device": lambda: torch.device("cpu"), "meta": lambda: torch.device("meta"),
}


def look(value):
    if isinstance(value, torch.Tensor):
        return (value.dtype, value.device, value.requires_grad, value.is_inference(), value.shape,
                [] if value.is_meta else [round(float(v), 2) for v in value.detach().flatten()])
    return [look(one) for one in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("grad", [False, True])
def test_modes_flip_between_calls(grad):
    weight = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_(grad)
    compiled = thruway.compile(uses_modes)
    for name in ("plain", *(name for other in MODES if other != "meta" for name in (other, "plain")), *reversed([m for m in MODES if m != "meta"])):
        with MODES[name]():
            assert look(compiled(X, weight)) == look(uses_modes(X, weight)), name


def sets_modes_inside(x):
    with torch.no_grad():
        a = x * 2
        inside = torch.is_grad_enabled()
    with torch.autocast("cpu", torch.bfloat16):
        b = x @ x.t()
    with torch.inference_mode():
        c = (x + 1).sum()
    return a, b, c, inside, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")


def test_modes_inside():
    assert_same(sets_modes_inside, X)
    assert_same(sets_modes_inside, X, no_grad=True)


# -- weights and modules ------------------------------------------------------------------------------------------------------------------

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.conv = nn.Conv1d(1, 2, 3, bias=False)
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Tanh()])
        self.scale = 2.0
        self.register_buffer("shift", torch.ones(8))

    def forward(self, x):
        y = self.norm(self.first(x))
        y = self.conv(y[:, None]).flatten(1)
        for layer in self.layers:
            y = layer(y)
        return y * self.scale + self.shift


class Other(Net):
    def forward(self, x):
        return super().forward(x) - 100


def step_of_optimizer(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def fused_step(net):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, fused=True)
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def numpy_write(net):
    net.first.weight.detach().numpy()[:] = 0.25


def add_hook(net):
    net.first.register_forward_hook(lambda module, args, result: result * 3)


def change_forward(net):
    net.layers[1].forward = lambda x: x * 7


def change_call_of_class(net):
    net.__class__ = Other


CHANGES = {
    "load": lambda net: net.load_state_dict({k: v + 0.5 for k, v in net.state_dict().items() if v.is_floating_point()}, strict=False),
    "data": lambda net: setattr(net.first.weight, "data", torch.ones(6, 4)), "copy": lambda net: net.first.weight.detach().copy_(torch.full((6, 4), 0.3)),
    "write to data": lambda net: net.conv.weight.data.mul_(3), "one element": lambda net: net.first.bias.data.__setitem__(2, 9.0), "numpy": numpy_write,
    "optimizer": step_of_optimizer, "fused optimizer": fused_step, "new weight": lambda net: setattr(net.first, "weight", nn.Parameter(torch.ones(6, 4) / 3)),
    "new conv weight": lambda net: setattr(net.conv, "weight", nn.Parameter(torch.ones(2, 1, 3))), "statistics": lambda net: net.norm.running_mean.fill_(3),
    "variance": lambda net: net.norm.running_var.mul_(9), "swap": lambda net: setattr(net, "first", nn.Linear(4, 6, bias=False)),
    "swap in list": lambda net: net.layers.__setitem__(1, nn.ReLU()), "append": lambda net: net.layers.append(nn.Sigmoid()), "delete": lambda net: net.layers.__delitem__(0),
    "number": lambda net: setattr(net, "scale", 5.0), "buffer": lambda net: setattr(net, "shift", torch.zeros(8)), "buffer in place": lambda net: net.shift.zero_(),
    "no bias": lambda net: setattr(net.first, "bias", None), "epsilon": lambda net: setattr(net.norm, "eps", 0.5), "train": lambda net: net.train(),
    "hook": add_hook, "pre hook": lambda net: net.layers[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,)), "forward": change_forward, "class": change_call_of_class,
    "double": lambda net: net.double(),
    "frozen": lambda net: net.requires_grad_(False), "eval": lambda net: net.eval(), "parametrized": lambda net: nn.utils.parametrizations.weight_norm(net.first),
    "item of parameters": lambda net: net.first._parameters.__setitem__("weight", nn.Parameter(torch.ones(6, 4))), "stride": lambda net: setattr(net.conv, "padding", (1,)) or setattr(net.conv, "dilation", (2,)),
}


@pytest.mark.parametrize("gradient", [False, True], ids=["no_grad", "grad"])
@pytest.mark.parametrize("name", CHANGES)
def test_changes_between_calls(name, gradient):
    torch.manual_seed(0)
    net = Net().eval()
    twin = copy.deepcopy(net)
    compiled = thruway.compile(net)
    with nullcontext() if gradient else torch.no_grad():
        for change in (None, None, CHANGES[name], None, None):
            for one in (net, twin):
                torch.manual_seed(0)
                if change:
                    with torch.no_grad():
                        change(one)
            x = X.to(net.first.weight.dtype)
            want = twin(x)
            got = compiled(x)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
            assert got.requires_grad == want.requires_grad
            assert type(net) is type(twin)
            for (key, a), (_, b) in zip(net.state_dict().items(), twin.state_dict().items()):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=key)


def test_hooks_on_saved_tensors_see_eagers():
    def block(x):
        return F.dropout(x * x, 0.5).exp()

    def saved(call):
        seen = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.shape) or t, lambda t: t):
            torch.manual_seed(0)
            call(X.clone().requires_grad_()).sum().backward()
        return seen

    compiled = thruway.compile(block)
    for _ in range(2):
        assert saved(compiled) == saved(block)


@pytest.mark.parametrize("outside", [False, True])
def test_checkpointing_draws_the_same_mask(outside):
    def block(x):
        return F.dropout(x * 5, 0.5)

    inner = thruway.compile(block)
    function = thruway.compile(lambda x: checkpoint(block, x, use_reentrant=False)) if outside else lambda x: checkpoint(inner, x, use_reentrant=False)
    for _ in range(3):
        x = torch.ones(64, 8, requires_grad=True)
        y = function(x)
        y.sum().backward()
        assert torch.equal(x.grad == 0, y == 0) and 0.3 < (y == 0).float().mean() < 0.7


def test_training_steps():
    torch.manual_seed(0)
    net = Net().train()
    twin = copy.deepcopy(net)
    compiled = thruway.compile(net)
    optimizers = [torch.optim.Adam(one.parameters(), lr=0.05) for one in (net, twin)]
    for step in range(5):
        for call, optimizer in zip((compiled, twin), optimizers):
            optimizer.zero_grad()
            call(X + step).square().sum().backward()
            optimizer.step()
    for a, b in zip(net.state_dict().values(), twin.state_dict().values()):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


# -- Python state -------------------------------------------------------------------------------------------------------------------------

FACTOR = 2.0
TABLE = {"a": 1.0, "b": [1, 2]}
WEIGHTS = [torch.ones(4), torch.ones(4)]


def helper(x):
    return x + FACTOR


class Config:
    width = 3.0


def reads_globals(x):
    return helper(x) * TABLE["a"] + len(TABLE["b"]) + WEIGHTS[0] + Config.width


def with_default(x, factor=2.0, *, offset=(1, 2)):
    return x * factor + offset[1]


def change_globals(name, value):
    globals()[name] = value


PYTHON_CHANGES = {
    "number": lambda: change_globals("FACTOR", 3.0), "sign of zero": lambda: change_globals("FACTOR", -0.0), "int": lambda: change_globals("FACTOR", 2),
    "function": lambda: change_globals("helper", lambda x: x - 5), "entry": lambda: TABLE.__setitem__("a", 4.0), "list": lambda: TABLE["b"].append(5),
    "tensor in list": lambda: WEIGHTS.__setitem__(0, torch.zeros(4)), "tensor in place": lambda: WEIGHTS[0].mul_(9), "class": lambda: setattr(Config, "width", 8.0),
    "dict": lambda: change_globals("TABLE", {"a": 0.5, "b": []}), "code": lambda: setattr(helper, "__code__", (lambda x: x * 50).__code__), "tensor": lambda: change_globals("FACTOR", torch.tensor(7.0)),
}


@pytest.mark.parametrize("name", PYTHON_CHANGES)
def test_globals(name):
    saved = FACTOR, helper, helper.__code__, copy.deepcopy(TABLE), list(WEIGHTS), Config.width
    compiled = thruway.compile(reads_globals)
    try:
        for change in (None, None, PYTHON_CHANGES[name], None):
            if change:
                change()
            torch.testing.assert_close(compiled(X), reads_globals(X))
    finally:
        saved[1].__code__ = saved[2]
        for key, value in zip(("FACTOR", "helper", "TABLE", "WEIGHTS"), (saved[0], saved[1], saved[3], [torch.ones(4), torch.ones(4)])):
            change_globals(key, value)
        Config.width = saved[5]


def test_defaults():
    compiled = thruway.compile(with_default)
    for change in (lambda: None, lambda: setattr(with_default, "__defaults__", (5.0,)), lambda: setattr(with_default, "__kwdefaults__", {"offset": (0, 9)})):
        change()
        torch.testing.assert_close(compiled(X), with_default(X))
        torch.testing.assert_close(compiled(X, offset=(1, 1)), with_default(X, offset=(1, 1)))


def test_closures():
    count, weight = 1, torch.ones(4)

    def inner(x):
        nonlocal count
        count += 1
        return x * count + weight

    compiled = thruway.compile(inner)
    for i in range(4):
        if i == 2:
            count, weight = 10, torch.zeros(4)
        before = count
        got, now = compiled(X), count
        count = before
        want = inner(X)
        assert now == count
        torch.testing.assert_close(got, want)


def test_objects_that_count():
    class Counter:
        def __init__(self):
            self.calls, self.seen, self.last = 0, [], None

        def __call__(self, x):
            self.calls += 1
            self.seen.append(self.calls)
            self.last = x * self.calls
            return self.last + len(self.seen)

    one, other = Counter(), Counter()
    compiled = thruway.compile(one.__call__)
    for _ in range(5):
        torch.testing.assert_close(compiled(X), other(X))
        assert (one.calls, one.seen) == (other.calls, other.seen)
        torch.testing.assert_close(one.last, other.last)


def test_threads():
    compiled = thruway.compile(lambda x, n: (x * n).sin().sum(-1) + torch.ones(3) * n)
    wrong = []

    def work(n):
        x = X + n
        for _ in range(20):
            with torch.no_grad() if n % 2 else nullcontext():
                if not torch.allclose(compiled(x, n), (x * n).sin().sum(-1) + n, atol=1e-5):
                    wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
