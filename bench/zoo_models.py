"""The models of `zoo.py`: every one of torchvision, many of transformers and timm, with random weights at a size that runs in seconds.

`suite(name)` gives {model name: maker}; a maker gives (module in eval mode, positional arguments, keyword arguments).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
Maker = Callable[[], Made]
VOCABULARY = 99
# What runs in other dtypes too.
SAMPLE = ("^(resnet18|resnet50|convnext_tiny|vit_b_32|swin_t|efficientnet_b0|mobilenet_v3_small|regnet_y_400mf|densenet121|fcn_resnet50|mvit_v2_s|"
          "bert|roberta|gpt2|llama|qwen3|gemma3|mixtral|t5|bart|whisper|vit|clip|wav2vec2|mamba2|llama\\+cache|vit_tiny_patch16_224|mixer_s32_224)$")


LIBRARIES = {"torchvision": ("torchvision.models",), "detection": ("torchvision.models",), "timm": ("timm",)}
TRANSFORMERS = ("transformers.modeling_utils", "transformers.generation", "transformers.models.bert.modeling_bert", "transformers.models.llama.modeling_llama")


def suite(name: str) -> dict[str, Maker]:
    """Loads the library too, so that models in forked processes need not."""
    for library in LIBRARIES.get(name, TRANSFORMERS):
        importlib.import_module(library)
    return {"torchvision": torchvision_models, "detection": detection_models, "transformers": transformers_models, "generate": generate_models,
            "timm": timm_models}[name]()


def stir(model: nn.Module) -> nn.Module:
    """Gives what starts constant (statistics, scales, biases) values that a wrong fold or a dropped branch would show in."""
    with torch.no_grad():
        for module in model.modules():
            if getattr(module, "running_mean", None) is not None:
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.7, 1.4)
        for weight in model.parameters():
            if weight.is_floating_point() and weight.numel() > 1 and weight.min() == weight.max():
                weight.add_(torch.randn_like(weight) * 0.1)
    return model.eval()


# ---- torchvision


SIZES = {"vit_b_16": 32, "vit_b_32": 64, "vit_l_16": 32, "vit_l_32": 64, "vit_h_14": 28, "inception_v3": 80, "maxvit_t": 224}
VIDEO = ("r3d_18", "mc3_18", "r2plus1d_18", "s3d", "swin3d_t", "swin3d_s", "swin3d_b", "mvit_v1_b", "mvit_v2_s")
SEGMENTATION = ("fcn", "deeplab", "lraspp")
DETECTION = ("fasterrcnn", "fcos", "keypointrcnn", "maskrcnn", "retinanet", "ssd")


def torchvision_models() -> dict[str, Maker]:
    from torchvision.models import list_models

    names = [name for name in list_models() if not name.startswith((*DETECTION, "quantized"))]
    return {name: functools.partial(_torchvision, name) for name in names}


def _torchvision(name: str) -> Made:
    from torchvision.models import get_model

    size = SIZES.get(name, 64)
    words: dict[str, Any] = {"weights": None}
    if name.startswith("vit"):
        words["image_size"] = size
    if name.startswith(("googlenet", "inception")):
        words["init_weights"] = False
    if name.startswith(SEGMENTATION):
        words["weights_backbone"] = None
    model = get_model(name, **words)
    if name.startswith("raft"):
        return stir(model), (torch.rand(1, 3, 128, 128) * 2 - 1, torch.rand(1, 3, 128, 128) * 2 - 1), {"num_flow_updates": 2}
    if name.startswith(("mvit", "s3d")):
        return stir(model), (torch.randn(1, 3, 16, 224, 224),), {}
    if name in VIDEO:
        return stir(model), (torch.randn(1, 3, 16, 64, 64),), {}
    return stir(model), (torch.randn(2, 3, size, size),), {}


def detection_models() -> dict[str, Maker]:
    from torchvision.models import list_models

    return {name: functools.partial(_detection, name) for name in list_models() if name.startswith(DETECTION)}


def _detection(name: str) -> Made:
    from torchvision.models import get_model

    sizes = {} if name.startswith("ssd") else {"min_size": 96, "max_size": 128}
    model = get_model(name, weights=None, weights_backbone=None, **sizes)
    return stir(model), ([torch.rand(3, 96, 112), torch.rand(3, 80, 96)],), {}


# ---- timm


TIMM = {
    "resnet18": 64, "resnet50d": 64, "resnext26ts": 64, "seresnet18": 64, "ecaresnet26t": 64, "res2net50_26w_4s": 64, "resnest14d": 64, "skresnet18": 64,
    "regnetx_002": 64, "regnety_002": 64, "regnetz_b16": 64, "efficientnet_b0": 64, "efficientnet_lite0": 64, "tf_efficientnetv2_b0": 64,
    "mobilenetv2_050": 64, "mobilenetv3_small_050": 64, "mobilenetv4_conv_small": 64, "mnasnet_small": 64, "fbnetc_100": 64, "ghostnet_050": 64,
    "densenet121": 64, "dpn48b": 64, "dla34": 64, "hrnet_w18_small": 64, "vgg11_bn": 64, "vovnet39a": 64, "darknet53": 64, "cspresnet50": 64,
    "nf_regnet_b0": 64, "nfnet_f0": 64, "convnext_atto": 64, "convnextv2_atto": 64, "inception_next_atto": 64, "vit_tiny_patch16_224": 224,
    "deit_tiny_patch16_224": 224, "deit3_small_patch16_224": 224, "beit_base_patch16_224": 224, "eva02_tiny_patch14_224": 224, "cait_xxs24_224": 224,
    "swin_tiny_patch4_window7_224": 224, "swinv2_tiny_window8_256": 256, "swinv2_cr_tiny_224": 224, "coat_tiny": 224, "coatnet_0_rw_224": 224,
    "maxvit_tiny_rw_224": 224, "crossvit_tiny_240": 240, "levit_128s": 224, "pit_ti_224": 224, "poolformer_s12": 64, "pvt_v2_b0": 64, "twins_pcpvt_small": 224,
    "twins_svt_small": 224, "xcit_nano_12_p16_224": 224, "mixer_s32_224": 224, "resmlp_12_224": 224, "gmlp_ti16_224": 224, "edgenext_xx_small": 64,
    "mobilevit_xxs": 64, "mobilevitv2_050": 64, "efficientformer_l1": 224, "efficientformerv2_s0": 224, "efficientvit_b0": 64, "efficientvit_m0": 224,
    "fastvit_t8": 64, "focalnet_tiny_srf": 224, "gcvit_xxtiny": 224, "davit_tiny": 64, "nest_tiny": 224, "volo_d1_224": 224, "sequencer2d_s": 224,
    "repvgg_a0": 64, "mobileone_s0": 64, "rexnet_100": 64, "hgnet_tiny": 64, "tiny_vit_5m_224": 224, "visformer_tiny": 224, "tresnet_m": 64,
    "hiera_tiny_224": 224, "starnet_s1": 64, "rdnet_tiny": 64, "lambda_resnet26t": 256, "halonet26t": 256, "botnet26t_256": 256, "bat_resnext26ts": 256,
    "convmixer_768_32": 64, "mambaout_femto": 64, "repvit_m0_9": 64, "nextvit_small": 64, "vit_relpos_small_patch16_224": 224,
    "naflexvit_base_patch16_gap": 224,
}
SHALLOW = {"depth": 2}


def timm_models() -> dict[str, Maker]:
    return {name: functools.partial(_timm, name, size) for name, size in TIMM.items()}


def _timm(name: str, size: int) -> Made:
    import timm

    words = dict(SHALLOW) if name.startswith(("vit_", "deit", "beit", "eva02")) else {}
    return stir(timm.create_model(name, pretrained=False, **words)), (torch.randn(1, 3, size, size),), {}


# ---- transformers: (model, configuration, its values, arguments)


def ids(batch: int = 2, length: int = 10) -> torch.Tensor:
    return torch.randint(3, VOCABULARY - 3, (batch, length))


def image(size: int = 32, channels: int = 3) -> torch.Tensor:
    return torch.randn(2, channels, size, size)


def masked() -> dict[str, Any]:
    mask = torch.ones(2, 10, dtype=torch.long)
    mask[1, 7:] = 0
    return {"input_ids": ids(), "attention_mask": mask}


def both() -> dict[str, Any]:
    return {"input_ids": ids(), "decoder_input_ids": ids(2, 6)}


BASE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": VOCABULARY}
GROUPED = {**BASE, "num_key_value_heads": 2}
PLACED = {**BASE, "max_position_embeddings": 64}
SPECIAL = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
SEQ2SEQ = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
           "decoder_ffn_dim": 64, "vocab_size": VOCABULARY, "max_position_embeddings": 64, **SPECIAL}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": VOCABULARY, "decoder_start_token_id": 0}
VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32, "patch_size": 8}
SPEECH = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "conv_dim": (16, 16), "conv_kernel": (10, 3),
          "conv_stride": (5, 2), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "vocab_size": VOCABULARY}
EXPERTS = {**GROUPED, "num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
Row = tuple[str, str, dict[str, Any], Callable[[], dict[str, Any]]]


def text() -> dict[str, Any]:
    return {"input_ids": ids()}


def pixels(size: int = 32) -> Callable[[], dict[str, Any]]:
    return lambda: {"pixel_values": image(size)}


def wave() -> dict[str, Any]:
    return {"input_values": torch.randn(2, 1000)}


ENCODERS: dict[str, Row] = {
    "bert": ("BertModel", "BertConfig", BASE, masked),
    "bert-mlm": ("BertForMaskedLM", "BertConfig", BASE, masked),
    "bert-cls": ("BertForSequenceClassification", "BertConfig", BASE, masked),
    "roberta": ("RobertaModel", "RobertaConfig", PLACED, masked),
    "xlm-roberta": ("XLMRobertaModel", "XLMRobertaConfig", PLACED, masked),
    "albert": ("AlbertModel", "AlbertConfig", {**BASE, "embedding_size": 16}, masked),
    "electra": ("ElectraModel", "ElectraConfig", {**BASE, "embedding_size": 16}, masked),
    "distilbert": ("DistilBertModel", "DistilBertConfig", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": VOCABULARY}, masked),
    "deberta": ("DebertaModel", "DebertaConfig", {**BASE, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, masked),
    "deberta-v2": ("DebertaV2Model", "DebertaV2Config", {**BASE, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, masked),
    "mpnet": ("MPNetModel", "MPNetConfig", PLACED, masked),
    "mobilebert": ("MobileBertModel", "MobileBertConfig", {**BASE, "embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32}, masked),
    "squeezebert": ("SqueezeBertModel", "SqueezeBertConfig", {**BASE, "embedding_size": 32}, masked),
    "funnel": ("FunnelModel", "FunnelConfig", {"d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64, "block_sizes": [1, 1], "vocab_size": VOCABULARY}, masked),
    "fnet": ("FNetModel", "FNetConfig", BASE, text),
    "longformer": ("LongformerModel", "LongformerConfig", {**PLACED, "attention_window": 4}, masked),
    "big-bird": ("BigBirdModel", "BigBirdConfig", {**BASE, "attention_type": "original_full"}, masked),
    "roformer": ("RoFormerModel", "RoFormerConfig", {**BASE, "embedding_size": 32}, masked),
    "modernbert": ("ModernBertModel", "ModernBertConfig", {**BASE, "pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "eos_token_id": 2, "bos_token_id": 1}, masked),
    "nystromformer": ("NystromformerModel", "NystromformerConfig", {**BASE, "segment_means_seq_len": 10, "num_landmarks": 10}, masked),
    "esm": ("EsmModel", "EsmConfig", {**BASE, "pad_token_id": 1, "mask_token_id": 2, "position_embedding_type": "rotary"}, masked),
    "xlnet": ("XLNetModel", "XLNetConfig", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "vocab_size": VOCABULARY}, text),
    "layoutlm": ("LayoutLMModel", "LayoutLMConfig", BASE, masked),
    "rembert": ("RemBertModel", "RemBertConfig", {**BASE, "input_embedding_size": 16, "output_embedding_size": 16}, masked),
    "camembert": ("CamembertModel", "CamembertConfig", PLACED, masked),
    "canine": ("CanineModel", "CanineConfig", {**BASE, "num_hash_buckets": 64, "local_transformer_stride": 8}, lambda: {"input_ids": torch.randint(0, 500, (2, 32))}),
    "t5-encoder": ("T5EncoderModel", "T5Config", T5, masked),
}
DECODERS: dict[str, Row] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": VOCABULARY, **SPECIAL}, text),
    "gpt-neo": ("GPTNeoForCausalLM", "GPTNeoConfig", {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
                                                      "vocab_size": VOCABULARY, **SPECIAL}, text),
    "gpt-neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", BASE, text),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "vocab_size": VOCABULARY, **SPECIAL}, text),
    "codegen": ("CodeGenForCausalLM", "CodeGenConfig", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "vocab_size": VOCABULARY, **SPECIAL}, text),
    "opt": ("OPTForCausalLM", "OPTConfig", {**PLACED, "ffn_dim": 64, "word_embed_proj_dim": 32, **SPECIAL}, text),
    "bloom": ("BloomForCausalLM", "BloomConfig", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY, **SPECIAL}, text),
    "falcon": ("FalconForCausalLM", "FalconConfig", {**BASE, **SPECIAL}, text),
    "mpt": ("MptForCausalLM", "MptConfig", {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": VOCABULARY}, text),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED, text),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**GROUPED, "sliding_window": 4}, text),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED, text),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**GROUPED, "head_dim": 8}, text),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**GROUPED, "head_dim": 8}, text),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {**GROUPED, "head_dim": 8, "sliding_window": 4}, text),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**GROUPED, "head_dim": 8, "sliding_window": 4}, text),
    "phi": ("PhiForCausalLM", "PhiConfig", BASE, text),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", {**GROUPED, **SPECIAL}, text),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", GROUPED, text),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", GROUPED, text),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", {**GROUPED, **SPECIAL}, text),
    "cohere": ("CohereForCausalLM", "CohereConfig", {**GROUPED, **SPECIAL}, text),
    "granite": ("GraniteForCausalLM", "GraniteConfig", {**GROUPED, **SPECIAL}, text),
    "glm": ("GlmForCausalLM", "GlmConfig", {**GROUPED, "head_dim": 8, **SPECIAL}, text),
    "smollm3": ("SmolLM3ForCausalLM", "SmolLM3Config", {**GROUPED, **SPECIAL}, text),
    "mamba": ("MambaForCausalLM", "MambaConfig", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "vocab_size": VOCABULARY}, text),
    "mamba2": ("Mamba2ForCausalLM", "Mamba2Config", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "num_heads": 8, "head_dim": 8, "n_groups": 1,
                                                     "chunk_size": 4, "vocab_size": VOCABULARY}, text),
    "rwkv": ("RwkvForCausalLM", "RwkvConfig", {"hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32, "vocab_size": VOCABULARY}, text),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", EXPERTS, text),
    "qwen2-moe": ("Qwen2MoeForCausalLM", "Qwen2MoeConfig", {**EXPERTS, "shared_expert_intermediate_size": 32}, text),
    "qwen3-moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**EXPERTS, "head_dim": 8}, text),
    "olmoe": ("OlmoeForCausalLM", "OlmoeConfig", EXPERTS, text),
    "phimoe": ("PhimoeForCausalLM", "PhimoeConfig", EXPERTS, text),
    "gpt-oss": ("GptOssForCausalLM", "GptOssConfig", {**EXPERTS, "head_dim": 8}, text),
    "deepseek-v3": ("DeepseekV3ForCausalLM", "DeepseekV3Config", {**EXPERTS, "num_key_value_heads": 4, "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "kv_lora_rank": 8,
                    "q_lora_rank": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "qk_nope_head_dim": 4, "first_k_dense_replace": 1}, text),
}
SEQUENCE_PAIRS: dict[str, Row] = {
    "t5": ("T5ForConditionalGeneration", "T5Config", T5, both),
    "mt5": ("MT5ForConditionalGeneration", "MT5Config", T5, both),
    "umt5": ("UMT5ForConditionalGeneration", "UMT5Config", T5, both),
    "longt5": ("LongT5ForConditionalGeneration", "LongT5Config", {**T5, "local_radius": 4}, both),
    "switch": ("SwitchTransformersForConditionalGeneration", "SwitchTransformersConfig", {**T5, "num_experts": 4, "num_sparse_encoder_layers": 1,
               "num_sparse_decoder_layers": 1}, both),
    "bart": ("BartForConditionalGeneration", "BartConfig", SEQ2SEQ, both),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig", SEQ2SEQ, both),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", SEQ2SEQ, both),
    "marian": ("MarianMTModel", "MarianConfig", {**SEQ2SEQ, "decoder_start_token_id": 2}, both),
    "blenderbot": ("BlenderbotForConditionalGeneration", "BlenderbotConfig", SEQ2SEQ, both),
    "m2m100": ("M2M100ForConditionalGeneration", "M2M100Config", SEQ2SEQ, both),
    "led": ("LEDForConditionalGeneration", "LEDConfig", {**SEQ2SEQ, "attention_window": 4, "max_encoder_position_embeddings": 64,
            "max_decoder_position_embeddings": 64}, both),
    "prophetnet": ("ProphetNetForConditionalGeneration", "ProphetNetConfig", {"hidden_size": 32, "num_encoder_layers": 2, "num_decoder_layers": 2,
                   "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": VOCABULARY}, both),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", {**SEQ2SEQ, "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 32,
                "decoder_start_token_id": 0, "begin_suppress_tokens": None, "suppress_tokens": None},
                lambda: {"input_features": torch.randn(2, 8, 40), "decoder_input_ids": ids(2, 6)}),
    "speech-to-text": ("Speech2TextForConditionalGeneration", "Speech2TextConfig", {**SEQ2SEQ, "input_feat_per_channel": 8, "conv_channels": 16,
                       "max_source_positions": 64, "max_target_positions": 64}, lambda: {"input_features": torch.randn(2, 40, 8), "decoder_input_ids": ids(2, 6)}),
}
VISIONS: dict[str, Row] = {
    "vit": ("ViTModel", "ViTConfig", VISION, pixels()),
    "vit-cls": ("ViTForImageClassification", "ViTConfig", VISION, pixels()),
    "deit": ("DeiTModel", "DeiTConfig", VISION, pixels()),
    "beit": ("BeitModel", "BeitConfig", VISION, pixels()),
    "dinov2": ("Dinov2Model", "Dinov2Config", VISION, pixels()),
    "ijepa": ("IJepaModel", "IJepaConfig", VISION, pixels()),
    "vit-mae": ("ViTMAEModel", "ViTMAEConfig", VISION, pixels()),
    "yolos": ("YolosModel", "YolosConfig", {**VISION, "image_size": [32, 32], "num_detection_tokens": 4}, pixels()),
    "swin": ("SwinModel", "SwinConfig", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}, pixels()),
    "swinv2": ("Swinv2Model", "Swinv2Config", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}, pixels()),
    "convnext": ("ConvNextModel", "ConvNextConfig", {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]}, pixels(64)),
    "convnextv2": ("ConvNextV2Model", "ConvNextV2Config", {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]}, pixels(64)),
    "resnet": ("ResNetModel", "ResNetConfig", {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "embedding_size": 8}, pixels(64)),
    "regnet": ("RegNetModel", "RegNetConfig", {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "embedding_size": 8, "groups_width": 8}, pixels(64)),
    "mobilenet-v2": ("MobileNetV2Model", "MobileNetV2Config", {}, pixels(64)),
    "efficientnet": ("EfficientNetModel", "EfficientNetConfig", {"hidden_dim": 2560}, pixels(64)),
    "segformer": ("SegformerForSemanticSegmentation", "SegformerConfig", {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "decoder_hidden_size": 16}, pixels(64)),
    "poolformer": ("PoolFormerModel", "PoolFormerConfig", {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}, pixels(64)),
    "pvt": ("PvtModel", "PvtConfig", {"image_size": 64, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 1, 2, 2]}, pixels(64)),
    "mobilevit": ("MobileViTModel", "MobileViTConfig", {"image_size": 64, "hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [8, 8, 16, 16, 16, 16, 32]}, pixels(64)),
    "levit": ("LevitModel", "LevitConfig", {}, pixels(224)),
    "dpt": ("DPTForDepthEstimation", "DPTConfig", {**VISION, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8, 8, 8, 8], "fusion_hidden_size": 16,
            "is_hybrid": False}, pixels()),
    "detr": ("DetrForObjectDetection", "DetrConfig", {"use_timm_backbone": True, "use_pretrained_backbone": False, "backbone": "resnet18", "d_model": 32, "encoder_layers": 1,
             "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_queries": 5}, pixels(64)),
    "clip": ("CLIPModel", "CLIPConfig", {"text_config": {**PLACED, "eos_token_id": 1, "bos_token_id": 0}, "vision_config": VISION, "projection_dim": 16},
             lambda: {**masked(), "pixel_values": image()}),
    "siglip": ("SiglipModel", "SiglipConfig", {"text_config": PLACED, "vision_config": VISION}, lambda: {"input_ids": ids(), "pixel_values": image()}),
    "blip": ("BlipModel", "BlipConfig", {"text_config": {**PLACED, "encoder_hidden_size": 32}, "vision_config": VISION, "projection_dim": 16, "image_text_hidden_size": 16},
             lambda: {**masked(), "pixel_values": image()}),
    "vilt": ("ViltModel", "ViltConfig", {**VISION, "vocab_size": VOCABULARY, "max_position_embeddings": 64}, lambda: {**masked(), "pixel_values": image()}),
    "llava": ("LlavaForConditionalGeneration", "LlavaConfig", {"text_config": {"model_type": "llama", **GROUPED}, "vision_config": {"model_type": "clip_vision_model", **VISION},
              "image_token_index": 5, "vision_feature_select_strategy": "default", "vision_feature_layer": -1},
              lambda: {"input_ids": torch.cat([torch.full((2, 16), 5), ids(2, 6)], 1).clamp(0, 95), "pixel_values": image()}),
}
SOUNDS: dict[str, Row] = {
    "wav2vec2": ("Wav2Vec2Model", "Wav2Vec2Config", SPEECH, wave),
    "wav2vec2-ctc": ("Wav2Vec2ForCTC", "Wav2Vec2Config", SPEECH, wave),
    "hubert": ("HubertModel", "HubertConfig", SPEECH, wave),
    "wavlm": ("WavLMModel", "WavLMConfig", {**SPEECH, "num_buckets": 16, "max_bucket_distance": 32}, wave),
    "unispeech": ("UniSpeechModel", "UniSpeechConfig", SPEECH, wave),
    "data2vec-audio": ("Data2VecAudioModel", "Data2VecAudioConfig", {**SPEECH, "num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 3}, wave),
    "sew": ("SEWModel", "SEWConfig", {**SPEECH, "squeeze_factor": 2}, wave),
    "ast": ("ASTModel", "ASTConfig", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "max_length": 64, "num_mel_bins": 16,
            "patch_size": 8, "frequency_stride": 8, "time_stride": 8}, lambda: {"input_values": torch.randn(2, 64, 16)}),
    "encodec": ("EncodecModel", "EncodecConfig", {"num_filters": 4, "hidden_size": 16, "codebook_dim": 16, "codebook_size": 32, "upsampling_ratios": [4, 2]}, lambda: {"input_values": torch.randn(1, 1, 800)}),
}
WITH_CACHE = ("gpt2", "llama", "mistral", "qwen2", "gemma2", "opt", "bloom", "mixtral", "t5", "bart")
GENERATING = ("gpt2", "llama", "qwen2", "gemma2", "opt", "mixtral", "mamba", "t5", "bart", "whisper")
ALL_ROWS = {**ENCODERS, **DECODERS, **SEQUENCE_PAIRS, **VISIONS, **SOUNDS}


def transformers_models() -> dict[str, Maker]:
    plain = {name: functools.partial(_transformer, name) for name in ALL_ROWS}
    return plain | {f"{name}+cache": functools.partial(_with_cache, name) for name in WITH_CACHE}


def _build(name: str) -> tuple[nn.Module, dict[str, Any]]:
    library = importlib.import_module("transformers")
    model, config, values, arguments = ALL_ROWS[name]
    made = getattr(library, model)(getattr(library, config)(**values))
    return stir(made), arguments()


def _transformer(name: str) -> Made:
    model, arguments = _build(name)
    with contextlib.suppress(AttributeError):
        model.config.use_cache = False
    return model, (), arguments


class Step(nn.Module):
    """One call that fills a cache and one that goes on from it, as a loop of decoding does."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, **arguments: Any) -> Any:
        first = self.model(use_cache=True, **arguments)
        word = "decoder_input_ids" if "decoder_input_ids" in arguments else "input_ids"
        following = {**arguments, word: arguments[word][:, -1:]}
        return first.logits, self.model(use_cache=True, past_key_values=first.past_key_values, **following).logits


