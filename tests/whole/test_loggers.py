"""Loggers asked for by name: who answers to the name at the call is the one that hears."""

from __future__ import annotations

import logging

import torch

import thruway


class Counting(logging.Logger):
    heard = 0

    def warning(self, *arguments, **named):
        Counting.heard += 1


def test_a_logger_that_took_over_its_name(caplog):
    def telling(x):
        logging.getLogger("thruway.tests.replaced").warning("told")
        return x + 1
    loggers = logging.Logger.manager.loggerDict
    logging.getLogger("thruway.tests.replaced")
    compiled = thruway.compile(telling)
    try:
        for _ in range(2):
            compiled(torch.ones(2))
        assert [record.message for record in caplog.records] == ["told", "told"]
        loggers["thruway.tests.replaced"] = Counting("thruway.tests.replaced")
        for k in range(1, 3):
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
            assert Counting.heard == k and len(caplog.records) == 2
        del loggers["thruway.tests.replaced"]
        compiled(torch.ones(2))
        assert Counting.heard == 2 and len(caplog.records) == 3
    finally:
        loggers.pop("thruway.tests.replaced", None)


def test_the_root_logger(caplog):
    def telling(x):
        logging.getLogger().warning("root told")
        return x * 2
    compiled = thruway.compile(telling)
    for _ in range(3):
        compiled(torch.ones(2))
    assert [record.message for record in caplog.records] == ["root told"] * 3
