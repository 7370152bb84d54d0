"""What a run does before its first step in the worlds."""

from dataclasses import dataclass
from enum import Enum

from robot_rl.core.errors import ConfigError


class SnapshotValue(Enum):
    """What states of a data set are told apart by."""

    return_to_go = "return_to_go"
    """Reward from the state to the episode's end."""
    reward_so_far = "reward_so_far"
    """Reward from the episode's beginning to the state."""


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
    """Folder of that run, or of runs, of which the newest with a checkpoint is taken; empty begins
    with weights drawn anew."""
    checkpoint: StartCheckpoint = StartCheckpoint.latest
    """Which of its checkpoints."""
    acts: bool = False
    """The policy is worth following before anything is learned, as a residual on its base is."""


@dataclass(kw_only=True)
class SnapshotConfig:
    """Episodes that begin in states of a data set, while training is young."""

    data: str = ""
    """Folder of a data set that was collected with states=true; empty begins as the task does."""
    steps: int = 100_000
    """World-steps after which episodes begin as the task lets them."""
    episode_steps: int = 100
    """Control steps after which an episode that began so is truncated."""
    clusters: int = 4
    """Clusters of states, drawn from alike."""
    value: SnapshotValue = SnapshotValue.return_to_go
    """What they are clustered by."""

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        for name in ("steps", "episode_steps", "clusters"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"training.snapshots.{name} must be at least 1, got {getattr(self, name)}"
                )
