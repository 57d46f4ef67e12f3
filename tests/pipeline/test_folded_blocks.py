"""Stacks of equal blocks, of which a few are compiled and copied: the same bits, kernels and memory as compiled whole, and whole where one block differs."""

from __future__ import annotations

import copy
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import thruway
from thruway import graph_compiler
from thruway.artifact.target import cpu_target
from thruway.core.launch import Allocate, Call, Kernel, View
from thruway.pipeline import journal

BLOCKS, WIDTH = 9, 64
NEVER, ALWAYS = 0, 1 << 30                                   # bytes for packed weights


class Block(nn.Module):
    def __init__(self, width: int = WIDTH, inner: int = 2 * WIDTH, scale: float = 0.5):
        super().__init__()
        self.up, self.down, self.norm, self.scale = nn.Linear(width, inner), nn.Linear(inner, width), nn.LayerNorm(width), scale

    def forward(self, x):
        return x + self.scale * self.down(F.gelu(self.up(self.norm(x))))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.gain = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        q, k, v = self.qkv(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain).chunk(3, -1)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        scores = (q @ k.transpose(-1, -2) / 8).masked_fill(~mask, float("-inf")).softmax(-1)
        return x + self.out(scores @ v)


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)

    def forward(self, x):
        return x + F.relu(self.norm(self.conv(x)))


class Stack(nn.Module):
    """Something before the blocks and something after them."""

    def __init__(self, make=Block, count: int = BLOCKS):
        super().__init__()
        self.stem, self.blocks, self.head = nn.Linear(WIDTH, WIDTH), nn.ModuleList(make() for _ in range(count)), nn.Linear(WIDTH, 8)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Spy:
    """What `graph_compiler` folds and loads."""

    def __init__(self, patch: pytest.MonkeyPatch, limit: int):
        self.folds, self.lists = [], []
        fold, load = graph_compiler.fold_repeats, graph_compiler.GraphCompiler._load
        patch.setattr(graph_compiler, "_derived_limit", lambda *device: limit)
        patch.setattr(graph_compiler, "fold_repeats", lambda *a: self.folds.append(fold(*a) if self.is_on else None) or self.folds[-1])
        patch.setattr(graph_compiler.GraphCompiler, "_load", lambda own, sources, *a: self.lists.append(sources.launch) or load(own, sources, *a))
        self.is_on = True


@pytest.fixture
def spy(monkeypatch):
    thruway.reset()
    yield lambda limit=ALWAYS: Spy(monkeypatch, limit)
    thruway.reset()


def assert_folding_changes_nothing(model, *args, spy, mode: str = "eval", calls: int = 2):
    """The outputs of `calls` calls with folding, without, and of eager, each on a copy of the model and of the arguments."""
    results = []
    for compiler, is_on in ((thruway.compile, True), (thruway.compile, False), (lambda f: f, False)):
        spy.is_on = is_on
        torch.manual_seed(0)
        own, values = copy.deepcopy(model), copy.deepcopy(args)
        if isinstance(own, nn.Module):
            own.train(mode == "train")
        compiled = compiler(own)
        with torch.no_grad():
            outputs = [torch.utils._pytree.tree_leaves(compiled(*values)) for _ in range(calls)]
        state = list(own.state_dict().values()) if isinstance(own, nn.Module) else []
        results.append([*(x for each in outputs for x in each), *state, *(v for v in values if isinstance(v, torch.Tensor))])
    folded, whole, eager = results
    assert len(folded) == len(whole) == len(eager)
    assert all(map(torch.equal, folded, whole))
    for a, b in zip(folded, eager):
        torch.testing.assert_close(a, b, rtol=2e-2 if a.dtype == torch.bfloat16 else 1e-4, atol=5e-2 if a.dtype == torch.bfloat16 else 1e-4)
    assert not [event for event in journal.events if event.kind == "bug"]


def was_copied(spy) -> bool:
    return spy.folds[0] is not None and not any(event.kind == "whole" for event in journal.events)


def counts(launch):
    steps = Counter(step.symbol.split("_", 2)[2].rstrip("_0123456789") if isinstance(step, Kernel) else step.op for step in launch.steps if isinstance(step, Kernel | Call))
    return steps, sum(isinstance(step, View | Allocate) for step in launch.steps), len(launch.derived), len(launch.derived_slots)


def x_of(*sizes, dtype=torch.float32):
    return torch.randn(*(sizes or (2, 16, WIDTH)), dtype=dtype)


@pytest.mark.parametrize("limit", [NEVER, ALWAYS])
@pytest.mark.parametrize("make", [Block, Attention])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_copies_are_what_compiling_them_gives(spy, make, limit, dtype):
    spy = spy(limit)
    assert_folding_changes_nothing(Stack(make).to(dtype), x_of(dtype=dtype), spy=spy)
    assert was_copied(spy)
    folded, whole = spy.lists
    assert counts(folded) == counts(whole) and folded.inputs == whole.inputs
    assert folded.arena_bytes <= 1.05 * whole.arena_bytes


