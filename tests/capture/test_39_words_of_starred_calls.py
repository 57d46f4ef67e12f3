"""What Python says of `f(*5)`, `f(**5)`, `f(**{1: 2})`, `[*5]`, `{**5}`: the error that the code catches has eager's words, the function's name in them."""

import functools

import pytest
import torch

import thruway


def plain(*args, **kwargs):
    return args


class Owner:
    def method(self, *args, **kwargs):
        return args

    def __call__(self, *args, **kwargs):
        return 1

    def __str__(self):
        return "an owner"


class Mapping:
    def keys(self):
        return [1]

    def __getitem__(self, key):
        return key


class Refusing:
    def __iter__(self):
        raise TypeError("in words of its own")


OWNER, MAPPING, REFUSING, THING = Owner(), Mapping(), Refusing(), object()
PARTIAL, MODULE = functools.partial(plain, 1), torch.nn.Linear(2, 2)
CALLEES = ("plain", "OWNER.method", "Owner.method", "OWNER", "Owner", "PARTIAL", "MODULE", "len", "[].append", "torch.add", "x.add", "int", "max", "5", "(lambda *a: 1)",
           "torch.nn.functional.relu")
STARRED = ("*5", "**5", "*None", "1, *5", "*x.dim()", "**[1]", "**{1: 2}", "*5, **5", "a=1, **{'a': 2}", "**{1: 1}, **{1: 2}", "*THING", "*REFUSING", "**THING",
           "**MAPPING", "*x.sum()", "**x", "*[1, *5]", "**{**5}", "*{*5}", "*(*5,)")
NEAR = ("*'ab'", "*(1, 2), **{}", "**{'k': 1}", "*{1: 2}", "*range(2), **dict(k=3)", "*x")


def outcome(program, x):
    try:
        return program(x)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("callee", CALLEES)
def test_the_words_are_eagers(callee):
    for starred in (*STARRED, *(NEAR if callee not in ("len", "int", "max") else ())):           # those take no such arguments
        for text in (f"def program(x):\n try:\n  {callee}({starred})\n except Exception as error:\n  return str(error), type(error)\n return 1",
                     f"def program(x):\n {callee}({starred})\n return 1"):
            space = dict(globals())
            exec(text, space)
            x = torch.ones(2)
            thruway.reset()
            compiled = thruway.compile(space["program"])
            assert outcome(compiled, x) == outcome(space["program"], x), (callee, starred)


def test_what_a_list_a_set_and_a_dict_say_of_it():
    def program(x):
        said = []
        for make in (lambda: [1, *5], lambda: (*5, 1), lambda: {*5}, lambda: {**5}, lambda: {1: 2, **[3]}, lambda: [*"ab", *x.shape, *{1: 2}]):
            try:
                said.append(make())
            except TypeError as error:
                said.append(str(error))
        return x + 1, said

    backend = thruway.compile(program, fullgraph=True)
    assert backend(torch.ones(2))[1] == program(torch.ones(2))[1]
