"""decode → assemble gives the same program on thousands of functions of the standard library."""

import ast
import dis
import importlib
import types

import pytest

from thruway.bytecode.assemble import assemble
from thruway.bytecode.decode import decode

MODULES = (
    "argparse asyncio.base_events collections concurrent.futures.thread contextlib dataclasses datetime decimal difflib email.message enum "
    "functools heapq http.client inspect json.decoder logging multiprocessing.pool optparse pathlib pdb pickle platform random re shutil "
    "statistics subprocess tarfile tempfile threading traceback typing unittest.mock urllib.request uuid weakref xml.dom.minidom zipfile"
).split()


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def module_codes(name):
    module = importlib.import_module(name)
    with open(module.__file__) as file:
        yield from code_objects(compile(file.read(), module.__file__, "exec"))


@pytest.mark.parametrize("name", MODULES)
def test_standard_library_survives(name):
    for code in module_codes(name):
        decoded = decode(code)
        again = assemble(code, decoded.instructions, decoded.exceptions)
        assert again.co_code == code.co_code, code
        assert again.co_exceptiontable == code.co_exceptiontable, code
        assert list(again.co_positions()) == list(code.co_positions()), code


def test_instructions_agree_with_dis():
    for code in code_objects(compile(open(ast.__file__).read(), ast.__file__, "exec")):
        ours = [(one.op, one.arg) for one in decode(code).instructions]
        theirs = [(one.opname, one.arg) for one in dis.get_instructions(code) if one.opname not in {"EXTENDED_ARG", "CACHE"}]
        assert ours == theirs


def test_long_jumps_grow_extended_args():
    body = "\n".join(f"        x = x + {i}" for i in range(3000))
    space = {}
    exec(f"def f(x, n):\n    while n:\n{body}\n        n = n - 1\n    return x", space)
    code = space["f"].__code__
    decoded = decode(code)
    function = types.FunctionType(assemble(code, decoded.instructions, decoded.exceptions), space)
    assert function(1, 2) == space["f"](1, 2)
