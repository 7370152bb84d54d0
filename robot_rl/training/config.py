"""Settings of a training: its length, what is learned from what, what is saved, who collects."""

from dataclasses import dataclass, field
from enum import Enum

from robot_rl.buffers.priorities import ReplayConfig
from robot_rl.core.errors import ConfigError


def _check_least(config: object, owner: str, least: int, *names: str) -> None:
    """Refuse fields below a value; `owner` names them as the command line does."""
    for name in names:
        if getattr(config, name) < least:
            raise ConfigError(
                f"{owner}.{name} must be at least {least}, got {getattr(config, name)}"
            )


class Weighting(Enum):
    """Sampling weights of stored episodes (Hong et al. 2023, arXiv:2306.13085)."""

    none = "none"
    """All transitions equally often."""
    returns = "returns"
    """exp(G / temperature), G the episode's return scaled to [0, 1] over all episodes."""
    success = "success"
    """The same with G = 1 for an episode with success, 0 for others."""


@dataclass(kw_only=True)
class PriorConfig:
    """Stored experience that is learned from beside the run's own (Ball et al. 2023, RLPD)."""

    run: str = ""
    """Folder of a run whose replay was saved, or of a data set (docs/data.md); empty for none."""
    share: float = 0.5
    """Part of every minibatch that is drawn from it online; 0, after an offline phase, leaves it
    behind (WSRL)."""
    weighting: Weighting = Weighting.none
    """Episodes that are drawn more often."""
    weighting_temperature: float = 0.1
    """Strength of the weighting: at 0.1 the best episode's transitions are drawn exp(10) times as
    often as the worst's."""

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise ConfigError(f"training.prior.share must lie in [0, 1), got {self.share}")
        if not 0.01 <= self.weighting_temperature <= 1e6:
            raise ConfigError(
                "training.prior.weighting_temperature must lie in [0.01, 1e6], got "
                f"{self.weighting_temperature}"
            )


class SnapshotValue(Enum):
    """Number by which states of a data set are clustered."""

    return_to_go = "return_to_go"
    """Reward from the state to the episode's end."""
    reward_so_far = "reward_so_far"
    """Reward from the episode's beginning to the state."""


class StartCheckpoint(Enum):
    """Checkpoint of another run."""

    latest = "latest"
    best = "best"


@dataclass(kw_only=True)
class OfflineConfig:
    """Updates from the transitions of `training.prior.run` alone."""

    updates: int = 0
    """Number of updates; 0 leaves the phase out. They count as steps of the run's length."""
    evaluation_interval: int = 10_000
    """Updates between two evaluations; each is followed by a checkpoint."""
    held_out: float = 0.05
    """Part of the data set's episodes that is never learned from: what is right about them, and not
    about others, is learned by heart."""

    def __post_init__(self) -> None:
        _check_least(self, "training.offline", 0, "updates")
        _check_least(self, "training.offline", 1, "evaluation_interval")
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
    """Checkpoint of that run."""
    acts: bool = False
    """The policy is worth following before anything is learned, as a residual on its base is."""


@dataclass(kw_only=True)
class SnapshotConfig:
    """Episodes that begin in states of a data set, while training is young."""

    data: str = ""
    """Folder of a data set that was collected with states=true; empty begins as the task does."""
    steps: int = 100_000
    """Env-steps after which episodes begin as the task lets them."""
    episode_steps: int = 100
    """Control steps after which an episode that began so is truncated."""
    clusters: int = 4
    """Clusters of states, drawn from alike."""
    value: SnapshotValue = SnapshotValue.return_to_go
    """Number that they are clustered by."""
    discount: float = 1.0
    """Per step, of the reward to come. Below 1, states are divided by the time until they are paid,
    and an episode's last reward counts as if it went on."""

    def __post_init__(self) -> None:
        _check_least(self, "training.snapshots", 1, "steps", "episode_steps", "clusters")
        if not 0 < self.discount <= 1:
            raise ConfigError(
                f"training.snapshots.discount must lie in (0, 1], got {self.discount}"
            )
        if self.discount < 1 and self.value is not SnapshotValue.return_to_go:
            raise ConfigError(
                f"training.snapshots.discount={self.discount} is of the reward to come, but "
                f"training.snapshots.value={self.value.value}; leave that at return_to_go, or set "
                "training.snapshots.discount=1"
            )


