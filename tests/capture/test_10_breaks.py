"""Breaks: one instruction runs in plain Python, everything before and after it is captured, at any depth and inside any block."""

import importlib
import io
import sys
import time

import numpy as np
import pytest
import torch
from capture.harness import check_breaks

import thruway

X = torch.arange(6.0).reshape(2, 3)


def branch(x):
    y = x * 2
    if y.sum() > 3:
        y = y + 1
    else:
        y = (y - 1).double()
    return y * 3


def item_call(x):
    n = float(str(x.sum().item()))
    return x * n, n


def in_loop(x):
    total = x
    for i in range(3):
        total = total + i
        if total.sum() > 10:
            total = (total * 2).double()
    return total


def deep(x):
    def inner(a):
        b = a + 1
        n = len(str(int(b.sum())))
        return b * n

    def middle(a):
        c = inner(a * 2)
        return c + a
    return [middle(x), x.sum()]


def in_try(x):
    try:
        y = x * 2
        n = [1, 2][int(x.sum()) + 5]
    except IndexError as error:
        y = y + 10
        n = type(error).__name__
    finally:
        z = x - 1
    return y, n, z


def deep_in_try(x):
    def fail(v):
        v = v + 1
        return {}[float(v.sum())]
    try:
        out = fail(x * 2)
    except KeyError:
        out = x - 5
    return out


def in_with(x):
    with torch.no_grad():
        y = x * 2
        n = float(str(y.sum().item()))
        z = y + n
        inside = torch.is_grad_enabled()
    return z * 2, inside, torch.is_grad_enabled()


def cells_across(x):
    total = x

    def bump(v):
        nonlocal total
        total = total + v
        return total
    bump(1)
    n = float(str(x.sum().item()))
    bump(n)
    return total, bump(2)


def cells_across_two(x):
    total = x

    def bump(v):
        nonlocal total
        total = total + v
        return total
    for _ in range(2):
        bump(float(str(x.sum().item())))
    return total, bump


def in_handler(x):
    try:
        raise ValueError("a")
    except ValueError as error:
        n = float(str(x.sum().item()))
        y = x + n
        text = str(error)
        try:
            raise
        except ValueError as again:
            text += str(again)
    return y, text


class Counter:
    def __init__(self, start):
        self.n = float(str(start.sum().item()))
        self.start = start * 2

    def value(self):
        return self.start + self.n


def in_init(x):
    c = Counter(x + 1)
    return c.value() * 2, c


def zip_enumerate(x):
    out = []
    for i, (a, b) in enumerate(zip([x, x + 1], [1, 2])):
        if (a * b).sum() > 12:
            out.append(a * i)
        else:
            out.append(b)
    return out


def while_on_tensor(x):
    while x.sum() < 100:
        x = x * 2 + torch.rand(()) * 0          # rounds that draw do not stay in the graph
    return x


def conditional_expression(x):
    return (x + 1 if x.max() > 2 else x - 1) * 2, (x.sum() > 1 and 5), x.numel() or 3


def lists_made_and_changed(x):
    log = [x]
    alias = log
    n = float(str(x.sum().item()))
    log.append(n)
    return log, alias is log, alias


CASES = {branch: 1, item_call: 1, in_loop: 3, deep: 1, in_try: 2, deep_in_try: 2, in_with: 1, cells_across: 1, cells_across_two: 2, in_handler: 2, in_init: 1,
         zip_enumerate: 2, while_on_tensor: 9, conditional_expression: 2, lists_made_and_changed: 1}


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_resumes(function):
    counts = check_breaks(function, X.clone())
    assert not counts["eager"], counts["eager"]
    assert 1 <= len(counts["breaks"]) <= CASES[function], counts["breaks"]


class Base(torch.nn.Module):
    def forward(self, x):
        return x * 2


class Derived(Base):
    def forward(self, x):
        n = float(str(x.sum().item()))
        return super().forward(x) + n


def test_super_after_a_break():
    counts = check_breaks(Derived(), X.clone())
    assert not counts["eager"] and len(counts["breaks"]) == 1


def test_break_names_the_line_and_the_reason():
    (reason,) = check_breaks(item_call, X.clone())["breaks"]
    assert reason.code == "TW101" and reason.where.text == "n = float(str(x.sum().item()))" and reason.where.function == "item_call"


def hints_of(function, *args):
    return [(reason.what, reason.hint) for reason in thruway.explain(function, backend="eager")(*args).break_reasons]


def test_hints_fit_what_was_met():
    def disables(x):
        return thruway.disable(torch.sin)(x)

    def sides_differ(x):
        if x.sum() > 0:
            return x.bool()
        return x + 1

    def sleeps(x):
        time.sleep(0)
        return x + 1

    file = io.BytesIO()

    def saves(x):
        torch.save(x, file)
        return x + 1

    def draws(x):
        return x + np.random.rand()

    def picks(x):
        a = x.numpy()
        return torch.from_numpy(a[a > 0])

    def is_sparse(x):
        return x.to_sparse().sum()

    def appends(x):
        try:
            [].append(x, 2)
        except TypeError:
            return x + 1

    x = torch.ones(2)
    found = {each.__name__: hints_of(each, x)[0] for each in (disables, sides_differ, sleeps, saves, draws, picks, is_sparse, appends)}
    assert found["appends"][0] == "call of a method of list with arguments that do not fit is not captured"
    assert "outside compiled code; the function that they give may be called inside" in found["disables"][1]
    assert found["sides_differ"][1].startswith("let both sides end with values of the same kinds")
    assert found["sleeps"] == ("call of time.sleep is not captured", "call it outside, or accept the break: the call runs in plain Python")
    assert found["saves"][0] == "call of torch.serialization.save is not captured"
    assert found["draws"][0] == "call of RandomState.rand is not captured"
    assert found["picks"][0].endswith("getitem of numpy, whose result's shape depends on elements")
    assert found["is_sparse"][0] == "aten._to_sparse.default has no meta kernel: torch cannot say what it gives without running it"


