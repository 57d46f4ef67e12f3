"""Which products become kernels of ours, without a GPU: the rule where nothing is measured, and the choice where something is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import works
from codegen.on_paper import TARGET, sources_of
from thruway import gpu_compiler
from thruway.artifact.store import Store
from thruway.core.journal import Journal
from thruway.core.launch import Call
from thruway.core.settings import Settings
from thruway.gpu_compiler import choose_products, print_graph
from thruway.loops.lowerings.products import Product
from thruway.schedule.products import parts_of, trials


def product(rows: int, columns: int, inner: int, joins: bool = True, **more) -> Product:
    return Product("bfloat16", 1, rows, columns, inner, True, joins, **more)


@pytest.mark.parametrize(("shape", "joins", "parts"), [
    ((1, 512, 2048), True, 1), ((8, 768, 768), False, 1), ((128, 512, 2048), True, 8), ((128, 512, 2048), False, 0), ((256, 2048, 2048), False, 1), ((128, 512, 512), True, 2),
    ((256, 4096, 512), True, 1), ((1024, 768, 768), True, 0), ((4096, 512, 512), True, 0), ((128, 8192, 512), True, 0), ((128, 8, 512), True, 0),
])
def test_the_rule_is_what_was_measured(shape, joins, parts):
    assert parts_of(product(*shape, joins)) == parts


def test_float32_and_symbolic_rows_stay_with_the_library():
    wide = replace(product(128, 512, 512), dtype="float32")
    assert parts_of(wide) == 0 and trials(wide) == ()
    assert trials(product(4096, 512, 512)) == (1,) and trials(product(128, 512, 2048)) == (1, 8)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(64, 128, bias=False), nn.Linear(64, 128, bias=False), nn.Linear(128, 64)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x)) + x


def split_of(module, *args):
    split, sources = sources_of(module, args)
    return split.main, sources


def texts(sources) -> list[str]:
    return [each.source.text.split("\n# ")[-1] for each in sources.kernels]


def test_gate_and_up_become_one_kernel_though_their_weights_were_joined():
    _, sources = split_of(Mlp(), torch.randn(16, 64, dtype=torch.bfloat16))
    assert [text.count("tl.dot(") for text in texts(sources)] == [2, 1]
    assert not any(isinstance(step, Call) for step in sources.launch.steps)


class Sliced(nn.Module):
    """Halves that do not meet, and halves of which one leaves."""

    def __init__(self):
        super().__init__()
        self.both = nn.Linear(64, 128)

    def forward(self, x):
        a, b = self.both(x)[..., :64], self.both(x)[..., 64:]
        return a * b, b


def test_halves_that_others_read_too_stay_one_product():
    _, sources = split_of(Sliced(), torch.randn(16, 64, dtype=torch.bfloat16))
    assert sum(text.count("tl.dot(") for text in texts(sources)) == 1


class Times:
    """A GPU of paper: every kernel and every call takes 10 µs, and `slow` products as many more."""

    def __init__(self, *_):
        self.asked = 0

    def total(self, launch, candidates):
        Times.asked += 1
        return 10.0 * len(launch.steps)


@pytest.fixture
def paper(monkeypatch, tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(gpu_compiler, "PlanTimes", Times)
    monkeypatch.setattr(gpu_compiler, "driver", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU of paper")
    Times.asked = 0
    return SimpleNamespace(store=Store(folder, 1 << 24), capability=90)


def test_the_choice_is_measured_once_and_kept(paper):
    graph, _ = split_of(*decoder_of_many_rows())
    notes = []

    def printed(parts):
        return print_graph(graph, TARGET, "cuda:0", Settings(), "float32", Journal(), "f", parts)
    first = choose_products(printed, paper, torch.device("cuda", 0), lambda *note: notes.append(note), 20.0)
    asked = Times.asked
    assert asked > 2 and notes
    sources = printed(first)
    assert len(sources.launch.steps) < len(printed(lambda p: 0).launch.steps), "the kernels that take along an epilogue were chosen"
    printed(choose_products(printed, paper, torch.device("cuda", 0), lambda *note: notes.append(note), 20.0))
    assert Times.asked == asked


def test_what_the_time_did_not_reach_is_measured_by_the_next_process(paper, monkeypatch):
    """And what was reached is not measured again. By the clock each product takes 15 of the 20 seconds."""
    graph, _ = split_of(*decoder_of_many_rows())

    def choose() -> list[str]:
        clock, notes = [0.0], []
        monkeypatch.setattr(gpu_compiler, "time", SimpleNamespace(perf_counter=lambda: clock[0]))

        def note(kind, text):
            notes.append(text)
            clock[0] += 15.0
        choose_products(lambda parts: print_graph(graph, TARGET, "cuda:0", Settings(), "float32", Journal(), "f", parts), paper, torch.device("cuda", 0), note, 20.0)
        return notes

    first, second = choose(), choose()
    assert len(first) == 3 and "stay as they are by rule" in first[-1]
    assert second and not {note.partition(":")[0] for note in first[:-1]} & {note.partition(":")[0] for note in second}
    while choose():
        pass
    Times.asked = 0
    assert choose() == [] and Times.asked == 0


def decoder_of_many_rows():
    return works.Decoder(64, 4, 2, 128), torch.randint(0, 128, (32, 16))


def test_what_tensor_cores_do_not_take_stays_a_call(monkeypatch):
    monkeypatch.setattr("thruway.codegen.gpu_sources.product_of", lambda kernel: None)
    _, sources = split_of(Mlp(), torch.randn(16, 64, dtype=torch.bfloat16))
    assert any(isinstance(step, Call) for step in sources.launch.steps) and not any(each.misses_tiles for each in sources.kernels)
