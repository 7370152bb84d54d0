"""Train on a task of your own, which lies in this file: stay on a goal that circles slowly."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import robot_rl
from configs.schema import Component, register
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import TermConfig
from sim.task import InitialState, TaskContext
from sim.tasks.flights.flight import RewardWeightsConfig
from sim.tasks.flights.hover import HoverConfig, HoverTask

SMALL = (
    "num_envs=64", "training.random_steps=2000", "training.evaluation_interval=20_000",
    "training.evaluation_episodes=32", "training.replay_capacity=60_000", "video=false",
)  # fmt: skip
"""Half a minute, enough to follow roughly; the defaults and millions of steps follow exactly."""
TERMS = ("position_error_w", "orientation_matrix", "linear_velocity_w", "angular_velocity_b",
         "last_action")  # fmt: skip


def observation() -> list[TermConfig]:
    """Inputs of policy and critic."""
    return [TermConfig(term=name) for name in TERMS]


def reward() -> RewardWeightsConfig:
    """Weights of the terms that hovering has."""
    return RewardWeightsConfig(initial={"alive": 0.5, "closeness": 2.0, "distance": -1.0,
                                        "heading": -0.2, "velocity": -0.02, "effort": 0.0,
                                        "smoothness": -0.02})  # fmt: skip


@dataclass(kw_only=True)
class CircleConfig(HoverConfig):
    """Hover whose goal moves."""

    size: float = 0.3
    """Radius of the circle [m]."""
    lap: float = 8.0
    """Time for a lap [s]."""
    success_distance: float = 0.3
    success_speed: float = 0.6  # hover's 0.1 m/s is less than the goal's own speed
    actor: list[TermConfig] = field(default_factory=observation)
    critic: list[TermConfig] = field(default_factory=observation)
    reward: RewardWeightsConfig = field(default_factory=reward)


class CircleTask(HoverTask):
    """Goals begin where the episode does and go round; terms and success are those of hover."""

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
    # 1. From here on it is chosen by its name, and its fields are changed, as those of our tasks.
    register(Component("task", "circle", CircleConfig, CircleTask))
    # 2. The rest of the run is that of hover; what is checked there is checked here too.
    #    With rotor speeds as actions, a policy that has learned little spins until its simulation
    #    gives up; an inner loop keeps the body rates that it asks for within bounds.
    run = robot_rl.train(
        "task=circle", "task.lap=6", "robot.action=body_rates", *SMALL, total_steps=60_000
    )
    # 3. Whoever knows the task can open its runs.
    print(run.evaluate(episodes=16))
    print(f"trained on a circle of {run.config.task.size} m; everything is in {run.path}")
