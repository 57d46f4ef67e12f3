"""Torch's own features inside and around compiled code: autocast, default devices and dtypes, custom autograd functions, copies.

Every program is compared with eager: results with their dtypes and devices, gradients, and what it leaves behind. Where a graph is
claimed, a backend callable counts it.
"""

from __future__ import annotations

import copy
import gc
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from capture.beside_eager import LINEAR, Graphs, W, X, alike, check, gradients

import thruway
from thruway.pipeline import journal

pytestmark = pytest.mark.usefixtures("fresh")


# -- autocast ------------------------------------------------------------------------------------------------------------------------



def mixed(x):
    y = x + 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = LINEAR(y)
        s = z.softmax(-1)
        with torch.autocast("cpu", enabled=False):
            k = z.float() @ W
    return s * 2, z, k, (x @ W).dtype


@torch.no_grad()
def test_autocast_inside():
    backend = check(mixed, X, graphs=1, tolerance=2e-2)
    assert not torch.is_autocast_enabled("cpu")
    assert any(node.target is torch.set_autocast_enabled for node in backend.calls)


UNDER_AUTOCAST = {
    "linear": lambda: F.linear(X, W), "matmul": lambda: X @ W, "softmax": lambda: (X @ W).softmax(-1), "rms_norm": lambda: F.rms_norm(X @ W, (8,), W[0]),
    "layer_norm": lambda: F.layer_norm(X @ W, (8,)), "einsum": lambda: torch.einsum("ij,jk->ik", X, W), "tensordot": lambda: torch.tensordot(X, W, 1),
    "inner": lambda: torch.inner(X, X), "multi_dot": lambda: torch.linalg.multi_dot([X, W, W]), "cdist": lambda: torch.cdist(X @ W, X),
    "cosine": lambda: F.cosine_similarity(X @ W, X), "cat": lambda: torch.cat([X @ W, X]), "add": lambda: X @ W + X, "bilinear": lambda: F.bilinear(X, X, W[None]),
    "attention": lambda: F.scaled_dot_product_attention(X[None], X[None], X[None]), "kl": lambda: F.kl_div((X @ W).log_softmax(-1), X.softmax(-1), reduction="sum"),
    "conv": lambda: F.conv2d(X[None, None], W[None, None, :3, :3]), "mv": lambda: W @ X[0], "cumsum": lambda: (X @ W).cumsum(-1),
}


@pytest.mark.parametrize("name", UNDER_AUTOCAST)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_operators_are_cast_as_autocast_casts_them(name, mode):
    operator = UNDER_AUTOCAST[name]

    def inside():
        with torch.autocast("cpu", torch.bfloat16):
            return operator()
    with mode():
        check(inside, graphs=1, tolerance=3e-2)
        with torch.autocast("cpu", torch.bfloat16):
            check(operator, graphs=1, tolerance=3e-2)


