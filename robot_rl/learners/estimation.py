"""Encoders that learn beside the actor's loss: privileged quantities, and the next observation.

DreamWaQ (Nahrendra et al. 2023, arXiv:2301.10602) estimates the base's velocity and reconstructs
the next observation from a latent of the past; here the latent is no distribution, and no
divergence is in the loss. After each update of the algorithm the encoder takes a step of its own
on the same minibatch, with an Adam of its own, as encoders beside SAC do (Yarats et al. 2019,
arXiv:1910.01741).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from policies.networks.deterministic_actor import DeterministicActor
from policies.networks.gaussian_actor import GaussianActor
from policies.networks.inputs import EncodedNetwork, EncoderConfig, EncoderKind, RunningNormalizer
from policies.networks.mlp import mlp
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.transition import Batch
from robot_rl.learners.networks import PRIVILEGED, Actor, estimated_columns
from robot_rl.learners.optimization import DescentConfig, Optimizer, Reduce, check_ranges


@dataclass(kw_only=True)
class EstimationConfig:
    """Loss by which an encoder learns what `actor.encoder.estimate` names."""

    encoder_lr: float = 1e-3
    """Step size of encoder and decoder on these losses."""
    next_obs: bool = False
    """Reconstruct the present frame of the next observation, which is that `n_step` steps later,
    from the latent (DreamWaQ has 1 step)."""

    def __post_init__(self) -> None:
        check_ranges(self, {"encoder_lr": (0, 1)}, "learner.estimation")


def make_estimation(
    config: EstimationConfig, descent: DescentConfig, actor: Actor, spec: EnvSpec,
    reduce: Reduce | None,
) -> "Estimation | None":  # fmt: skip
    """The loss of an actor's encoder, where its config asks for one.

    Raises:
        ConfigError: There is no encoder to learn.
    """
    encoder = actor.config.encoder if isinstance(actor, _ENCODING) else EncoderConfig()
    if not encoder.estimate and not config.next_obs:
        return None
    if encoder.kind is EncoderKind.none:
        raise ConfigError(
            "learner.estimation.next_obs=true needs an encoder; choose "
            "learner.actor.encoder.kind=mlp or conv"
        )
    assert isinstance(actor, _ENCODING)
    estimator = Estimator(
        actor, estimated_columns(encoder, spec), next_obs=config.next_obs, device=spec.device
    )
    return Estimation(estimator, Optimizer(
        estimator.parameters(), config.encoder_lr, descent, reduce=reduce
    ))  # fmt: skip


_ENCODING = (GaussianActor, DeterministicActor)


class Estimation:
    """Losses of an encoder, and the optimiser that steps down them."""

    def __init__(self, estimator: "Estimator", optimizer: Optimizer) -> None:
        self.groups = (PRIVILEGED,) if estimator.estimates else ()
        """Observation groups that the losses need."""
        self.update_statistics = estimator.update_statistics
        self._estimator, self._optimizer = estimator, optimizer

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """One step of the encoder; returns detached losses by name, 0-dim."""
        losses = self._estimator.losses(batch.obs, batch.next_obs)
        means = {name: (batch.weight * loss).mean() for name, loss in losses.items()}
        self._optimizer.step(sum(means.values(), start=batch.weight.new_zeros(())))
        return {name: loss.detach() for name, loss in means.items()}

    def parts(self) -> dict[str, Any]:
        """Parts with a state, by the name it is saved under."""
        return {"estimator": self._estimator, "estimator_optimizer": self._optimizer}


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
            next_obs: Reconstruct the present frame of a batch's `next_obs` from the latent.
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

    @property
    def estimates(self) -> bool:
        """True if privileged quantities are estimated."""
        return self._network.estimated > 0

    def parameters(self) -> list[nn.Parameter]:
        """Parameters that the losses train: the encoder's, and the decoder's."""
        decoder = [] if self._decoder is None else self._decoder.parameters()
        return list(chain(self._network.encoder.parameters(), decoder))

    def losses(self, obs: Obs, next_obs: Obs) -> dict[str, Tensor]:
        """Mean squared errors of every row, (B,) each, over standardised entries."""
        latent = self._actor.latent(obs)
        losses: dict[str, Tensor] = {}
        if self.estimates:
            target = self._normalizer(obs[PRIVILEGED].index_select(-1, self._columns))
            estimate = latent[:, : self._network.estimated]
            losses["estimate_loss"] = (estimate - target).square().mean(-1)
        if self._decoder is not None:
            seen = self._actor.normalized(next_obs).index_select(-1, self._network.present)
            losses["next_obs_loss"] = (self._decoder(latent) - seen).square().mean(-1)
        return losses

    def update_statistics(self, obs: Obs) -> None:
        """Take what is estimated, (N, ...), into its normaliser."""
        if self.estimates:
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
