"""Transforms of torch.func and functional_call: one node of the graph, with the results and gradients of eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from capture.beside_eager import LINEAR, Graphs, X, alike, check, gradients

import thruway

pytestmark = pytest.mark.usefixtures("fresh")


# -- transforms of torch.func --------------------------------------------------------------------------------------------------------

def squares(x):
    return (x * x).sum()


def by_name(p, x):
    return {"out": (p["w"] * x).sin(), "twice": x * 2}


VMAPPED = torch.vmap(squares)
GRADIENT = torch.func.grad(lambda p, x: (p["w"] * x).sin().sum() * p["b"])


class Doubling(torch.autograd.Function):
    """A straight-through estimate whose backward is not the forward's."""

    @staticmethod
    def forward(x):
        return torch.round(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 2 + x * 0


TRANSFORMED = {
    "vmap": lambda x: torch.vmap(squares)(x + 1) * 2,
    "vmap in_dims": lambda x: torch.vmap(lambda a, b: a + b, in_dims=(1, None), out_dims=1)(x, x[:, 0]),
    "vmap of a closure": lambda x: torch.vmap(lambda a: a @ (x.t() * 2))(x),
    "vmap of vmap": lambda x: torch.vmap(torch.vmap(lambda a: a.sin() + 1))(x),
    "vmap made outside": lambda x: VMAPPED(x) + 1,
    "vmap of a dict": lambda x: torch.vmap(by_name, in_dims=({"w": None}, 0))({"w": x[0]}, x),
    "vmap with a keyword": lambda x: torch.vmap(lambda a, *, k: a * k)(x, k=x),
    "vmap of a module": lambda x: torch.vmap(LINEAR)(x),
    "vmap in chunks": lambda x: torch.vmap(squares, chunk_size=2)(x),
    "grad": lambda x: torch.func.grad(squares)(x + 1) * 2,
    "grad with numbers": lambda x: torch.func.grad(lambda a, n: (a ** n).sum())(x, 3),
    "grad of two": lambda x: torch.func.grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x + 1),
    "grad made outside": lambda x: GRADIENT({"w": x, "b": x.sum()}, x),
    "grad with aux": lambda x: torch.func.grad(lambda a: ((a * a).sum(), a.cos()), has_aux=True)(x),
    "grad and value": lambda x: torch.func.grad_and_value(squares)(x),
    "grad of grad": lambda x: torch.func.grad(lambda a: torch.func.grad(lambda b: (b ** 3).sum())(a).sum())(x),
    "grad of detached": lambda x: torch.func.grad(lambda a: (a * a.detach()).sum())(x),
    "grad without gradient inside": lambda x: torch.func.grad(lambda a: no_gradient(a) + squares(a))(x),
    "per-sample gradients": lambda x: torch.vmap(torch.func.grad(lambda a, w: (a @ w).relu().sum()), in_dims=(0, None))(x, x.t()),
    "custom backward": lambda x: torch.func.grad(lambda a: Doubling.apply(a * a).sum())(x),
    "jacrev": lambda x: torch.func.jacrev(torch.sin)(x[0]),
    "jacfwd": lambda x: torch.func.jacfwd(lambda a: a * a.sum())(x[0]),
    "hessian": lambda x: torch.func.hessian(lambda a: (a ** 3).sum())(x[0]),
    "jvp": lambda x: torch.func.jvp(lambda a: a * a, (x,), (x + 1,)),
    "vjp": lambda x: torch.func.vjp(lambda a: a * a, x)[1](x),
    "vjp, twice": lambda x: [back(x) for back in torch.func.vjp(lambda a, b: a * b.sin(), x, x + 1)[1:] for _ in range(2)],
    "vjp of a dict": lambda x: torch.func.vjp(lambda d: {"o": d["a"] * d["b"]}, {"a": x, "b": x + 1})[1]({"o": x}),
    "vjp with more": lambda x: [one if isinstance(one, torch.Tensor) else one(x) for one in torch.func.vjp(lambda a: (a.cos(), a * 2), x, has_aux=True)],
    "vjp of a function that draws": lambda x: torch.func.vjp(lambda a: F.dropout(a, 0.5) * a, x)[1](x),
    "linearize": lambda x: torch.func.linearize(lambda a: a.sin() * 2, x)[1](torch.ones_like(x)),
}
BROKEN_AROUND = {"vmap in chunks": None, "vmap of a module": None}


def no_gradient(a):
    with torch.no_grad():
        return (a * a).sum()


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transforms(name):
    function = TRANSFORMED[name]
    with torch.no_grad():
        check(lambda x: function(x * 1), X, graphs=BROKEN_AROUND.get(name, 1))


@pytest.mark.parametrize("name", ["vmap", "grad", "grad made outside", "custom backward", "jvp", "per-sample gradients"])
def test_gradients_through_transforms(name):
    def total(x):
        result = TRANSFORMED[name](x)
        return sum(one.sum() for one in (result.values() if isinstance(result, dict) else result if isinstance(result, tuple) else (result,)))
    for compiled in (thruway.compile(total, backend=Graphs()), thruway.compile(total)):
        for _ in range(2):
            alike(gradients(total, X.clone().requires_grad_()), gradients(compiled, X.clone().requires_grad_()))


def test_a_transformed_function_survives_a_break_and_can_be_returned():
    def across(x):
        made = torch.func.grad(squares)
        text = str(x[0, 0].round().item())
        return made(x), len(text), made

    compiled = thruway.compile(across)
    for _ in range(2):
        expected, found = across(X), compiled(X)
        alike(expected[:2], found[:2])
        alike(expected[2](X), found[2](X))


