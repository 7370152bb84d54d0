"""What the learners ask of the networks that are handed to them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from robot_rl.core.env import Obs
from robot_rl.core.transition import Batch


class Network(Protocol):
    """The part of `torch.nn.Module` that learners use."""

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


def rows_meet(network: Network) -> bool:
    """Whether rows of a batch change what the others are worth, as in batch norm."""
    assert isinstance(network, nn.Module)
    return any(getattr(module, "rows_meet", False) for module in network.modules())


@contextmanager
def batch_statistics(*networks: Network) -> Iterator[None]:
    """Everywhere else a policy and its values do not depend on which rows come together."""
    for network in networks:
        network.train(True)
    try:
        yield
    finally:
        for network in networks:
            network.train(False)


@contextmanager
def running_statistics(network: Network) -> Iterator[None]:
    """Within `batch_statistics`: rows that must leave no trace in the network."""
    network.train(False)
    try:
        yield
    finally:
        network.train(True)


def without_invalid(batch: Batch) -> Batch:
    """The batch with rows of weight zero replaced by its first good row; their weight stays zero.

    A loss can leave out a row, batch statistics cannot.
    """
    good = batch.weight > 0
    places = torch.arange(good.shape[0], device=good.device)
    rows = torch.where(good, places, good.int().argmax())
    return replace(
        batch,
        obs={name: group[rows] for name, group in batch.obs.items()},
        next_obs={name: group[rows] for name, group in batch.next_obs.items()},
        action=batch.action[rows], reward=batch.reward[rows], discount=batch.discount[rows],
        extra={name: values[rows] for name, values in batch.extra.items()},
    )  # fmt: skip


class Actor(Network, Protocol):
    """A policy."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Observation groups that are seen."""
        ...

    def __call__(self, obs: Obs) -> Tensor:
        """Action, or its mode, (N, A), in [-1, 1]."""
        ...


class DeterministicActor(Actor, Protocol):
    """A policy that gives one action for an observation."""

    def __call__(self, obs: Obs) -> Tensor:
        """Action, (N, A), in [-1, 1]."""
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

    def displace(self, obs: Obs, noise: Tensor) -> Tensor:
        """The action, (N, A), in [-1, 1], for given standard normals (N, A)."""
        ...


class LikelihoodActor(Actor, Protocol):
    """A policy that says how likely a given action is; called, it returns its mode."""

    def __call__(self, obs: Obs) -> Tensor:
        """Mode, (N, A), in [-1, 1]."""
        ...

    def explore(self, obs: Obs, generator: torch.Generator | None = None) -> Tensor:
        """Random action, (N, A), in [-1, 1]."""
        ...

    def log_prob(self, obs: Obs, action: Tensor) -> Tensor:
        """Logarithm of the density of an action (N, A), (N,)."""
        ...


class Critic(Network, Protocol):
    """An ensemble of E action-value networks with W outputs each.

    Parameters and buffers of two or more dimensions have the members first, so that some of them
    can be picked; those of one dimension or none are shared by all.
    """

    group: str
    """Observation group that is read."""

    def __call__(self, obs: Obs, action: Tensor) -> Tensor:
        """Outputs of the members, (E, B, W); `Values` knows what they mean."""
        ...


def some_members(critic: Critic, index: Tensor, obs: Obs, action: Tensor) -> Tensor:
    """What `critic(obs, action)[index]` is, at the price of these members alone.

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
    picked = {name: tensor[index] for name, tensor in tensors if tensor.ndim >= 2}
    return torch.func.functional_call(critic, picked, (obs, action))