def _with_cache(name: str) -> Made:
    model, arguments = _build(name)
    return Step(model).eval(), (), arguments


def generate_models() -> dict[str, Maker]:
    return {f"{name}{way}": functools.partial(_generating, name, words)
            for way, words in WAYS.items() for name in GENERATING if name not in WITHOUT.get(way, ())}


class Generate:
    """`generate` of a model whose forward is compiled."""

    def __init__(self, model: nn.Module, words: dict[str, Any]):
        self.model, self.words = model, words

    def compiled(self, compile: Callable[[Any], Any]) -> Callable[..., Any]:
        self.model.forward = compile(self.model.forward)
        return self

    def __call__(self, **arguments: Any) -> Any:
        return self.model.generate(**(GREEDY | self.words), **arguments)


GREEDY = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
WAYS = {"": {}, "+sample": {"do_sample": True, "temperature": 0.8, "top_k": 20}, "+beam": {"num_beams": 3}, "+static": {"cache_implementation": "static"}}
WITHOUT = {"+static": ("mamba", "bart", "whisper"), "+beam": ("mamba",)}         # what `generate` of these does not do


def _generating(name: str, words: dict[str, Any]) -> Any:
    model, arguments = _build(name)
    arguments.pop("decoder_input_ids", None)
    return Generate(model, words), (), arguments
