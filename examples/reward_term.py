"""Add a reward term to a task, and see what each term contributes."""

import torch
from torch import Tensor

import robot_rl
from sim.reward_terms import RewardedStep, reward_term


@reward_term
def level(step: RewardedStep) -> Tensor:
    """Cosine of the lean, 1 - 2 (x^2 + y^2) of wxyz: 1 for an upright body."""
    _, x, y, _ = step.true_state.orientation_w.unbind(-1)
    return 1 - 2 * (x.square() + y.square())


if __name__ == "__main__":
    # 1. Terms and weights meet by name: any task takes the term that is given a weight.
    env = robot_rl.make_env("task=hover", "task.reward.initial.level=0.2", num_envs=64)
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
