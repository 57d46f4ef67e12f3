"""Python's random numbers: drawn in plain Python as eager draws them, then data for the graph, so that no call compiles anew."""

import random

import pytest
import torch

import thruway

OWN = random.Random(3)


def shuffled(x):
    order = list(range(8))
    random.shuffle(order)
    few = random.sample(range(100), 3)
    return x[order] * few[0], order, few, random.random()


def scaled(x):
    return x * random.random() + random.randint(0, 5) - random.uniform(1, 2)


def pick():
    return random.randrange(8)


def through_a_helper(x):
    place = pick()
    return x[place] * 2, x + place


def own_generator(x):
    order = [0, 1, 2, 3]
    OWN.shuffle(order)
    written = x.clone()
    written[order] = 9.0
    return x[order,] + x[order], written.sum(), sorted(order), order[0]


def sizes(x):
    n, t = random.randint(2, 4), random.random()
    return (x.half() * n).float(), x.long() * n, x[:n], torch.full((2,), n), x + (n if n > 2 else -n), [x] * n, f"{n} {t:.2f}", round(t, 2), n == 3


def dropped(x):
    for _ in range(3):
        x = x * 2 if random.random() < 0.5 else x + 1
    return x.sin()


def history(call):
    random.seed(0)
    OWN.seed(1)
    return [(repr(call(torch.arange(8.0) + i)), random.getstate() == OWN.getstate(), random.random()) for i in range(8)]


@pytest.mark.parametrize("backend", ["thruway", "eager"])
@pytest.mark.parametrize("function", [shuffled, scaled, through_a_helper, own_generator, sizes, dropped])
def test_draws_are_eagers(function, backend):
    thruway.reset()
    assert history(thruway.compile(function, backend=backend)) == history(function)
    assert thruway.metrics()["bugs"] == 0 and thruway.metrics()["graphs"]


@pytest.mark.parametrize("function", [shuffled, scaled, through_a_helper, own_generator])
def test_other_numbers_compile_nothing_anew(function):
    thruway.reset()
    history(thruway.compile(function))
    assert thruway.metrics()["recompiles"] == 0 and thruway.metrics()["eager"] == 0
