"""Brings the end effector to the goal of the task reach, on a straight line."""

from torch import Tensor

from robot_rl.core.action import ActionMap
from sim.experts.arm import ArmExpert
from sim.robots.joint_simulation import MujocoSimulation
from sim.tasks.arms.reach import GOAL, ReachTask


class ReachExpert:
    """Goes to the goal, in whatever orientation the arm comes to."""

    def __init__(
        self, simulation: MujocoSimulation, task: ReachTask, action_map: ActionMap
    ) -> None:
        """Read the worlds and their goals."""
        self._goal = task.goal[GOAL]
        self._arm = ArmExpert(simulation, action_map)

    def act(self) -> Tensor:
        """Actions of all worlds in their present state, (N, A), in [-1, 1]."""
        return self._arm.act(self._goal)
