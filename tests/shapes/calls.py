"""How to call each operator that has a rule: name → function(sampler) → (args, kwargs)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from shapes.samples import ANY, FLOATS, Sampler

Call = tuple[tuple, dict]
CALLS: dict[str, Callable[[Sampler], Call]] = {}


def call(names: str):
    def add(make: Callable[[Sampler], Call]):
        for name in names.split():
            CALLS[name if "::" in name else f"aten::{name}"] = make
        return make
    return add


@call("sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sigmoid reciprocal erf erfc "
      "erfinv lgamma digamma sinc ceil floor trunc round relu relu6 frac neg abs angle square sgn sign bitwise_not isnan logical_not "
      "isinf isfinite signbit isposinf isneginf gelu mish hardswish hardsigmoid elu celu selu leaky_relu softplus log_sigmoid softshrink "
      "hardshrink silu nan_to_num hardtanh logit special_i0 i0")
def unary(s: Sampler) -> Call:
    return (s.tensor(),), {}


@call("mul.Tensor div.Tensor xlogy.Tensor atan2 maximum minimum fmax fmin floor_divide remainder.Tensor fmod.Tensor "
      "hypot copysign.Tensor bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_left_shift.Tensor bitwise_right_shift.Tensor "
      "eq.Tensor ne.Tensor logical_and logical_or logical_xor lt.Tensor le.Tensor gt.Tensor ge.Tensor pow.Tensor_Tensor "
      "clamp_min.Tensor clamp_max.Tensor")
def binary(s: Sampler) -> Call:
    x = s.tensor()
    dtypes = [x.dtype] if s.rng.random() < 0.4 else ANY
    return (x, s.tensor(s.partner(x.shape), dtypes) if s.rng.random() < 0.9 else s.tensor([], dtypes)), {}


@call("mul.Scalar div.Scalar floor_divide.Scalar remainder.Scalar fmod.Scalar bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar eq.Scalar "
      "ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar pow.Tensor_Scalar clamp_min clamp_max __lshift__.Scalar __rshift__.Scalar "
      "bitwise_left_shift.Tensor_Scalar bitwise_right_shift.Tensor_Scalar")
def with_number(s: Sampler) -> Call:
    return (s.tensor(), s.number()), {}


@call("pow.Scalar")
def number_first(s: Sampler) -> Call:
    return (s.number(), s.tensor()), {}


@call("add.Tensor sub.Tensor rsub.Tensor")
def with_alpha(s: Sampler) -> Call:
    return binary(s)[0], {"alpha": s.number()} if s.rng.random() < 0.3 else {}


@call("add.Scalar sub.Scalar rsub.Scalar")
def number_with_alpha(s: Sampler) -> Call:
    return (s.tensor(), s.number(), *([s.number()] if s.rng.random() < 0.3 else [])), {}


@call("div.Tensor_mode")
def division(s: Sampler) -> Call:
    return binary(s)[0], {"rounding_mode": s.rng.choice([None, "floor", "trunc"])}


@call("div.Scalar_mode")
def scalar_division(s: Sampler) -> Call:
    return (s.tensor(), s.rng.choice([2, 1.5])), {"rounding_mode": s.rng.choice([None, "floor", "trunc"])}


@call("clamp")
def clamp(s: Sampler) -> Call:
    return (s.tensor(), s.rng.choice([None, 0, 0.5]), s.rng.choice([1, 2.5])), {}


@call("clamp.Tensor")
def clamp_tensor(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.tensor(s.partner(x.shape)), s.tensor(s.partner(x.shape))), {}


@call("addcmul addcdiv")
def three(s: Sampler) -> Call:
    x = s.tensor(dtypes=[*FLOATS, torch.int64, torch.bool])
    return (x, s.alike(x, s.partner(x.shape), 0.2), s.alike(x, s.partner(x.shape), 0.2)), {}


@call("where.self")
def where(s: Sampler) -> Call:
    x = s.tensor()
    return (s.tensor(s.partner(x.shape), [torch.bool] if s.rng.random() < 0.95 else ANY), x, s.tensor(s.partner(x.shape))), {}


@call("masked_fill.Scalar")
def masked_fill(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.tensor(s.partner(x.shape), [torch.bool]), s.number()), {}


@call("masked_fill.Tensor")
def masked_fill_tensor(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.tensor(s.partner(x.shape), [torch.bool]), s.tensor([] if s.rng.random() < 0.9 else [1])), {}


@call("view _unsafe_view")
def view(s: Sampler) -> Call:
    x = s.tensor()
    sizes = [d for d in x.shape]
    if len(sizes) >= 2 and s.rng.random() < 0.7:
        d = s.rng.randrange(len(sizes) - 1)
        sizes[d:d + 2] = [sizes[d] * sizes[d + 1]]
    elif sizes and s.rng.random() < 0.5:
        d = s.rng.randrange(len(sizes))
        if sizes[d] == 4:
            sizes[d:d + 1] = [2, 2]
        else:
            sizes[d:d + 1] = [1, sizes[d]]
    if sizes and s.rng.random() < 0.4:
        sizes[s.rng.randrange(len(sizes))] = -1
    return (x, sizes), {}


@call("expand")
def expand(s: Sampler) -> Call:
    x = s.tensor()
    sizes = [(s.rng.choice([-1, d]) if d != 1 else s.rng.choice([-1, 1, 3, 0])) for d in x.shape]
    if s.rng.random() < 0.05:
        sizes = [d + 1 for d in sizes]
    return (x, [s.size() for _ in range(s.rng.randint(0, 2))] + sizes), {}


@call("permute")
def permute(s: Sampler) -> Call:
    x = s.tensor()
    order = list(range(x.dim()))
    s.rng.shuffle(order)
    return (x, order[:-1] if s.rng.random() < 0.05 else order), {}


@call("transpose.int")
def transpose(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.dim(x.dim()), s.dim(x.dim())), {}


@call("t alias detach squeeze tril triu zero")
def one_argument(s: Sampler) -> Call:
    return (s.tensor(),), {}


@call("unsqueeze")
def unsqueeze(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.dim(x.dim() + 1)), {}


@call("squeeze.dim unbind.int")
def with_dim(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.dim(x.dim())), {}


@call("squeeze.dims flip")
def with_dims(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.dims(x.dim())), {}


@call("select.int")
def select(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.dim(x.dim()), s.rng.randint(-3, 3)), {}


@call("slice.Tensor")
def slice_(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.dim(x.dim()), s.rng.choice([None, 0, 1, 2, -1, -2, 9]), s.rng.choice([None, 0, 1, 3, -1, 9, 2**63 - 1]), s.rng.choice([1, 1, 2, 3])), {}


@call("split.Tensor")
def split(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.rng.choice([1, 2, 3, 0]), s.dim(x.dim())), {}


@call("split_with_sizes")
def split_with_sizes(s: Sampler) -> Call:
    x = s.tensor(s.shape(1))
    d = s.rng.randrange(x.dim())
    first = s.rng.randint(0, x.shape[d])
    return (x, [first, x.shape[d] - first + (s.rng.random() < 0.1)], d), {}


@call("diagonal")
def diagonal(s: Sampler) -> Call:
    x = s.tensor(s.shape(2))
    return (x, s.rng.randint(-3, 3), s.dim(x.dim()), s.dim(x.dim())), {}


@call("unfold")
def unfold(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.dim(x.dim()), s.rng.randint(0, 3), s.rng.randint(0, 2)), {}


@call("as_strided")
def as_strided(s: Sampler) -> Call:
    return (torch.ones(64), [2, 3], [s.size(), s.size()], s.rng.choice([None, 3])), {}


@call("view_as_complex")
def view_as_complex(s: Sampler) -> Call:
    return (s.tensor([*s.shape(0, 3), 2], FLOATS),), {}


@call("view_as_real")
def view_as_real(s: Sampler) -> Call:
    return (s.tensor(dtypes=[torch.complex64, torch.complex128, torch.float32]),), {}


@call("repeat")
def repeat(s: Sampler) -> Call:
    x = s.tensor()
    return (x, [s.rng.randint(0, 2) for _ in range(x.dim() + s.rng.randint(0, 1))]), {}


def options(s: Sampler) -> dict:
    return {} if s.rng.random() < 0.5 else {"dtype": s.rng.choice(ANY)}


@call("zeros ones empty.memory_format")
def zeros(s: Sampler) -> Call:
    return (s.shape(),), options(s)


@call("rand randn")
def random_(s: Sampler) -> Call:
    return (s.shape(),), {} if s.rng.random() < 0.5 else {"dtype": s.rng.choice(FLOATS)}


@call("full")
def full(s: Sampler) -> Call:
    return (s.shape(), s.number()), options(s)


@call("arange")
def arange(s: Sampler) -> Call:
    return (s.rng.choice([0, 1, 5, 2.5, 7.0]),), options(s) if s.rng.random() < 0.5 else {}


@call("arange.start")
def arange_start(s: Sampler) -> Call:
    return (s.rng.choice([0, 1, 0.5]), s.rng.choice([5, 2.5, 1])), {}


@call("arange.start_step")
def arange_step(s: Sampler) -> Call:
    return (s.rng.choice([0, 1, 0.5]), s.rng.choice([5, 2.5, -4]), s.rng.choice([1, 2, -1, 0.3])), {}


@call("linspace")
def linspace(s: Sampler) -> Call:
    return (0, s.rng.choice([1, 2.5]), s.size()), {}


@call("eye")
def eye(s: Sampler) -> Call:
    return (s.size(),), options(s)


@call("zeros_like ones_like empty_like")
def like(s: Sampler) -> Call:
    formats = [{}, {"memory_format": torch.contiguous_format}, {"memory_format": torch.channels_last}, {"memory_format": torch.preserve_format}]
    return (s.tensor(),), {**options(s), **s.rng.choice(formats)}


@call("full_like")
def full_like(s: Sampler) -> Call:
    return (s.tensor(), s.number()), options(s)


@call("new_zeros new_ones new_empty")
def new(s: Sampler) -> Call:
    return (s.tensor(), s.shape()), options(s)


@call("clone")
def clone(s: Sampler) -> Call:
    return (s.tensor(),), s.rng.choice([{}, {"memory_format": torch.contiguous_format}, {"memory_format": torch.channels_last}])


@call("_to_copy")
def to_copy(s: Sampler) -> Call:
    return (s.tensor(),), {**options(s), **s.rng.choice([{}, {"memory_format": torch.channels_last}])}


@call("copy copy_")
def copy(s: Sampler) -> Call:
    x = s.tensor()
    return (x.clone(), s.tensor(s.partner(x.shape))), {}


@call("fill.Scalar")
def fill(s: Sampler) -> Call:
    return (s.tensor(), s.number()), {}


@call("roll")
def roll(s: Sampler) -> Call:
    x = s.tensor()
    dims = s.dims(x.dim())
    return (x, [1] * (len(dims) or 1), dims), {}


@call("constant_pad_nd")
def pad(s: Sampler) -> Call:
    x = s.tensor()
    return (x, [s.rng.randint(-1, 2) for _ in range(2 * s.rng.randint(0, min(x.dim(), 2)))], s.number()), {}


@call("sum prod max min")
def whole(s: Sampler) -> Call:
    return (s.tensor(),), {}


@call("mean any all argmax argmin")
def whole_too(s: Sampler) -> Call:
    return (s.tensor(),), {}


@call("sum.dim_IntList nansum mean.dim")
def over_dims(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.rng.choice([s.dims(x.dim()), None, [s.dim(x.dim())]]), s.rng.random() < 0.5), {"dtype": s.rng.choice([None, None, torch.float32])}


@call("amax amin any.dims all.dims")
def over_dims_plain(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.dims(x.dim()), s.rng.random() < 0.5), {}


@call("max.dim min.dim any.dim all.dim prod.dim_int argmax argmin")
def over_dim(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.dim(x.dim()), s.rng.random() < 0.5), {}


@call("var.correction std.correction var_mean.correction std_mean.correction")
def variance(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.rng.choice([None, s.dims(x.dim())])), {"correction": s.rng.choice([None, 0, 1]), "keepdim": s.rng.random() < 0.5}


@call("logsumexp")
def logsumexp(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.dims(x.dim()), s.rng.random() < 0.5), {}


@call("linalg_vector_norm")
def vector_norm(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.rng.choice([2, 1, 0, float("inf")]), s.rng.choice([None, s.dims(x.dim())]), s.rng.random() < 0.5), {}


@call("cumsum cumprod logcumsumexp cummax cummin")
def scan(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.dim(x.dim())), {}


@call("softmax.int log_softmax.int")
def softmax(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.dim(x.dim()), s.rng.choice([None, None, torch.float32])), {}


@call("_softmax _log_softmax")
def raw_softmax(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.dim(x.dim()), False), {}


@call("sort argsort")
def sort(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.dim(x.dim()), s.rng.random() < 0.5), {}


@call("topk")
def topk(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.rng.randint(0, 3), s.dim(x.dim())), {}


@call("count_nonzero.dim_IntList")
def count_nonzero(s: Sampler) -> Call:
    x = s.tensor()
    return (x, s.dims(x.dim())), {}


def matrices(s: Sampler, lead: list[int], wrong: float = 0.08) -> tuple[torch.Tensor, torch.Tensor]:
    m, k, n = s.size(), s.size(), s.size()
    x = s.tensor([*lead, m, k], [*FLOATS, torch.int64])
    return x, s.alike(x, [*lead, k + (s.rng.random() < wrong), n])


@call("mm")
def mm(s: Sampler) -> Call:
    return matrices(s, []), {}


@call("bmm")
def bmm(s: Sampler) -> Call:
    return matrices(s, [s.size()]), {}


@call("addmm")
def addmm(s: Sampler) -> Call:
    x, y = matrices(s, [])
    return (s.alike(x, s.rng.choice([[y.shape[1]], [x.shape[0], y.shape[1]], [], [1, y.shape[1]]])), x, y), {}


@call("baddbmm")
def baddbmm(s: Sampler) -> Call:
    x, y = matrices(s, [s.size()])
    return (s.alike(x, s.partner([x.shape[0], x.shape[1], y.shape[2]])), x, y), {}


@call("mv")
def mv(s: Sampler) -> Call:
    x, _ = matrices(s, [])
    return (x, s.alike(x, [x.shape[1]])), {}


@call("dot")
def dot(s: Sampler) -> Call:
    x = s.tensor([s.size()], [*FLOATS, torch.int64])
    return (x, s.alike(x, x.shape)), {}


@call("matmul")
def matmul(s: Sampler) -> Call:
    lead = s.shape(0, 2)
    k = s.size()
    left = s.rng.choice([[k], [s.size(), k], [*lead, s.size(), k]])
    right = s.rng.choice([[k], [k, s.size()], [*s.partner(lead), k, s.size()]])
    x = s.tensor(left, FLOATS)
    return (x, s.alike(x, right)), {}


@call("linear")
def linear(s: Sampler) -> Call:
    k, n = s.size(), s.size()
    x = s.tensor([*s.shape(0, 3), k], FLOATS)
    weight = s.alike(x, s.rng.choice([[n, k], [n, k], [n, k], [k]]))
    bias = s.rng.choice([None, s.alike(x, [n] if weight.dim() == 2 else [])])
    return (x, weight, bias), {}


@call("convolution")
def convolution(s: Sampler) -> Call:
    rank = s.rng.choice([1, 2, 2, 2, 3])
    groups, transposed = s.rng.choice([1, 1, 2]), s.rng.random() < 0.2
    cin, cout = groups * s.rng.choice([1, 2, 8]), groups * s.rng.choice([1, 2, 8])
    n, space = s.rng.choice([1, 2]), [s.rng.choice([1, 4, 5, 7]) for _ in range(rank)]
    kernel = [s.rng.choice([1, 2, 3]) for _ in range(rank)]
    x = s.tensor([n, cin, *space], [torch.float32, torch.float64])      # oneDNN crashes on some odd bf16 layouts
    weight = s.alike(x, [cin, cout // groups, *kernel] if transposed else [cout, cin // groups, *kernel], 0)
    bias = s.rng.choice([None, s.alike(x, [cout], 0)])
    stride = [s.rng.choice([1, 2]) for _ in range(rank)]
    return (x, weight, bias, stride, [s.rng.choice([0, 1])] * rank, [s.rng.choice([1, 2])] * rank, transposed, [0] * rank, groups), {}


def image(s: Sampler, dtypes=(torch.float32, torch.float32, torch.bfloat16, torch.float64)) -> torch.Tensor:
    shape = [s.rng.choice([0, 1, 2]), s.rng.choice([1, 2, 3]), s.rng.choice([1, 4, 7]), s.rng.choice([1, 4, 6])]
    return s.tensor(shape if s.rng.random() < 0.8 else shape[1:], list(dtypes))


@call("max_pool2d max_pool2d_with_indices")
def max_pool2d(s: Sampler) -> Call:
    return (image(s), [s.rng.choice([1, 2, 3])] * 2, s.rng.choice([[], [2, 2], [1, 2]]), [s.rng.choice([0, 1])] * 2, [1, 1], s.rng.random() < 0.5), {}


@call("avg_pool2d")
def avg_pool2d(s: Sampler) -> Call:
    return (image(s), [s.rng.choice([1, 2, 3])] * 2, s.rng.choice([[], [2, 2], [1, 2]]), [s.rng.choice([0, 1])] * 2, s.rng.random() < 0.5), {}


@call("_adaptive_avg_pool2d adaptive_avg_pool2d")
def adaptive(s: Sampler) -> Call:
    return (image(s), s.rng.choice([[1, 1], [2, 3]])), {}


@call("upsample_nearest2d _upsample_nearest_exact2d")
def nearest(s: Sampler) -> Call:
    return (image(s), [s.rng.randint(1, 8), s.rng.randint(1, 8)]), {}


@call("upsample_bilinear2d upsample_bicubic2d")
def bilinear(s: Sampler) -> Call:
    return (image(s), [s.rng.randint(1, 8), s.rng.randint(1, 8)], s.rng.random() < 0.5), {}


def padded(rank: int):
    def make(s: Sampler) -> Call:
        shape = [max(1, n) if s.rng.random() < 0.9 else n for n in s.shape(rank + 1, rank + 2)]
        padding = [s.rng.choice([-1, 0, 0, 0, 0, 1, 1, 2]) for _ in range(2 * rank)]
        layout = torch.channels_last if len(shape) == 4 else torch.channels_last_3d if len(shape) == 5 else None
        x = s.tensor(shape)
        return (x.contiguous(memory_format=layout) if layout and s.rng.random() < 0.3 else x, padding), {}
    return make


for rank in (1, 2, 3):
    call(f"reflection_pad{rank}d replication_pad{rank}d")(padded(rank))


@call("pixel_shuffle")
def pixel_shuffle(s: Sampler) -> Call:
    return (s.tensor([*s.shape(0, 2), s.rng.choice([4, 8, 3]), s.size(), s.size()]), 2), {}


def norm_parts(s: Sampler) -> tuple[torch.Tensor, list[int], torch.Tensor, torch.Tensor]:
    shape = s.shape(1, 4)
    x = s.tensor(shape, FLOATS)
    normed = shape[s.rng.randrange(len(shape)):]
    return x, normed, s.alike(x, normed, 0.2), s.alike(x, normed, 0.2)


@call("layer_norm")
def layer_norm(s: Sampler) -> Call:
    x, normed, w, b = norm_parts(s)
    return (x, normed, s.rng.choice([None, w]), s.rng.choice([None, b])), {}


@call("native_layer_norm")
def native_layer_norm(s: Sampler) -> Call:
    x, normed, w, b = norm_parts(s)
    return (x, normed, s.rng.choice([None, w]), s.rng.choice([None, b]), 1e-5), {}


@call("rms_norm")
def rms_norm(s: Sampler) -> Call:
    x, normed, w, _ = norm_parts(s)
    return (x, normed, s.rng.choice([None, w])), {}


@call("batch_norm")
def batch_norm(s: Sampler) -> Call:
    x = s.tensor(s.shape(2, 4), [torch.float32, torch.float64, torch.bfloat16])
    c = x.shape[1]
    return (x, s.alike(x, [c], 0.1), s.alike(x, [c]), s.alike(x, [c], 0), s.alike(x, [c], 0).abs(), False, 0.1, 1e-5, False), {}


@call("native_batch_norm")
def native_batch_norm(s: Sampler) -> Call:
    return (*batch_norm(s)[0][:-1],), {}


@call("_native_batch_norm_legit_no_training")
def batch_norm_no_training(s: Sampler) -> Call:
    args = batch_norm(s)[0]
    return (*args[:5], 0.1, 1e-5), {}


@call("group_norm")
def group_norm(s: Sampler) -> Call:
    x = s.tensor([s.size(), s.rng.choice([2, 4, 3]), *s.shape(0, 2)], [torch.float32, torch.float64, torch.bfloat16])
    c = x.shape[1]
    return (x, 2, s.rng.choice([None, s.alike(x, [c])]), s.rng.choice([None, s.alike(x, [c])])), {}


@call("embedding")
def embedding(s: Sampler) -> Call:
    weight = s.tensor([s.size() or 1, s.size()], FLOATS)
    return (weight, s.index(s.shape(), weight.shape[0], (torch.int64, torch.int32, torch.int16))), {}


@call("index.Tensor")
def index(s: Sampler) -> Call:
    x = s.tensor(s.shape(1, 4))
    common = s.shape(0, 2)
    indices = [s.index(s.partner(common, 0.02), d) if s.rng.random() < 0.5 else None for d in x.shape]
    return (x, indices[:s.rng.randint(1, x.dim())]), {}


@call("index_put index_put_")
def index_put(s: Sampler) -> Call:
    x = s.tensor(s.shape(1, 4)).clone()
    common = s.shape(0, 2)
    indices = [s.index(s.partner(common, 0.0), d) if s.rng.random() < 0.5 else None for d in x.shape]
    return (x, indices, s.alike(x, s.rng.choice([[], [1], common]))), {}


@call("index_select")
def index_select(s: Sampler) -> Call:
    x = s.tensor()
    d = s.dim(x.dim())
    high = x.shape[d] if -x.dim() <= d < x.dim() else 1
    return (x, d, s.index(s.rng.choice([[3], [0], [], [2, 2]]), high, (torch.int64, torch.int32))), {}


def indexed(s: Sampler) -> tuple[torch.Tensor, int, torch.Tensor]:
    x = s.tensor(s.shape(0, 3))
    d = s.rng.randrange(x.dim()) if x.dim() else 0
    shape = [max(0, n - s.rng.randint(0, 1)) for n in x.shape]
    if shape:
        shape[d] = s.size()
    if s.rng.random() < 0.1 and shape:
        shape[s.rng.randrange(len(shape))] += 1
    return x, d, s.index(shape, x.shape[d] if x.dim() else 1)


@call("gather")
def gather(s: Sampler) -> Call:
    return indexed(s), {}


@call("scatter.src scatter_add")
def scatter(s: Sampler) -> Call:
    x, d, i = indexed(s)
    return (x, d, i, s.alike(x, [n + s.rng.randint(0, 1) for n in i.shape])), {}


@call("scatter.value")
def scatter_value(s: Sampler) -> Call:
    return (*indexed(s), s.number()), {}


@call("scatter_reduce.two")
def scatter_reduce(s: Sampler) -> Call:
    return (*scatter(s)[0], s.rng.choice(["sum", "amax", "mean", "no"])), {}


@call("index_copy index_add")
def index_write(s: Sampler) -> Call:
    x = s.tensor(s.shape(0, 3))
    d = s.rng.randrange(x.dim()) if x.dim() else 0
    i = s.index([s.size()], x.shape[d] if x.dim() else 1)
    shape = [len(i) if k == d else n for k, n in enumerate(x.shape)]
    if s.rng.random() < 0.1 and shape:
        shape[s.rng.randrange(len(shape))] += 1
    return (x, d, i, s.alike(x, shape)), {}


@call("index_fill.int_Scalar")
def index_fill(s: Sampler) -> Call:
    x = s.tensor()
    d = s.dim(x.dim(), 0)
    return (x, d, s.index([s.size()], x.shape[d] if x.dim() else 1), s.number()), {}


@call("cat")
def cat(s: Sampler) -> Call:
    x = s.tensor()
    d = s.dim(x.dim())
    parts = [x]
    for _ in range(s.rng.randint(0, 2)):
        shape = list(x.shape)
        if shape and s.rng.random() < 0.9:
            shape[d if -len(shape) <= d < len(shape) else 0] = s.size()
        elif shape:
            shape[0] += 1
        parts.append(s.tensor(shape, [x.dtype] if s.rng.random() < 0.7 else ANY))
    if s.rng.random() < 0.1:
        parts.insert(0, torch.ones(0))
    return (parts, d), {}


@call("stack")
def stack(s: Sampler) -> Call:
    x = s.tensor()
    return ([x, *(s.tensor(x.shape, [x.dtype] if s.rng.random() < 0.8 else ANY) for _ in range(s.rng.randint(0, 2)))], s.dim(x.dim() + 1)), {}


@call("one_hot")
def one_hot(s: Sampler) -> Call:
    return (s.index(s.shape(), 2, (torch.int64, torch.int32)), 4), {}


@call("scaled_dot_product_attention")
def attention(s: Sampler) -> Call:
    b, h, t, d, u = s.rng.choice([1, 2]), s.rng.choice([1, 2, 4]), s.rng.choice([1, 3, 0]), s.rng.choice([1, 4]), s.rng.choice([1, 3])
    lead = s.rng.choice([[b, h], [b, h], [b, h], [b], []])
    q = s.tensor([*lead, t, d], [torch.float32, torch.float32, torch.float64, torch.bfloat16])
    kv = s.partner(lead, 0) if s.rng.random() < 0.1 else lead
    k, v = s.alike(q, [*kv, u, d], 0.02), s.alike(q, [*kv, u, d if s.rng.random() < 0.9 else d + 1], 0.02)
    mask = s.rng.choice([None, None, s.tensor([t, u], [torch.bool]), s.alike(q, s.partner([*lead, t, u]))])
    return (q, k, v, mask, 0.0, mask is None and s.rng.random() < 0.5), {}


@call("mse_loss smooth_l1_loss huber_loss")
def loss(s: Sampler) -> Call:
    x = s.tensor(dtypes=[*FLOATS, torch.int64])
    return (x, s.alike(x, s.partner(x.shape)), s.rng.choice([0, 1, 2])), {}


@call("binary_cross_entropy_with_logits")
def logits_loss(s: Sampler) -> Call:
    x = s.tensor(dtypes=FLOATS)
    weight = s.rng.choice([None, s.alike(x, s.partner(x.shape))])
    return (x, s.alike(x, x.shape), weight, None, s.rng.choice([0, 1, 2])), {}


@call("nll_loss_forward")
def nll_loss(s: Sampler) -> Call:
    c = s.rng.choice([1, 3, 4])
    x = s.tensor(s.rng.choice([[s.size(), c], [c]]), FLOATS)
    return (x, s.index(x.shape[:-1], c), s.rng.choice([None, s.alike(x, [c])]), s.rng.choice([0, 1, 2]), -100), {}


@call("native_dropout")
def native_dropout(s: Sampler) -> Call:
    return (s.tensor(), 0.5, True), {}


@call("lerp.Scalar")
def lerp(s: Sampler) -> Call:
    x = s.tensor(dtypes=[*FLOATS, torch.int64])
    return (x, s.alike(x, s.partner(x.shape)), 0.5), {}


@call("lerp.Tensor")
def lerp_tensor(s: Sampler) -> Call:
    x = s.tensor(dtypes=[*FLOATS, torch.int64])
    return (x, s.alike(x, s.partner(x.shape)), s.alike(x, s.partner(x.shape))), {}


@call("glu")
def glu(s: Sampler) -> Call:
    shape = s.shape(1)
    d = s.rng.randrange(len(shape))
    shape[d] *= 2
    return (s.tensor(shape, [*FLOATS, torch.int64]), s.rng.choice([d, d - len(shape)])), {}


@call("_prelu_kernel")
def prelu(s: Sampler) -> Call:
    x = s.tensor(dtypes=FLOATS)
    return (x, s.alike(x, s.partner(x.shape))), {}
