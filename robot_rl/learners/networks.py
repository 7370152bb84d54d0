"""Networks of the learners: what is asked of them, and their making for an environment."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from policies.networks.categorical_actor import CategoricalActor, CategoricalActorConfig
from policies.networks.deterministic_actor import (
    DeterministicActor,
    DeterministicActorConfig,
    NormalActor,
    NormalActorConfig,
)
from policies.networks.gaussian_actor import GaussianActor, GaussianActorConfig
from policies.networks.inputs import ActorConfig, EncoderConfig, EncoderKind
from policies.networks.q_ensemble import QEnsemble, QEnsembleConfig
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.seeding import derive_seed
from robot_rl.core.transition import Batch
from robot_rl.learners.images import ImageLearning

_SHARED = "trunk"
"""Name within that of what the members of an ensemble share."""
PRIVILEGED = "critic"
"""Observation group of the critics, which estimates are compared with too."""


class Network(Protocol):
    """The part of `torch.nn.Module` that learners use, and what our networks have beside it."""

    def to(self, device: torch.device) -> Self:
        """Move to a device."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """Trained tensors."""
        ...

    def buffers(self) -> Iterator[Tensor]:
        """Tensors that are kept but not trained."""
        ...

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Switch gradients of all parameters."""
        ...

    def train(self, mode: bool = True) -> Self:
        """Let batch norm take the statistics of its rows, or with False the running ones."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Parameters and buffers by name."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Restore `state_dict`."""
        ...

    def update_statistics(self, obs: Obs) -> None:
        """Take observations, groups (N, D), into the normaliser."""
        ...

    def constrain(self) -> None:
        """Project the weights after a step of the optimiser; most networks need none."""
        ...


class Actor(Network, Protocol):
    """A policy."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Observation groups that are seen."""
        ...

    def __call__(self, obs: Obs) -> Tensor:
        """Action, or its mode, (N, A), in [-1, 1]."""
        ...


