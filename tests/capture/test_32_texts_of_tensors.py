"""Texts that show what tensors hold are made after the graph, of the tensors as they were; texts that nobody needs cost nothing."""

import contextlib
import io
import re

import pytest
import torch

import thruway
from thruway.core.ambient import settings


def printed(x):
    s = x.sum()
    print(f"sum {s:.3f} of {x}", f"{s!r}", str(x.max()), [x.min()], {"k": s})
    print(f"{x} {s:.2f} {x.mean()!s:>12}", "%s %.3f %d" % (s, x.mean(), x.shape[0]), "a" + str(s) + "b")
    return x * 2, ", ".join(f"{v:.1f}" for v in x)


def before_and_after_a_write(x):
    y = x.clone()
    first = f"{y} {y[0]}"
    y += 1
    y[0] = 5
    return y, first, f"{y}"


def never_shown(x, limit):
    message = f"sum {x.sum()} and {x.shape[0]} and {x.shape}"
    if x.shape[0] > limit:
        raise ValueError(message)
    return x * 2


def sizes_of_elements(x):
    y = x[x > 0]
    print(f"{y.shape} {(x > 0).sum()} {y.shape[0]:>4}")
    return y * 2


def caught(x):
    try:
        raise ValueError(f"bad {x.sum()}")
    except ValueError as error:
        return str(error), x * 2


def in_a_loop(x):
    for k in range(3):
        x = x * 2
        print(f"{k}: {x.sum():.1f}")
    return x


def ran(function, *args):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            result = function(*args)
        except Exception as error:
            result = error
    return repr(result), out.getvalue()


@pytest.mark.parametrize("function", [printed, before_and_after_a_write, sizes_of_elements, caught, in_a_loop])
def test_no_break(function):
    thruway.reset()
    compiled = thruway.compile(function)
    for size in (4, 4, 6):
        x = torch.arange(1.0, size + 1)
        assert ran(compiled, x.clone()) == ran(function, x.clone())
    assert thruway.metrics()["graph_breaks"] == 0


def test_a_text_that_nobody_needs_computes_nothing(tmp_path):
    x = torch.randn(5)
    thruway.reset()
    compiled = thruway.compile(never_shown)
    with settings.override(dump=str(tmp_path / "out")):
        torch.testing.assert_close(compiled(x, 9), x * 2)
    (graph,) = (tmp_path / "out").rglob("*graph.txt")
    assert re.findall(r"aten\.(\w+)", graph.read_text()) == ["mul"]
    assert ran(compiled, x, 3) == ran(never_shown, x, 3)


def known_to_python(x):
    text = f"{x.sum():.1f}"
    return x * 2, len(text), text == "3.0", text.upper(), list(text)[:1], "." in text, bool(text), text[0], {text: 1}, text * 2, text or 1


def wrong_format(x):
    return f"{x.sum():d}"


def no_format_of_many(x):
    return f"{x:>10}"


def of_a_leaf(x):
    w = x.clone().requires_grad_()
    return f"{w * 2}", f"{w}"


def of_attributes(x):
    return f"{x.dtype} {x[0]}", "{:{w}}".format(x.sum(), w=12)


@pytest.mark.parametrize("function", [known_to_python, wrong_format, no_format_of_many, of_a_leaf, of_attributes])
def test_what_python_must_know_or_refuses_is_as_in_eager(function):
    thruway.reset()
    compiled = thruway.compile(function)
    for size in (2, 2, 3):
        x = torch.arange(1.0, size + 1)
        assert ran(compiled, x) == ran(function, x)
    assert thruway.metrics()["graph_breaks"] and not thruway.metrics()["bugs"]


class Trained(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(3.0))

    def forward(self, x):
        loss = (self.weight * x).sum()
        print(f"loss {loss:.3f} {loss}")
        return loss


def test_a_loss_is_shown_without_a_break_and_has_its_gradient():
    module, x = Trained(), torch.arange(3.0)
    thruway.reset()
    compiled = thruway.compile(module)
    for _ in range(2):
        assert ran(lambda: compiled(x).detach()) == ran(lambda: module(x).detach())
    compiled(x).backward()
    assert torch.equal(module.weight.grad, x)
    assert thruway.metrics()["graph_breaks"] == 0


def in_a_transform(x):
    def inner(y):
        return y * 2, print(f"{y}", f"{y.sum():.1f}" if False else "")
    return torch.func.vmap(lambda y: inner(y)[0])(x)


def test_within_a_transform_it_is_as_in_eager():
    x = torch.randn(3, 2)
    thruway.reset()
    assert ran(thruway.compile(in_a_transform), x) == ran(in_a_transform, x)


def raising(x):
    raise ValueError(f"bad {x.sum()} {x}")


def test_a_text_that_is_raised():
    thruway.reset()
    x = torch.arange(3.0)
    assert ran(thruway.compile(raising), x) == ran(raising, x)


