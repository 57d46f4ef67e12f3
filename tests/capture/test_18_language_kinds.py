"""Kinds of programs from public bug reports: errors caught inside, dict views, cached helpers, random draws."""

import copy
import functools
from collections import Counter, OrderedDict, defaultdict
from operator import attrgetter, itemgetter, methodcaller

import pytest
import torch
import torch.nn.functional as F
from whole.assert_same import assert_same

import thruway


def described(error):
    return type(error).__name__, str(error), error.args


def caught(call):
    """A function that gives what `call` raises beside a computation."""
    def function(x):
        try:
            y = call(x)
        except Exception as error:
            return x + 1, described(error)
        return y
    return function


REFUSED = {
    "dim": lambda x: x.sum(dim=5),
    "matmul": lambda x: x @ x,
    "view": lambda x: x.view(5),
    "broadcast": lambda x: x + torch.ones(7),
    "index": lambda x: x[10],
    "cat": lambda x: torch.cat([x, torch.ones(2, 3, 4)]),
    "convolution": lambda x: torch.conv2d(x, x),
    "keyword": lambda x: x.sum(dimension=1),
    "empty image": lambda x: F.interpolate(x.new_zeros(1, 2, 0, 2), size=(4, 3), mode="bilinear"),
    "in place": lambda x: x.add_(torch.ones(7)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_an_exception_inside(name):
    assert_same(caught(REFUSED[name]), torch.arange(6.0).reshape(2, 3), graphs=1, breaks=0)


CONSTANT_ERRORS = {
    "list": lambda x: [1, 2][5], "key": lambda x: {}["k"], "division": lambda x: 1 / 0, "int": lambda x: int("x"), "float": lambda x: float("x"),
    "max": lambda x: max([]), "pop": lambda x: [].pop(), "set": lambda x: set().pop(), "remove": lambda x: [1].remove(3), "next": lambda x: next(iter(())),
    "call": lambda x: (lambda a, b: a)(1), "many": lambda x: (lambda a: a)(1, 2, 3), "keyword": lambda x: (lambda a: a)(b=1), "number": lambda x: 3 .real(),
    "zip": lambda x: list(zip([1], [1, 2], strict=True)), "dict": lambda x: dict([1]), "short": lambda x: dict([(1,)]),
    "write": lambda x: (1, 2).__class__.__setitem__, "attribute": lambda x: x.nothing, "shape": lambda x: [a for a, b, c in [x.shape]],
    "sort": lambda x: sorted([1, "a"]), "join": lambda x: "".join([1]), "compare": lambda x: 1 < "a", "format": lambda x: "%d" % "x",
}


@pytest.mark.parametrize("name", CONSTANT_ERRORS)
def test_errors_of_builtins_keep_their_words(name):
    assert_same(caught(CONSTANT_ERRORS[name]), torch.arange(6.0).reshape(2, 3), graphs=1, breaks=0)


def fields(x):
    found = []
    for key in (1, 2, 3):
        try:
            if key == 1:
                next(iter(()))
            elif key == 2:
                x.nothing
            else:
                try:
                    {}[key]
                except KeyError:
                    raise ValueError("second") from None
        except (StopIteration, AttributeError, ValueError) as error:
            found.append((getattr(error, "value", 7), getattr(error, "name", 8), error.__suppress_context__, error.__cause__ is None))
    return x * 2, found


def test_fields_of_exceptions():
    assert_same(fields, torch.ones(2), graphs=1, breaks=0)


def written(x, i):
    (1, 2)[i] = x


def deleted(x, i):
    del "ab"[i]


def set_on_number(x, i):
    (1).name = i


@pytest.mark.parametrize("function", [written, deleted, set_on_number])
def test_writes_to_what_cannot_be_written(function):
    def outer(x, i):
        try:
            function(x, i)
        except (TypeError, AttributeError) as error:
            return x - 1, described(error)
    assert_same(outer, torch.ones(2), 1, graphs=1, breaks=0)


def test_an_error_that_leaves_the_function_is_no_break():
    def wrong(x):
        return x.sum(dim=5) + 1
    thruway.reset()
    compiled = thruway.compile(wrong)
    with pytest.raises(IndexError, match="Dimension out of range"):
        compiled(torch.ones(2))
    assert thruway.metrics()["graph_breaks"] == 0 and thruway.metrics()["eager"] == 1


def numbers(x):
    yield x
    return "end"


def generator_returns(x):
    steps, found = numbers(x), []
    while True:
        try:
            found.append(next(steps))
        except StopIteration as stop:
            found.append((stop.value, stop.args))
            break
    try:
        next(steps)
    except StopIteration as stop:
        found.append((stop.value, stop.args))
    return x * 2, found


def test_what_a_generator_returned_is_in_its_stop():
    assert_same(generator_returns, torch.ones(2), graphs=1, breaks=0)


def views_of_an_argument(x, pairs):
    steps = iter(pairs)
    name, factor = next(steps)
    rest = dict(steps)
    made = {name: x * factor, "n": len(rest)}
    return made.items(), made.keys(), x.cos(), pairs


def views_that_live(x, table):
    keys, values, items = table.keys(), table.values(), table.items()
    table["new"] = x * 2
    return list(keys), list(values), list(items), len(keys), "new" in keys, keys, type(items)


def set_operations_of_views(x, table):
    other = {"a": 1, "zz": 2}
    keys = table.keys()
    found = [keys & other.keys(), keys | other.keys(), keys - other.keys(), keys ^ other.keys(), keys - ["a"], ["a"] & keys, table.items() & {("a", 1)}]
    return x + 1, [sorted(one) for one in found], keys == other.keys(), keys >= {"a"}, keys.isdisjoint(other), table.values() == table.values()


def written_while_iterated(x, table):
    total = 0
    for value in table.values():
        for key in table:
            table[key] = 10
        total += value
    return x * total


def grown_while_iterated(x, table):
    try:
        for key in table:
            table[key + "x"] = 1
    except RuntimeError as error:
        return x + 1, str(error)


def merged(x, table):
    ordered, default = OrderedDict(a=1), defaultdict(list, {"b": [x]})
    table |= [("z", 1)]
    return x * 1, table | {"q": x}, ordered | table, table | ordered, {"b": 2} | default, default | {"c": [1]}


def counted(x, table):
    one, other = Counter("abca"), Counter(a=1)
    return x * 2, one + other, one - other, one | other, one & other, one.most_common(1), one["nope"], list(one.elements()), one.total(), one == other


def printed(x, table):
    return x * 2, str(table.keys()), repr(table.items()), f"{table.values()}"


def got(x, table):
    pair, named, call = itemgetter("a", "b"), attrgetter("shape", "dtype.is_floating_point"), methodcaller("sum", dim=0)
    return pair(table), named(x), call(x), sorted(table.items(), key=itemgetter(1), reverse=True), methodcaller("get", "q", 5)(table)


@pytest.mark.parametrize("function", [
    views_that_live, set_operations_of_views, written_while_iterated, grown_while_iterated, merged, counted, printed, got])
def test_dicts_and_their_views(function):
    assert_same(function, torch.arange(3.0), {"a": 1, "b": 2, "c": 3}, graphs=1, breaks=0)


def same_as_eager(function, *arguments):
    compiled = thruway.compile(function)
    for make in arguments:
        expected, found = function(*make()), compiled(*make())
        assert repr(found) == repr(expected)


@pytest.mark.parametrize("view", ["keys", "values", "items"])
def test_a_view_from_outside_is_its_dict(view):
    def function(x, seen):
        return x + 1, seen, len(seen), list(seen), [x * len(str(one)) for one in seen]
    thruway.reset()
    same_as_eager(function, *(lambda i=i: (torch.ones(2), getattr({"a": i, "b": 2}, view)()) for i in (1, 1, 2)))
    same_as_eager(function, lambda: (torch.ones(2), getattr(OrderedDict(a=1), view)()), lambda: (torch.ones(2), getattr(Counter("abc"), view)()))
    assert thruway.metrics()["graph_breaks"] == thruway.metrics()["bugs"] == 0


def test_items_from_outside_are_iterated():
    thruway.reset()
    same_as_eager(views_of_an_argument, lambda: (torch.ones(2), {"p": 2, "q": 5}.items()), lambda: (torch.ones(2), {"p": 2, "q": 6}.items()),
                  lambda: (torch.ones(2), {"z": 4}.items()))
    assert thruway.metrics()["graph_breaks"] == 0


RUNS: list[int] = []


@functools.cache
def table_of(n):
    RUNS.append(n)
    return tuple(1.0 / (k + 1) for k in range(n))


@functools.lru_cache(maxsize=2)
def bounded(n, k=1):
    RUNS.append(n)
    return [n, k]


@functools.lru_cache
def positions(n):
    return torch.arange(float(n))


class Holder:
    def __init__(self):
        self.scale = 2

    @functools.cache
    def weight(self, n):
        RUNS.append(n)
        return {"w": torch.ones(n) * self.scale}


HOLDER = Holder()


def unbounded_cache(x, n):
    return x * sum(table_of(n)) + len(RUNS)


def bounded_cache(x, n):
    first, other = bounded(n), bounded(n, k=3)
    first.append(1)
    return x * first[0] + other[1], first is bounded(n), list(first)


def cached_tensor(x, n):
    return x[:2] + positions(n)[:2]


def cached_method(x, n):
    return x[:2] * HOLDER.weight(2)["w"], len(RUNS)


CACHES = (table_of, bounded, positions, Holder.weight)


def cache_history(call):
    RUNS.clear()
    for one in CACHES:
        one.cache_clear()
    history = []
    for step, n in enumerate((3, 3, 5, 3, 4, 6, 3, 3, 5, 3, 3)):
        if step == 7:
            bounded.cache_clear()
            table_of.cache_clear()
        history.append(repr((call(torch.ones(3), n), RUNS, [one.cache_info() for one in CACHES])))
    return history


@pytest.mark.parametrize("function", [unbounded_cache, bounded_cache, cached_tensor, cached_method])
def test_cached_functions_run_when_eager_runs_them(function):
    thruway.reset()
    expected = cache_history(function)
    assert cache_history(thruway.compile(function)) == expected
    assert thruway.metrics()["bugs"] == 0


def test_an_answer_that_is_there_is_no_break():
    thruway.reset()
    cached_method(torch.ones(3), 1)
    compiled = thruway.compile(cached_method, fullgraph=True)
    for _ in range(3):
        compiled(torch.ones(3), 1)
    assert thruway.metrics()["graphs"] == 1 and thruway.metrics()["recompiles"] == 0


def divided(count, x):
    return x * (3.0 / float(count)), 1 / float(count)


def test_a_division_by_an_element_stays_and_still_raises():
    thruway.reset()
    compiled = thruway.compile(divided)
    for number in (2, 4, -3):
        assert repr(compiled(torch.tensor(number), torch.ones(2))) == repr(divided(torch.tensor(number), torch.ones(2)))
    with pytest.raises(ZeroDivisionError, match="float division by zero"):
        compiled(torch.tensor(0), torch.ones(2))
    assert thruway.metrics()["graph_breaks"] == 0 and thruway.metrics()["graphs"] == 1


def divided_in_a_try(count, log):
    try:
        log.append(1)
        return 1 / float(count)
    except ZeroDivisionError:
        return log


def divided_before_the_end(count, log):
    try:
        return 1 / float(count)
    finally:
        log.append(2)


def divided_below_a_try(count, log):
    try:
        return divided(count, 1)
    except ArithmeticError as error:
        log.append(str(error))
        return error.args


def divided_in_another_try(count, log):
    try:
        with torch.no_grad():
            return 1 / float(count), log
    except KeyError:
        return log


@pytest.mark.parametrize(("function", "breaks"), [
    (divided_in_a_try, True), (divided_before_the_end, True), (divided_below_a_try, True), (divided_in_another_try, False)])
def test_a_division_whose_error_code_of_the_users_handles(function, breaks):
    def outcome(function, number):
        log = []
        try:
            return function(torch.tensor(number), log), log
        except ZeroDivisionError as error:
            return str(error), log

    thruway.reset()
    compiled = thruway.compile(function)
    for number in (2, 0, 4, 0):
        assert outcome(compiled, number) == outcome(function, number)
    assert (thruway.metrics()["graph_breaks"] > 0) is breaks


@pytest.mark.parametrize(("module", "shape"), [
    (torch.nn.BatchNorm2d(3, momentum=None), (4, 3, 5, 5)), (torch.nn.BatchNorm1d(3, momentum=None, affine=False), (6, 3))])
def test_batch_norm_with_a_cumulative_average(module, shape):
    thruway.reset()
    ours = copy.deepcopy(module)
    compiled = thruway.compile(ours)
    for _ in range(3):
        x = torch.randn(shape, requires_grad=True)
        expected, found = module(x), compiled(x)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(dict(ours.named_buffers()), dict(module.named_buffers()))
        torch.testing.assert_close(torch.autograd.grad(found.square().sum(), x), torch.autograd.grad(expected.square().sum(), x))
    assert thruway.metrics()["graph_breaks"] == 0 and thruway.metrics()["recompiles"] == 0