class StochasticActor(Actor, Protocol):
    """A policy with a density; called, it returns its mode."""

    def __call__(self, obs: Obs) -> Tensor:
        """Mode, (N, A), in [-1, 1]."""
        ...

    def sample(self, obs: Obs, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Reparametrised action (N, A) in [-1, 1] and its log-probability (N,)."""
        ...

    def explore(self, obs: Obs, generator: torch.Generator | None = None) -> Tensor:
        """Random action only, (N, A), in [-1, 1]."""
        ...


class Critic(Network, Protocol):
    """An ensemble of E action-value networks with W outputs each.

    Parameters and buffers of two or more dimensions have the members first, so that some of them
    can be picked; those of one dimension or none, and the trunk behind images, are shared by all.
    """

    group: str
    """Vector among the observation groups that are read."""
    groups: tuple[str, ...]
    """Observation groups that are read."""

    def __call__(self, obs: Obs, action: Tensor) -> Tensor:
        """Outputs of the members, (E, B, W); `Values` knows what they mean."""
        ...


def seed_weights(seed: int) -> None:
    """Seed torch's own generator, which draws initial weights."""
    torch.manual_seed(derive_seed(seed, "initial weights"))


def gaussian_actor(
    config: GaussianActorConfig, spec: EnvSpec, images: ImageLearning | None = None
) -> GaussianActor:
    """An actor that draws its actions; with `images` it sees features of these too."""
    if images is not None:
        return GaussianActor(config, **_beside_images(config, spec, images))
    return GaussianActor(config, *_sizes(config.groups, spec), **_columns(config, spec))


def deterministic_actor(
    config: DeterministicActorConfig, spec: EnvSpec, images: ImageLearning | None = None
) -> DeterministicActor:
    """An actor of one action for an observation; with `images` it sees features of these too."""
    if images is not None:
        return DeterministicActor(config, **_beside_images(config, spec, images))
    return DeterministicActor(config, *_sizes(config.groups, spec), **_columns(config, spec))


def categorical_actor(
    config: CategoricalActorConfig, spec: EnvSpec, images: ImageLearning | None = None
) -> CategoricalActor:
    """An actor that chooses one of `spec.action_size`; with `images` it sees features of these."""
    if images is not None:
        found = _beside_images(config, spec, images)
        return CategoricalActor(config, choices=found.pop("action_size"), **found)
    return CategoricalActor(config, *_sizes(config.groups, spec), **_columns(config, spec))


def _beside_images(config: ActorConfig, spec: EnvSpec, images: ImageLearning) -> dict[str, Any]:
    """Arguments of an actor that sees images, and vectors where there are any.

    Raises:
        ConfigError: It has an encoder of past frames too.
    """
    if config.encoder.kind is not EncoderKind.none or config.encoder.frames:
        raise ConfigError(
            "learner.actor.encoder reads past frames of vectors, and learner.images reads images, "
            "whose past frames are in their stack: choose one of the two"
        )
    groups = [name for name in config.groups if name in spec.groups or name != "actor"]
    size, action_size = _sizes(groups, spec)
    return {
        "obs_size": size, "action_size": action_size, "groups": groups, "trunk": images.trunk(),
    }  # fmt: skip


def normal_actor(config: NormalActorConfig, spec: EnvSpec) -> NormalActor:
    """An actor that says how likely an action is.

    Raises:
        ConfigError: Its encoder is asked for an estimate, which has no loss.
    """
    if config.encoder.estimate:
        raise ConfigError(
            f"learner.actor.encoder.estimate={list(config.encoder.estimate)} has no loss in this "
            "learner; leave it out, or choose one of the family of SAC and TD3"
        )
    terms = _columns(config, spec)["terms"]
    return NormalActor(config, *_sizes(config.groups, spec), terms=terms)


def make_critic(
    config: QEnsembleConfig, spec: EnvSpec, outputs: int = 1, images: ImageLearning | None = None
) -> QEnsemble:
    """Critics of the group `critic` where there is one, else of what the actor sees.

    With `images` they see these beside the group `actor`, or `critic` alone if the config says so.

    Raises:
        ConfigError: Critics without images have no group `critic`.
    """
    group = PRIVILEGED if PRIVILEGED in spec.groups else "actor"
    privileged = images is not None and images.config.privileged_critic
    if privileged and group != PRIVILEGED:
        raise ConfigError(
            f"learner.images.privileged_critic=true needs the group '{PRIVILEGED}', which this "
            f"environment does not have; it has {', '.join(spec.groups)}"
        )
    if images is None or privileged:
        return QEnsemble(config, group, spec.groups[group].shape[0], spec.action_size, outputs)
    size = spec.groups["actor"].shape[0] if "actor" in spec.groups else 0
    return QEnsemble(config, "actor", size, spec.action_size, outputs, trunk=images.trunk())


def estimated_columns(encoder: EncoderConfig, spec: EnvSpec) -> list[int]:
    """Columns of the group `critic` that an encoder estimates.

    Raises:
        ConfigError: There is no such group, or it has no such term.
    """
    names = encoder.estimate
    if names and PRIVILEGED not in spec.groups:
        raise ConfigError(
            f"actor.encoder.estimate {names} names terms of the group '{PRIVILEGED}', "
            f"which this environment does not have; it has {', '.join(spec.groups)}"
        )
    found: dict[str, list[int]] = {}
    start = 0
    for term in spec.groups[PRIVILEGED].terms if names else ():
        found[term.name] = list(range(start, start + term.size))
        start += term.size
    for name in names:
        if name not in found:
            raise ConfigError(unknown_name("term of actor.encoder.estimate", name, found))
    return [column for name in names for column in found[name]]


def _sizes(groups: Sequence[str], spec: EnvSpec) -> tuple[int, int]:
    """Width of what the actor sees, and of what it does."""
    for name in groups:
        if name not in spec.groups:
            raise ConfigError(unknown_name("group of learner.actor.groups", name, spec.groups))
        if len(spec.groups[name].shape) != 1:
            raise ConfigError(
                f"learner.actor.groups: group '{name}' has shape {spec.groups[name].shape}; "
                "these networks read vectors only"
            )
    return sum(spec.groups[name].shape[0] for name in groups), spec.action_size


def _columns(config: ActorConfig, spec: EnvSpec) -> dict[str, Any]:
    terms = tuple(term for name in config.groups for term in spec.groups[name].terms)
    return {"terms": terms, "estimated": len(estimated_columns(config.encoder, spec))}


def uses_batch_norm(*networks: Network) -> bool:
    """True if rows of a batch change what the others are worth."""
    return any(
        getattr(module, "uses_batch_norm", False)
        for network in networks
        for module in network.modules()  # pyright: ignore[reportAttributeAccessIssue]
    )


@contextmanager
def batch_statistics(*networks: Network, taken: bool = True) -> Iterator[None]:
    """Everywhere else a policy and its values do not depend on which rows come together.

    Args:
        networks: Their batch norm takes the statistics of its rows.
        taken: False within such a context: rows that must leave no trace in the networks.
    """
    for network in networks:
        network.train(taken)
    try:
        yield
    finally:
        for network in networks:
            network.train(not taken)


def without_invalid(batch: Batch) -> Batch:
    """The batch with rows of weight zero replaced by its first good row; their weight stays zero.

    A loss can leave out a row, batch statistics cannot.
    """
    good = batch.weight > 0
    places = torch.arange(good.shape[0], device=good.device)
    rows = torch.where(good, places, good.int().argmax())
    return replace(batch.each(lambda tensor: tensor[rows]), weight=batch.weight)


def some_members(critic: Critic, index: Tensor, obs: Obs, action: Tensor) -> Tensor:
    """Equal to `critic(obs, action)[index]`, at the price of these members alone.

    Args:
        critic: The ensemble.
        index: Members, (M,) int64 on its device; the host does not wait for it.
        obs: Groups (B, ...).
        action: (B, A).

    Returns:
        (M, B, W).
    """
    assert isinstance(critic, nn.Module)
    tensors = (*critic.named_parameters(), *critic.named_buffers())
    picked = {
        name: tensor[index]
        for name, tensor in tensors
        if tensor.ndim >= 2 and _SHARED not in name.split(".")
    }
    return torch.func.functional_call(critic, picked, (obs, action))


def repeat_obs(obs: Obs, count: int) -> Obs:
    """All rows, groups (B, ...), `count` times one after another: (count * B, ...)."""
    return {name: group.repeat(count, *[1] * (group.ndim - 1)) for name, group in obs.items()}
