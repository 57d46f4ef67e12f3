"""Which operators may run though nobody asked for their result, and what that costs: they raise nothing whatever the elements are."""

from __future__ import annotations

from typing import Any

import torch

from thruway.capture.state import State
from thruway.core.errors import Unsupported
from thruway.shapes.symbolic import as_node
from thruway.shapes.trace_tensor import TraceTensor
from thruway.shapes.traits import Traits

LIMIT = 1 << 16             # additions that a side may cost for nothing: what a Conditional costs, 5 µs on a CPU
PER_ELEMENT = 8             # and for each element of the results, which a Conditional writes and reads once more
UNKNOWN = 1 << 40           # elements of a size that elements decide
ON_GPU = 64                 # times as much, where reading the condition waits for the device
PLAIN = frozenset(
    "abs add sub rsub mul neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh "
    "atanh sigmoid relu relu6 silu gelu leaky_relu elu celu selu hardtanh hardswish hardsigmoid softplus mish log_sigmoid erf erfc erfinv lgamma digamma "
    "floor ceil round trunc frac sign sgn signbit square clamp clamp_min clamp_max maximum minimum fmax fmin where eq ne lt le gt ge logical_and "
    "logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not isnan isinf isfinite isposinf isneginf _to_copy clone copy lerp "
    "addcmul addcdiv masked_fill nan_to_num threshold xlogy logit sinc hypot copysign "
    "sum mean amax amin max min aminmax prod any all argmax argmin var std var_mean std_mean norm linalg_vector_norm cumsum cumprod logsumexp softmax "
    "_softmax log_softmax _log_softmax layer_norm native_layer_norm rms_norm _fused_rms_norm group_norm native_group_norm "
    "view reshape _reshape_alias _unsafe_view expand permute transpose t squeeze unsqueeze select slice split split_with_sizes unbind alias detach flatten "
    "unfold diagonal movedim real imag view_as_real view_as_complex narrow contiguous chunk unflatten expand_as view_as lift_fresh positive "
    "zeros ones full zeros_like ones_like full_like empty empty_like new_zeros new_ones new_full new_empty arange scalar_tensor eye fill zero "
    "cat stack flip roll tril triu repeat constant_pad_nd sort topk ones_like type_as to".split())
COSTS = {name: cost for cost, names in {
    16: "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh sigmoid silu gelu elu celu selu softplus "
        "mish log_sigmoid erf erfc erfinv lgamma digamma xlogy logit sinc pow softmax _softmax log_softmax _log_softmax logsumexp",
    4: "cumsum cumprod var std var_mean std_mean layer_norm native_layer_norm group_norm native_group_norm rms_norm div remainder fmod floor_divide",
    64: "sort topk",
    0: "view reshape _reshape_alias _unsafe_view expand permute transpose t squeeze unsqueeze select slice split split_with_sizes unbind alias detach "
       "unfold diagonal narrow",
}.items() for name in names.split()}
# These raise where integers are divided by zero, or raised to a negative power.
OF_FLOATS = frozenset("div divide true_divide floor_divide remainder fmod pow".split())


def note_operator(state: State, op: Any, traits: Traits, args: tuple, result: object) -> None:
    """Keeps account of an operator for the side of a branch that it was traced in."""
    side = state.sides[-1]
    made = [one for one in _tensors(result)]
    side.cost += COSTS.get(_base_name(op), 1) * max((elements(one) for one in [*made, *_tensors(args)]), default=0)
    side.draws |= traits.random
    for one in made:
        if one.root is one:
            side.fresh[id(one)] = one
    if side.unselectable is None and (traits.random or not _is_plain(op, made)):
        side.unselectable = f"{op._schema.name} runs only where it is asked for"


def refuse_older_writes(state: State, traits: Traits, written: tuple, args: tuple, kwargs: dict) -> None:
    """A side of a branch writes only what it made; a round of a loop notes what else it writes."""
    for name in (*traits.writes, *written, *((0,) if traits.changes_metadata else ())):
        value = kwargs.get(name) if isinstance(name, str) else args[name] if name < len(args) else None
        for one in _tensors(value):
            _note_older_write(state, one.root, traits.changes_metadata)


def _note_older_write(state: State, root: TraceTensor, changes_metadata: bool) -> None:
    for side in reversed(state.sides):
        if id(root) in side.fresh:
            return
        if side.written is None or changes_metadata:
            raise Unsupported("TW103", "a side of the branch writes a tensor that is older than the branch")
        side.written[id(root)] = root


def _tensors(value: object) -> list[TraceTensor]:
    if isinstance(value, TraceTensor):
        return [value]
    return [found for one in value for found in _tensors(one)] if isinstance(value, tuple | list) else []


def is_cheap(costs: list[int], results: list[torch.Tensor], device: str) -> bool:
    """Whether the sides may run for nothing, for the sake of results that fuse with what follows."""
    allowed = LIMIT + PER_ELEMENT * sum(map(elements, results))
    return max(costs) <= allowed * (1 if device == "cpu" else ON_GPU)


def elements(tensor: TraceTensor) -> int:
    """As many as this call's sizes say; too many where elements decide."""
    count = 1
    for size in tensor.shape:
        if type(size) is not int:
            node = as_node(size)
            size = UNKNOWN if node.facts.is_free(node.size) else node.require_hint()
        count *= size
    return count


def _base_name(op: Any) -> str:
    return op._schema.name.partition("::")[2].rstrip("_")


def _is_plain(op: Any, made: list[TraceTensor]) -> bool:
    name = _base_name(op)
    if name in OF_FLOATS:
        return all(one.dtype.is_floating_point or one.dtype.is_complex for one in made)
    return name in PLAIN and op.namespace == "aten"