@pytest.mark.skipif("onednn_bf16" not in cpu_target(True).library_calls, reason="oneDNN packs no bfloat16 weights on this processor")
def test_memory_for_some_packed_weights_ends_between_two_blocks(spy):
    each = 2 * WIDTH * 2 * WIDTH * 2                         # bfloat16 and so many rows that packing pays on every processor
    spy = spy(4 * each + 2 * WIDTH * WIDTH)
    assert_folding_changes_nothing(Stack(count=12).bfloat16(), x_of(2, 2048, WIDTH, dtype=torch.bfloat16), spy=spy)
    assert was_copied(spy) and [gap.missing for gap in spy.folds[0].fold.gaps] == [5]
    folded = spy.lists[0]
    assert len(folded.derived_slots) == 9                    # the one before the blocks, and two for each of four


def test_encoder_layers_of_torch(spy):
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True)
    spy = spy()
    assert_folding_changes_nothing(nn.TransformerEncoder(layer, 8), x_of(), spy=spy)
    assert was_copied(spy)


class Bottleneck(nn.Module):
    """Three convolutions with norms. The first of a stage has another one in the middle, so that equal blocks begin at the norm behind it."""

    def __init__(self, dilation: int = 1):
        super().__init__()
        def unit(dilation: int = 1):
            return nn.Sequential(nn.Conv2d(8, 8, 1, bias=False, dilation=dilation), nn.BatchNorm2d(8))

        self.one, self.two, self.three = unit(), unit(dilation), unit()
        for norm in (each for each in self.modules() if isinstance(each, nn.BatchNorm2d)):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        return F.relu(x + self.three(F.relu(self.two(F.relu(self.one(x))))))


def test_a_norm_that_is_folded_into_the_block_before(spy):
    spy = spy()
    model = nn.Sequential(nn.Conv2d(3, 8, 3), Bottleneck(dilation=2), *(Bottleneck() for _ in range(11)), nn.Flatten(), nn.Linear(288, 4)).eval()
    assert_folding_changes_nothing(model, torch.randn(2, 3, 8, 8), spy=spy)
    assert was_copied(spy)


def test_convolutions_with_folded_norms(spy):
    spy = spy()
    model = nn.Sequential(nn.Conv2d(3, 8, 3), *(Convolution() for _ in range(BLOCKS)), nn.Flatten(), nn.LazyLinear(4))
    with torch.no_grad():
        model(torch.randn(2, 3, 8, 8))
    assert_folding_changes_nothing(model, torch.randn(2, 3, 8, 8), spy=spy)
    assert was_copied(spy)


def test_a_loop_over_functions_with_weights_of_their_own(spy):
    weights = [torch.randn(WIDTH, WIDTH) / 8 for _ in range(BLOCKS)]

    def f(x, *weights):
        for weight in weights:
            x = torch.tanh(x @ weight) + x
        return x.sum(-1)

    spy = spy()
    assert_folding_changes_nothing(f, x_of(4, WIDTH), *weights, spy=spy)
    assert was_copied(spy)


def test_two_values_are_handed_on_and_others_stay(spy):
    class Two(Stack):
        def forward(self, x):
            angle = x.cos()
            a, b = x, x.flip(0)
            for block in self.blocks:
                a, b = b * angle, block(a) + b
            return self.head(a), b

    spy = spy()
    assert_folding_changes_nothing(Two(), x_of(), spy=spy)


def test_what_all_blocks_add_to(spy):
    class Sums(Stack):
        def forward(self, x):
            total = torch.zeros_like(x)
            for block in self.blocks:
                x = block(x)
                total += x
            return self.head(x), total

    spy = spy()
    assert_folding_changes_nothing(Sums(), x_of(), spy=spy)


def test_blocks_that_write_their_inputs_and_buffers(spy):
    class Counting(Block):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(WIDTH))

        def forward(self, x):
            self.seen.add_(x.mean((0, 1)))
            return super().forward(x.mul_(1.5)) - self.seen

    class Direct(Stack):
        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return x

    spy = spy()
    assert_folding_changes_nothing(Direct(Counting), x_of(), spy=spy)
    assert was_copied(spy)


def test_drawn_numbers_come_in_the_same_order(spy):
    class Dropping(Block):
        def forward(self, x):
            return F.dropout(super().forward(x), 0.3, self.training)

    assert_folding_changes_nothing(Stack(Dropping), x_of(), spy=spy(), mode="train")


def _with(change):
    def make():
        model = Stack()
        change(model.blocks)
        return model

    return pytest.param(make, id=change.__name__)


def another_constant(blocks):
    blocks[5].scale = 0.25


def a_constant_of_another_kind(blocks):
    blocks[5].scale = 1
    for block in [*blocks[:5], *blocks[6:]]:
        block.scale = True


def another_width_inside(blocks):
    blocks[5] = Block(inner=3 * WIDTH)


def another_dtype_inside(blocks):
    blocks[5].up.bfloat16()
    blocks[5].up.register_forward_pre_hook(lambda module, args: (args[0].bfloat16(),))
    blocks[5].up.register_forward_hook(lambda module, args, out: out.float())