def test_effects_inside_a_transformed_function_happen_as_in_eager():
    shapes = []

    def noting(a):
        shapes.append(a.shape)
        return a.sum()

    def outer(x):
        inside = []

        def keeping(a):
            inside.append(a.dim())
            return a * 2
        return torch.vmap(noting)(x + 1), torch.vmap(keeping)(x), inside
    compiled = thruway.compile(outer)
    for count in (1, 2, 3):
        alike(outer(X), compiled(X))
        assert shapes == [(8,)] * 2 * count


def test_wrong_uses_of_transforms_raise_torchs_errors():
    def not_scalar(x):
        return torch.func.grad(lambda a: a * 2)(x + 1)

    def random(x):
        return torch.vmap(lambda a: a + torch.rand(()))(x)

    def wrong_dims(x):
        return torch.vmap(squares, in_dims=5)(x)
    for function in (not_scalar, random, wrong_dims):
        with pytest.raises((RuntimeError, ValueError)) as expected:
            function(X)
        with pytest.raises(type(expected.value)) as found:
            thruway.compile(function)(X)
        assert str(found.value) == str(expected.value)


def test_random_numbers_in_transforms_are_those_of_eager():
    check(lambda x: torch.vmap(lambda a: a + torch.rand_like(a), randomness="different")(x), X)
    check(lambda x: torch.vmap(lambda a: F.dropout(a), randomness="same")(x), X)


def test_calls_inside_a_transform_run_eager():
    compiled = thruway.compile(squares)
    alike(torch.vmap(squares)(X), torch.vmap(compiled)(X))
    alike(torch.func.grad(squares)(X), torch.func.grad(compiled)(X))


# -- functional_call -----------------------------------------------------------------------------------------------------------------

class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 8, bias=False)
        self.norm = torch.nn.BatchNorm1d(8)
        self.second = torch.nn.Linear(8, 8, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x, *, scale=1.0):
        return self.second(self.norm(self.first(x))) * scale


TIED = Tied().eval()


def called_with(x):
    return torch.func.functional_call(TIED, {"first.weight": TIED.first.weight * 2, "norm.running_mean": x[0]}, (x,), {"scale": 3.0})


def gradient_of_parameters(x):
    parameters = {name: one.detach() for name, one in LINEAR.named_parameters()}
    return torch.func.grad(lambda p: torch.func.functional_call(LINEAR, p, x).square().sum())(parameters)


def ensemble(x):
    weights = {"weight": torch.stack([LINEAR.weight, LINEAR.weight * 2]), "bias": torch.stack([LINEAR.bias, LINEAR.bias + 1])}
    return torch.vmap(lambda p, a: torch.func.functional_call(LINEAR, p, (a,)), in_dims=(0, None))(weights, x)


@pytest.mark.parametrize("function", [called_with, gradient_of_parameters, ensemble])
def test_functional_call(function):
    weight, keys = TIED.first.weight, list(LINEAR._parameters)
    with torch.no_grad():
        check(function, X, graphs=1)
    assert TIED.first.weight is weight and TIED.second.weight is weight and list(LINEAR._parameters) == keys


def test_functional_call_in_training_writes_the_given_statistics():
    layer = torch.nn.BatchNorm1d(8)

    def train(x, mean):
        return torch.func.functional_call(layer, {"running_mean": mean}, (x,))
    compiled = thruway.compile(train)
    for _ in range(2):
        wanted, found = torch.zeros(8), torch.zeros(8)
        layer.reset_running_stats()
        alike(train(X, wanted), compiled(X, found))
        alike(wanted, found)
        assert layer.running_mean.abs().max() == 0


def test_transforms_with_parameters_from_outside_and_sizes_that_change():
    def loss(p, a, k):
        return torch.func.functional_call(LINEAR, p, a).pow(2).sum() * k.shape[0]

    def per_sample(p, x):
        return torch.vmap(torch.func.grad(loss), in_dims=(None, 0, None))(p, x * 1, x)["bias"] + x.sum()
    parameters = {name: one.detach() for name, one in LINEAR.named_parameters()}
    backend = Graphs()
    for compiled in (thruway.compile(per_sample, backend=backend), thruway.compile(per_sample)):
        for size in (4, 4, 6, 7, 9):
            x = torch.randn(size, 8)
            with torch.no_grad():
                alike(per_sample(parameters, x), compiled(parameters, x), 1e-3)


def test_gradients_reach_what_a_transformed_function_closes_over():
    def closing(x):
        scale = x.sum()
        return torch.func.grad(lambda v: (v * v * scale).sum())(x.detach() + 1)
    alike(gradients(closing, X.clone().requires_grad_()), gradients(thruway.compile(closing), X.clone().requires_grad_()))


def test_what_vjp_gives_may_leave_and_be_transformed():
    def leaving(x):
        return torch.func.vjp(torch.sin, x)[1]

    def mapped(x):
        return torch.vmap(torch.func.vjp(lambda a: a * a, x)[1])(torch.stack([x, x + 1]))
    for _ in range(2):
        alike(leaving(X)(X), thruway.compile(leaving)(X)(X))
        alike(mapped(X), thruway.compile(mapped)(X))


def test_linearizing_a_function_that_draws_stays_with_torch():
    def f(x):
        y, push = torch.func.linearize(lambda a: F.dropout(a, 0.5) * a, x)
        return y, push(x)
    check(f, X)


def test_vjp_of_what_wants_a_gradient():
    def f(x):
        y, back = torch.func.vjp(lambda a: a.sin() * a, x)
        return (y * back(y)[0]).sum()
    alike(gradients(f, X.clone().requires_grad_()), gradients(thruway.compile(f), X.clone().requires_grad_()))
