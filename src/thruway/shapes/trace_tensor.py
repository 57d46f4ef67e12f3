"""`TraceTensor`: a TensorMeta behind torch.Tensor, so that torch's own Python and C++ code runs over metadata.

Operators on TraceTensors arrive in `propagate`, which asks `infer`. `TraceMode` also catches operators without tensor arguments
(factories) and is what a recorder subclasses. Below autograd (`torch._C._AutoDispatchBelowAutograd`, or inference mode) composite
operators arrive whole; those without a rule are taken apart by torch's own composite kernels.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from thruway.frame.modes import with_autocast
from thruway.shapes.custom import has_fake, run_fake
from thruway.shapes import known_elements
from thruway.shapes.infer import apply_rule, rule_for
from thruway.shapes.floats import FloatNode
from thruway.shapes.kernels import require_kernel
from thruway.shapes.meta import TensorMeta
from thruway.shapes.names import device_name, dtype_name, torch_dtype
from thruway.shapes.ranges import check_numbers
from thruway.shapes.refuse import NumberWanted, data_dependent
from thruway.shapes.symbolic import Facts, as_node, bare_meta, comparable, is_symbolic, symint
from thruway.shapes.traits import Traits, traits_of
from thruway.shapes.unbacked import Reading, is_masked, unbacked_result

DATA_DEPENDENT_OPS = frozenset({
    "aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim",
    "aten::unique_consecutive", "aten::equal", "aten::is_nonzero", "aten::bincount", "aten::repeat_interleave.Tensor", "aten::allclose",
    "aten::argwhere", "aten::nonzero_numpy",
})


NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


class TraceTensor(torch.Tensor):
    """No storage, no elements. `meta` is its metadata now; `root` the TraceTensor whose storage it shares (itself where fresh).
    `elements`, `assumed` and `is_written` are for `known_elements`."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    elements: torch.Tensor | None = None
    assumed: tuple[Callable[[], bool], ...] = ()
    is_written = False

    @property
    def meta(self) -> TensorMeta:
        known = bare_meta(self._meta) if self._symbolic else self._meta
        return known if known.requires_grad == self.requires_grad else replace(known, requires_grad=self.requires_grad)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return propagate(func, args, kwargs or {}, None)

    def __repr__(self) -> str:
        return f"TraceTensor({self._meta})"


def from_meta(meta: TensorMeta, root: TraceTensor | None = None, facts: Facts | None = None) -> TraceTensor:
    """A TraceTensor of that metadata; a leaf that requires grad where the meta says so. Symbolic sizes are compared under `facts`."""
    symbolic = is_symbolic(meta)
    sizes, strides, offset = meta.sizes, meta.strides, meta.offset
    if symbolic:
        meta = comparable(meta, facts or Facts())
        sizes, strides, offset = [symint(n) for n in meta.sizes], [symint(n) for n in meta.strides], symint(meta.offset)
    made = torch.Tensor._make_wrapper_subclass(
        TraceTensor, sizes, strides=strides, storage_offset=offset, dtype=torch_dtype(meta.dtype), device=meta.device,
        requires_grad=meta.requires_grad and _can_require_grad(meta.device))
    made._meta = meta
    made._symbolic = symbolic
    made.root = made if root is None else root
    return made


class _NonLeaf(torch.autograd.Function):
    @staticmethod
    def forward(ctx, leaf, holder):
        return holder[0]

    @staticmethod
    def backward(ctx, gradient):
        raise AssertionError("a stand-in has no gradient")


def non_leaf(made: torch.Tensor) -> torch.Tensor:
    """`made`, which requires no grad, as the result of an operator that requires grad: neither a leaf nor a view, so that it may be written."""
    with torch.enable_grad():
        return _NonLeaf.apply(torch.zeros((), requires_grad=True), [made])


def _can_require_grad(device: str) -> bool:
    """Torch's autograd asks a CUDA tensor's stream at once, and the process dies where there is no driver."""
    return device == "cpu" or torch.cuda.is_available()


def meta_of(t: torch.Tensor) -> TensorMeta:
    """The metadata of a real strided tensor."""
    return TensorMeta(tuple(t.shape), t.stride(), dtype_name(t.dtype), device_name(t.device), t.requires_grad, t.storage_offset())


def from_tensor(t: torch.Tensor) -> TraceTensor:
    return from_meta(meta_of(t))


