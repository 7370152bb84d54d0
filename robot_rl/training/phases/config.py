"""What a run does before its first step in the worlds."""

from dataclasses import dataclass
from enum import Enum

from robot_rl.core.errors import ConfigError


class StartCheckpoint(Enum):
    """Which checkpoint of another run."""

    latest = "latest"
    best = "best"


@dataclass(kw_only=True)
class OfflineConfig:
    """Updates from the transitions of `training.prior.run` alone."""

    updates: int = 0
    """How many; 0 leaves the phase out. They count as steps of the run's length."""
    evaluation_interval: int = 10_000
    """Updates between two evaluations; each is followed by a checkpoint."""
    held_out: float = 0.05
    """Part of the data set's episodes that is never learned from: what is right about them, and not
    about others, is learned by heart."""

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        if self.updates < 0 or self.evaluation_interval < 1:
            raise ConfigError(
                "training.offline.updates must be >= 0 and evaluation_interval >= 1, got "
                f"{self.updates} and {self.evaluation_interval}"
            )
        if not 0 <= self.held_out <= 0.5:
            raise ConfigError(
                f"training.offline.held_out must lie in [0, 0.5], got {self.held_out}"
            )


@dataclass(kw_only=True)
class StartConfig:
    """A learner to begin with: networks, targets, optimisers, temperature of another run."""

    run: str = ""
    """Folder of that run; empty begins with weights drawn anew."""
    checkpoint: StartCheckpoint = StartCheckpoint.latest
    """Which of its checkpoints."""
    acts: bool = False
    """The policy is worth following before anything is learned, as a residual on its base is."""