def test_a_training_step_is_told_call_by_call_in_the_users_lines():
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step(x):
        layer(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    (back, back_hint), (_, step_hint), (zero, zero_hint) = hints_of(step, torch.ones(2))
    assert (back, zero) == ("call of Tensor.backward is not captured", "call of Optimizer.zero_grad is not captured")
    assert back_hint.startswith("call backward outside") and step_hint == zero_hint and step_hint.startswith("call the optimizer outside")


@pytest.mark.parametrize("inside", [True, False])
def test_inference_mode_inside_is_a_break_where_it_opens_and_one_where_it_closes(inside):
    def block(x):
        with torch.inference_mode(inside):
            y = x * 2
        return y, y + 1

    def decorated(x):
        return torch.inference_mode(inside)(lambda: x * 2 + 1)(), x + 1

    def switched_off(x):
        with torch.no_grad():
            return x * 2, x + 1

    for function in (block, decorated, switched_off):
        for x in (torch.ones(2), torch.ones(2, requires_grad=True)):
            expected, found = function(x), thruway.compile(function)(x)
            assert all(torch.equal(a, b) and a.is_inference() == b.is_inference() and a.requires_grad == b.requires_grad for a, b in zip(expected, found))
        assert [what for what, _ in hints_of(function, torch.ones(2))] == [] if function is switched_off else [
            "call of inference_mode.__enter__ is not captured", "call of inference_mode.__exit__ is not captured"]
    assert all(hint.startswith("open inference mode around the call") for _, hint in hints_of(block, torch.ones(2)))


def test_an_error_inside_a_block_of_inference_mode_leaves_the_mode_as_it_was():
    def f(x, n):
        with torch.inference_mode():
            y = x * 2
            if n:
                raise KeyError(n)
        return y

    compiled = thruway.compile(f)
    for n in (0, 3, 0):
        if n:
            with pytest.raises(KeyError, match="3"):
                compiled(torch.ones(2), n)
        else:
            assert torch.equal(compiled(torch.ones(2), n), torch.full((2,), 2.0))
        assert not torch.is_inference_mode_enabled()


def test_a_submodule_that_an_import_would_load_is_a_break_and_what_is_there_or_nowhere_is_none(tmp_path, monkeypatch):
    package = tmp_path / "package_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("VALUE = 2\n")
    (package / "below.py").write_text("FACTOR = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module(package.name)

    def loads(x):
        from package_of_a_test import VALUE, below
        return x * below.FACTOR + VALUE

    def misses(x):
        try:
            from package_of_a_test import nowhere
        except ImportError as error:
            return x + len(str(error).partition(" (")[0])
        return nowhere

    x = torch.ones(2)
    assert hints_of(misses, x) == [] and torch.equal(thruway.compile(misses)(x), misses(x))
    assert hints_of(loads, x) == [("instruction import of package_of_a_test.below, which is not loaded yet, is not captured", "import it before the call")]
    assert hints_of(loads, x) == [] and torch.equal(thruway.compile(loads)(x), torch.full((2,), 5.0))        # loaded by now
    for name in (package.name, f"{package.name}.below"):
        monkeypatch.delitem(sys.modules, name)


class StandsForAModule:
    inside = 3


def test_an_object_that_stands_for_a_module_is_imported_from(monkeypatch):
    monkeypatch.setitem(sys.modules, "object_of_a_test", StandsForAModule())

    def finds(x):
        from object_of_a_test import inside
        return x + inside

    def misses(x):
        try:
            from object_of_a_test import nowhere
        except ImportError:
            return x + 1
        return nowhere

    x = torch.ones(2)
    assert hints_of(finds, x) == [] and torch.equal(thruway.compile(finds)(x), finds(x))
    assert torch.equal(thruway.compile(misses)(x), misses(x))


def test_a_class_made_inside_is_one_break():
    def f(x):
        class Scale(dict):
            by = 2
        return x * Scale.by + len(Scale(a=1))

    x = torch.ones(2)
    assert [what for what, _ in hints_of(f, x)] == ["instruction class definition is not captured"]
    assert torch.equal(thruway.compile(f)(x), f(x))


def test_a_call_that_asks_for_the_names_around_it_is_named():
    def f(x):
        y = x * 2
        return eval("y") + 1

    x = torch.ones(2)
    (reason,) = thruway.explain(f)(x).eager
    assert reason.what == "call of eval is not captured" and "a function of its own" in reason.hint and reason.where.text == 'return eval("y") + 1'


def test_guards_behind_a_break_have_no_internal_names():
    left = thruway.disable(torch.sin)
    guards = thruway.explain(lambda x: x * 2 + left(x), backend="eager")(torch.ones(2)).guards
    assert not any(guard.startswith(".") or "kept value" in guard for guard in guards)
    assert any(guard.startswith("<value 0 at the break>: Tensor float32[2]") for guard in guards)
