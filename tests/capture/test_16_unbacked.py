"""Results whose size depends on the elements of tensors stay in one graph, without recompiles; where Python must know a size, it breaks there."""

import pytest
import torch

import thruway


def masked(x):
    y = x[x > 0]
    return y * 2 + 1, y.sum(), y.shape[0], y.numel() + 1


def places(x):
    (i,) = torch.where(x > 0)
    j = torch.nonzero(x > 0).squeeze(1)
    return x[i] * 2 + i, x[j].cos() * 3, len(i) + len(j), torch.nonzero(x > 0)


def chosen_again(x):
    mask = x > -1
    y = (x.sin() + 1)[mask] + x[mask] - torch.where(mask)[0]
    z = (y * y + 2)[y > 1]
    return z.exp() * 3 - z, z.sum() + y.sum(), z.size(0) + 2 * y.size(0), x.new_zeros(z.size(0), 3) + z[:, None]


def uniques(x):
    k = (x * 2).long()
    v, inverse, counts = torch.unique(k, return_inverse=True, return_counts=True)
    w, runs = torch.unique_consecutive(k, return_counts=True)
    return v * 2, v[inverse] - k, counts.float() / counts.sum(), w, runs, v.numel()


def counted(x):
    r = (x > 0).long() + (x > 1).long()
    return x.repeat_interleave(r) * 2, torch.bincount(r) + 1, torch.bincount(r, x), torch.bincount(r, minlength=4), x.masked_select(x > 0).view(-1, 1)


def cut_and_joined(x):
    y = x[x > 0]
    return y[:3], y[1:], y[-2:], y[::2], torch.cat([y, x]), torch.cat([y, y * 2]), torch.stack([y, y + 1]).t() * 2, y.unsqueeze(0).expand(4, -1).reshape(-1)


def by_element(x):
    k = (x > 0).sum().item()
    n = int(k) // 2
    return x[:k] * 2, x[n:], torch.zeros(k) + 1, torch.arange(k) * 2, x[: k - 3], x.new_ones(n, k).sum(1), k + n


def picked(x):
    k = x.argmax()
    n = x.abs().argmin().item()
    grid = x.repeat(3, 1)
    return x[k] * 2, x[n] + grid[1, n], grid[:, n] + 1, grid[..., n, None], grid[k % 3, 1:]


def written(x):
    k = x.argmax().item()
    bins = torch.zeros_like(x)
    bins[k] += 3
    bins[k:] += 1
    board = torch.full_like(x, -2.0)
    board[x > 0] = x[x > 0] * 3
    board[~(x > 0)] = 0.5
    return bins * 2, board.tanh() + 1


def listed(x):
    a, b, c = (x[:3].abs() * 2).long().tolist()
    first, second = x[:2].tolist()
    return x[: a + 1] * 2, torch.zeros(b) + 1, [a, b, c], x * first + second, x.reshape(-1, 2).tolist()


def split(x):
    n = (x > 0).sum()
    left, right = torch.split(x, torch.stack([n, x.shape[0] - n]).tolist())
    return left * 2, right + 1, left.shape[0] - right.shape[0]


def zero_dim(x):
    return torch.nonzero(x.sum() > 0), x.sum()[x.sum() > 0], torch.unique(x.sum())


def smaller(x):
    y = x[x > 0]
    values, at = y.topk(min(3, y.shape[0]))
    return values * 2, y[at], max(y.shape[0], 4), min(y.numel(), x.numel())


def two_dims(x):
    m = x.reshape(-1, 2)
    rows = m[m[:, 0] > 0]
    i, j = torch.where(m > 0)
    return rows * 2, rows @ m.t(), rows.sum(0), rows.t().contiguous() + 1, m[i, j], m[m > 0], m[:, rows[0].numel() - 1], rows.view(-1)


def pasted(x):
    k = x.argmax()
    board = torch.zeros(4, 8)
    board[1:3, k:] = x[k:] * 2
    board[k % 4, : k + 1] = x[: k + 1]
    return board + 1, x[k : k + 3].sum() + x[max(0, x.shape[0] - 3):].sum()


def compared(x):
    n = len(x[x > 0])
    return n > 2, n == 3, 0 != n, x + 1, n < x.shape[0] - 1


FUNCTIONS = (masked, places, chosen_again, uniques, counted, cut_and_joined, by_element, picked, written, listed, split, smaller, two_dims, pasted, compared)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and torch.allclose(a.double(), b.double())
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@pytest.fixture(autouse=True)
def fresh():
    thruway.reset()
    yield
    thruway.reset()


