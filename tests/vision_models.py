"""Vision models of a few weights, in folders as the package transformers writes them."""

from pathlib import Path
from typing import Any


def small_model(kind: str) -> Any:
    """A transformer (vit) or convolutions (resnet), drawn at random; transformers takes seconds."""
    from transformers import ResNetConfig, ResNetModel, ViTConfig, ViTModel

    if kind == "vit":
        config = ViTConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
            image_size=16, patch_size=8,
        )  # fmt: skip
        return ViTModel(config)
    return ResNetModel(
        ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    )


def save_model(folder: Path | str, kind: str) -> str:
    """Write one; returns its folder."""
    small_model(kind).save_pretrained(folder)
    return str(folder)