def a_shared_weight(blocks):
    blocks[5].up.weight = blocks[2].up.weight


def a_shared_block(blocks):
    blocks[5] = blocks[4]


def a_weight_of_other_strides(blocks):
    blocks[5].up.weight = nn.Parameter(blocks[5].up.weight.detach().t().contiguous().t())


def no_bias(blocks):
    blocks[5].down.bias = None


def a_hook(blocks):
    blocks[5].register_forward_hook(lambda module, args, out: out * 2)


def a_write(blocks):
    blocks[5].register_forward_hook(lambda module, args, out: out.add_(1))


def a_dropout(blocks):
    blocks[5].register_forward_hook(lambda module, args, out: F.dropout(out, 0.5, True))


@pytest.mark.parametrize("make", list(map(_with, (
    another_constant, a_constant_of_another_kind, another_width_inside, another_dtype_inside, a_shared_weight, a_shared_block, a_weight_of_other_strides,
    no_bias, a_hook, a_write, a_dropout))))
def test_one_block_differs(spy, make):
    spy = spy()
    assert_folding_changes_nothing(make(), x_of(), spy=spy)
    assert spy.folds[0] is None


def test_a_block_that_differs_near_the_end_leaves_the_others(spy):
    model = Stack(count=12)
    model.blocks[11].scale = 0.25
    spy = spy()
    assert_folding_changes_nothing(model, x_of(), spy=spy)
    assert was_copied(spy) and spy.folds[0].fold.gaps[0].missing == 6


class Skip(Stack):
    def forward(self, x):
        x = start = torch.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x + start)


class SecondNext(Stack):
    def forward(self, x):
        before = x
        for block in self.blocks:
            before, x = x, block(x) + before
        return x


class ThirdNext(Stack):
    def forward(self, x):
        first = second = x
        for block in self.blocks:
            first, second, x = second, x, block(x) + first
        return x


class OneState(Stack):
    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i == 5:
                kept = x
        return self.head(x), kept


class Shared(Stack):
    def forward(self, x):
        for _ in range(BLOCKS):
            x = self.blocks[0](x)
        return x


class Numbered(Stack):
    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = block(x) + i
        return x


class OwnWeightAgain(Stack):
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x @ self.blocks[4].up.weight.t()


class Growing(Stack):
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
            x = torch.cat([x, x[:1]])
        return x


@pytest.mark.parametrize("make", [Skip, SecondNext, ThirdNext, OneState, Shared, Numbered, OwnWeightAgain, Growing])
def test_stacks_that_are_no_plain_chain(spy, make):
    assert_folding_changes_nothing(make(), x_of(), spy=spy())


def test_blocks_that_all_multiply_one_input_are_joined_instead(spy):
    class Crossing(Stack):
        def forward(self, x):
            start = torch.relu(self.stem(x))
            for block in self.blocks:
                x = block(x) + block.down(block.up(start))
            return x

    spy = spy()
    assert_folding_changes_nothing(Crossing(), x_of(), spy=spy)
    assert spy.folds[0] is None


class AllStates(Stack):
    def forward(self, x):
        states = []
        for block in self.blocks:
            states.append(x)
            x = block(x)
        return self.head(x), states, x


class AllButTheLast(Stack):
    def forward(self, x):
        states = []
        for block in self.blocks[:-1]:
            x = block(x)
            states.append(x)
        return self.blocks[-1](x), states


class Caches(Stack):
    """Each block gives a view of what it made, a kernel's result and a sum."""

    def forward(self, x):
        caches = []
        for block in self.blocks:
            keys = block.up(x).view(2, 16, 4, 32).transpose(1, 2)
            values = torch.cat([keys, keys * 0.5], 2)
            x = x + block.down(values.mean(2).view(2, 1, 128)) * block.scale
            caches.append((keys, values))
        return caches, self.head(x), x.sum()


@pytest.mark.parametrize("limit", [NEVER, 5 * 2 * 4 * 2 * WIDTH * WIDTH, ALWAYS])
@pytest.mark.parametrize("make", [AllStates, AllButTheLast, Caches])
def test_what_every_block_gives_leaves_from_copies_too(spy, make, limit):
    spy = spy(limit)
    model = make(count=14)
    assert_folding_changes_nothing(model, x_of(), spy=spy)
    assert was_copied(spy) or make is AllButTheLast


def test_symbolic_sizes_are_compiled_whole(spy):
    spy = spy()
    model = Stack().eval()
    compiled = thruway.compile(model, dynamic=True)
    with torch.no_grad():
        for batch in (2, 5):
            x = x_of(batch, 16, WIDTH)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    assert spy.folds == [None]


def test_weights_of_copied_blocks_are_watched(spy):
    spy = spy()
    model = Stack().eval()
    compiled, x = thruway.compile(model), x_of()
    with torch.no_grad():
        compiled(x), compiled(x)
        model.blocks[6].up.weight.mul_(2)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    assert was_copied(spy)
