"""What the code makes once and hands out at several places is one object there: tuples, slices, methods, texts, numbers, containers."""

import functools

import pytest
import torch

import thruway
from capture.beside_eager import alike

LOG = []


class Pair(torch.nn.Module):
    def method(self):
        return self


def a_tuple(x):
    made = (x + 1, 2)
    return made, made


def two_equal_tuples(x):
    return (x, 1.5, [2]), (x, 1.5, [2])


def in_other_tuples(x):
    made = (x + 1,)
    return (made, 1), {"k": made}, [made]


def a_constant_tuple(x):
    made = (1.5, "two", None)
    return made, [made]


def a_shape(x):
    made = x.shape
    return made, made, x.shape


def a_structure_of_torch(x):
    made = x.max(0)
    return made, made


def a_slice_and_its_bounds(x):
    made = slice(1, 2)
    return made, (made, x[made])


def a_method(x):
    module = Pair()
    made = module.method
    return made, made, module.method


def a_method_of_a_list(x):
    made = [x].append
    return made, made


def a_partial(x):
    made = functools.partial(a_tuple, x)
    return made, made


def a_view_of_a_dict(x):
    made = {"a": x}.items()
    return made, made


def a_text_of_a_tensor(x):
    made = f"{x.sum()}"
    return made, made, f"{x.sum()}"


def a_number_of_a_tensor(x):
    made = x.sum().item()
    return made, made, x.sum().item()


def containers(x):
    one, two, three = [x + 1], {"a": x}, {1, 2}
    return one, two, three, (one, two, three)


def an_object(x):
    made = Pair()
    made.x = x + 1
    return made, [made]


def a_tuple_in_itself(x):
    held = []
    made = (held, x + 1)
    held.append(made)
    return made, held[0], made[0]


def kept_and_returned(x):
    LOG.clear()
    made = (x + 1, 2)
    LOG.append(made)
    return made, LOG[0]


def kept_by_a_side(x):
    LOG.clear()
    made, other = (x + 1, 2), (x + 2, 3)
    if x.sum() > 0:
        LOG.append(made)
        LOG.append((made, other))
    else:
        LOG.append((made, made))
        LOG.append(other)
    return made, LOG, other


def made_by_a_side(x):
    LOG.clear()
    if x.sum() > 0:
        made = (x + 1, 2)
        LOG.extend((made, [made]))
    else:
        made = (x - 1, 3)
        LOG.extend(([made], made))
    return made, made


def in_sides_of_sides(x):
    LOG.clear()
    outer = (x, 5)
    if x.sum() > 0:
        made = (x + 1, 2)
        if x.max() > 0.5:
            LOG.extend((made, [made, outer]))
        else:
            LOG.extend(([outer], made))
        LOG.append(made)
    return LOG, outer


def across_a_break(x):
    made = (x + 1, slice(0, 2))
    LOG[:] = [made]
    print(end="", file=None if x.sum() > 1e9 else OPEN)
    return made, LOG[0], (made, made[1]), [one for one in (made,)]


class Open:
    def write(self, text):
        pass


OPEN = Open()
PROGRAMS = (
    a_tuple, two_equal_tuples, in_other_tuples, a_constant_tuple, a_shape, a_structure_of_torch, a_slice_and_its_bounds, a_method, a_method_of_a_list,
    a_partial, a_view_of_a_dict, a_text_of_a_tensor, a_number_of_a_tensor, containers, an_object, a_tuple_in_itself, kept_and_returned, kept_by_a_side,
    made_by_a_side, in_sides_of_sides, across_a_break,
)
WALKED = (tuple, list, dict)


def places(value, found=None, names=None):
    """For every place in `value`, in order, the number of the object there."""
    found, names = ([], {}) if found is None else (found, names)
    if isinstance(value, torch.Tensor | int):
        return found
    is_new = id(value) not in names
    found.append(names.setdefault(id(value), len(names)))
    if is_new and isinstance(value, WALKED):
        for one in value.values() if isinstance(value, dict) else value:
            places(one, found, names)
    return found


@pytest.mark.parametrize("sign", [1, -1, 0.01])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("dynamic", [False, True])
def test_as_many_objects_as_eager_gives(program, sign, dynamic):
    thruway.reset()
    compiled = thruway.compile(program, dynamic=dynamic)
    for _ in range(2):
        x = torch.ones(3) * sign
        expected = program(x)
        wanted, log = places(expected), places(LOG)
        found = compiled(x)
        assert places(found) == wanted
        assert places(LOG) == log


def test_a_number_made_of_sizes_is_one_object():
    def program(x):
        made = x.shape[0] * 1000
        return made, made, x.shape[0] * 1000

    compiled = thruway.compile(program, dynamic=True)
    for size in (3, 4, 5):
        found = compiled(torch.ones(size))
        alike(program(torch.ones(size)), found)
        assert found[0] is found[1] and found[0] is not found[2]
