"""What one process trains with: its share of the worlds, the learner, and the loop over them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psutil
import torch

from configs.builders import pick_device
from configs.schema import RunConfig, make_env
from robot_rl.buffers.row_layout import RowLayout
from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import Learner
from robot_rl.training.checkpoint import CheckpointStore
from robot_rl.training.parallel import Ranks
from robot_rl.training.rank_shares import device_of, seed_of, share_of
from robot_rl.training.reporting.console import format_count
from robot_rl.training.storage.segments import SegmentStore
from robot_rl.training.trainer import VALIDATION_SEED, Trainer
from runtime.parts import make_learner


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Made before the run's folder is: what cannot be built leaves none."""

    env: BatchEnv
    evaluation_env: BatchEnv
    learner: Learner
    ranks: Ranks
    replay_memory: str
    """Sentence about the memory that the replay will take."""

    @property
    def where(self) -> str:
        """Devices of all ranks."""
        device = self.env.spec.device
        if self.ranks.count == 1:
            return str(device)
        return f"{self.ranks.count} ranks on {device.type}"

    def trainer(
        self,
        config: RunConfig,
        checkpoints: CheckpointStore,
        segments: SegmentStore,
        record: Callable[[Mapping[str, float]], None],
    ) -> Trainer:
        """The loop over these parts; arguments as in `Trainer`."""
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
    device = device_of(pick_device(config.device), ranks)
    env = make_env(
        config,
        num_envs=share_of(config.num_envs, ranks, "num_envs"),
        device=device,
        seed=seed_of(config.seed, ranks),
        evaluation=False,
    )
    learner = make_learner(config, env.spec, ranks)
    share_of(learner.samples_per_update, ranks, "learner.batch_size")
    return Parts(
        env=env,
        # Only rank 0 evaluates: the others need no such worlds.
        evaluation_env=env if ranks.rank else _evaluation_env(config, device),
        learner=learner,
        ranks=ranks,
        replay_memory=_replay_memory(config.training.replay_capacity, env, learner, ranks),
    )


def _evaluation_env(config: RunConfig, device: torch.device) -> BatchEnv:
    return make_env(
        config,
        num_envs=config.training.evaluation_episodes,
        device=device,
        seed=VALIDATION_SEED,
        evaluation=True,
    )


def _replay_memory(capacity: int, env: BatchEnv, learner: Learner, ranks: Ranks) -> str:
    """Sentence about the replay's memory, before it is taken.

    Raises:
        ConfigError: The machine does not have it.
    """
    spec = env.spec
    layout = RowLayout(spec, (*learner.actor_groups, *learner.critic_groups))
    rows = capacity // ranks.count // spec.num_envs * spec.num_envs
    needed = rows * layout.width * 4  # float32
    on_gpu = spec.device.type == "cuda"
    free = torch.cuda.mem_get_info(spec.device)[0] if on_gpu else psutil.virtual_memory().available
    text = f"replay: {format_count(rows)} transitions, {needed / 1e6:,.0f} MB on {spec.device}"
    if ranks.count > 1:
        text += f", for each of {ranks.count} ranks"
    if needed * (1 if on_gpu else ranks.local_count) > free:
        raise ConfigError(
            f"{text}, but only {free / 1e6:,.0f} MB are free; lower training.replay_capacity "
            f"({capacity})"
        )
    return text
