"""What the training loop is told: how long it is, how much is learned from what, what is saved."""

from dataclasses import dataclass, field
from enum import Enum

from robot_rl.buffers.priorities import ReplayConfig
from robot_rl.core.errors import ConfigError
from robot_rl.training.imitation.demonstration_config import DemonstrationConfig
from robot_rl.training.phases.config import OfflineConfig, SnapshotConfig, StartConfig
from robot_rl.training.prior_data.prior import PriorConfig


class Symmetry(Enum):
    """What is made of a robot that has a left and a right."""

    none = "none"
    """Nothing."""
    augment = "augment"
    """Half of every minibatch is drawn; the other half are the mirror images of the first."""


@dataclass(kw_only=True)
class TrainerConfig:
    """How long to train, how much to learn from what is collected, how often to look and save."""

    total_steps: int = 5_000_000
    """Length of the run in world-steps (steps of all worlds together)."""
    random_steps: int = 20_000
    """World-steps with uniformly random actions at the start; nothing is learned meanwhile. None
    where the run begins with a policy: then there are `warm_up_steps`."""
    warm_up_steps: int = 5_000
    """World-steps, after an offline phase or with `start`, in which the policy acts as it is and
    nothing is learned (WSRL): they fill the replay."""
    updates_per_step: int = 4
    """Updates of the learner after each step of all worlds."""
    replay_capacity: int = 250_000
    """Transitions kept."""
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    """Which of them are drawn how often."""
    prior: PriorConfig = field(default_factory=PriorConfig)
    """What is mixed into them."""
    demonstrations: DemonstrationConfig = field(default_factory=DemonstrationConfig)
    """What a learner that needs no experience of its own learns from: bc, flow, act. Steps and
    intervals of such a run are updates."""
    offline: OfflineConfig = field(default_factory=OfflineConfig)
    """Updates from `prior` alone, before the first step."""
    start: StartConfig = field(default_factory=StartConfig)
    """A learner to begin with."""
    snapshots: SnapshotConfig = field(default_factory=SnapshotConfig)
    """States that episodes begin in at first."""
    symmetry: Symmetry = Symmetry.none
    """Whether mirror images are learned from too."""
    evaluation_interval: int = 1_000_000
    """World-steps between two evaluations; each is followed by a checkpoint."""
    evaluation_episodes: int = 256
    """Episodes per evaluation, one per world."""
    checkpoint_interval: int = 0
    """Steps between two checkpoints, besides those that follow evaluations; 0 counts no steps.
    Such checkpoints are not scored: they are resumed from, and never the best."""
    checkpoint_seconds: float = 300.0
    """Wall time after which there is another checkpoint [s]; 0 looks at no clock."""
    save_replay: bool = True
    """Save the replay with each checkpoint; without it a resumed run starts with an empty one."""
    keep_checkpoints: int = 2
    """Newest checkpoints kept; the best is kept besides."""

    def __post_init__(self) -> None:
        """Refuse loops that cannot run."""
        for name in (
            "replay_capacity", "evaluation_interval", "evaluation_episodes",
            "keep_checkpoints",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ConfigError(f"training.{name} must be at least 1, got {getattr(self, name)}")
        for name in (
            "random_steps", "warm_up_steps", "updates_per_step", "checkpoint_interval",
            "checkpoint_seconds",
        ):  # fmt: skip
            if getattr(self, name) < 0:
                raise ConfigError(f"training.{name} must be >= 0, got {getattr(self, name)}")
        if self.total_steps < (0 if self.offline.updates else 1):
            raise ConfigError(
                f"training.total_steps must be at least 1, got {self.total_steps}; 0 needs "
                "training.offline.updates above 0"
            )
        if self.offline.updates and not self.prior.run:
            raise ConfigError(
                f"training.offline.updates={self.offline.updates} needs stored experience, and "
                "training.prior.run is empty: name a data set or a run"
            )
        if self.prior.run and self.prior.share == 0 and not self.offline.updates:
            raise ConfigError(
                "training.prior.share=0 leaves nothing of training.prior.run to learn from; "
                "expected a share above 0, or training.offline.updates above 0"
            )

    @property
    def length(self) -> int:
        """Steps of the run: updates of the offline phase and world-steps."""
        return self.offline.updates + self.total_steps

    @property
    def begins_trained(self) -> bool:
        """Whether there is a policy before the first step in the worlds."""
        return self.offline.updates > 0 or bool(self.start.run) or self.start.acts
