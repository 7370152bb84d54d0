"""Settings of the proof's own trainer: learning on a robot's twin beside a simulated person."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from configs.compose import to_plain
from configs.schema import RunConfig
from robot_rl.cli.learning.twin_robot import TwinRobotConfig
from robot_rl.core.errors import ConfigError
from robot_rl.training.runs.provenance import plain


@dataclass(kw_only=True)
class PeopleSettings:
    """Options of `scripts.proofs.people_run` beside the fields of a run."""

    person: bool = False
    """A simulated person helps."""
    trials: int = 100
    """Episodes of the policy alone at the end."""
    played: str = ""
    """Data set of the policy's own episodes, made at the end; empty for none."""
    record_steps: int = 500
    """Steps of the robot between two records."""
    twin: TwinRobotConfig = field(default_factory=TwinRobotConfig)
    """Actions, rewards and resets, as of `robot-rl learn`."""

    def __post_init__(self) -> None:
        for name in ("trials", "record_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")


OWN_TRAINERS: Mapping[str, type[PeopleSettings]] = {"people_run": PeopleSettings}
"""Settings by the name of the module in scripts/proofs; a stopped run begins anew."""


def plain_people(settings: PeopleSettings, config: RunConfig) -> dict[str, Any]:
    """The configuration as the run keeps it: the settings beside the fields."""
    return {**to_plain(config), "people": plain(settings)}
