"""Programs of tensor operators over dtypes, layouts, views, aliases, empties and special values, with sizes and numbers that change between calls.

Each statement is tried on the first call's arguments while the program is written, and most that raise are dropped: what is left runs deep.
"""

from __future__ import annotations

import math
import random
import re
import warnings
from typing import Any

import torch

PRELUDE = '''
import math
import torch
import torch.nn.functional as F

COUNT = 0
LOG = []


def tensor(seed, *shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 4 - 2


def special(seed, *shape):
    values = torch.tensor([0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 2.5, 1e-40, 3e38])
    return values[(tensor(seed, *shape) * 100).long() % 10]


def whole(seed, dtype, *shape):
    return (tensor(seed, *shape) * 60).to(dtype)
'''

# Makers of arguments; `{i}` differs between calls, `{n}` may. `{a}` is the first argument.
TENSORS = (
    "tensor({i}, {n}, 3)", "tensor({i}, 3, {n}).t()", "tensor({i}, 4, {n}, 2)[:, 1:]", "tensor({i}, {n}).double()", "whole({i}, torch.int64, {n}, 3)",
    "whole({i}, torch.int32, {n})", "whole({i}, torch.uint8, {n}, 3)", "whole({i}, torch.int8, 3)", "tensor({i}, {n}, 3) > 0", "tensor({i}, {n}, 3).half()",
    "tensor({i}, {n}, 4).bfloat16()", "tensor({i}, 1, 3).expand({n}, 3)", "tensor({i}, 0, 3)", "tensor({i}, {n}, 6)[:, ::2]", "special({i}, {n}, 3)",
    "special({i}, 7).double()", "torch.complex(tensor({i}, {n}), tensor({i} + 9, {n}))", "tensor({i}, 1)[0]", "whole({i}, torch.int64, 1)[0]",
    "tensor({i}, 2, {n}, 3)", "tensor({i}, {n}, 3).requires_grad_()", "tensor({i}, 3)", "tensor({i}, 3, 3)", "tensor({i}, 2, 3, 4).permute(2, 0, 1)",
)
ALIASES = ("{a}[1:]", "{a}.view(-1)", "{a}.detach()", "{a}.t() if {a}.dim() == 2 else {a}", "{a}", "{a}[..., :1]")
NUMBERS = ("{i} + 1", "{i} * 0.7 - 1.0", "{i} % 2 == 0", "2", "0.5", "-{i}", "3.0", "{n}")