def checks(x, n):
    torch._check(n.item() > 0, lambda: f"n {n} too small for {x}")
    torch._check_tensor_all(x > -100)
    torch._check_value(x.shape[0] < 7, lambda: "long")
    return x * n


def test_checks_of_torch_stay_in_the_graph():
    thruway.reset()
    compiled = thruway.compile(checks)
    for x, n in ((torch.arange(3.0), 2), (torch.arange(3.0), -1), (torch.arange(5.0), 1), (torch.full((3,), -300.0), 1), (torch.arange(8.0), 1)):
        assert ran(compiled, x, torch.tensor(n)) == ran(checks, x, torch.tensor(n))
    assert thruway.metrics()["graph_breaks"] == 0


def test_a_check_of_a_tensor_is_an_error():
    def function(x):
        torch._check(x.sum() > 0)
        return x
    thruway.reset()
    with pytest.raises(TypeError, match="bool"):
        thruway.compile(function)(torch.ones(2))


SEEN: list = []


def shown_by_a_side(x, z):
    if z < 1:
        print(str(x), f"{x.sum():.1f} {x.tolist()[0] > 0}")
    x.add_(1)
    return x


def kept_by_a_side(x, z):
    if z < 1:
        SEEN.append(f"{[x, {'a': x.sum()}]} {x[0]}" + " %s" % x.mean())
    return x + 1


def raised_by_a_side(x, z):
    if z < 1:
        raise ValueError(f"bad {z} {x}")
    return x


@pytest.mark.parametrize("function", [shown_by_a_side, kept_by_a_side, raised_by_a_side])
def test_texts_in_sides_of_branches(function):
    thruway.reset()
    compiled = thruway.compile(function)
    for number in (0.0, 2.0, 0.0):
        outcomes = []
        for each in (compiled, function):
            SEEN.clear()
            outcomes.append((ran(each, torch.arange(3.0), torch.tensor(number)), [*SEEN]))
        assert outcomes[0] == outcomes[1]
    assert (thruway.metrics()["graphs"], thruway.metrics()["graph_breaks"]) == (1, 0)


def parts_after_a_write(x):
    x += 1
    text = f"{x.sum().item():.3f}"
    return x, text[:1], text[0], text.upper(), "1" in text, str(b"ab", "utf8"), str(b"ab", encoding="ascii"), ""


def decoded_after_a_write(x):
    x += 1
    return str(f"{x}", "utf8")


@pytest.mark.parametrize("function", [parts_after_a_write, decoded_after_a_write])
def test_what_python_must_know_of_a_text_after_a_write(function):
    thruway.reset()
    compiled = thruway.compile(function)
    for number in (0.0, 0.0, 2.0):
        assert ran(compiled, torch.full((2,), number)) == ran(function, torch.full((2,), number))
    assert not thruway.metrics()["bugs"]


class Counting(torch.nn.Module):
    """Counts its calls, and tells of it in the way `tell` says."""

    def __init__(self, tell):
        super().__init__()
        self.tell, self.step, self.rate, self.log, self.seen = tell, 0, 0.1, [], {}

    def forward(self, x):
        self.step += 1
        self.rate *= 0.9
        self.tell(self, x, self.step)
        return x * 2


def printed_number(module, x, n):
    print(f"step {n}: {module.rate:.4f} {x.sum():.1f} {x.shape}", "%d %s" % (n, module.rate), f"{n:03d} {n}", str(n) + "!", "/".join([f"{n}", "a"]))


def kept_number(module, x, n):
    module.log.append(f"step {n}")
    module.name, module.seen["last"] = f"n{n}", (f"{[n, module.rate]}",)


def number_in_a_side(module, x, n):
    if x.sum() > 0:
        print(f"{n} is positive")


def known_number(module, x, n):
    """Python has to know these."""
    text = f"k{n % 2}"
    module.seen[text] = n
    setattr(module, text, 1)
    print(text.upper(), text == "k1", len(text), text in ("k0",), text[1:], f"{text:>4}")


@pytest.mark.parametrize(("tell", "most"), [(printed_number, 3), (kept_number, 3), (number_in_a_side, 3), (known_number, 4)])
@pytest.mark.parametrize("backend", ["eager", "thruway"])
def test_a_number_that_changes_is_shown_without_another_graph(tell, most, backend):
    thruway.reset()
    plain, module = Counting(tell), Counting(tell)
    compiled = thruway.compile(module, backend=backend)
    for call in range(8):
        x = torch.ones(2 + call % 3) * (-1) ** call
        assert ran(compiled, x) == ran(plain, x)
        assert (module.log, module.seen, getattr(module, "name", "")) == (plain.log, plain.seen, getattr(plain, "name", ""))
    assert thruway.metrics()["graphs"] <= most and not thruway.metrics()["graph_breaks"] and not thruway.metrics()["bugs"]
