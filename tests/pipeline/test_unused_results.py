"""What raises by the values of its tensors raises in compiled code too, also where nobody uses the result; the rest of the unused goes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import thruway
from thruway.surface import lazy

GOOD, BAD = torch.tensor([1]), torch.tensor([7])
UNUSED = {
    "index": lambda x, i: x[i],
    "index_select": lambda x, i: torch.index_select(x, 0, i),
    "embedding": lambda x, i: F.embedding(i, x),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(1, 3)),
    "scatter": lambda x, i: x.scatter(0, i[:, None].expand(1, 3), x),
    "one_hot": lambda x, i: F.one_hot(i, 4),
    "cross_entropy": lambda x, i: F.cross_entropy(x, i.repeat(4)),
    "integer division": lambda x, i: 5 // (i - 7),
    "used by what is unused": lambda x, i: (x[i] + 1).relu().sum(),
}


def program(unused):
    def f(x, i):
        unused(x, i)
        return x * 2 + 1

    return f


def outcome(call, index):
    try:
        return call(torch.ones(4, 3), index).tolist()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", UNUSED)
@pytest.mark.parametrize("first", [GOOD, BAD], ids=["good", "bad"])
def test_an_error_that_only_an_unused_result_brings(name, first):
    thruway.reset()
    f = program(UNUSED[name])
    compiled = thruway.compile(f)
    with torch.no_grad():
        for index in (first, GOOD, BAD, GOOD):
            assert outcome(compiled, index) == outcome(f, index)
    assert isinstance(outcome(f, BAD), tuple) and not lazy.pipeline().journal.of_kind("bug")


def test_what_cannot_raise_goes():
    def f(x):
        (x.cos() @ x.T).softmax(0)
        return x + 1

    thruway.reset()
    texts = []

    class Reader:
        def wants(self, stage):
            return stage == "graph"

        def read(self, stage, function, text):
            texts.append(text)

    journal = lazy.pipeline().journal
    journal.readers.append(reader := Reader())
    try:
        with torch.no_grad():
            thruway.compile(f)(torch.ones(3, 3))
    finally:
        journal.readers.remove(reader)
    assert "add" in texts[0] and not any(word in texts[0] for word in ("cos", "softmax", "mm"))