class TraceMode(TorchDispatchMode):
    """Catches every operator while it is on. Subclasses may record (`record`) and say what a real tensor that turns up stands
    for (`adopt`). `element_facts`: where numbers that depend on elements are noted; without it such operators are refused."""

    element_facts: Facts | None = None
    writes = 0                      # how much was written so far, where numbers are noted

    # The slot of fake-tensor modes: torch then initialises no device for factories, so "cuda" works without a GPU.
    _mode_key = torch._C._TorchDispatchModeKey.FAKE

    # Devices whose autocast is on where the operators are called: torch takes it off before they arrive here.
    autocast: tuple[str, ...] = ()

    @contextlib.contextmanager
    def autocast_inside(self, devices: tuple[str, ...]) -> Iterator[None]:
        """What an operator is made of sees autocast on for `devices`."""
        before, self.autocast = self.autocast, devices
        try:
            with with_autocast(devices):
                yield
        finally:
            self.autocast = before

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False        # else torch wraps __torch_dispatch__ in a function that imports torch._dynamo

    def __enter__(self):
        self._lifts_before = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)       # torch.tensor(..., device="cuda") then comes as a CPU constant and a copy
        return super().__enter__()

    def __exit__(self, *exc):
        torch._C._set_only_lift_cpu_tensors(self._lifts_before)
        return super().__exit__(*exc)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return propagate(func, args, kwargs or {}, self)

    def record(self, op: OpOverload, traits: Traits, args: tuple, kwargs: dict, result: object) -> None:
        """Called after each operator with the TraceTensors it took and gave."""

    def adopt(self, t: torch.Tensor) -> TraceTensor:
        """What stands for a real tensor that an operator is given."""
        return from_tensor(t)

    def literal(self, t: torch.Tensor) -> TraceTensor:
        """What stands for the tensor that torch.tensor(...) makes."""
        return from_tensor(t)


def propagate(op: OpOverload, args: tuple, kwargs: dict, mode: TraceMode | None) -> object:
    """Runs one operator over TraceTensors."""
    traits = traits_of(op)
    name = op._name
    if name in known_elements.READS:
        with contextlib.suppress(known_elements.Unknown):
            return known_elements.read(op, args, kwargs)
    if name == "aten::_local_scalar_dense" and type(args[0]) is TraceTensor:
        raise NumberWanted(name, args[0])
    if name in DATA_DEPENDENT_OPS and (mode is None or mode.element_facts is None):
        data_dependent(name)
    if traits.composite and (rule_for(op) is None or mode is not None and mode.autocast and not _has_autocast(op.name(), mode.autocast)):
        return _take_apart(op, _apart, args, kwargs, mode)
    if name.startswith("aten::_foreach_") and op not in READ_SCALARS and not traits.outs:
        return _one_by_one(op, args, kwargs, mode)
    if name == "aten::_trilinear" and mode is not None and mode.autocast:     # its kernel calls products, which autocast casts
        return _take_apart(op, _trilinear, args, kwargs, mode)
    if name == "aten::lift_fresh":
        made = mode.literal(args[0]) if mode else from_tensor(args[0])
        if args[0].device.type == "cpu" and args[0].numel() <= known_elements.MOST:
            made.elements = args[0]
        return made
    if traits.changes_metadata:
        return _change_metadata(op, traits, args, kwargs, mode)
    if name == "aten::_to_copy" and type(args[0]) in NUMBERS:                  # torch hands a tensor that wraps a number over as the number
        number = torch.tensor(args[0], dtype=NUMBERS[type(args[0])])
        args = (mode.literal(number) if mode else from_tensor(number), *args[1:])
    args = tuple([_adopt(a, mode) for a in args])
    kwargs = {k: _adopt(v, mode) for k, v in kwargs.items()}
    if mode is not None and mode.element_facts is not None and not traits.writes and rule_for(op) is None and has_fake(op):
        made = _adopt(run_fake(op, args, kwargs, mode.element_facts), mode)
        mode.record(op, traits, args, kwargs, made)
        return made
    metas, named = tuple([_metas(a) for a in args]), {k: _metas(v) for k, v in kwargs.items()} if kwargs else None
    require_kernel(op, traits, metas, named or {})
    result = _read_elements(op, args, metas, named, mode) if name in DATA_DEPENDENT_OPS or is_masked(name, metas) else apply_rule(op, metas, named)
    check_numbers(op, args, kwargs, result)
    made = _written(traits, args, kwargs, result) if traits.writes else _wrap(result, None if traits.view_of is None else args[traits.view_of])
    known_elements.follow(op, traits, args, kwargs, made)
    if mode is not None:
        mode.record(op, traits, args, kwargs, made)
    return made


@functools.cache
def _has_autocast(name: str, devices: tuple[str, ...]) -> bool:
    """Whether autocast knows the operator: it has cast the arguments, and what the operator is made of is computed in their dtypes."""
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, f"Autocast{device.upper()}") for device in devices)


def _read_elements(op: OpOverload, args: tuple, metas: tuple, named: dict | None, mode: TraceMode | None) -> object:
    """A data-dependent operator: its sizes are numbers that only a run makes known, where the mode takes those."""
    if mode is None or mode.element_facts is None:
        data_dependent(op._name)
    return unbacked_result(op, metas, named or {}, Reading(mode.element_facts, args, mode.writes))


def _take_apart(op: OpOverload, apart: Callable, args: tuple, kwargs: dict, mode: TraceMode | None) -> object:
    if mode is None or not mode.autocast:
        return apart(op, args, kwargs, mode)
    with mode.autocast_inside(() if _has_autocast(op.name(), mode.autocast) else mode.autocast):
        return apart(op, args, kwargs, mode)