def inputs(size=8):
    """Mixed signs, all of one sign, none above 0, one above 0."""
    torch.manual_seed(1)
    one = -torch.rand(size) - 0.1
    one[size // 2] = 2.0
    return [torch.randn(size), torch.randn(size) + 0.5, torch.rand(size) + 0.5, -torch.rand(size) - 0.5, one, torch.randn(size) * 2]


def outcome(function, x):
    try:
        return function(x)
    except (IndexError, RuntimeError) as error:
        return (type(error).__name__,)


def check(function, backend, given, **options):
    compiled = thruway.compile(function, backend=backend, **options)
    for x in given:
        expected, before = outcome(function, x.clone()), x.clone()
        with torch.no_grad():
            assert same(outcome(compiled, x), expected)
        assert torch.equal(x, before)
    found = thruway.metrics()
    assert not found["bugs"]
    return found


@pytest.mark.parametrize("backend", ("eager", "thruway"))
@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_graph(function, backend):
    given = inputs() if function not in (two_dims,) else [x for x in inputs() if (x[::2] > 0).any()]
    found = check(function, backend, given)
    assert (found["graphs"], found["graph_breaks"], found["recompiles"]) == (1, 0, 0)
    left = [event.reason.code for event in thruway.pipeline.journal.of_kind("eager")]           # pieces that write what shares memory
    assert set(left) <= ({"TW807"} if function in (written, pasted) else set())


@pytest.mark.parametrize("function", (masked, chosen_again, cut_and_joined, by_element, uniques))
def test_symbolic_sizes_beside_them(function):
    given = [x for size in (6, 10, 7, 31) for x in inputs(size)[:3]]
    found = check(function, "thruway", given, dynamic=True)
    assert found["graph_breaks"] == 0 and found["recompiles"] == 0 and not found["eager"]


def test_a_0_dim_tensor_counts_as_one_element():
    found = check(zero_dim, "thruway", inputs())
    assert not found["eager"]


@pytest.mark.parametrize("backend", ("eager", "thruway"))
def test_what_eager_refuses_at_some_sizes_is_refused_there(backend):
    def function(x):
        y = x[x > 0] * 2
        k = (x > 0).sum().item()
        return y.view(k, 1) + 1, y[3] * 2

    def mismatch(x):
        return torch.stack([x[x > 0], x[x < 0]]) * 2 + 1

    check(function, backend, inputs())
    check(mismatch, backend, [*inputs(), torch.tensor([1.0, -1.0, 2.0, -2.0]).repeat(2)])


@pytest.mark.parametrize("backend", ("eager", "thruway"))
def test_a_write_reaches_what_shares_memory(backend):
    def function(x):
        y = x + 1
        k = x.argmax().item()
        view = y[k:]
        z = y * 2
        view.mul_(10)
        view[x[k:] > 0] = 7.0
        return y + 1, view - 1, z

    assert check(function, backend, inputs())["graph_breaks"] == 0


def test_random_numbers_are_those_of_eager():
    def function(x):
        a = torch.rand(3) + x.sum()
        y = torch.rand_like(x[x > 0]) * 2 + 1
        return a * 2, y, torch.rand(2) + y.sum()

    compiled = thruway.compile(function)
    for i, x in enumerate(inputs()):
        torch.manual_seed(i)
        expected, after = function(x), torch.get_rng_state()
        torch.manual_seed(i)
        assert same(compiled(x), expected) and torch.equal(torch.get_rng_state(), after)


@pytest.mark.parametrize("backend", ("eager", "thruway"))
def test_gradients_flow_through_chosen_elements(backend):
    def function(x):
        y = x[x > 0]
        return (y * y).sum() + x[torch.where(x < 0)[0]].sum() * 3

    compiled = thruway.compile(function, backend=backend)
    for x in inputs():
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        compiled(a).backward()
        function(b).backward()
        assert torch.allclose(a.grad, b.grad)
    assert thruway.metrics()["graphs"] == 1


def loops(x):
    n = x[x > 0].shape[0]
    total = x
    for _ in range(n):
        total = total + 1
    return total * 2


def looks_up(x):
    k = x.argmax().item()
    return ["a", "b", "c", "d", "e", "f", "g", "h"][k], x + 1


def keys(x):
    n = x[x > 0].numel()
    return {4: "there"}.get(n), x * 2 + n


def broadcasts(x):
    y = x[x > 0]
    return y + torch.arange(3.0) if y.shape[0] in (1, 3) else y * 2


def asks_layout(x):
    y = x.reshape(2, -1)
    k = (x > 0).sum().item()
    z = y[:, :k]
    return z.is_contiguous(), z.contiguous() * 2


@pytest.mark.parametrize("backend", ("eager", "thruway"))
def test_so_many_turns_as_a_size_says_stay_in_the_graph(backend):
    assert check(loops, backend, inputs())["graph_breaks"] == 0


@pytest.mark.parametrize("backend", ("eager", "thruway"))
@pytest.mark.parametrize("function", (looks_up, keys, broadcasts, asks_layout))
def test_where_python_must_know_it_breaks(function, backend):
    found = check(function, backend, inputs())
    assert found["graph_breaks"] >= 1
    reason = thruway.pipeline.journal.of_kind("graph_break")[0].reason
    assert reason.code == "TW103" and reason.where.line > 0


def test_the_greater_of_a_tensor_and_a_size():
    def function(x):
        return max(x[0], x.shape[0]), min(x.shape[0], x.sum()), max(x.shape[0], 7)

    assert not check(function, "eager", [x for size in (8, 9, 10) for x in inputs(size)], dynamic=True)["eager"]


def test_pieces_are_compiled():
    compiled = thruway.compile(chosen_again)
    with torch.no_grad():
        for x in inputs():
            compiled(x)
    stages = [event for event in thruway.pipeline.journal.of_kind("stage") if event.stage == "compile"]
    assert len(stages) >= 2 and all(event.function.startswith("chosen_again.") for event in stages)
    assert not thruway.pipeline.journal.of_kind("eager")


@torch.library.custom_op("thruway_tests::above", mutates_args=())
def above(x: torch.Tensor, limit: float) -> torch.Tensor:
    return x[x > limit].clone()


@above.register_fake
def _(x, limit):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@pytest.mark.parametrize("backend", ("eager", "thruway"))
def test_custom_operators_say_so_by_their_fake_kernel(backend):
    def function(x):
        y = above(x * 2, 0.5)
        return y.sin() + 1, y.shape[0] * 2

    found = check(function, backend, inputs())
    assert (found["graphs"], found["graph_breaks"]) == (1, 0)
