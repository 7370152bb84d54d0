"""Gripper of a few commands beside a continuous actor: the last entry of an action is one of them.

A grasp is a decision, not a displacement: a continuous entry would be drawn around its mean and
close and open the fingers by chance. A network scores each command, and the one with the highest
score is given. Stored entries count as the command that is nearest.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from policies.networks.images import ImageTrunk
from policies.networks.inputs import ActorNetwork, best_is_clear
from policies.networks.q_ensemble import QEnsemble, QEnsembleConfig
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import ConfigError


@dataclass(kw_only=True)
class GripperConfig:
    """Commands of a gripper, and the network that scores them."""

    commands: list[float] = field(default_factory=lambda: [-1.0, 0.0, 1.0])
    """Entries of the action that the gripper is commanded by, ascending: close, stay, open. Where
    the entry is the opening itself, as in our action maps, 0 is half open: take [-1, 1] there, and
    to repeat a command is to stay. Empty: there is no gripper, and all entries of an action are
    continuous."""
    network: QEnsembleConfig = field(default_factory=lambda: QEnsembleConfig(members=1))
    """Network of the scores."""

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in zip(self.commands, self.commands[1:], strict=False))
        within = all(math.isfinite(one) and abs(one) <= 1 for one in self.commands)
        if len(self.commands) == 1 or not ascending or not within:
            raise ConfigError(
                "learner.gripper.commands must be at least two ascending numbers in [-1, 1], or "
                f"none, got {self.commands}"
            )
        if self.network.members != 1:
            raise ConfigError(
                f"learner.gripper.network.members must be 1, got {self.network.members}"
            )


def without_gripper(spec: EnvSpec, config: GripperConfig) -> EnvSpec:
    """The environment as an actor of the continuous entries sees it.

    Raises:
        ConfigError: Actions have no entry beside the gripper's.
    """
    if not config.commands:
        return spec
    if spec.action_size < 2:
        raise ConfigError(
            f"learner.gripper.commands={config.commands} makes the last entry of an action the "
            f"gripper's, and actions here have {spec.action_size}; expected at least 2, or "
            "learner.gripper.commands=[] for a robot without a gripper"
        )
    return replace(spec, action_size=spec.action_size - 1)


class GripperNetwork(nn.Module):
    """Scores of the commands of a gripper; reads the group `actor`, and features of images."""

    commands: Tensor

    def __init__(
        self, config: GripperConfig, obs_size: int, trunk: ImageTrunk | None = None
    ) -> None:  # fmt: skip
        """Build it for observations (N, D); a trunk reads the features."""
        super().__init__()
        count = len(config.commands)
        self.scorer = QEnsemble(config.network, "actor", obs_size, 0, count, trunk=trunk)
        self.register_buffer("commands", torch.tensor(config.commands), persistent=False)

    def forward(self, obs: Obs) -> Tensor:
        """Scores of the commands, (N, K)."""
        rows = obs[self.scorer.groups[0]]
        return self.scorer(obs, rows.new_empty(rows.shape[0], 0))[0].float()

    def command(self, obs: Obs) -> Tensor:
        """Entry of the best command, (N, 1)."""
        return self.commands[self(obs).argmax(-1, keepdim=True)]

    def nearest(self, entry: Tensor) -> Tensor:
        """Number of the command that is nearest to each entry (N,), (N,) int64."""
        return (entry[:, None] - self.commands).abs().argmin(-1)

    def decided(self, obs: Obs) -> Tensor:
        """True where rounding cannot change which command is the best, (N,) bool."""
        return best_is_clear(self(obs))

    def update_statistics(self, obs: Obs) -> None:
        """Take the group that is read, (N, D), into the normaliser."""
        self.scorer.update_statistics(obs)

    def constrain(self) -> None:
        """Bring constrained weights back to their norm after a step of the optimiser."""
        self.scorer.constrain()


class GrippingPolicy(nn.Module):
    """A continuous actor and a gripper: what is evaluated and deployed."""

    def __init__(self, actor: nn.Module, groups: Sequence[str], gripper: GripperNetwork) -> None:
        """Share the networks with whoever trains them.

        Args:
            actor: Obs -> all entries but the last, (N, A - 1), in [-1, 1].
            groups: What it sees.
            gripper: Chooses the last entry.
        """
        super().__init__()
        self.actor, self.gripper = actor, gripper
        self.groups = tuple(dict.fromkeys((*groups, *gripper.scorer.groups)))
        """Observation groups that are seen."""

    def forward(self, obs: Obs) -> Tensor:
        """Action, (N, A), in [-1, 1]."""
        return torch.cat([self.actor(obs), self.gripper.command(obs)], dim=-1)

    def decided(self, obs: Obs) -> Tensor:
        """True where rounding changes neither the gripper's command nor an expert, (N,) bool."""
        decided = self.gripper.decided(obs)
        return (
            decided & self.actor.decided(obs) if isinstance(self.actor, ActorNetwork) else decided
        )
