"""`infer`: the metadata of an operator's result, from our rules; torch's meta kernels where there is none.

In-place operators and out= forms take the rule of their functional form and check that the result fits what is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from torch._ops import OpOverload

from thruway.shapes.meta import TensorMeta
from thruway.shapes.meta_kernels import infer_by_meta_kernel
from thruway.shapes.refuse import require
from thruway.shapes.rules import attention, convolve, create, gather, losses, matmul, normalize, packed, pointwise, reduce, views
from thruway.shapes.rules.promote import category
from thruway.shapes.symbolic import Facts, bare_value, comparable_value, has_symbols
from thruway.shapes.traits import functional_form, traits_of

Rule = Callable[..., object]
FAMILIES = (pointwise, views, create, reduce, matmul, convolve, normalize, gather, attention, packed, losses)
RULES: dict[str, Rule] = {name: rule for family in FAMILIES for name, rule in family.RULES.items()}


@cache
def rule_for(op: OpOverload) -> Rule | None:
    """The rule of `op`, made from its functional form's for an in-place or out= operator; None where there is none."""
    name = op._name
    if name in RULES:
        return RULES[name]
    traits = traits_of(op)
    form = None if traits.changes_metadata else functional_form(op)
    if form is None or form._name not in RULES:
        return None
    return _out_rule(RULES[form._name], traits.outs) if traits.outs else _inplace_rule(RULES[form._name])


def infer(op: OpOverload, args: tuple[object, ...], kwargs: dict[str, object] | None = None, facts: Facts | None = None) -> object:
    """TensorMeta, a tuple or list of them, or a size, for `op` over `args` with TensorMeta in place of tensors.

    Sizes may be symbolic; where they must be compared, the answer goes by `facts` (without them, by sizes all large and unlike).
    Raises Unsupported where eager would reject the call, or where the result depends on elements.
    """
    if has_symbols(args) or (kwargs and has_symbols(tuple(kwargs.values()))):
        facts = facts or Facts(may_fix=False)
        return bare_value(apply_rule(op, comparable_value(tuple(args), facts), comparable_value(kwargs or {}, facts)))
    return apply_rule(op, args, kwargs)


def apply_rule(op: OpOverload, args: tuple[object, ...], kwargs: dict[str, object] | None) -> object:
    """`infer` where sizes are ints or SizeNodes already."""
    rule = rule_for(op)
    if rule is None:
        return infer_by_meta_kernel(op, tuple(args), kwargs or {})
    return rule(*args, **kwargs) if kwargs else rule(*args)


def _inplace_rule(functional: Rule) -> Rule:
    def rule(target: TensorMeta, *args: object, **kwargs: object) -> TensorMeta:
        result = functional(target, *args, **kwargs)
        require(result.sizes == target.sizes, f"an in-place operator would change sizes {target.sizes} to {result.sizes}")
        _check_cast(result.dtype, target.dtype)
        return target

    return rule


def _out_rule(functional: Rule, names: tuple[str, ...]) -> Rule:
    def rule(*args: object, **kwargs: object) -> object:
        outs = [kwargs.pop(name) for name in names]
        result = functional(*args, **kwargs)
        written = tuple(_fit_out(made, out) for made, out in zip(result if isinstance(result, tuple) else (result,), outs))
        return written if len(written) > 1 else written[0]

    return rule


def _fit_out(made: TensorMeta, out: TensorMeta) -> TensorMeta:
    """`out` after the write: eager resizes it where its sizes differ; we take only what needs no resize, or an empty one."""
    _check_cast(made.dtype, out.dtype)
    require(made.device == out.device, f"out= on {out.device} for a result on {made.device}")
    if made.sizes == out.sizes:
        return out
    require(out.sizes == (0,), f"out= of sizes {out.sizes} for a result of sizes {made.sizes}")
    return replace(made, dtype=out.dtype)


def _check_cast(source: str, target: str) -> None:
    low, high = category(source), category(target)
    require(low <= high or (low == 1 and high == 1), f"a {source} result does not fit a {target} tensor")
