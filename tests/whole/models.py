"""Small models for the whole-model tests: the peer works at a size that runs in milliseconds, torchvision's and transformers' with
random weights. Each entry gives (module or function, inputs)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import timm
import torch
import torchvision
import transformers
import works
from torch import nn

Made = tuple[Any, tuple[Any, ...]]
VOCABULARY = 100


def _ids(batch: int = 2, length: int = 12) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (batch, length))


def _image(size: int = 64) -> tuple[torch.Tensor]:
    return (torch.randn(2, 3, size, size),)


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(d_model=32, nhead=4, dim_feedforward=64, batch_first=True)
    return nn.TransformerEncoder(layer, num_layers=2)


def _decode() -> Made:
    return works.Decode(32, 4, 2, VOCABULARY, 16), (torch.full((1, 1), 7), torch.tensor([5]), torch.tensor([[0.37]]))


WORKS: dict[str, Callable[[], Made]] = {
    "tiny": lambda: (works.tiny, (torch.ones(16),)),
    "pointwise": lambda: (works.pointwise, (torch.randn(4, 32), torch.randn(4, 32))),
    "mlp": lambda: (nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8)), (torch.randn(4, 16),)),
    "transformer": lambda: (_encoder(), (torch.randn(2, 12, 32),)),
    "decoder": lambda: (works.Decoder(32, 4, 2, VOCABULARY), (_ids(),)),
    "decode": _decode,
}

_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": VOCABULARY}


def _transformer(model: str, config: str, **sizes: Any) -> Callable[[], Made]:
    def make() -> Made:
        made = getattr(transformers, model)(getattr(transformers, config)(**sizes))
        made.config.use_cache = False
        return made, (_ids(),)

    return make


TRANSFORMERS: dict[str, Callable[[], Made]] = {
    "bert": _transformer("BertModel", "BertConfig", **_SMALL),
    "gpt2": _transformer("GPT2LMHeadModel", "GPT2Config", n_layer=2, n_embd=32, n_head=4, vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0),
    "llama": _transformer("LlamaForCausalLM", "LlamaConfig", **_SMALL),
    "distilbert": _transformer("DistilBertModel", "DistilBertConfig", dim=32, n_layers=2, n_heads=4, hidden_dim=64, vocab_size=VOCABULARY),
    "roberta": _transformer("RobertaModel", "RobertaConfig", **_SMALL, max_position_embeddings=64),
    "qwen2": _transformer("Qwen2ForCausalLM", "Qwen2Config", **_SMALL, num_key_value_heads=2),
}

TORCHVISION: dict[str, Callable[[], Made]] = {
    "resnet18": lambda: (torchvision.models.resnet18(), _image()),
    "mobilenet_v3_small": lambda: (torchvision.models.mobilenet_v3_small(), _image()),
    "squeezenet1_1": lambda: (torchvision.models.squeezenet1_1(), _image()),
    "efficientnet_b0": lambda: (torchvision.models.efficientnet_b0(), _image()),
}

TIMM: dict[str, Callable[[], Made]] = {
    "vit_tiny": lambda: (timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2), _image(32)),
    "convnext_atto": lambda: (timm.create_model("convnext_atto"), _image()),
}

ALL = {**WORKS, **TRANSFORMERS, **TORCHVISION, **TIMM}


def build(name: str) -> Made:
    """The model in eval mode with its inputs, the same weights every time."""
    torch.manual_seed(0)
    made, inputs = ALL[name]()
    return (made.eval() if isinstance(made, nn.Module) else made), inputs
