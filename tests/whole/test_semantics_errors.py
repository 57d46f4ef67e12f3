"""Exceptions: the same type, text, chain and traceback of the user's functions; what was done before stays done, nothing is done twice."""

from __future__ import annotations

import random
import traceback

import pytest
import torch
import torch.nn.functional as F

import thruway

WEIGHT = torch.ones(7, 1)


class BadBatch(ValueError):
    def __init__(self, n):
        super().__init__(f"bad batch {n}")
        self.n = n


class Manager:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(kind.__name__ if kind else "out")


def validate(x, log):
    log.append(x.shape[0])
    if x.shape[0] > 3:
        raise BadBatch(x.shape[0])
    return x


def directly(x, log):
    return validate(x, log) * 2


def through_finally(x, log):
    try:
        y = validate(x, log) * 2
    finally:
        log.append("done")
    return y


def through_with(x, log):
    with Manager(log):
        return validate(x, log) + 1


def while_handling(x, log):
    try:
        return validate(x, log)
    except ValueError:
        raise KeyError("second")


def from_another(x, log):
    try:
        return validate(x, log)
    except ValueError as error:
        raise KeyError("second") from error


def again(x, log):
    try:
        return validate(x, log)
    except ValueError:
        log.append("caught")
        raise


def handled(x, log):
    try:
        return validate(x, log)
    except BadBatch as error:
        return x * error.n


def in_a_loop(x, log):
    for i in range(3):
        x = x + 1
        if i == 1:
            validate(x, log)
    return x


def three_deep(x, log):
    def inner(y):
        return directly(y, log)
    return inner(x) * 2


def after_work(x, log):
    y = x * 2 + 1
    log.append(1)
    if y.dim() == 2 and x.shape[0] > 3:
        raise RuntimeError("late")
    return y


def assertion(x, log):
    assert x.shape[0] <= 3, f"{x.shape[0]} rows"
    return x


def missing_key(x, log):
    return {2: x}[x.shape[0]]


def missing_attribute(x, log):
    return x if x.shape[0] < 3 else x.foo


def short_list(x, log):
    return [x, x, x][x.shape[0]]


def zero_division(x, log):
    return x * (1 / (5 - x.shape[0]))


def wrong_shape(x, log):
    y = x * 2
    log.append("before")
    return y if x.shape[0] < 3 else y @ WEIGHT


def wrong_broadcast(x, log):
    return x + torch.ones(2, 2)


def wrong_dtype(x, log):
    return x.index_select(0, torch.tensor([0.5 if x.shape[0] > 3 else 0]))


def index_out_of_range(x, log):
    return x[torch.tensor([0, 4])] if x.shape[0] == 5 else x[torch.tensor([0, 7])]


def class_out_of_range(x, log):
    return F.cross_entropy(x, torch.full((x.shape[0],), x.shape[0] - 1))


def bad_embedding(x, log):
    return F.embedding(torch.tensor([0, x.shape[0] + 3]), torch.ones(7, 2))


def written_before(x, log):
    x.add_(1)
    return x[torch.tensor([9])]


def random_before(x, log):
    y = torch.rand(3)
    return y[torch.tensor([0, x.shape[0]])]


def no_second_argument(x, log):
    return validate(x)


FUNCTIONS = [value for value in list(globals().values()) if getattr(value, "__module__", "") == __name__
             and getattr(value, "__code__", None) and value.__code__.co_varnames[:2] == ("x", "log") and value is not validate]


def outcome(function, rows):
    """Everything seen of one call."""
    torch.manual_seed(3)
    random.seed(3)
    log, x = [], torch.arange(2.0 * rows).reshape(rows, 2)
    try:
        result = function(x, log).tolist()
    except Exception as error:
        result = chain(error)
    return result, log, x.tolist(), torch.rand(2).tolist(), random.random()


def chain(error):
    found = []
    while error is not None:
        where = [(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__) if frame.name != "outcome"]
        found.append((type(error), str(error), getattr(error, "n", None), where))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_errors(function):
    compiled = thruway.compile(function)
    for rows in (2, 5, 5, 2, 4, 5):
        assert outcome(compiled, rows) == outcome(function, rows)
