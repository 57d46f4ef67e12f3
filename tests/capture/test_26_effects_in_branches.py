"""Sides of branches with effects: they wait, and those of the side that ran are applied, in the user's order."""

import contextlib
import io
import logging
import warnings

import pytest
import torch

import thruway
from capture.test_15_branches import X, assert_same, fresh

assert fresh
LOG, STATS, COUNT = [], {"n": 0, "seen": 0}, 0
NAN = torch.full((5, 5), float("nan"))


def prints(x):
    print("before")
    y = x + 1
    if x.sum() > 0:
        print("positive", y.shape)
    print("after")
    return y * 2


def prints_numbers(x):
    y = x * 2
    if x.sum() > 0:
        print("largest", x.argmax().item(), (y + 1)[0].shape)
    else:
        z = torch.where(y > 0, y, 0 * y)
        print("negative", z.dim())
    return y


def keeps_large_work(x):
    if x.sum() > 0:
        m = (x @ x @ x).softmax(-1)
        LOG.append(m)
        LOG.append(m.sum().item())
    return x + 1


def appends_outside(x):
    if x.sum() > 0:
        LOG.append(x.sum().item())
        LOG.append("positive")
    return x + 1


def appends_to_its_own(x):
    log = []
    if x.sum() > 0:
        log.append(1)
    LOG.append(log)
    return x + 1, log


def twice(x):
    if x.sum() > 0:
        LOG.append(1)
    if x.max() > 2:
        LOG.append(x)
    LOG.append(3)
    return x * 2


def counts_in_a_global(x):
    global COUNT
    if x.sum() > 0:
        COUNT += 1
    return x + COUNT


def counts_in_a_dict(x):
    STATS["n"] += 1
    if x.sum() > 0:
        STATS["n"] += 10
    elif not x.isnan().any():
        STATS["seen"] = STATS["n"]
    return x * STATS["n"]


def returns_early(x):
    if x.sum() > 0:
        print("early")
        LOG.append(0)
        return x
    LOG.append(1)
    return x + 1


def raises_between(x):
    LOG.append("a")
    if x.max() > 4:
        raise ValueError(f"large: {tuple(x.shape)}")
    LOG.append("b")
    return x + 1


def nested(x):
    if x.sum() > 0:
        print("A")
        if x.max() > 2:
            print("B", x.dim())
            LOG.append(2)
        else:
            LOG.append(3)
        print("C")
    else:
        print("D")
    print("E")
    return x


def hands_on_an_older_object(x):
    record = {"x": x + 1, "n": 0}
    if x.sum() > 0:
        LOG.append(record)
        record["n"] = 5
    record["n"] = record["n"] + 1
    return record


def hands_on_a_changed_list(x):
    found = [x]
    found.append(2)
    if x.sum() > 0:
        found.append(3)
        LOG.append(found)
    return [found, 1]


def logs(x):
    if x.sum() > 0:
        logging.getLogger("branches").warning("dim %s", x.dim())
        warnings.warn("positive")
    return x + 1


def counts_in_a_closure(x):
    n = 0

    def more():
        nonlocal n
        n += 1
        LOG.append(n)
    if x.sum() > 0:
        more()
    if x.max() > 1:
        more()
    return x + n


def in_an_inlined_function(x):
    def check(t, name):
        if not t.isfinite().all():
            LOG.append(name)
            return t * 0
        return t
    return check(x, "x") + check(x.log(), "log")


def in_a_loop(x):
    for i in range(3):
        if x.sum() > i:
            LOG.append(i)
            x = x - 1
    return x


def divides_in_a_side(x):
    n = x.sum().item()
    if n != 0:
        LOG.append(1.0 / n)
    return x + 1


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.count, self.bad, self.last, self.hits = 0, [], None, 0

    def forward(self, x):
        if x.sum() > 0:
            self.count += 1
            self.last = x.dim()
            self.bad.append(self.count)
        else:
            self.hits = self.hits + 1
        return x + 1


class ReadsIts(Counts):
    def forward(self, x):
        if x.sum() > 0:
            self.count += 1
        if x.mean() > 1:
            self.count += 10
            print("second", self.count)
        return x * self.count


class Guards(Counts):
    def forward(self, x):
        if not torch.isfinite(x).all():
            print("bad")
            self.bad.append(x)
            return x * 0
        if x.max() > 2:
            self.hits += 1
            return x - 1
        print("end")
        return x


