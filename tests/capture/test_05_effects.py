"""Writes and calls that wait: applied after the graph, in the user's order, with the values of their moment."""

import logging

import pytest
import torch
from capture.harness import capture_call, check, failing_guards, plain_function, run_captured

X = torch.arange(6.0).reshape(2, 3)
COUNT = 0
HISTORY = []


class Thing:
    limit = 3

    def __init__(self):
        self.n, self.items, self.table = 0, [], {"a": 1}


def attribute(x, thing):
    thing.n += 1
    thing.new = x * 2
    thing.items.append(x)
    thing.items.append(len(thing.items))
    thing.table["b"] = thing.n
    thing.table.pop("a")
    del thing.new
    return thing.n * x, len(thing.table)


def containers(x, items, table, members):
    items[0] = x
    items.extend([1, 2])
    items.insert(1, "k")
    table.update(c=x + 1)
    table.setdefault("d", []).append(3)
    members.add(9)
    members.discard(1)
    return items[1], list(table), sorted(members)


def alias(x, items):
    again = items
    again.append(x)
    inner = [items, again]
    inner[0].append(2)
    return inner, again is items


def buffers(x, state):
    state.add_(1)
    state[0] = x[0] * 2
    return state.sum() + x


def made_then_changed(x, out):
    fresh = [1]
    out.append(fresh)
    fresh.append(x)
    holder = Thing()
    out.append(holder)
    holder.n = 5
    holder.items.append("late")
    return fresh


@pytest.mark.parametrize("case", [
    (attribute, lambda: (X.clone(), Thing())),
    (containers, lambda: (X.clone(), [0, 5], {"a": 1}, {1, 2})),
    (alias, lambda: (X.clone(), [1])),
    (buffers, lambda: (X.clone(), torch.ones(2, 3))),
    (made_then_changed, lambda: (X.clone(), [])),
], ids=lambda c: c[0].__name__)
def test_matches_eager(case):
    function, make = case
    check(function, *make())


def test_nothing_happens_during_capture():
    thing = Thing()
    capture_call(attribute, X.clone(), thing)
    assert thing.n == 0 and thing.items == [] and thing.table == {"a": 1}


LOGGER = logging.getLogger("thruway.test")


def printing(x):
    log = [1]
    print("first", log, x.shape)
    log.append(2)
    print("second", log)
    logging.getLogger("thruway.test").warning("n=%d", len(log))
    return x + 1


def test_output_waits_and_sees_its_moment(capsys, caplog):
    captured = capture_call(printing, X)
    assert capsys.readouterr().out == "" and not caplog.records
    run_captured(captured, printing, (X,), {})
    assert capsys.readouterr().out == "first [1] torch.Size([2, 3])\nsecond [1, 2]\n"
    assert [r.getMessage() for r in caplog.records] == ["n=2"]


def counting(x):
    global COUNT
    COUNT += 1
    HISTORY.append(COUNT)
    return x * COUNT


def test_globals_are_written_and_guarded():
    global COUNT
    COUNT = 0
    HISTORY.clear()
    captured = capture_call(counting, X)
    assert COUNT == 0
    run_captured(captured, counting, (X,), {})
    assert COUNT == 1 and HISTORY == [1]
    assert failing_guards(captured, counting, (X,), {})


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer("seen", torch.zeros(()))
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        self.calls += 1
        self.seen += 1
        self.last = x * self.weight
        return self.last + self.calls


def test_module_state():
    module, twin = Scaled(), Scaled()
    expected = twin(X)
    captured = capture_call(module, X)
    weights = {one.name: one.weight for one in captured.inputs}
    assert list(weights.values()).count(True) == 1
    result = run_captured(captured, module, (X,), {})
    assert torch.equal(result, expected) and module.calls == 1 and module.seen == 1
    assert torch.equal(module.last, twin.last)
    assert plain_function(module)[1] == (module,)