# T a tensor, N a number, D a dimension, Y a dtype
VALUES = (
    "<T> + <T>", "<T> - <T>", "<T> * <T>", "<T> / <T>", "<T> + <N>", "<N> - <T>", "<T> * <N>", "<T> / <N>", "<T> // <T>", "<T> // <N>", "<T> % <T>", "<T> % <N>",
    "torch.div(<T>, <T>, rounding_mode='trunc')", "torch.fmod(<T>, <N>)", "<T> ** 2", "<T>.abs()", "-<T>", "~<T>", "<T> & <T>", "<T> | <T>", "<T> ^ <T>",
    "<T> > <T>", "<T> == <T>", "<T> <= <N>", "<T>.relu()", "<T>.sigmoid()", "<T>.tanh()", "<T>.sin()", "F.gelu(<T>)", "F.silu(<T>)", "<T>.sign()", "<T>.floor()",
    "<T>.round()", "<T>.trunc()", "<T>.isnan()", "<T>.isfinite()", "<T>.nan_to_num()", "<T>.clamp(-1, 1)", "<T>.clamp(min=<T>)", "torch.where(<T>, <T>, <T>)",
    "torch.where(<T> > 0, <T>, <N>)", "<T>.to(<Y>)", "<T>.to(<Y>)", "<T>.float()", "<T>.bool()", "torch.maximum(<T>, <T>)", "torch.minimum(<T>, <T>)", "torch.fmax(<T>, <T>)",
    "<T>.sum()", "<T>.sum(<D>)", "<T>.sum(<D>, keepdim=True)", "<T>.mean(<D>)", "<T>.float().mean(<D>, keepdim=True)", "<T>.amax(<D>)", "<T>.amin()", "<T>.max(<D>).values",
    "<T>.max(<D>).indices", "<T>.argmin(<D>)", "<T>.prod(<D>)", "<T>.any(<D>)", "<T>.all()", "<T>.cumsum(<D>)", "<T>.var(<D>)", "<T>.std()", "<T>.norm()", "<T>.softmax(<D>)",
    "<T>.log_softmax(<D>)", "<T>.logsumexp(<D>)", "<T>.sort(<D>).values", "<T>.argsort(<D>, stable=True)", "<T>.topk(1, <D>).values", "<T>.flip(<D>)", "<T>.roll(1, <D>)",
    "torch.cat([<T>, <T>], <D>)", "torch.stack([<T>, <T>], <D>)", "<T> @ <T>", "torch.outer(<T>, <T>)", "F.layer_norm(<T>, <T>.shape[-1:])", "<T>.gather(<D>, <T>.argsort(<D>))",
    "<T>.masked_fill(<T> > 0, <N>)", "<T>.repeat(2, *[1] * (<T>.dim() - 1))", "<T>.clone()", "<T>.contiguous()", "torch.zeros_like(<T>)", "torch.full_like(<T>, <N>)",
    "<T>.new_ones(<T>.shape)", "torch.arange(<T>.shape[0])", "<T>.index_select(0, torch.tensor([0, 0]))", "<T>[torch.tensor([0, -1])]", "<T>[<T>.argsort()]", "<T>[<T> > 0]",
    "<T>.nonzero()", "F.pad(<T>, (1, 2))", "F.pad(<T>, (1, 0), value=<N>)", "<T>.diff(dim=<D>)", "torch.lerp(<T>, <T>, 0.25)", "torch.addcmul(<T>, <T>, <T>, value=2)",
    "<T>.add(<T>, alpha=2)", "<T>.tril()", "<T>.float().log1p()", "torch.hypot(<T>, <T>)", "torch.atan2(<T>, <T>)", "<T>.remainder(<N>)", "<T>.reciprocal()", "<T>.rsqrt()",
    "F.one_hot(<T> % 3, 3)", "<T>.cummax(<D>).values", "torch.bucketize(<T>, torch.tensor([-1.0, 0.0, 1.0]))", "<T>.scatter(<D>, <T>.argsort(<D>), <T>)", "<T>.median()",
    "<T>.mul(<N>).add(<N>)", "torch.tensor([<N>, <N>])", "<T>.to(torch.uint8) + <N>", "<T>.int() << 2", "<T>.int() >> 1", "<T>.logical_not()", "<T>.count_nonzero(<D>)",
    "F.linear(<T>, <T>)", "<T>.bfloat16() * <T>", "<T>.half() + <T>", "<T>.double().mean().float()", "<T>.square().sum(<D>).sqrt()", "F.normalize(<T>, dim=<D>)", "<T>.unique()",
)
VIEWS = (
    "<T>.t()", "<T>[1:]", "<T>[::2]", "<T>[0]", "<T>[..., -1]", "<T>[:, None]", "<T>.unsqueeze(<D>)", "<T>.squeeze()", "<T>.view(-1)", "<T>.reshape(-1)", "<T>.transpose(0, <D>)",
    "<T>.chunk(2, <D>)[0]", "<T>.unbind(<D>)[0]", "<T>.expand(2, *<T>.shape)", "<T>.detach()", "<T>.flatten()", "<T>.movedim(0, -1)", "<T>.narrow(<D>, 0, 1)", "<T>.diagonal()",
    "<T>.unfold(<D>, 2, 1)", "<T>.as_strided((2, 2), (1, 1))", "<T>.mT", "<T>.select(<D>, 0)", "<T>.view_as(<T>)", "<T>.real", "<T>.split(2, <D>)[0]", "<T>.view(torch.int32)",
)
WRITES = (
    "<T>.add_(<N>)", "<T>.mul_(<T>)", "<T>.sub_(<T>)", "<T>.copy_(<T>)", "<T>.zero_()", "<T>.fill_(<N>)", "<T>[0] = <N>", "<T>[1:] = <T>", "<T>[..., 0] += <N>", "<T>[<T> > 0] = <N>",
    "<T>.clamp_(-1, 1)", "<T>.t().mul_(2)", "<T>.view(-1)[0] = <N>", "<T> += <T>", "<T> *= <N>", "<T>.div_(<N>)", "<T>.neg_()", "<T>.masked_fill_(<T> > 0, <N>)", "<T>[torch.tensor([0, 0])] += 1",
    "<T>.index_add_(0, torch.tensor([0, 0]), <T>[:2])", "<T>.scatter_(<D>, <T>.argsort(<D>) * 0, <N>)", "<T>[1:].copy_(<T>[:-1])", "<T>.relu_()", "<T>.cumsum_(<D>)", "torch.add(<T>, <N>, out=<T>)",
    "<T>[:] = <T>.flip(0)", "<T>.index_put_((torch.tensor([0, 0]),), <T>[:1].clone(), accumulate=True)", "<T>.unsqueeze_(0)", "<T>.transpose_(0, <D>)", "<T>.data.add_(<N>)",
)
READS = ("<T>.shape[0]", "<T>.sum().item()", "<T>.dim()", "len(<T>)", "<T>.numel()", "<T>.is_contiguous()", "<T>.stride()[0]", "float(<T>.float().mean())", "int(<T>.argmax())", "<N> + 1", "<N> * 2",
         "<T>.dtype == torch.float32", "<T>.storage_offset()", "bool((<T> > 0).any())", "<N> / 2", "max(<N>, <N>)", "<N> if <N> else 1")
