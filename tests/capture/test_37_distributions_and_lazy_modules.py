"""Library code that defines properties of its own kind or has no shapes yet: torch.distributions and lazy modules; and `super` with arguments."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch.distributions as D
from torch import nn

import thruway


@pytest.fixture(autouse=True)
def fresh():
    thruway.reset()
    yield
    thruway.reset()


def transformed(x):
    made = D.TransformedDistribution(D.Normal(x, x.abs() + 1), [D.AffineTransform(0.5, 0.25), D.TanhTransform(cache_size=1)])
    q = made.rsample()
    return q, made.log_prob(q)


def categorical(x):
    made = D.Categorical(logits=x)
    return made.sample(), made.log_prob(x.argmax(-1)), made.entropy(), made.probs


def several(x):
    n, b, u = D.Normal(x, 1.0), D.Bernoulli(logits=x), D.Uniform(0.0, 1.0)
    return n.rsample(), n.cdf(x), b.log_prob(b.sample()), u.sample((2,)), D.kl_divergence(n, D.Normal(torch.zeros_like(x), 2.0)), n.batch_shape


def dirichlet(x):
    made = D.Dirichlet(x.abs() + 0.5)
    return made.sample(), made.mean, D.Gamma(x.abs() + 1, 1.0).rsample(), D.Independent(D.Normal(x, 1.0), 1).log_prob(x)


def multivariate(x):
    return D.MultivariateNormal(x[:2, 0], torch.eye(2)).log_prob(x[:2, 1])


@pytest.mark.parametrize("function", [transformed, categorical, several, dirichlet, multivariate])
def test_distributions_stay_in_the_graph(function):
    compiled = thruway.compile(function)
    for seed in range(3):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        torch.manual_seed(seed)
        expected = function(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x), expected, equal_nan=True)
    makes_weak_references = function is transformed and "weakref.ref" in inspect.getsource(D.transforms)          # before torch 2.14
    assert thruway.metrics()["graph_breaks"] == 2 * makes_weak_references


def test_an_argument_out_of_its_range_is_told_in_torch_s_words():
    def f(x):
        return D.Normal(x, x).rsample(), D.Categorical(probs=x)

    compiled = thruway.compile(f)
    compiled(torch.ones(2))
    for run in (f, compiled):
        with pytest.raises(ValueError, match="Expected parameter scale .* of distribution Normal"):
            run(torch.tensor([1.0, -1.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64])
@pytest.mark.parametrize("sample", [torch._sample_dirichlet, torch._standard_gamma])
def test_samples_for_parameters_keep_what_eager_gives(sample, dtype):
    def f(x):
        try:
            made = sample(x)
        except RuntimeError as error:
            return str(error)
        return made, made.stride()

    x = torch.ones(4, 3, dtype=dtype).t()
    found = []
    for run in (f, thruway.compile(f)):
        torch.manual_seed(0)
        found.append(str(run(x)))
    assert found[0] == found[1]


class Told(property):
    """One that says what it is for and reads as every property."""

    def __init__(self, function, note="none"):
        super().__init__(function)
        self.note = note


class Doubling(property):
    """A near miss: it reads in a way of its own."""

    def __get__(self, owner, cls=None):
        return self if owner is None else super().__get__(owner, cls) * 2


class Measured:
    def __init__(self, size):
        self.size = size

    @Told
    def half(self):
        """Half of it."""
        return self.size / 2

    @Doubling
    def twice(self):
        return self.size

    missing = Told(None)


def test_classes_derived_from_property_are_read_as_properties():
    def f(x):
        one = Measured(x)
        try:
            one.missing
        except AttributeError as error:
            told = str(error)
        return one.half + 1, type(one).half.note, isinstance(Measured.half, property), told

    assert str(thruway.compile(f, fullgraph=True)(torch.ones(2))) == str(f(torch.ones(2)))


def test_one_that_reads_in_its_own_way_does_so():
    def f(x):
        return Measured(x).twice + 1

    assert thruway.compile(f)(torch.ones(2)).tolist() == f(torch.ones(2)).tolist() == [3, 3]


def test_a_property_made_inside_is_one_outside():
    def double(self):
        """Twice."""
        return self.size * 2

    def f(x):
        made = Told(double, note="made")
        return made, made.fget is double, made.fset, made.__doc__, made.note, isinstance(made, property), x + 1

    made, *rest, y = thruway.compile(f, fullgraph=True)(torch.ones(2))
    assert type(made) is Told and made.fget is double and made.__doc__ == "Twice." and made.note == "made"
    assert rest == list(f(torch.ones(2))[1:-1]) and y.tolist() == [2, 2]
    assert made.__get__(Measured(3)) == 6


class Base:
    def go(self, x):
        return x + 1


class Derived(Base):
    def go(self, x):
        above = super
        return above(Derived, self).go(x) * 2


class Further(Derived):
    pass


@pytest.mark.parametrize("make", [lambda: super(Derived, 5), lambda: super(Derived, Base()), lambda: super(Derived, Base)])
def test_super_of_something_else_raises(make):
    def f(x):
        try:
            make()
        except TypeError as error:
            return x + 1, str(error)
        return x, "none"

    assert str(thruway.compile(f, fullgraph=True)(torch.ones(2))) == str(f(torch.ones(2)))
    assert f(torch.ones(2))[1].startswith("super(type, obj)")


def test_super_of_an_instance_or_a_subclass_is_taken():
    """Near misses."""
    def f(x):
        return super(Derived, Further()).go(x), super(Further, Further).go(Further(), x), Derived().go(x)

    assert str(thruway.compile(f, fullgraph=True)(torch.ones(2))) == str(f(torch.ones(2)))


def test_super_without_an_object_is_left_to_python():
    def f(x):
        return type(super(Derived, None)).__name__, type(super(Derived)).__name__, x + 1

    assert str(thruway.compile(f)(torch.ones(2))) == str(f(torch.ones(2)))


def lazy_modules():
    torch.manual_seed(0)
    return nn.Sequential(nn.LazyConv1d(4, 3), nn.LazyBatchNorm1d(), nn.Flatten(), nn.LazyLinear(2))


@pytest.mark.parametrize("fullgraph", [False, True])
def test_lazy_modules_get_their_shapes_in_one_call_and_are_one_graph_then(fullgraph):
    eager, ours = lazy_modules(), lazy_modules()
    compiled = thruway.compile(ours, fullgraph=fullgraph)
    for seed in range(4):
        x = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(seed))
        torch.manual_seed(0)
        expected = eager(x)
        torch.manual_seed(0)
        torch.testing.assert_close(compiled(x), expected, equal_nan=True)
    assert [type(one) for one in ours] == [type(one) for one in eager] and list(ours.state_dict()) == list(eager.state_dict())
    found = thruway.metrics()
    assert found["postponed"] == 1 and found["graph_breaks"] == 0 and found["graphs"] == 1


def test_a_parameter_that_never_gets_a_shape_is_waited_for_a_few_times():
    """A near miss: nothing is gained by waiting."""
    layer = nn.LazyLinear(2)

    def f(x):
        return x + 1 if nn.parameter.is_lazy(layer.weight) else x - 1

    compiled = thruway.compile(f)
    assert [compiled(torch.ones(1)).item() for _ in range(8)] == [2] * 8
    assert thruway.metrics()["postponed"] == 4
    layer(torch.ones(3))
    assert compiled(torch.ones(1)).item() == 0
