"""Settings of mjlab's and Isaac Lab's environments; readable without either package."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from robot_rl.core.errors import ConfigError


class FinalObs(Enum):
    """Where the last observation of an episode comes from."""

    exact = "exact"
    """It is computed before the reset."""
    drop = "drop"
    """It is not asked for: steps that end by time are invalid, and those that the task ended keep
    the observation before them as successor, which no value is bootstrapped from."""


@dataclass(kw_only=True)
class TorchWorldsConfig:
    """Which task, and how its observations, actions and logs are read."""

    id: str = ""
    """Registered task, such as Mjlab-Velocity-Flat-Unitree-Go1."""
    groups: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Our group -> groups of the task, or single terms as group/term where a group is not joined,
    in that order; empty takes `actor` or `policy` for our actor, and `critic` if there is one."""
    action_low: list[float] = field(default_factory=list[float])
    """What action -1 means: one number, or one per entry; empty takes the task's bound, or -1 where
    it has none."""
    action_high: list[float] = field(default_factory=list[float])
    """What action 1 means: one number, or one per entry; empty takes the task's bound, or 1 where
    it has none."""
    success: list[str] = field(default_factory=list[str])
    """Termination terms, one of which ends an episode that succeeded."""
    metrics: list[str] = field(default_factory=list[str])
    """Keys of the task's log to log, such as Metrics/slip_velocity_mean; means over worlds."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the task's own configuration, nested ones as {sim: {dt: 0.01}}."""

    def __post_init__(self) -> None:
        """Refuse what no task has."""
        if "actor" not in self.groups and self.groups:
            raise ConfigError(
                f"env.groups has {', '.join(self.groups)}; expected `actor` among them: it is what "
                "the policy sees"
            )


@dataclass(kw_only=True)
class MjlabConfig(TorchWorldsConfig):
    """A task of mjlab."""


@dataclass(kw_only=True)
class IsaacLabConfig(TorchWorldsConfig):
    """A task of Isaac Lab, 2.x or 3.x, manager-based or direct."""

    presets: list[str] = field(default_factory=list[str])
    """Presets of a 3.x task, such as newton_mjwarp; empty takes its default ones."""
    final_obs: FinalObs = FinalObs.exact
    """exact, or drop where a task's observations must not be computed twice in a step."""
    quaternions: list[str] = field(default_factory=list[str])
    """Quaternions in the observations, as group/term, group/term:column or group:column of the
    first entry; brought into the order w, x, y, z where the version has another. Terms called
    after quaternions are found without."""
