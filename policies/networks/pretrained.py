"""Vision models with weights from a folder of this computer, as encoders of cameras.

A folder as the package transformers writes and hubs hand out: `config.json`,
`model.safetensors`, and `preprocessor_config.json` where colours are to be normalised in a way of
its own. Nothing is downloaded.
"""

import json
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.core.errors import ConfigError, MissingExtraError

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of red, green and blue in ImageNet, from 0 to 1: what most models were trained with."""

_UNUSED = "pooler"
"""Begins the names of weights that no encoder needs, and that some files leave out."""


class PretrainedModel(nn.Module):
    """Frames -> maps of features; a model of transformers, as in evaluation at all times."""

    mean: Tensor
    std: Tensor

    def __init__(self, folder: str, *, frozen: bool) -> None:
        """Read it.

        Args:
            folder: Place of the model; its weights in safetensors.
            frozen: Its weights stay as they are.

        Raises:
            ConfigError: There is no such model, or it is none of images.
            MissingExtraError: The package transformers is not installed.
        """
        super().__init__()
        if not folder or not (Path(folder) / "config.json").is_file():
            raise ConfigError(
                "learner.images.encoder=pretrained needs the folder of a vision model of "
                "transformers, with config.json and model.safetensors; got "
                f"learner.images.weights={folder or '(nothing)'}"
            )
        if find_spec("transformers") is None:
            raise MissingExtraError("transformers", "vision", "learner.images.encoder=pretrained")
        self.model = _read(folder)
        self.model.requires_grad_(not frozen)
        self.frozen = frozen
        mean, std = _colours(Path(folder))
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(std)[:, None, None], persistent=False)
        wanted: Any = getattr(self.model.config, "image_size", None)
        self._size = (wanted, wanted) if isinstance(wanted, int) else tuple(wanted or ())
        self.eval()

    def train(self, mode: bool = True) -> "PretrainedModel":
        """Nothing: statistics of batch norm and dropout stay those of evaluation."""
        return self

    def forward(self, frames: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> (B, C, P), features of P places; a class token is one.

        Frames are brought to the size that the model was trained with, where it has one.
        """
        x = (frames - self.mean) / self.std
        if self._size and self._size != tuple(x.shape[-2:]):
            x = nn.functional.interpolate(x, self._size, mode="bilinear", align_corners=False)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            found = self.model(x).last_hidden_state
        if found.ndim == 4:  # of convolutions, (B, C, H, W)
            return found.flatten(2)
        return found.transpose(1, 2)  # of a transformer, (B, P, C)


def _read(folder: str) -> nn.Module:
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        model, told = AutoModel.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, output_loading_info=True,
            dtype=torch.float32,
        )  # fmt: skip
    except Exception as error:  # transformers' and its packages' kinds have no common parent
        raise ConfigError(
            f"learner.images.weights={folder}: transformers cannot read it "
            f"({str(error).splitlines()[0][:300]}); expected a vision model with config.json and "
            "model.safetensors"
        ) from error
    if getattr(model, "main_input_name", "") != "pixel_values":
        raise ConfigError(
            f"learner.images.weights={folder} holds a {type(model).__name__}, which reads "
            f"{getattr(model, 'main_input_name', 'nothing')}; expected a model of images"
        )
    missing = sorted(name for name in told["missing_keys"] if not name.startswith(_UNUSED))
    if missing:
        raise ConfigError(
            f"learner.images.weights={folder}: model.safetensors lacks {len(missing)} weights of "
            f"the {type(model).__name__} in config.json, such as {missing[0]}; expected both of "
            "one model"
        )
    return model


def _colours(folder: Path) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of red, green and blue.

    Raises:
        ConfigError: The folder says something else than three numbers each.
    """
    path = folder / "preprocessor_config.json"
    try:
        told = json.loads(path.read_text()) if path.is_file() else {}
        if told.get("do_normalize") is False:
            return [0.0] * 3, [1.0] * 3
        mean, std = (
            [float(one) for one in told.get(name) or default]
            for name, default in (("image_mean", _MEAN), ("image_std", _STD))
        )
        right = len(mean) == len(std) == 3 and all(map(math.isfinite, mean + std)) and min(std) > 0
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not right:
        raise ConfigError(
            f"{path} says image_mean {mean} and image_std {std}; expected three numbers each, of "
            "red, green and blue, and no std of 0 or less"
        )
    return mean, std