def broken(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = LINEAR(x)
        n = len(str(z.float()[0, 0].round().item()))
        w = LINEAR(z)
    return w * n, (x @ W).dtype


def sized_by_elements(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = LINEAR(x)
        w = LINEAR(z[z[:, 0] > 0])
    return w, x @ W, z


@torch.no_grad()
def test_autocast_around_sizes_that_depend_on_elements():
    check(sized_by_elements, X, tolerance=2e-2)
    assert not torch.is_autocast_enabled("cpu")


@torch.no_grad()
def test_autocast_goes_on_behind_a_break():
    check(broken, X, graphs=2, tolerance=5e-2)
    assert not torch.is_autocast_enabled("cpu")


def test_autocast_gradients_reach_the_weights_once_cast():
    layer = torch.nn.Linear(8, 8)

    def step(x):
        with torch.autocast("cpu", torch.bfloat16):
            return layer(layer(x)).float()
    expected = gradients(step, X.clone().requires_grad_()), layer.weight.grad.clone()
    layer.zero_grad()
    found = gradients(thruway.compile(step), X.clone().requires_grad_()), layer.weight.grad.clone()
    alike(expected, found, 1e-3)


def test_an_error_in_the_graph_leaves_autocast_off():
    def wrong(x, i):
        with torch.autocast("cpu", torch.bfloat16):
            return F.embedding(i, x @ W)
    compiled = thruway.compile(wrong)
    good, bad = torch.tensor([0, 1]), torch.tensor([0, 100])
    x = X.clone().requires_grad_()
    alike(wrong(x, good), compiled(x, good), 2e-2)
    with pytest.raises(IndexError):
        compiled(x, bad)
    assert not torch.is_autocast_enabled("cpu") and torch.is_grad_enabled()


def test_one_entry_for_each_autocast_state():
    def both(x):
        return x @ W
    compiled = thruway.compile(both)
    with torch.no_grad():
        for _ in range(2):
            alike(both(X), compiled(X))
            for dtype in (torch.bfloat16, torch.float16):
                with torch.autocast("cpu", dtype):
                    alike(both(X), compiled(X), 2e-2)


# -- default dtype and device --------------------------------------------------------------------------------------------------------

def in_double(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        made = torch.ones(8) / 3
    finally:
        torch.set_default_dtype(before)
    return x + made, torch.tensor(1.5).dtype


def test_default_dtype_inside():
    check(in_double, X, graphs=1)
    assert torch.get_default_dtype() is torch.float32


def made_on_default(x):
    return x.to(torch.get_default_device()) + torch.arange(8.0), torch.tensor([1.0, 2.0]), torch.zeros(2, device=None), torch.zeros_like(x), torch.rand(2, device="cpu")


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_default_device_around(device):
    with torch.device(device):
        check(lambda x: made_on_default(x)[:4], X.to(device), graphs=1)
        assert torch.get_default_device().type == device


def test_entries_are_told_apart_by_the_default_device():
    def made(x):
        return torch.ones(2), x + 1
    compiled = thruway.compile(made)
    for _ in range(2):
        alike(made(X), compiled(X))
        with torch.device("meta"):
            assert compiled(X)[0].is_meta
        torch.set_default_device("meta")
        try:
            assert compiled(X)[0].is_meta
        finally:
            torch.set_default_device(None)
        assert not compiled(X)[0].is_meta


def test_default_devices_inside_each_other():
    def made(x):
        with torch.device("cpu"):
            a = torch.ones(2)
        return a, torch.ones(2), torch.get_default_device(), x + 1
    torch.set_default_device("cpu")
    try:
        check(made, X, graphs=1)
        with torch.device("meta"):
            check(made, X, graphs=1)
            with torch.device("cpu"):
                check(made, X, graphs=1)
        check(device_across_a_break, X)
    finally:
        torch.set_default_device(None)
    assert not any(event.reason and event.reason.code == "TW118" for event in journal.events)


def device_inside(x):
    with torch.device("meta"):
        a = torch.ones(3)
        with torch.device("cpu"):
            b = torch.ones(3)
        c = torch.tensor([1, 2])
    return x + 1, a, b, c, torch.ones(1)


def device_across_a_break(x):
    with torch.device("meta"):
        a = torch.ones(3)
        n = len(str(x[0, 0].round().item()))
        b = torch.zeros(3)
    return x + n, a, b, torch.ones(2)


def test_a_default_device_inside():
    check(device_inside, X, graphs=1)
    check(device_across_a_break, X)
    assert torch._C._len_torch_function_stack() == 0


class AddsOne(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result + 1 if function is torch.Tensor.mul else result


def test_a_function_mode_of_the_users_own_sees_every_call():
    def double(x):
        return x * 2 + 1

    def inside(x):
        y = x + 1
        with AddsOne():
            y = y * 2
        return y * 2
    check(inside, X)
    compiled = thruway.compile(double)
    compiled(X)
    with AddsOne():
        alike(double(X), compiled(X))
        with torch.device("cpu"):
            alike(double(X), compiled(X))
    assert any(event.reason and event.reason.code == "TW118" for event in journal.events)


# -- custom autograd functions -------------------------------------------------------------------------------------------------------

class Cube(torch.autograd.Function):
    """Its backward is not its forward's, so that a gradient of the forward shows."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        ctx.wanted = ctx.needs_input_grad
        return x * x * x * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 5 * x * ctx.factor, None


class Split(torch.autograd.Function):
    @staticmethod
    def forward(x, y=None):
        return x * 2, x.round(), x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.count = len(inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad, _, same):
        return grad * 7 + same * ctx.count, None


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


SEEN = []


class Noting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        SEEN.append(x.dim())
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 9


def with_cube(x):
    return Cube.apply(x + 1, 2.0) * 2


def with_split(x):
    a, b, c = Split.apply(x * 1)
    return a + b + c


def with_in_place(x):
    y = x + 1
    return InPlace.apply(y) + y


def with_noting(x):
    return Noting.apply(x * 2) + 1


@pytest.mark.parametrize("function", [with_cube, with_split, with_in_place, with_noting])
def test_custom_functions_without_gradient_are_captured(function):
    SEEN.clear()
    with torch.no_grad():
        check(function, X, graphs=1, calls=1)
        check(function, X.clone().requires_grad_(), graphs=1, calls=1)
    check(function, X, graphs=1, calls=1)


@pytest.mark.parametrize("function, graphs", [(with_cube, 1), (with_split, 1), (with_in_place, 2), (with_noting, None)])
def test_custom_functions_keep_their_own_gradients(function, graphs):
    backend = Graphs()
    for compiled in (thruway.compile(function, backend=backend), thruway.compile(function)):
        for _ in range(2):
            alike(gradients(function, X.clone().requires_grad_()), gradients(compiled, X.clone().requires_grad_()))
    assert graphs in (None, len(backend.graphs))


def test_effects_of_a_custom_forward_happen_once():
    SEEN.clear()
    compiled = thruway.compile(with_noting)
    for count in (1, 2):
        compiled(X.clone().requires_grad_())
        assert len(SEEN) == count


def test_an_input_that_a_custom_function_returns_is_an_alias():
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return -grad

    def same(x):
        y = Same.apply(x)
        return y, y is x
    check(same, X)
    alike(gradients(lambda x: Same.apply(x * 2), X.clone().requires_grad_()),
          gradients(thruway.compile(lambda x: Same.apply(x * 2)), X.clone().requires_grad_()))


def test_custom_forward_and_backward_under_autocast():
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu")
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            return grad @ b.t(), a.t() @ grad

    def product(a, b):
        with torch.autocast("cpu", torch.bfloat16):
            return Product.apply(a, b), a @ b
    with torch.no_grad():
        check(product, X, W, graphs=1, tolerance=2e-2)
    check(product, X.clone().requires_grad_(), W.clone().requires_grad_(), graphs=1, tolerance=2e-2)


# -- numpy, and tensors of other classes ----------------------------------------------------------------------------------------------

ARRAY = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], dtype=np.float32)


class Marked(torch.Tensor):
    """Counts the functions that torch calls with it."""

    calls: list[str] = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.calls.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})


class Named(torch.nn.Parameter):
    pass


MARKED, NAMED = torch.ones(8).as_subclass(Marked), Named(torch.full((8,), 2.0))


def from_numpy(x):
    y = x * 2
    array = np.exp(y.numpy() * 0.1) + 1
    array[0, 0] = 3
    return torch.from_numpy(array) * 3 + x, array.mean(), (array > 2).any(), x.shape[0] * np.pi


def compares(x):
    equal = ARRAY == 2.0
    try:
        total = ARRAY + 1
    except TypeError:
        total = None
    return x + 1, equal.tolist(), total is None, len(ARRAY), ARRAY[1:3].sum().item(), -ARRAY[0], 2.0 in ARRAY


def scalars(x):
    n = int(round(np.floor(3.7) + float(np.sqrt(np.float64(4)))))
    return x * n + np.float32(2), np.float64(0.5) * 2 == 1.0, x.detach().numpy()[::-1].copy().shape


def with_marked(x):
    y = x * 2
    z = F.relu(MARKED) + y
    return y + 1, z.as_subclass(torch.Tensor), type(z), isinstance(MARKED, torch.Tensor), F.softmax(MARKED, -1).as_subclass(torch.Tensor)


def with_named(x):
    return x * NAMED + 1, type(NAMED).__name__


@pytest.mark.parametrize("function", [from_numpy, compares, scalars])
def test_numpy_breaks_and_is_right(function):
    backend = check(lambda x: tuple(one.tolist() if isinstance(one, (np.ndarray, np.generic)) else one for one in function(x)), X)
    assert backend.graphs


@torch.no_grad()
def test_tensors_of_other_classes():
    backend = check(with_marked, X)
    assert backend.graphs
    check(with_named, X, graphs=1)
    Marked.calls.clear()
    with_marked(X)
    expected = list(Marked.calls)
    Marked.calls.clear()
    thruway.compile(with_marked)(X)
    assert Marked.calls == expected


# -- the standard library around models, and torch's small helpers ------------------------------------------------------------------

class Config:
    def __init__(self):
        self.width, self.layers, self.nested = 3, [1, 2], {"a": {"b": (1, [2])}}
        self.itself = self


class CopiesItself(Config):
    def __deepcopy__(self, memo):
        made = Config()
        made.width = 100
        return made


class Slotted:
    __slots__ = ("value",)

    def __init__(self):
        self.value = 4


CONFIG, OWN, SLOTTED = Config(), CopiesItself(), Slotted()
TARGET = Config()
REFERENCE = weakref.ref(TARGET)
LSTM = torch.nn.LSTM(8, 3, batch_first=True)


def copies(x):
    config = copy.deepcopy(CONFIG)
    config.width = 7
    config.layers.append(3)
    config.nested["a"]["b"][1].append(5)
    shallow = copy.copy(CONFIG)
    shallow.width = 9
    again = copy.deepcopy(config)
    return (x * config.width + shallow.width, len(config.layers), config.itself is config, shallow.layers is CONFIG.layers, again.nested,
            again.itself is again, CONFIG.width, config, again)


def copies_of_tensors(x):
    shared = [x + 1, 3]
    held = {"x": x, "list": shared, "again": shared, "names": {"a", "b"}}
    made = copy.deepcopy(held)
    made["x"].add_(1)
    made["list"].append(4)
    return made["x"], made["again"], held["list"], made["list"] is made["again"], x * 2


def copies_in_ways_of_their_own(x):
    return x + copy.deepcopy(OWN).width + copy.deepcopy(SLOTTED).value + copy.copy(SLOTTED).value


def views_copied(x):
    return copy.deepcopy([x[0], x])[0] + 1, copy.deepcopy(x.t()).stride()


def weak(x):
    return x * 2 if REFERENCE() is TARGET else x


def helpers(x):
    n = torch.jit.annotate(int, 3)
    if torch.distributed.is_available() and torch.distributed.is_initialized() or torch.jit.is_scripting() or torch.jit.is_tracing():
        return x
    total = torch.tensor([x.sum(), x.mean()])
    return x * n + torch.as_tensor([1.0] * 8) + total[0], total.dtype, torch.as_tensor(x) is x, torch.tensor([x.sum() > 0, x.min() > 5]), torch.tensor((x[0, 0],), dtype=torch.float64)


def shown(value):
    """Objects by what they hold."""
    return (sorted(vars(value)), value.width, value.layers, value.nested) if isinstance(value, Config) else value


@pytest.mark.parametrize("function, graphs", [(copies, 1), (copies_of_tensors, 1), (copies_in_ways_of_their_own, None), (views_copied, None),
                                              (weak, 1), (helpers, 1)])
def test_copies_and_helpers(function, graphs):
    with torch.no_grad():
        def through(x):
            result = function(x)
            return tuple(shown(one) for one in result) if isinstance(result, tuple) else result
        check(through, X, graphs=graphs)
    assert (CONFIG.width, CONFIG.layers, CONFIG.nested) == (3, [1, 2], {"a": {"b": (1, [2])}})


def test_copies_of_tensors_that_share_memory_share_theirs():
    def both(a, b):
        made = copy.deepcopy([a, b])
        made[0].add_(1)
        return made[1] * 2
    compiled = thruway.compile(both)
    alone = X.clone()
    alike(both(X, alone), compiled(X, alone))
    alike(both(X, X.view(4, 8)), compiled(X, X.view(4, 8)))


def test_a_weak_reference_is_looked_at_again():
    holder = [Config(), None]
    holder[1] = weakref.ref(holder[0])

    def alive(x):
        found = holder[1]()
        return x + (found.width if found is not None else 100)
    compiled = thruway.compile(alive)
    for _ in range(2):
        alike(alive(X), compiled(X))
    holder[0].width = 50
    alike(alive(X), compiled(X))
    holder[0] = None
    gc.collect()
    alike(alive(X), compiled(X))


@torch.no_grad()
def test_recurrent_layers_look_at_their_weak_references():
    check(lambda x: LSTM(x[None] + 1)[0] * 2, X, graphs=1)


# -- a whole training step ------------------------------------------------------------------------------------------------------------

class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-1, 1)


def trained(optimizer, compiled):
    """Losses and parameters after steps that compute, go back and update inside one function, while a schedule changes the rate."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 3))
    updates = optimizer(net.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(updates, 2, 0.5)

    def step(x, y):
        updates.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            out = net(x)
            loss = F.cross_entropy(out + Sign.apply(out) * 0.1, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        updates.step()
        return loss.detach(), out.dtype
    run, losses = compiled(step), []
    for i in range(4):
        numbers = torch.Generator().manual_seed(i)
        losses.append(run(torch.randn(4, 8, generator=numbers), torch.randint(0, 3, (4,), generator=numbers)))
        schedule.step()
    return losses, [one.detach() for one in net.parameters()]


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_training_step_compiles_around_its_optimizer(optimizer):
    backend = Graphs()
    expected = trained(optimizer, lambda step: step)
    alike(expected, trained(optimizer, lambda step: thruway.compile(step, backend=backend)), 1e-4)
    alike(expected, trained(optimizer, thruway.compile), 1e-4)
    assert any(node.target is F.cross_entropy for node in backend.calls)
    assert len(backend.graphs) <= 8


def test_one_graph_where_one_is_demanded():
    def everything(x):
        with torch.autocast("cpu", torch.bfloat16), torch.device("cpu"):
            return torch.vmap(lambda a: a * 2)(x) @ torch.ones(8, 2), Sign.apply(copy.deepcopy(x))
    with torch.no_grad():
        alike(everything(X), thruway.compile(everything, fullgraph=True)(X), 2e-2)
