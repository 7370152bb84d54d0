"""Add a reward term to a task, and see what each term contributes."""

from dataclasses import replace

import torch
from torch import Tensor

from configs.builders import build_env
from configs.compose import compose
from robot_rl.core.observation import RobotState
from sim.robots.multirotor_simulation import MultirotorSimulation
from sim.task import StepOutcome
from sim.tasks.flights.hover import HoverTask


class LevelHoverTask(HoverTask):
    """Hover that pays for an upright body."""

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """The terms of hover, and `level`: cosine of the lean, 1 - 2 (x^2 + y^2) of wxyz."""
        outcome = super().evaluate(true_state, action, last_action, episode_step)
        _, x, y, _ = true_state.orientation_w.unbind(-1)
        level = 1 - 2 * (x.square() + y.square())
        return replace(outcome, reward_terms={**outcome.reward_terms, "level": level})


if __name__ == "__main__":
    # 1. Terms and weights meet by name: without this line the term is refused when it is built.
    config = compose(["task=hover"]).config
    config.task.reward.initial["level"] = 0.2
    env = build_env(
        config.task, config.robot, make_task=LevelHoverTask, make_simulation=MultirotorSimulation,
        num_envs=64, device=torch.device("cpu"), seed=0, evaluation=False,
    )  # fmt: skip
    # 2. A second of random actions; the reward is the sum of the weighted terms.
    env.reset(seed=0)
    total = torch.zeros(len(env.spec.reward_names))
    for _ in range(round(1 / env.spec.control_dt)):
        step = env.step(0.2 * torch.randn(64, env.spec.action_size))
        assert step.reward_terms is not None
        assert step.reward_weights is not None
        total += (step.reward_terms * step.reward_weights).mean(0)
    for name, value in zip(env.spec.reward_names, total.tolist(), strict=True):
        print(f"{name:12s} {value:8.3f}")
