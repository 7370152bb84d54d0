"""Learner, expert and reward term of a package of its own."""

from typing import Any

import torch
from my_arm.ddpg import DDPG, DDPGConfig  # pyright: ignore[reportMissingImports]
from my_arm.task import GOAL, ReachTask  # pyright: ignore[reportMissingImports]
from torch import Tensor

from configs.schema import Component, register
from robot_rl.core.action import ActionMap
from robot_rl.core.robot_command import JointCommand
from sim.experts import register_expert
from sim.reward_terms import RewardedStep, reward_term


class InverseKinematics:
    """Bends the elbow to the goal's distance, then turns the shoulder to it."""

    def __init__(self, simulation: Any, task: ReachTask, action_map: ActionMap) -> None:
        """Read the envs and their goals."""
        self._goal, self._map = task.goal[GOAL], action_map

    def act(self) -> Tensor:
        """Actions of all envs, (N, 2), in [-1, 1]."""
        x, y = self._goal[:, 0], self._goal[:, 1]
        bend = 2 * torch.acos((self._goal.norm(dim=-1) / 0.6).clamp(max=1.0))  # two links of 0.3 m
        q = torch.stack([torch.atan2(y, x) - bend / 2, bend], dim=-1)
        still = torch.zeros_like(q)
        command = JointCommand(q=q, dq=still, tau=still, kp=still, kd=still)
        return self._map.from_command(command).clamp(-1.0, 1.0)


@reward_term
def my_arm_calm(step: RewardedStep) -> Tensor:
    """Sum of the squared changes of the actions, with the other sign, (N,)."""
    return -(step.action - step.last_action).square().sum(-1)


register(Component("learner", "my_arm_ddpg", DDPGConfig, DDPG))
register_expert("my_arm_reach", ReachTask, InverseKinematics)