@dataclass(kw_only=True)
class DemonstrationConfig:
    """Demonstrations to learn from, and when to stop."""

    data: str = ""
    """Folder of a data set of episodes (docs/data.md)."""
    validation_share: float = 0.1
    """Share of the episodes that are held out, at least one; 0 holds none out."""
    successes_only: bool = False
    """Leave out episodes that did not succeed."""
    episodes: int = 0
    """Learn from the first so many episodes, those held out among them; 0 takes all."""
    patience: int = 0
    """Stop after so many evaluations without a lower validation loss; 0 goes on to the end."""

    def __post_init__(self) -> None:
        if not 0 <= self.validation_share < 1:
            raise ConfigError(
                "training.demonstrations.validation_share must lie in [0, 1), got "
                f"{self.validation_share}"
            )
        _check_least(self, "training.demonstrations", 0, "episodes", "patience")
        if self.patience and not self.validation_share:
            raise ConfigError(
                f"training.demonstrations.patience={self.patience} waits for a validation loss; "
                "give a validation_share above 0"
            )


class Symmetry(Enum):
    """Use of a robot's left and right."""

    none = "none"
    """Nothing."""
    augment = "augment"
    """Half of every minibatch is drawn; the other half are the mirror images of the first."""


@dataclass(kw_only=True)
class TrainerConfig:
    """Length of a training, updates per step, intervals of evaluation and saving."""

    total_steps: int = 5_000_000
    """Length of the run in env-steps (steps of all envs together)."""
    random_steps: int = 20_000
    """Env-steps with uniformly random actions at the start; nothing is learned meanwhile. None
    where the run begins with a policy: then there are `warm_up_steps`."""
    warm_up_steps: int = 5_000
    """Env-steps, after an offline phase or with `start`, in which the policy acts as it is and
    nothing is learned (WSRL): they fill the replay."""
    updates_per_step: int = 4
    """Updates of the learner after each step of all envs."""
    policy_average: int = 0
    """Evaluate, save and export the mean of the policy's weights over about so many last updates,
    which differs less from checkpoint to checkpoint; 0 takes the newest weights."""
    overlap: bool = True
    """Step simulated envs on the CPU in a thread while the learner updates from the steps before:
    the newest one is learned from a step later. Which policy acts on what does not depend on time,
    so a run is as reproducible as without. Learners whose updates change settings of the process
    (wide networks in PyTorch operations) do one after the other."""
    replay_capacity: int = 250_000
    """Transitions kept."""
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    """Sampling of these transitions."""
    prior: PriorConfig = field(default_factory=PriorConfig)
    """Stored experience that is mixed into them."""
    demonstrations: DemonstrationConfig = field(default_factory=DemonstrationConfig)
    """Data of learners that need no experience of their own: bc, flow, act. Steps and
    intervals of such a run are updates."""
    offline: OfflineConfig = field(default_factory=OfflineConfig)
    """Updates from `prior` alone, before the first step."""
    start: StartConfig = field(default_factory=StartConfig)
    """A learner to begin with."""
    snapshots: SnapshotConfig = field(default_factory=SnapshotConfig)
    """States that episodes begin in at first."""
    symmetry: Symmetry = Symmetry.none
    """Learn from mirror images too."""
    evaluation_interval: int = 1_000_000
    """Env-steps between two evaluations; each is followed by a checkpoint."""
    evaluation_episodes: int = 256
    """Episodes per evaluation, one per env."""
    evaluation_conditions: list[str] = field(default_factory=list[str])
    """Changes of `robot-rl evaluate robustness=true`, by their names or clear beginnings of these;
    `every` is all that the robot has. The episodes are divided among them and `as trained`, and the
    best checkpoint is the one whose worst condition succeeds most. Empty plays as trained alone."""
    evaluation_beside: bool = False
    """Evaluate in a second process while this one trains on (docs/evaluations.md)."""
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
        _check_least(
            self, "training", 1, "replay_capacity", "evaluation_interval", "evaluation_episodes",
            "keep_checkpoints",
        )  # fmt: skip
        _check_least(
            self, "training", 0, "random_steps", "warm_up_steps", "updates_per_step",
            "checkpoint_interval", "checkpoint_seconds", "policy_average",
        )  # fmt: skip
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
        """Steps of the run: updates of the offline phase and env-steps."""
        return self.offline.updates + self.total_steps

    @property
    def start_steps(self) -> int:
        """Env-steps before the first update online."""
        return self.warm_up_steps if self.begins_trained else self.random_steps

    @property
    def unlearned(self) -> str:
        """Sentence about a run that ends before its first update; empty where it learns."""
        if not 0 < self.total_steps < self.start_steps or not self.updates_per_step:
            return ""
        name = "warm_up_steps" if self.begins_trained else "random_steps"
        return (
            f"the run ends before it learns online: training.total_steps={self.total_steps} is "
            f"below training.{name}={self.start_steps}; raise the one or lower the other"
        )

    @property
    def begins_trained(self) -> bool:
        """True if there is a policy before the first step in the envs."""
        return self.offline.updates > 0 or bool(self.start.run) or self.start.acts


