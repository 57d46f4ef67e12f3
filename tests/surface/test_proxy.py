"""The compiled module behaves as the module in everything but its call, and the module itself stays eager."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import thruway


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("steps", torch.zeros(()))
        self.note = "plain"

    def forward(self, x, scale=1):
        return self.lin(x) * scale

    def frozen(self):
        for parameter in self.parameters():
            parameter.requires_grad_(False)
        return self


X = torch.arange(8.0).reshape(2, 4)


@pytest.fixture
def module():
    return Net()


@pytest.fixture
def compiled(module, pipeline):
    return thruway.compile(module)


def test_it_is_the_module_in_type(compiled, module):
    assert isinstance(compiled, Net) and isinstance(compiled, nn.Module)
    assert compiled.__class__ is Net
    assert repr(compiled) == repr(module) and str(compiled) == str(module)
    assert set(dir(module)) == set(dir(compiled))
    assert vars(compiled) is vars(module)


def test_the_call_is_compiled_and_the_module_stays_eager(compiled, module, pipeline):
    assert torch.equal(compiled(X, scale=2), module(X) * 2)
    assert pipeline.calls == ["_wrapped_call_impl"] and pipeline.compiled[0][1].name == "Net"
    module(X)
    assert len(pipeline.calls) == 1


def test_attributes_go_both_ways(compiled, module):
    compiled.note = "changed"
    assert module.note == "changed"
    module.other = 3
    assert compiled.other == 3
    del compiled.other
    assert not hasattr(module, "other") and not hasattr(compiled, "other")
    compiled.lin = nn.Linear(4, 2)
    assert module.lin.out_features == 2
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nothing'"):
        compiled.nothing


def test_state_dict_has_no_prefix_and_loads(compiled, module):
    assert list(compiled.state_dict()) == ["steps", "lin.weight", "lin.bias"]
    other = thruway.compile(Net())
    other.load_state_dict(compiled.state_dict())
    assert torch.equal(other.lin.weight, module.lin.weight)


def test_methods_that_return_the_module_return_the_proxy(compiled, module):
    assert compiled.train() is compiled and module.training
    assert compiled.eval() is compiled and not module.training
    assert compiled.to(torch.float64) is compiled and module.lin.weight.dtype is torch.float64
    assert compiled.float().requires_grad_(True) is compiled
    assert compiled.frozen() is compiled and not module.lin.weight.requires_grad
    assert compiled.apply(lambda m: None) is compiled


def test_a_method_reached_through_the_proxy_looks_like_the_method(compiled, module):
    assert inspect.signature(compiled.forward) == inspect.signature(module.forward)
    assert compiled.forward == module.forward and module.forward == compiled.forward and hash(compiled.forward) == hash(module.forward)
    assert compiled.forward.__self__ is module and compiled.forward.__func__ is Net.forward


def test_hooks_compare_and_see_the_module(compiled, module):
    seen = []
    handle = compiled.register_forward_hook(lambda m, args, out: seen.append(m is module))
    compiled(X)
    assert seen == [True]
    handle.remove()
    compiled(X)
    assert seen == [True]
    module.register_forward_pre_hook(lambda m, args: seen.append("pre"))
    compiled(X)
    assert seen == [True, "pre"]


def test_forward_and_class_may_be_replaced(compiled, module, pipeline):
    compiled(X)
    module.forward = lambda x: x + 100
    assert torch.equal(compiled(X), X + 100)
    del module.forward

    class Louder(Net):
        def __call__(self, x):
            return x - 1

        def __len__(self):
            return 7

    module.__class__ = Louder
    assert torch.equal(compiled(X), X - 1) and isinstance(compiled, Louder) and len(compiled) == 7
    compiled.__class__ = Net
    assert type(module) is Net and torch.equal(compiled(X), module(X))
    with pytest.raises(TypeError):
        len(compiled)


def test_parametrize_through_the_proxy(compiled, module):
    class Halve(nn.Module):
        def forward(self, w):
            return w / 2

    before = module.lin.weight.detach().clone()
    parametrize.register_parametrization(compiled.lin, "weight", Halve())
    assert torch.equal(compiled.lin.weight, before / 2)
    assert torch.equal(compiled(X), module(X))


def test_parametrize_the_proxy_itself(pipeline):
    class Double(nn.Module):
        def forward(self, w):
            return w * 2

    linear = nn.Linear(4, 4)
    compiled = thruway.compile(linear)
    compiled(X)
    parametrize.register_parametrization(compiled, "weight", Double())
    assert parametrize.is_parametrized(linear, "weight") and torch.equal(compiled(X), linear(X))
    assert isinstance(compiled, nn.Linear)


def test_copies_are_compiled_and_apart(compiled, module, pipeline):
    other = copy.deepcopy(compiled)
    assert other._orig_mod is not module and isinstance(other, Net)
    with torch.no_grad():
        other.lin.weight.zero_()
    assert not torch.equal(other.lin.weight, module.lin.weight)
    calls = len(pipeline.calls)
    other(X)
    assert len(pipeline.calls) == calls + 1
    assert copy.copy(compiled).lin is module.lin


def test_deepcopy_of_a_parent_copies_the_child_once(compiled):
    parent = nn.ModuleList([compiled, compiled])
    other = copy.deepcopy(parent)
    assert other[0] is other[1] and other[0] is not compiled and other[0]._orig_mod is not compiled._orig_mod


def test_pickle_keeps_it_compiled(compiled, module, pipeline):
    other = pickle.loads(pickle.dumps(compiled))
    assert torch.equal(other.lin.weight, module.lin.weight) and other._thruway_options == compiled._thruway_options
    other(X)
    assert pipeline.calls == ["_wrapped_call_impl"]
    assert pickle.loads(pickle.dumps(compiled.forward))(X).shape == (2, 4)


def test_as_a_child_of_an_eager_module(compiled, module, pipeline):
    parent = nn.Sequential(compiled, nn.ReLU())
    assert torch.equal(parent(X), module(X).relu()) and pipeline.calls == ["_wrapped_call_impl"]
    assert list(parent.state_dict()) == ["0.steps", "0.lin.weight", "0.lin.bias"]
    assert [name for name, _ in parent.named_modules()] == ["", "0", "0.lin", "1"]
    assert len(list(parent.parameters())) == 2
    parent.double()
    assert module.lin.weight.dtype is torch.float64
    parent.load_state_dict({name: torch.ones_like(value) for name, value in parent.state_dict().items()})
    assert module.lin.weight.eq(1).all()

    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = compiled

    holder = Holder()
    assert list(dict(holder.named_children())) == ["inner"] and holder.inner is compiled
    holder.eval()
    assert not module.training
    assert "Net" in repr(holder)


def test_containers(pipeline):
    first, last = nn.Linear(4, 4), nn.ReLU()
    compiled = thruway.compile(nn.Sequential(first, last))
    assert len(compiled) == 2 and list(compiled) == [first, last] and compiled[0] is first and compiled[-1] is last
    assert isinstance(compiled[:1], nn.Sequential)
    compiled[1] = nn.Identity()
    assert isinstance(compiled._orig_mod[1], nn.Identity)
    del compiled[1]
    assert len(compiled._orig_mod) == 1
    assert compiled.append(nn.Tanh()) is compiled and len(compiled) == 2
    table = thruway.compile(nn.ModuleDict({"a": first}))
    assert "a" in table and table["a"] is first and list(table.keys()) == ["a"]


def test_truth_follows_the_module(pipeline):
    assert bool(thruway.compile(nn.Linear(2, 2)))
    assert not bool(thruway.compile(nn.Sequential()))


def test_parameters_train_through_an_optimizer(compiled, module):
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    before = module.lin.weight.detach().clone()
    compiled(X).sum().backward()
    optimizer.step()
    assert not torch.equal(module.lin.weight, before)


def test_functional_call_swaps_parameters(compiled, module):
    state = {name: torch.zeros_like(value) for name, value in compiled.state_dict().items()}
    assert torch.func.functional_call(compiled, state, (X,)).eq(0).all()
    assert not module.lin.weight.eq(0).all()


def test_dropping_the_proxy_frees_it_and_what_was_compiled(module, pipeline):
    compiled = thruway.compile(module)
    compiled(X)
    gone = weakref.ref(compiled), weakref.ref(compiled._thruway_call)
    pipeline.compiled.clear()
    del compiled
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
    assert module(X).shape == (2, 4)


def test_a_module_class_can_be_freed(pipeline):
    cls = type("Passing", (Net,), {})
    gone = weakref.ref(cls)
    compiled = thruway.compile(cls())
    compiled(X)
    del compiled, cls
    pipeline.compiled.clear()
    gc.collect()
    assert gone() is None
