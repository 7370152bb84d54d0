"""What one process trains with: its share of the worlds, the learner, and the loop over them."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from configs.builders import run_device
from configs.schema import COMPONENTS, RunConfig, component_of, make_env
from policies.trunks.kinds import NetworkKind
from robot_rl.buffers.row_layout import RowLayout
from robot_rl.cli.base_policy import observation_augmenter, with_base, without_base
from robot_rl.cli.collectors import check_collectors, collector_maker, start_collectors
from robot_rl.cli.parts import make_learner
from robot_rl.cli.signals import log_to_stdout
from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.learner import Learner, OfflineLearner
from robot_rl.learners.cloning import Cloning, CloningConfig
from robot_rl.training.cloning_trainer import CloningTrainer
from robot_rl.training.cluster.fleet import RemoteEnv
from robot_rl.training.collector import Collector
from robot_rl.training.config import TrainerConfig
from robot_rl.training.prior import check_place
from robot_rl.training.ranks import Ranks, check_memory, device_of, seed_of, share_of
from robot_rl.training.reporting.console import format_count
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.storage.segments import SegmentStore
from robot_rl.training.trainer import VALIDATION_SEED, Trainer

if TYPE_CHECKING:
    from robot_rl.training.demonstrations import Demonstrations

_NOT_FROM_DEMONSTRATIONS = (
    "snapshots.data", "prior.run", "offline.updates", "start.run", "symmetry", "replay.priority",
)  # fmt: skip
"""Fields of `training` that would do nothing where nothing is collected."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Made before the run's folder is: what cannot be built leaves none."""

    env: BatchEnv
    evaluation_env: BatchEnv
    learner: Learner
    ranks: Ranks
    replay_memory: str = ""
    """Sentence about the memory that the replay will take; empty where there is none."""
    demonstrations: "Demonstrations | None" = None
    """What is learned from instead of the worlds."""

    @property
    def worlds(self) -> str:
        """How many worlds there are, and what for."""
        count = self.env.spec.num_envs * self.ranks.count
        return f"{count} worlds{' to evaluate in' if self.demonstrations else ''}"

    @property
    def where(self) -> str:
        """Devices of all ranks."""
        device = self.env.spec.device
        if isinstance(self.env, RemoteEnv):
            return f"{self.env.fleet.count} collectors, learner on {device}"
        if self.ranks.count == 1:
            return str(device)
        return f"{self.ranks.count} ranks on {device.type}"

    def trainer(
        self,
        config: RunConfig,
        checkpoints: CheckpointStore,
        segments: SegmentStore,
        record: Callable[[Mapping[str, float]], None],
    ) -> Trainer | CloningTrainer:
        """The loop over these parts; arguments as in `Trainer`."""
        if self.demonstrations is not None and isinstance(self.learner, Cloning):
            return CloningTrainer(
                config.training,
                evaluation_env=self.evaluation_env,
                learner=self.learner,
                demonstrations=self.demonstrations,
                checkpoints=checkpoints,
                record=record,
                interval_seconds=config.logging.interval_seconds,
            )
        return Trainer(
            config.training,
            env=self.env,
            evaluation_env=self.evaluation_env,
            learner=self.learner,
            checkpoints=checkpoints,
            segments=segments,
            record=record,
            interval_seconds=config.logging.interval_seconds,
            seed=seed_of(config.seed, self.ranks),
            ranks=self.ranks,
            augment=observation_augmenter(config, without_base(self.env).spec),
            make_collector=collector_maker(config) if config.cluster.collectors else Collector,
        )


def build_parts(config: RunConfig, ranks: Ranks) -> Parts:
    """Build what a process trains with.

    Args:
        config: The whole run's.
        ranks: Processes that train it together.

    Raises:
        ConfigError: The run cannot be divided, or this machine has too little memory.
        DeviceError: A device does not exist here.
    """
    torch.set_num_threads(config.threads)
    device = device_of(run_device(config), ranks)
    if config.cluster.collectors:
        check_collectors(config, ranks)
    if isinstance(config.learner, CloningConfig):
        return _cloning_parts(config, device, ranks)
    if config.training.demonstrations.data:
        raise ConfigError(
            f"training.demonstrations.data={config.training.demonstrations.data} is for learners "
            "that learn from demonstrations alone; choose learner=bc, flow or act, or mix them "
            "into what this learner sees with training.prior.run=..."
        )
    check_place(config.training.prior)
    _check_real(config)
    _check_frozen(config)
    with log_to_stdout("sim.physics.warp_memory"):
        env = _training_env(config, device, ranks)
    learner = make_learner(config, env.spec, ranks)
    share_of(learner.samples_per_update, ranks, "learner.batch_size")
    _check_judged(config, learner, env)
    return Parts(
        env=env,
        # Only rank 0 evaluates: the others need no such worlds.
        evaluation_env=env if ranks.rank else _evaluation_env(config, device),
        learner=learner,
        ranks=ranks,
        replay_memory=_replay_memory(config.training.replay_capacity, env, learner, ranks),
    )


def _check_real(config: RunConfig) -> None:
    """Refuse to weigh simulated transitions beside none: H2O itself would say so much later."""
    gap, prior = getattr(config.learner, "dynamics_gap", None), config.training.prior
    if gap is not None and gap.weight > 0 and not (prior.run and prior.share > 0):
        raise ConfigError(
            f"learner.dynamics_gap.weight={gap.weight} weighs simulated transitions beside real "
            f"ones, of which training.prior.run='{prior.run}' and training.prior.share="
            f"{prior.share} give none; name them, with a share such as 0.5"
        )


