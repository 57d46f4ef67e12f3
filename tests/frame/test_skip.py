"""What is captured and what never is."""

from __future__ import annotations

import collections
import json

import torch
from thruway.frame.check import compile_check
from thruway.frame.skip import is_skipped, is_skipped_code, is_skipped_module


def user_function():
    return 1


def test_modules():
    captured = ["my.model", "torch.nn.modules.linear", "torch.nn.functional", "transformers.models.bert.modeling_bert", "collections", "__main__", "timm.layers"]
    skipped = ["torch", "torch.utils.data", "torch.nn", "thruway.frame.check", "json", "json.decoder", "threading", "torch._dynamo.eval_frame"]
    assert not any(map(is_skipped_module, captured)) and all(map(is_skipped_module, skipped))


def test_functions_and_code():
    assert not is_skipped(user_function) and not is_skipped(torch.nn.Linear.forward) and not is_skipped(collections.namedtuple)
    assert is_skipped(json.loads) and is_skipped(compile_check)
    assert is_skipped_code(json.loads.__code__) and not is_skipped_code(user_function.__code__)
    assert is_skipped_code(compile("1", "<string>", "eval"))
    assert not is_skipped_code(collections.namedtuple.__code__)
