"""Numbers that change between calls, or come from tensors, and do not fit the dtype they meet: eager raises, compiled code has to as well."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import thruway

DTYPES = {"int8": torch.int8, "uint8": torch.uint8, "int16": torch.int16, "int32": torch.int32, "float16": torch.float16, "int64": torch.int64,
          "float32": torch.float32, "bool": torch.bool}
OPERATORS: dict[str, Callable] = {
    "clamp": lambda x, n: x.clamp(min=n), "tensor": lambda x, n: torch.tensor(n, dtype=x.dtype), "full": lambda x, n: torch.full((2,), n, dtype=x.dtype),
    "listed": lambda x, n: torch.tensor([1, n], dtype=x.dtype), "new_full": lambda x, n: x.new_full((2,), n), "fill_": lambda x, n: x.clone().fill_(n),
    "where": lambda x, n: torch.where(x > 1, x, n), "setitem": lambda x, n: _set(x.clone(), n), "pow": lambda x, n: x ** n,
    "alpha": lambda x, n: torch.add(x, x, alpha=n), "masked_fill": lambda x, n: x.masked_fill(x > 1, n), "doubled": lambda x, n: x.clamp(max=2 * n + 1),
    "scatter": lambda x, n: x.scatter(0, torch.tensor([0]), n), "add": lambda x, n: x + n, "mul": lambda x, n: n * x, "and": lambda x, n: x & n,
    "less": lambda x, n: x < n, "floor": lambda x, n: x // n, "caught": lambda x, n: _caught(x, n),
}
SOURCES: dict[str, tuple[Callable, Callable]] = {
    "int": (lambda n: n, lambda n: n),
    "size": (lambda n: torch.empty(n, 0), lambda t: t.shape[0]),
    "item": (lambda n: torch.tensor([n]), lambda t: int(t.sum())),
}


def _set(x: torch.Tensor, n: int) -> torch.Tensor:
    x[0] = n
    return x


def _caught(x: torch.Tensor, n: int) -> torch.Tensor:
    try:
        return x.clone().fill_(n)
    except RuntimeError:
        return x - 1


def _outcome(function: Callable, *args: object) -> object:
    try:
        made = function(*args)
    except Exception as error:
        return type(error), str(error)
    return made.dtype, made.tolist()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float16"])
def test_a_number_out_of_range_is_what_it_is_in_eager(dtype: str, source: str) -> None:
    wrap, unwrap = SOURCES[source]
    numbers = {"int8": (3, 4, 127, 128, 7), "uint8": (3, 4, 255, 256, 7), "int32": (3, 4, 2**31 - 1, 2**31, 7),
               "float16": (3, 4, 65504, 70000, 7)}[dtype]
    for name, operator in OPERATORS.items():
        def function(x: torch.Tensor, given: object, operator: Callable = operator) -> torch.Tensor:
            return operator(x, unwrap(given))

        compiled = thruway.compile(function)
        for n in numbers:
            x = torch.tensor([1, 2, 3], dtype=DTYPES[dtype])
            assert _outcome(compiled, x, wrap(n)) == _outcome(function, x, wrap(n)), (name, n)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_negative_numbers_wrap_or_raise_as_in_eager(dtype: str) -> None:
    for name, operator in OPERATORS.items():
        def function(x: torch.Tensor, n: int, operator: Callable = operator) -> torch.Tensor:
            return operator(x, 3 - n)

        compiled = thruway.compile(function)
        for n in (4, 5, 131, 132, 258, 259):
            x = torch.tensor([1, 2, 3], dtype=DTYPES[dtype])
            assert _outcome(compiled, x, n) == _outcome(function, x, n), (name, n)


def test_negative_exponents_of_integers_from_a_tensor() -> None:
    def power(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x ** int(n.sum())

    compiled = thruway.compile(power)
    for n in (3, 2, -1, 4):
        x, given = torch.tensor([1, 2]), torch.tensor([n])
        assert _outcome(compiled, x, given) == _outcome(power, x, given), n


@pytest.mark.parametrize("dtype", ["int64", "float32", "bool"])
def test_wide_dtypes_take_each_number_without_another_capture(dtype: str) -> None:
    compiled = thruway.compile(lambda x, n: x.masked_fill(x > 0, n))
    x = torch.tensor([0, 1, 1], dtype=DTYPES[dtype])
    for n in (2, 3):
        compiled(x, n)
    before = thruway.metrics()["recompiles"]
    for n in (300, 2**31, 2**40):
        assert torch.equal(compiled(x, n), x.masked_fill(x > 0, n))
    assert thruway.metrics()["recompiles"] == before


def test_a_padding_is_a_float_that_does_not_wrap() -> None:
    def pad(x: torch.Tensor, n: int) -> torch.Tensor:
        return torch.nn.functional.pad(x, (1, 1), value=n)

    for dtype in ("int8", "uint8", "float16"):
        compiled = thruway.compile(pad)
        for n in (3, 4, 5, 300, -1, -300, 7, 70000):
            x = torch.tensor([1, 2], dtype=DTYPES[dtype])
            assert _outcome(compiled, x, n) == _outcome(pad, x, n), n


@pytest.mark.parametrize("make", [lambda n: torch.full((2,), n * n), lambda n: torch.tensor(n * n), lambda n: torch.tensor(n * n, dtype=torch.float64)])
def test_products_that_no_int64_holds(make: Callable) -> None:
    compiled = thruway.compile(make)
    for n in (3, 4, 5, 2**40, 6, 2**31):
        assert _outcome(compiled, n) == _outcome(make, n), n
