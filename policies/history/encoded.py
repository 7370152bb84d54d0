"""An actor's network behind an encoder: it sees the present frame and a latent of the past ones."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from policies.history.columns import Columns, find_columns
from policies.history.encoder import EncoderConfig, EncoderKind, make_encoder
from policies.trunks.kinds import NetworkShape, make_network
from robot_rl.core.env import Obs, TermSpec
from robot_rl.core.errors import ConfigError


class SeeingShape(NetworkShape, Protocol):
    """What the config of an actor says about its network and about what stands before it."""

    groups: list[str]
    encoder: EncoderConfig


def make_actor_network(
    config: SeeingShape, inputs: int, outputs: int, terms: Sequence[TermSpec], estimated: int
) -> nn.Module:
    """The network of an actor: (B, inputs) -> (B, outputs).

    Args:
        config: Its shape.
        inputs: Width of all groups that it reads.
        outputs: Width of its output.
        terms: What these groups consist of; an encoder and `encoder.frames` need to know.
        estimated: Width of what the encoder estimates.

    Raises:
        ConfigError: There is nothing to encode, or the terms are not known.
    """
    encoder = config.encoder
    if encoder.kind is EncoderKind.none and not encoder.frames:
        return make_network(config, inputs, outputs)
    if sum(term.size for term in terms) != inputs:
        raise ConfigError(
            f"actor.encoder needs to know the terms of the {inputs} entries that the actor sees, "
            "and this environment does not tell them; leave actor.encoder out, or train in "
            "env=sim"
        )
    encoded = None if encoder.kind is EncoderKind.none else encoder.terms
    columns = find_columns(terms, frames=encoder.frames, encoded=encoded)
    return EncodedNetwork(config, columns, outputs, estimated=estimated)


class EncodedNetwork(nn.Module):
    """Picks the present frame, encodes the window, and hands both to the network behind.

    The first `estimated` entries of the latent mean something: they learn from estimates alone, and
    the gradient of what is done with them stops there.
    """

    present: Tensor
    window: Tensor

    def __init__(
        self, config: SeeingShape, columns: Columns, outputs: int, *, estimated: int
    ) -> None:
        """Build encoder and network.

        Args:
            config: Shapes of both.
            columns: What is seen and what is encoded.
            outputs: Width of the output.
            estimated: Width of the estimates.
        """
        super().__init__()
        self.estimated = estimated
        """Entries of the latent that are estimates."""
        self.latent_size = estimated + config.encoder.latent if columns.window else 0
        """Entries of the latent."""
        flat = [column for frame in columns.window for column in frame]
        self.register_buffer("present", torch.tensor(columns.present), persistent=False)
        self.register_buffer("window", torch.tensor(flat, dtype=torch.int64), persistent=False)
        self.encoder: nn.Module = nn.Identity()
        if columns.window:
            frames, width = len(columns.window), len(columns.window[0])
            self.encoder = make_encoder(config.encoder, frames, width, self.latent_size)
        # Built last: how the last layer of all begins is said by name elsewhere.
        self.body = make_network(config, len(columns.present) + self.latent_size, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, out)."""
        seen = x.index_select(-1, self.present)
        if self.latent_size:
            estimate, rest = self.latent(x).split(
                [self.estimated, self.latent_size - self.estimated], dim=-1
            )
            seen = torch.cat([seen, estimate.detach(), rest], dim=-1)
        return self.body(seen)

    def latent(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, latent), the estimates first."""
        return self.encoder(x.index_select(-1, self.window))


def latent_of(network: nn.Module, x: Tensor) -> Tensor:
    """What the encoder of an actor's network makes of (B, D): (B, latent).

    Raises:
        ConfigError: There is no encoder.
    """
    if not isinstance(network, EncodedNetwork) or not network.latent_size:
        raise ConfigError(
            "a latent was asked of an actor without an encoder; train it with "
            "learner.actor.encoder.kind=mlp or conv"
        )
    return network.latent(x)


def check_groups(groups: Sequence[str]) -> None:
    """Refuse an actor that sees nothing, or a group twice."""
    if not groups or len(set(groups)) < len(groups):
        raise ConfigError(
            f"actor.groups needs different observation groups, at least one, got {list(groups)}; "
            "such as [actor], or [critic] for a teacher"
        )


def read_groups(obs: Obs, groups: Sequence[str]) -> Tensor:
    """The groups that an actor sees, side by side, (N, D)."""
    if len(groups) == 1:
        return obs[groups[0]]
    return torch.cat([obs[name] for name in groups], dim=-1)