ONE_GRAPH = [
    prints, prints_numbers, keeps_large_work, appends_outside, appends_to_its_own, twice, counts_in_a_global, counts_in_a_dict, returns_early,
    raises_between, nested, hands_on_an_older_object, hands_on_a_changed_list, logs, counts_in_a_closure, in_an_inlined_function, in_a_loop,
    divides_in_a_side, Counts, ReadsIts, Guards,
]


# -- near misses: right, with a break ------------------------------------------------------------------------------------------------------

def reads_what_it_may_have_appended(x):
    if x.sum() > 0:
        LOG.append(1)
    LOG.append(2)
    return x + len(LOG)


def adds_a_key(x):
    if x.sum() > 0:
        STATS["new"] = STATS.get("new", 0) + 1
    out = x + len(STATS)
    STATS.pop("new", None)
    return out


def writes_what_it_printed(x):
    y = x * 2
    if x.sum() > 0:
        print(y[0, :2])
    y.add_(1)
    print(y[1, 0])
    y.mul_(2)
    return y


def writes_an_argument_in_a_side(x):
    if x.sum() > 0:
        LOG.append("written")
        x.add_(1)
    return x * 2


class Attribute(Counts):
    def forward(self, x):
        if x.sum() > 0:
            self.extra = 1
            self.last = x
        return x + (1 if hasattr(self, "extra") else 0), self.last


class Forgets(Counts):
    def forward(self, x):
        if x.sum() > 0 and hasattr(self, "extra"):
            del self.extra
        else:
            self.extra = self.count
        return x


MISSES = [reads_what_it_may_have_appended, adds_a_key, writes_what_it_printed, writes_an_argument_in_a_side, Attribute, Forgets]


def state_of(module):
    return None if module is None else {name: value for name, value in vars(module).items() if not name.startswith("_") and name != "training"}


def run(kind, backend, grad):
    """What calls give, print, log, warn and leave."""
    global COUNT
    LOG.clear()
    STATS.update(n=0, seen=0)
    COUNT = 0
    module = kind() if isinstance(kind, type) else None
    function = module or kind
    if backend is not None:
        function = thruway.compile(function, backend=backend)
    found = []
    for x in [*X, NAN, *X]:
        x = x.clone().requires_grad_(grad)
        out, log = io.StringIO(), io.StringIO()
        handler = logging.StreamHandler(log)
        logging.getLogger("branches").addHandler(handler)
        with contextlib.redirect_stdout(out), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = function(x)
            except ValueError as error:
                result = str(error)
        logging.getLogger("branches").removeHandler(handler)
        found.append([result, out.getvalue(), log.getvalue(), [str(one.message) for one in caught], list(LOG), dict(STATS), COUNT, state_of(module),
                      [one is result for one in LOG], [one is x for one in LOG], x.detach().clone()])
        del LOG[20:]
    return found


def compare(kind, backend, grad):
    right, found = run(kind, None, grad), run(kind, backend, grad)
    for one, other in zip(right, found):
        assert_same(one, other)
    metrics = thruway.metrics()
    assert not metrics["bugs"], thruway.pipeline.journal.of_kind("bug")
    return metrics


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("grad", (False, True))
@pytest.mark.parametrize("backend", ("eager", "thruway"))
@pytest.mark.parametrize("kind", ONE_GRAPH, ids=lambda f: f.__name__)
def test_effects_of_the_side_that_ran(kind, backend, grad):
    found = compare(kind, backend, grad)
    assert found["graph_breaks"] == 0, [event.reason for event in thruway.pipeline.journal.of_kind("graph_break")]


@pytest.mark.parametrize("backend", ("eager", "thruway"))
@pytest.mark.parametrize("kind", MISSES, ids=lambda f: f.__name__)
def test_breaks_and_is_right(kind, backend):
    found = compare(kind, backend, False)
    assert found["graph_breaks"] + found["eager"] >= 1


def test_attributes_that_nobody_reads_cost_nothing():
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph.graph)
        return graph.forward
    module = Counts()
    thruway.compile(module, backend=keep)(X[0])
    assert not [node for node in graphs[0].nodes if node.target is torch.scalar_tensor or node.target == "item"]
