"""Two Values, as two sides of a branch left them, become one: equal structure, with leaves that a condition chooses between."""

from __future__ import annotations

import torch

from thruway.capture.state import State
from thruway.capture.values.base import NONE, Constant, DictValue, ListValue, ObjectValue, SetValue, SizeValue, TensorValue, TupleValue, Value, known_text
from thruway.capture.values.numbers import kind_of_any, kind_of_number
from thruway.capture.values.types_ import python_type
from thruway.core.errors import Unsupported
from thruway.shapes.symbolic import SizeNode

PLAIN = (int, float, complex, str, bytes, bool, torch.dtype, torch.device, torch.Size, range)
Pair = tuple[Value, Value]
UNSET = Value()             # on one side there is nothing that anyone reads


def refused(why: str) -> Unsupported:
    return Unsupported("TW103", why)


class Merge:
    """Walks pairs. The first walk collects the `leaves` that differ; once `chosen` holds a Value for each, the next one builds.
    `age`: of what the sides made."""

    def __init__(self, state: State, age: int):
        self.state, self.age = state, age
        self.leaves: dict[Pair, None] = {}
        self.chosen: dict[Pair, Value] | None = None
        self.made: dict[Pair, Value | None] = {}
        self.partners: dict[Value, Value] = {}

    def merge(self, left: Value, right: Value) -> Value:
        if left is not right:
            left, right = known_text(left), known_text(right)
        if is_same(left, right):
            return left
        if left is UNSET or right is UNSET:
            return self._one_sided(left, right)
        kind = kind_of_any(left)
        if kind is not None and kind is kind_of_any(right):
            return self._leaf(left, right)
        match left, right:
            case TensorValue(), TensorValue():
                self._check_tensors(left, right)
                return self._leaf(left, right)
            case TupleValue(), TupleValue() if left.cls is right.cls and len(left.items) == len(right.items):
                if (left, right) not in self.made:
                    self.made[left, right] = TupleValue(tuple(map(self.merge, left.items, right.items)), cls=left.cls)
                return self.made[left, right]
            case (ListValue() | DictValue() | SetValue() | ObjectValue(), _) if type(left) is type(right):
                return self._container(left, right)
            case _:
                raise refused(f"the sides of the branch leave a {python_type(left).__name__} and another {python_type(right).__name__}")

    def build(self, chosen: dict[Pair, Value]) -> None:
        """From now on `merge` gives the merged Values."""
        self.chosen, self.made, self.partners = chosen, {}, {}

    def _leaf(self, left: Value, right: Value) -> Value:
        if self.chosen is None:
            self.leaves[left, right] = None
            return NONE
        return self.chosen[left, right]

    def _one_sided(self, left: Value, right: Value) -> Value:
        """What only one side leaves: the other may leave anything there."""
        value = right if left is UNSET else left
        if isinstance(value, Constant):
            return value
        match value:
            case TensorValue() if value.age >= self.age and python_type(value) is torch.Tensor:
                return self._leaf(left, right)
            case SizeValue() if kind_of_number(value) is not None and value.age >= self.age:
                return self._leaf(left, right)
            case TupleValue():
                return TupleValue(tuple(self.merge(*((UNSET, one) if left is UNSET else (one, UNSET))) for one in value.items), cls=value.cls)
            case _ if value.age < self.age:
                return value
            case _:
                raise refused(f"only one side of the branch leaves a {python_type(value).__name__}")

    def _check_tensors(self, left: TensorValue, right: TensorValue) -> None:
        if python_type(left) is not torch.Tensor or python_type(right) is not torch.Tensor:
            raise refused("the sides of the branch give different parameters or buffers")
        a, b = left.trace.meta, right.trace.meta
        for name in ("sizes", "strides", "dtype", "device", "requires_grad"):
            if getattr(a, name) != getattr(b, name):
                raise refused(f"the sides of the branch give tensors of different {name}: {getattr(a, name)} and {getattr(b, name)}")

    def _container(self, left: Value, right: Value) -> Value:
        """A new container for one that each side made. What is one object on one side is one on the other."""
        if min(left.age, right.age) < self.age or left.exposed or right.exposed:
            raise refused(f"the sides of the branch leave two {python_type(left).__name__} objects, one of them older")
        if self.partners.setdefault(left, right) is not right or self.partners.setdefault(right, left) is not left:
            raise refused("the sides of the branch share objects in different ways")
        if (left, right) not in self.made:
            self.made[left, right] = None
            self.made[left, right] = self._rebuilt(left, right)
        if (known := self.made[left, right]) is None:
            raise refused("the sides of the branch leave objects that contain themselves")
        return known

    def _rebuilt(self, left: Value, right: Value) -> Value:
        match left, right:
            case ListValue(cls=cls), ListValue() if cls is right.cls and len(left.items) == len(right.items) and left.options == right.options:
                return ListValue(list(map(self.merge, left.items, right.items)), cls=cls, options=left.options)
            case DictValue(), DictValue() if self._have_same_keys(left, right):
                return self._dict(left, right)
            case SetValue(cls=cls), SetValue() if cls is right.cls and set(left.items) == set(right.items):
                return left
            case ObjectValue(), ObjectValue() if left.cls.value is right.cls.value and left.slots.keys() == right.slots.keys():
                return self._object(left, right)
            case _:
                raise refused(f"the sides of the branch leave {python_type(left).__name__} objects of different structure")

    @staticmethod
    def _have_same_keys(left: DictValue, right: DictValue) -> bool:
        return type(left) is DictValue is type(right) and left.cls is right.cls and left.factory is right.factory and list(left.items) == list(right.items)

    def _dict(self, left: DictValue, right: DictValue) -> DictValue:
        made = DictValue({key: (pair[0], self.merge(pair[1], right.items[key][1])) for key, pair in left.items.items()}, cls=left.cls)
        made.factory = left.factory
        return made

    def _object(self, left: ObjectValue, right: ObjectValue) -> ObjectValue:
        if len(left.new_args) != len(right.new_args) or (left.attributes is None) != (right.attributes is None):
            raise refused(f"the sides of the branch leave {left.cls.value.__name__} objects of different structure")
        made = ObjectValue(left.cls)
        made.new_args = tuple(map(self.merge, left.new_args, right.new_args))
        made.slots = {name: self.merge(one, right.slots[name]) for name, one in left.slots.items()}
        if left.attributes is not None:
            made.attributes = self._rebuilt(left.attributes, right.attributes)
        if left.storage is not None or right.storage is not None:
            made.storage = self._storage(left.storage, right.storage)
        return made

    def _storage(self, left: Value | None, right: Value | None) -> Value:
        match left, right:
            case (ListValue() | DictValue(), ListValue() | DictValue()):
                return self._rebuilt(left, right)
            case Value(), Value():
                return self.merge(left, right)
            case _:
                raise refused("the sides of the branch leave objects of different structure")


def is_same(left: Value, right: Value) -> bool:
    """Whether both are one object, or equal numbers or texts."""
    return left is right or _is_same_constant(left, right) or _is_same_size(left, right)


def _is_same_size(left: Value, right: Value) -> bool:
    if not isinstance(left, SizeValue) or not isinstance(right, SizeValue):
        return False
    a, b = left.size.node, right.size.node
    return type(a) is SizeNode is type(b) and a.size == b.size


def _is_same_constant(left: Value, right: Value) -> bool:
    if not isinstance(left, Constant) or not isinstance(right, Constant):
        return False
    a, b = left.value, right.value
    return a is b or type(a) is type(b) and isinstance(a, PLAIN) and a == b and repr(a) == repr(b)