def _check_frozen(config: RunConfig) -> None:
    """Refuse normalisers that would never take anything in."""
    frozen, training = getattr(config.learner, "freeze_normalizers", False), config.training
    if frozen and not (training.prior.run or training.start.run):
        raise ConfigError(
            "learner.freeze_normalizers=true leaves normalisers at stored experience, and there "
            "is none; name some with training.prior.run=..., or a run whose learner has "
            "seen some with training.start.run=..."
        )
    if not frozen:
        return
    parts = {name: getattr(config.learner, name, None) for name in ("actor", "critic", "value")}
    flash = [n for n, part in parts.items() if getattr(part, "kind", None) is NetworkKind.flash]
    if flash:
        raise ConfigError(
            f"learner.freeze_normalizers=true does not hold the batch norm of learner.{flash[0]}"
            ".kind=flash, which goes on with every minibatch; take mlp, simba or bro, or set "
            "learner.freeze_normalizers=false"
        )


def _check_judged(config: RunConfig, learner: Learner, env: BatchEnv) -> None:
    """Refuse to count every episode of worlds that judge no success as a failure."""
    wanted = learner.monte_carlo_returns if isinstance(learner, OfflineLearner) else None
    if wanted is None or not (wanted.online and wanted.failure_reward):
        return
    if not env.spec.judges_success:
        raise ConfigError(
            f"learner.conservatism.failure_reward={wanted.failure_reward} counts own episodes "
            "without success as failures, and these worlds judge none; "
            + (
                "name what does with env.success=..., or take failure_reward=0"
                if hasattr(config.env, "success")
                else "take failure_reward=0"
            )
        )


def _cloning_parts(config: RunConfig, device: torch.device, ranks: Ranks) -> Parts:
    data = config.training.demonstrations.data
    if not data:
        raise ConfigError(
            "this learner learns from demonstrations, and none were named; expected "
            'training.demonstrations.data=<folder of a data set> (see "Prior data")'
        )
    training, unset = config.training, TrainerConfig()
    for name in _NOT_FROM_DEMONSTRATIONS:
        value, usual = (operator.attrgetter(name)(one) for one in (training, unset))
        if value != usual:
            raise ConfigError(
                f"training.{name}={getattr(value, 'value', value)} is for learners that step "
                "worlds, and this one learns from demonstrations alone; leave it out"
            )
    if ranks.count > 1:
        raise ConfigError(
            f"demonstrations are learned from in one process, and torchrun started {ranks.count}; "
            "start it with python"
        )
    from robot_rl.training.demonstrations import read_demonstrations  # pyarrow

    env = _evaluation_env(config, device)
    learner = make_learner(config, env.spec, ranks)
    assert isinstance(learner, Cloning)
    _check_task(config, Path(data))
    demonstrations = read_demonstrations(
        Path(data), config.training.demonstrations, env.spec, learner.actor_groups,
        chunk_length=learner.chunk_length, seed=config.seed,
    )  # fmt: skip
    return Parts(
        env=env, evaluation_env=env, learner=learner, ranks=ranks, demonstrations=demonstrations
    )


def _check_task(config: RunConfig, data: Path) -> None:
    """Refuse episodes that say that they are of another of our tasks."""
    from robot_rl.datasets.reader import EpisodeDataset  # pyarrow

    if config.task is None:
        return
    own = component_of(config.task).name
    known = {one.name for one in COMPONENTS if one.group == "task"}
    others = sorted(set(EpisodeDataset(data).tasks) & known - {own})
    if others:
        raise SpecMismatchError(
            f"the demonstrations in {data} are of task {', '.join(others)}, and this run is of "
            f"task {own}; name others with training.demonstrations.data=..., or choose "
            f"task={others[0]}"
        )


def _training_env(config: RunConfig, device: torch.device, ranks: Ranks) -> BatchEnv:
    """The worlds of this process, or those of collectors elsewhere."""
    if config.cluster.collectors:
        return start_collectors(config, device)
    env = make_env(
        config,
        num_envs=share_of(config.num_envs, ranks, "num_envs"),
        device=device,
        seed=seed_of(config.seed, ranks),
        evaluation=False,
    )
    return with_base(config, env)


def _evaluation_env(config: RunConfig, device: torch.device) -> BatchEnv:
    env = make_env(
        config,
        num_envs=config.training.evaluation_episodes,
        device=device,
        seed=VALIDATION_SEED,
        evaluation=True,
    )
    return with_base(config, env)


def _replay_memory(capacity: int, env: BatchEnv, learner: Learner, ranks: Ranks) -> str:
    """Sentence about the replay's memory, before it is taken.

    Raises:
        ConfigError: The machine does not have it.
    """
    spec = env.spec
    layout = RowLayout(spec, (*learner.actor_groups, *learner.critic_groups))
    rows = capacity // ranks.count // spec.num_envs * spec.num_envs
    needed = rows * layout.row_bytes
    text = f"replay: {format_count(rows)} transitions, {needed / 1e6:,.0f} MB on {spec.device}"
    if ranks.count > 1:
        text += f", for each of {ranks.count} ranks"
    check_memory(
        needed, spec.device, copies=ranks.local_count,
        what=f"replay of {format_count(rows)} transitions",
        remedy=f"lower training.replay_capacity ({capacity})",
    )  # fmt: skip
    return text
