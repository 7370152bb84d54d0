"""Train on a task of your own, which lies in this file: stay on a goal that circles slowly."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from configs.builders import build_env
from configs.compose import compose
from robot_rl.core.env_selection import EnvSelection
from robot_rl.learners.sac import SAC
from robot_rl.training.assembly import assemble_trainer
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.storage.segments import SegmentStore
from sim.robots.multirotor_simulation import MultirotorSimulation
from sim.task import InitialState, TaskContext
from sim.tasks.flights.hover import HoverConfig, HoverTask

SMALL = (
    "num_envs=16", "training.total_steps=3200", "training.random_steps=160",
    "training.evaluation_interval=1600", "training.replay_capacity=3200", "learner.batch_size=16",
)  # fmt: skip


@dataclass(kw_only=True)
class CircleConfig(HoverConfig):
    """Hover whose goal moves."""

    size: float = 0.3
    """Radius of the circle [m]."""
    lap: float = 8.0
    """Time for a lap [s]."""


class CircleTask(HoverTask):
    """Goals begin where the episode does and go round; rewards and success are those of hover."""

    def __init__(self, config: CircleConfig, context: TaskContext) -> None:
        """Prepare N envs."""
        super().__init__(config, context)
        self._config, self._dt = config, context.control_dt

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw starts around the goal, which begins in the origin."""
        rows.put(self.goal["position_w"], torch.zeros(rows.count, 3, device=generator.device))
        return super().start(rows, generator)

    def advance(self, episode_step: Tensor) -> None:
        """Move the goals on, before the step is valued."""
        angle = 2 * math.pi / self._config.lap * self._dt * episode_step  # (N,)
        position, radius = self.goal["position_w"], self._config.size
        position[:, 0], position[:, 1] = radius * angle.sin(), radius * (1 - angle.cos())

    def parts(self) -> Mapping[str, Any]:
        """All that decides the future: a saved run resumes from it bit for bit."""
        return {**super().parts(), "goal": self.goal["position_w"]}


if __name__ == "__main__":
    # 1. The rest of the run is that of hover; what is checked there is checked here too.
    config = compose(["task=hover", "learner=sac", *SMALL]).config
    task = CircleConfig(**vars(config.task), lap=6.0)
    make = partial(
        build_env, task, config.robot, make_task=CircleTask, make_simulation=MultirotorSimulation,
        device=torch.device("cpu"),
    )  # fmt: skip
    env = make(num_envs=config.num_envs, seed=0, evaluation=False)
    # 2. The learner needs no more than the environment's description.
    learner = SAC(config.learner, env.spec, seed=0)
    folder = Path("runs/circle")
    trainer = assemble_trainer(
        config.training, env=env, evaluation_env=make(num_envs=4, seed=1, evaluation=True),
        learner=learner, record=lambda metrics: print(f"step {metrics['step']:.0f}"),
        checkpoints=CheckpointStore(
            folder / "checkpoints", keep_last=1, segments=SegmentStore(folder / "replay")
        ),
        interval_seconds=1.0, seed=0,
    )  # fmt: skip
    trainer.run()
    print(f"trained on a circle of {task.size} m; checkpoints are in {folder}")
