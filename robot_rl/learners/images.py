"""Learning from images: sampled frames are shifted at random and encoded once per update.

The encoder is trained by the critics' loss, and the actor sees features that its gradient does not
pass; next observations are encoded by the same encoder without a gradient (Yarats et al. 2021,
DrQ-v2, arXiv:2107.09645). With critics that see no images the actor's loss trains it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from policies.networks.images import ImageConfig, ImageEncoder, ImageEncoderKind, ImageTrunk
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.transition import Batch


class ImageLearning:
    """The encoder of a learner, and the batches that it makes."""

    def __init__(self, config: ImageConfig, spec: EnvSpec) -> None:
        """Make the encoder; `config.encoder` is not none.

        Raises:
            ConfigError: The environment has no such camera.
        """
        self.config = config
        self.encoder = ImageEncoder(config, spec).to(spec.device)
        """Trained in place."""

    def trunk(self) -> ImageTrunk:
        """A new trunk, for an actor or for critics."""
        return ImageTrunk(self.encoder.sizes, self.config.features)

    def params(self, *, of_actor: bool) -> list[nn.Parameter]:
        """Parameters of the encoder, for the optimiser of the actor or of the critics."""
        trains = of_actor == self.config.privileged_critic
        return list(self.encoder.parameters()) if trains else []

    def encode(
        self, batch: Batch, generator: torch.Generator,
        autocast: Callable[[], AbstractContextManager[Any]],
    ) -> Batch:  # fmt: skip
        """The batch with features of shifted frames in place of images.

        Those of `obs` have a graph, those of `next_obs` have none.
        """
        with autocast():
            obs = self.encode_obs(batch.obs, generator)
            with torch.no_grad():
                next_obs = self.encode_obs(batch.next_obs, generator)
        return replace(batch, obs=obs, next_obs=next_obs)

    def encode_obs(self, obs: Obs, generator: torch.Generator) -> Obs:
        """Observations with features of shifted frames in place of images, with a graph."""
        return self.encoder(self.shifted(obs, generator))

    def of_actor(self, batch: Batch) -> Batch:
        """An encoded batch as the actor learns from it."""
        if self.config.privileged_critic:
            return batch
        return replace(batch, obs={name: group.detach() for name, group in batch.obs.items()})

    @torch.no_grad()
    def encoded(self, batch: Batch) -> Batch:
        """The batch with features of frames as they are, for looking at it."""
        return replace(batch, obs=self.encoder(batch.obs), next_obs=self.encoder(batch.next_obs))

    def shifted(self, obs: Obs, generator: torch.Generator) -> Obs:
        """Observations whose frames are shifted at random, where the config says so."""
        shift = self.config.shift
        if shift == 0:
            return obs
        return obs | {
            name: random_shift(obs[name], shift, generator) for name in self.encoder.groups
        }


def check_no_critic(config: ImageConfig) -> None:
    """Refuse what only a critic could do, for a learner that has none.

    Raises:
        ConfigError: A critic of its own groups was asked for.
    """
    if config.privileged_critic:
        raise ConfigError(
            "learner.images.privileged_critic=true was asked for, and this learner has no critic: "
            "its own loss trains the encoder; leave it out"
        )


def make_image_learning(config: ImageConfig, spec: EnvSpec) -> ImageLearning | None:
    """The encoder that a config asks for; None without images."""
    return None if config.encoder is ImageEncoderKind.none else ImageLearning(config, spec)


def random_shift(images: Tensor, limit: int, generator: torch.Generator) -> Tensor:
    """Move every stack by whole pixels, all of its frames alike; edges are repeated.

    Equal to padding by `limit` with the pixels at the edge and cropping at a random place (DrQ-v2,
    whose code interpolates between pixels at places that are whole ones).

    Args:
        images: (B, S, H, W, C).
        limit: Largest displacement in each direction [pixels].
        generator: Of the displacements, on the device of the images.

    Returns:
        (B, S, H, W, C), with the S frames of a pixel side by side in memory.
    """
    rows, stack, height, width, channels = images.shape
    moved = torch.randint(
        -limit, limit + 1, (2, rows, 1), generator=generator, device=images.device
    )
    y = (torch.arange(height, device=images.device) + moved[0]).clamp_(0, height - 1)  # (B, H)
    x = (torch.arange(width, device=images.device) + moved[1]).clamp_(0, width - 1)  # (B, W)
    first = torch.arange(rows, device=images.device)[:, None] * height
    pixel = ((first + y) * width)[:, :, None] + x[:, None]  # (B, H, W)
    pixels = _side_by_side(images).view(-1, stack * channels)
    found = pixels.index_select(0, pixel.flatten())
    return found.view(rows, height, width, stack, channels).permute(0, 3, 1, 2, 4)


def _side_by_side(images: Tensor) -> Tensor:
    """(B, S, H, W, C) -> (B, H, W, S * C), contiguous."""
    if images.device.type != "cpu":
        return images.permute(0, 2, 3, 1, 4).flatten(3)
    # One copy moves rows of C bytes; S * C copies move all pixels at once, in a third of the time.
    rows, stack, height, width, channels = images.shape
    joined = images.new_empty(rows, height, width, stack, channels)
    for frame in range(stack):
        for channel in range(channels):
            joined[:, :, :, frame, channel] = images[:, frame, :, :, channel]
    return joined.flatten(3)