def _trilinear(op: OpOverload, args: tuple, kwargs: dict, mode: TraceMode) -> object:
    with mode:
        return op._op_dk(torch._C.DispatchKey.CompositeExplicitAutogradNonFunctional, *args, **kwargs)


def _one_by_one(op: OpOverload, args: tuple, kwargs: dict, mode: TraceMode | None) -> object:
    """An operator on lists, as its plain kernel calls the operator on tensors for each of them."""
    with mode or contextlib.nullcontext():
        return op._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)


# Their plain kernels read the scalars from a tensor.
READ_SCALARS = frozenset(getattr(torch.ops.aten, f"_foreach_{name}").Tensor for name in ("addcdiv", "addcdiv_", "addcmul", "addcmul_"))


def _apart(op: OpOverload, args: tuple, kwargs: dict, mode: TraceMode | None) -> object:
    apart = _dropout if op is torch.ops.aten.dropout.default else partial(_resample, op) if _resamples_bytes(op, args) else op.decompose
    if mode is None:
        return apart(*args, **kwargs)
    with mode:
        return apart(*args, **kwargs)


def _dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """Eager's kernel, where torch's Python form draws although nothing is left over."""
    if p == 1 and train and x.numel():
        return x.mul(torch.zeros((), dtype=x.dtype, device=x.device))
    return torch.ops.aten.dropout.default.decompose(x, p, train)


def _resamples_bytes(op: OpOverload, args: tuple) -> bool:
    return "upsample_" in op._name and isinstance(args[0], torch.Tensor) and args[0].dtype == torch.uint8


def _resample(op: OpOverload, *args: object, **kwargs: object) -> object:
    """By the operator whose kernel weighs in integers, where torch's Python form weighs in float32."""
    return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def _adopt(value: object, mode: TraceMode | None) -> object:
    """`value` with real tensors replaced by TraceTensors."""
    if isinstance(value, torch.Tensor):
        if type(value) is TraceTensor:
            return value
        return mode.adopt(value) if mode else from_tensor(value)
    if type(value) in (list, tuple):
        return [_adopt(v, mode) for v in value]
    return value


def _metas(value: object) -> object:
    if type(value) is TraceTensor:
        return value._meta
    if type(value) is list:
        return [_metas(v) for v in value]
    if type(value) in (torch.SymInt, torch.SymFloat):
        return value.node.for_rules() if isinstance(value.node, FloatNode) else as_node(value)
    return value


def _wrap(result: object, base: object) -> object:
    if type(result) is TensorMeta:
        return from_meta(result, base.root if type(base) is TraceTensor else None)
    if type(result) in (tuple, list):
        return type(result)([_wrap(r, base) for r in result])
    return symint(result)


def _written(traits: Traits, args: tuple, kwargs: dict, result: object) -> object:
    """What an operator with writes returns: the written tensors themselves where its schema says so."""
    if traits.inplace:
        return args[0]
    if traits.outs:
        outs = [kwargs[name] for name in traits.outs]
        for out, meta in zip(outs, result if isinstance(result, (tuple, list)) else [result]):
            _set_metadata(out, meta)
        return tuple(outs) if len(outs) > 1 else outs[0]
    return _wrap(result, None)


def _change_metadata(op: OpOverload, traits: Traits, args: tuple, kwargs: dict, mode: TraceMode | None) -> object:
    """t_, resize_ and their like: torch's meta kernel changes the wrapper itself."""
    target = args[0]
    if op._name != "aten::detach_":
        target.root.is_written = True
        with torch._C._DisableTorchDispatch():
            _run_as_meta(op, args, kwargs)
        _refresh(target)
    if mode is not None:
        mode.record(op, traits, args, kwargs, target)
    return target


def _set_metadata(t: TraceTensor, meta: TensorMeta) -> None:
    if t._meta.sizes != meta.sizes or t._meta.strides != meta.strides:
        with torch._C._DisableTorchDispatch():
            _run_as_meta(torch.ops.aten.resize_.default, (t, meta.sizes), {})
            _run_as_meta(torch.ops.aten.as_strided_.default, (t, meta.sizes, meta.strides), {})
        _refresh(t)


def _run_as_meta(op: OpOverload, args: tuple, kwargs: dict) -> None:
    before = torch._C._meta_in_tls_dispatch_include()
    torch._C._set_meta_in_tls_dispatch_include(True)
    try:
        op(*args, **kwargs)
    finally:
        torch._C._set_meta_in_tls_dispatch_include(before)


def _refresh(t: TraceTensor) -> None:
    with torch._C._DisableTorchDispatch():
        sizes, strides, offset = (tuple(map(_held, numbers)) for numbers in (t.shape, t.stride(), (t.storage_offset(),)))
    t._meta = TensorMeta(sizes, strides, t._meta.dtype, t._meta.device, False, offset[0])
    t._symbolic = is_symbolic(t._meta)


def _held(size: object) -> object:
    """A size as metadata holds it."""
    return as_node(size) if isinstance(size, torch.SymInt) else size