@dataclass(kw_only=True)
class OnlineConfig:
    """Learning beside robots; updates per step, replay and prior data are those of `training`."""

    start_steps: int = 300
    """Steps of the robots before the first update; those count for no updates. The policy acts from
    the first step: `training.random_steps` and `warm_up_steps` mean nothing here."""
    publish_seconds: float = 2.0
    """Time between two versions of the weights [s]."""
    swap_between_episodes: bool = False
    """A robot takes new weights only when an episode begins; else between two steps."""
    end_with_intervention: bool = False
    """An episode ends when a person has handed the robot back (RaC); else the policy goes on."""
    quota_mb: float = 2000.0
    """Disk that a robot's steps may take while the learner is away [MB]; a robot that has filled it
    waits."""

    def __post_init__(self) -> None:
        _check_least(self, "online", 0, "start_steps")
        for name, least in (("publish_seconds", 0.05), ("quota_mb", 1.0)):
            if not getattr(self, name) >= least:
                raise ConfigError(
                    f"online.{name} must be at least {least}, got {getattr(self, name)}"
                )


SMALLEST_BLOCK = 32
"""Below so many rows, sending a block costs more than collecting it."""


@dataclass(kw_only=True)
class ClusterConfig:
    """Processes that collect for one learner, and their place (docs/parallel.md)."""

    collectors: int = 0
    """Processes with an equal share of the envs each; 0 collects in the learner's own process."""
    address: str = ""
    """Ray cluster that they run in, such as auto or 10.0.0.1:6379; empty starts one here."""
    rows: int = 256
    """Transitions that a collector sends at once, at least: whole steps of its envs."""
    device: str = "cpu"
    """Device of its envs: cpu, or cuda, which takes a GPU of the cluster for each."""
    cpus: float = 1.0
    """Cores that the cluster sets aside for each."""
    start_seconds: float = 120.0
    """Time that they may take to come up [s]."""
    answer_seconds: float = 60.0
    """Time that one may take for a block before another takes its place [s]."""

    def __post_init__(self) -> None:
        _check_least(self, "cluster", 0, "collectors")
        _check_least(self, "cluster", SMALLEST_BLOCK, "rows")
        if self.device not in ("cpu", "cuda"):
            raise ConfigError(f"cluster.device must be cpu or cuda, got '{self.device}'")
        for name in ("cpus", "start_seconds", "answer_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"cluster.{name} must be above 0, got {getattr(self, name)}")

    def share(self, num_envs: int) -> int:
        """Envs of each collector.

        Raises:
            ConfigError: They cannot have equal shares.
        """
        if num_envs % self.collectors:
            lower = num_envs // self.collectors * self.collectors
            raise ConfigError(
                f"num_envs={num_envs} was asked of {self.collectors} collectors, which must have "
                f"equal shares; take a multiple of {self.collectors}, such as "
                f"{lower or self.collectors}"
            )
        return num_envs // self.collectors

    def steps(self, num_envs: int) -> int:
        """Steps of its envs that a collector sends at once."""
        return -(-self.rows // self.share(num_envs))