KINDS = ((10, "<new> = ", VALUES), (5, "<new> = ", VIEWS), (4, "", WRITES), (1, "<number> = ", READS))
DTYPES = ("torch.float32", "torch.float64", "torch.int64", "torch.int32", "torch.uint8", "torch.int8", "torch.bool", "torch.float16", "torch.bfloat16")
HOLE = re.compile("<([TNDY])>")
CALLS, LARGEST = 3, 2000


class Writer:
    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.space: dict[str, Any] = {}
        exec(PRELUDE, self.space)
        self.tensors: list[str] = []
        self.numbers: list[str] = []
        self.lines: list[str] = []

    def program(self) -> str:
        rows = self.arguments()
        for _ in range(self.random.choice((3, 6, 10, 16))):
            self.statement()
        kept = self.random.sample(self.tensors, min(len(self.tensors), 5)) + self.numbers[-2:]
        names = list(eval(rows[0], self.space)())
        head = f"def f({', '.join(f'a{k}' for k in range(len(names)))}):\n"
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"{PRELUDE}\n\n{head}{body}    return [{', '.join(kept)}]\n\n\nARGUMENTS = [{', '.join(rows)}]\n"

    def arguments(self) -> list[str]:
        """Lambdas that make each call's arguments; the first call's are the variables that the statements are tried on."""
        makers = [self.random.choice(TENSORS) for _ in range(self.random.randint(1, 3))]
        numbers = [self.random.choice(NUMBERS) for _ in range(self.random.randint(0, 2))]
        alias = self.random.choice(ALIASES) if self.random.random() < 0.2 and "requires_grad" not in makers[0] else None
        size, growth = self.random.choice((1, 2, 4, 5)), self.random.choice((0, 0, 1, 3))
        rows = []
        for call in range(CALLS):
            words = {"i": call, "n": size + growth * call}
            texts = [maker.format(**words) for maker in makers]
            made = ", ".join([*texts, *(["(" + alias.format(a="a") + ")"] if alias else []), *(number.format(**words) for number in numbers)])
            rows.append(f"lambda a={texts[0]}: [{made.replace(texts[0], 'a', 1)}]")
        for k, value in enumerate([eval(row, self.space)() for row in rows][0]):
            self.space[f"a{k}"] = value
            (self.tensors if isinstance(value, torch.Tensor) else self.numbers).append(f"a{k}")
        return rows

    def statement(self) -> None:
        for _ in range(30):
            weights = [kind[0] for kind in KINDS]
            _, target, templates = self.random.choices(KINDS, weights)[0]
            text = HOLE.sub(self._hole, self.random.choice(templates))
            name = f"v{len(self.lines)}"
            line = (f"{name} = " if target else "") + text
            if self._runs(line, name if target else None) or self.random.random() < 0.005:
                self.lines.append(line)
                return

    def _runs(self, line: str, name: str | None) -> bool:
        try:
            exec(line, self.space)
        except Exception:
            return False
        found = self.space.get(name) if name else None
        if isinstance(found, torch.Tensor) and found.numel() <= LARGEST:
            self.tensors.append(name)
        elif isinstance(found, int | float) and not (isinstance(found, float) and not math.isfinite(found)):
            self.numbers.append(name)
        return name is None or name in self.tensors[-1:] or name in self.numbers[-1:]

    def _hole(self, found: re.Match[str]) -> str:
        match found[1]:
            case "T":
                return self.random.choice(self.tensors[-6:])
            case "N":
                return self.random.choice(self.numbers or ["2"]) if self.random.random() < 0.6 else self.random.choice(("2", "0.5", "-1", "3"))
            case "D":
                return self.random.choice(("0", "-1", "1"))
            case _:
                return self.random.choice(DTYPES)


def write_tensor_program(seed: int) -> str:
    """The program of that seed; seeds whose arguments cannot be made give their successor's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while True:
            try:
                return Writer(seed).program()
            except (RuntimeError, IndexError):
                seed += 1_000_000_007
