"""What an encoder learns beside the actor's loss: privileged quantities, and what comes next.

DreamWaQ (Nahrendra et al. 2023, arXiv:2301.10602) estimates the base's velocity and reconstructs
the next observation from a latent of the past. Here the latent is no distribution: there is no
divergence in the loss.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from policies.deterministic_actor import DeterministicActor
from policies.gaussian_actor import GaussianActor
from policies.history.encoded import EncodedNetwork
from policies.mlp import mlp
from policies.normalizer import RunningNormalizer
from robot_rl.core.env import Obs, TermSpec
from robot_rl.core.errors import ConfigError, unknown_name

PRIVILEGED = "critic"
"""Observation group that estimates are compared with."""


def estimated_columns(terms: Sequence[TermSpec], names: Sequence[str]) -> list[int]:
    """Columns of the group `critic` that an encoder estimates.

    Raises:
        ConfigError: The group has no such term.
    """
    found: dict[str, list[int]] = {}
    start = 0
    for term in terms:
        found[term.name] = list(range(start, start + term.size))
        start += term.size
    for name in names:
        if name not in found:
            raise ConfigError(unknown_name("term of actor.encoder.estimate", name, found))
    return [column for name in names for column in found[name]]


class Estimator:
    """Losses of an actor's encoder; what only they need is not part of the actor."""

    def __init__(
        self, actor: GaussianActor | DeterministicActor, columns: Sequence[int], *, next_obs: bool,
        device: torch.device,
    ) -> None:  # fmt: skip
        """Draw the weights of the decoder.

        Args:
            actor: Its encoder learns.
            columns: Of the group `critic`, estimated by the first entries of the latent.
            next_obs: Reconstruct the next present frame from the latent.
            device: Where the actor lives, or will.
        """
        assert isinstance(actor.network, EncodedNetwork)
        self._actor, self._network = actor, actor.network
        self._columns = torch.tensor(columns, dtype=torch.int64, device=device)
        self._normalizer = RunningNormalizer(len(columns)).to(device)
        self._decoder: nn.Module | None = None
        if next_obs:
            encoder = actor.config.encoder
            sizes = [self._network.latent_size, *reversed(encoder.hidden)]
            last = len(self._network.present)
            self._decoder = mlp([*sizes, last], encoder.activation).to(device)

    def parameters(self) -> list[nn.Parameter]:
        """What the losses train: the encoder, and the decoder."""
        decoder = [] if self._decoder is None else self._decoder.parameters()
        return list(chain(self._network.encoder.parameters(), decoder))

    def losses(self, obs: Obs, next_obs: Obs) -> dict[str, Tensor]:
        """Mean squared errors of every row, (B,) each, over standardised entries."""
        latent = self._actor.latent(obs)
        losses: dict[str, Tensor] = {}
        if self._network.estimated:
            target = self._normalizer(obs[PRIVILEGED].index_select(-1, self._columns))
            estimate = latent[:, : self._network.estimated]
            losses["estimate_loss"] = (estimate - target).square().mean(-1)
        if self._decoder is not None:
            seen = self._actor.normalized(next_obs).index_select(-1, self._network.present)
            losses["next_obs_loss"] = (self._decoder(latent) - seen).square().mean(-1)
        return losses

    def estimate(self, obs: Obs) -> Tensor:
        """The estimates in the units of their terms, (N, E)."""
        latent = self._actor.latent(obs)
        return latent[:, : self._network.estimated] / self._normalizer.scale + self._normalizer.mean

    def update_statistics(self, obs: Obs) -> None:
        """Take what is estimated, (N, ...), into its normaliser."""
        if self._network.estimated:
            self._normalizer.update(obs[PRIVILEGED].index_select(-1, self._columns))

    def state_dict(self) -> dict[str, Any]:
        """Normaliser and decoder; the encoder is part of the actor."""
        decoder = {} if self._decoder is None else self._decoder.state_dict()
        return {"normalizer": self._normalizer.state_dict(), "decoder": decoder}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._normalizer.load_state_dict(state["normalizer"])
        if self._decoder is not None:
            self._decoder.load_state_dict(state["decoder"])
