"""One update of learners from images in float64, written down from the papers line by line.

Weights come out of a learner's own state, random numbers out of a copy of its generator; nothing
else is shared with the code that is checked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from robot_rl.core.transition import Batch

Weights = Mapping[str, Tensor]


def doubled(module: Any) -> dict[str, Tensor]:
    """Weights by name, in float64, each a leaf that takes gradients."""
    return {
        name: value.detach().double().clone().requires_grad_(value.is_floating_point())
        for name, value in module.state_dict().items()
    }


@dataclass
class Draws:
    """Random numbers in the order in which an update asks for them."""

    generator: torch.Generator
    shift: int

    def crop(self, images: Tensor) -> Tensor:
        """Pad each side with its own pixels, and cut the frame out at a random place."""
        rows, _, height, width, _ = images.shape
        moved = torch.randint(-self.shift, self.shift + 1, (2, rows, 1), generator=self.generator)
        found = torch.empty_like(images)
        for i in range(rows):
            frames = images[i].permute(0, 3, 1, 2).double()  # (S, C, H, W)
            padded = functional.pad(frames, [self.shift] * 4, mode="replicate")
            top, left = (int(moved[axis, i]) + self.shift for axis in (0, 1))
            cut = padded[:, :, top : top + height, left : left + width]
            found[i] = cut.permute(0, 2, 3, 1).to(torch.uint8)
        return found

    def normal(self, *shape: int) -> Tensor:
        """Standard normals."""
        return torch.randn(shape, generator=self.generator).double()


def convolved(weights: Weights, name: str, images: Tensor, strides: list[int]) -> Tensor:
    """Frames side by side as channels, divided by 255 and less 1/2, through convolutions."""
    x = torch.cat([frame.permute(0, 3, 1, 2) for frame in images.unbind(1)], dim=1)
    x = x.double() / 255 - 0.5
    for i, stride in enumerate(strides):
        layer = f"cameras.{name}.layers.{2 * i}"
        x = functional.conv2d(x, weights[f"{layer}.weight"], weights[f"{layer}.bias"], stride)
        x = functional.relu(x)
    return x.permute(0, 2, 3, 1).flatten(1)


def trunk(weights: Weights, features: Mapping[str, Tensor]) -> Tensor:
    """Linear, layer norm, tanh, for every camera."""
    parts = []
    for name, x in features.items():
        layer = f"trunk.cameras.{name}"
        x = functional.linear(x, weights[f"{layer}.0.weight"], weights[f"{layer}.0.bias"])
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
        x = (x - mean) / torch.sqrt(variance + 1e-5)
        parts.append(torch.tanh(x * weights[f"{layer}.1.weight"] + weights[f"{layer}.1.bias"]))
    return torch.cat(parts, -1)


def network(weights: Weights, x: Tensor) -> Tensor:
    """A perceptron with ReLU and one hidden layer; of an ensemble all members, (E, B, out)."""
    if weights["network.0.weight"].ndim == 2:
        x = functional.linear(x, weights["network.0.weight"], weights["network.0.bias"])
        return functional.linear(
            functional.relu(x), weights["network.2.weight"], weights["network.2.bias"]
        )
    x = torch.einsum("bi,eio->ebo", x, weights["network.0.weight"]) + weights["network.0.bias"]
    x = functional.relu(x)
    return torch.einsum("ebi,eio->ebo", x, weights["network.2.weight"]) + weights["network.2.bias"]


def seen(weights: Weights, vector: Tensor, features: Mapping[str, Tensor]) -> Tensor:
    """Normalised proprioception, and the trunk of images behind it."""
    normal = (vector.double() - weights["normalizer.mean"]) * weights["normalizer.scale"]
    return torch.cat([normal.clamp(-10, 10), trunk(weights, features)], -1)


def q_values(
    weights: Weights, vector: Tensor, features: Mapping[str, Tensor], action: Tensor
) -> Tensor:
    """(E, B)."""
    return network(weights, torch.cat([seen(weights, vector, features), action], -1))[..., 0]


@dataclass
class Encoded:
    """Features of a batch's frames."""

    obs: dict[str, Tensor]
    next_obs: dict[str, Tensor]

    @classmethod
    def of(cls, encoder: Weights, batch: Batch, draws: Draws, strides: list[int]) -> "Encoded":
        """Crop obs and next obs separately; only the former have a graph."""
        names = [name for name in batch.obs if name.startswith("image/")]
        cropped = {name: draws.crop(batch.obs[name]) for name in names}
        obs = {name: convolved(encoder, name, x, strides) for name, x in cropped.items()}
        cropped = {name: draws.crop(batch.next_obs[name]) for name in names}
        after = {name: convolved(encoder, name, x, strides) for name, x in cropped.items()}
        return cls(obs, {name: x.detach() for name, x in after.items()})
