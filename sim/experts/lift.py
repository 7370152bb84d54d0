"""Picks the cube of the task lift up, by rules over the true state."""

import math

import torch
from torch import Tensor

from robot_rl.core.action import ActionMap
from sim.experts.arm import ArmExpert, nearest_turn
from sim.robots.joint_simulation import MujocoSimulation
from sim.tasks.arms.lift import GOAL, LiftTask

_OVER = 0.1
"""Height over the cube's middle from which the hand comes down [m]."""
_ALIGNED, _AROUND = 0.012, 0.012
"""How exactly the hand must be over the cube to come down, and at its middle to close [m]."""
_CLOSED = 0.6
"""Opening below which the fingers touch the cube, which holds them at 0.57."""


class LiftExpert:
    """Goes over the cube, down, closes, brings it to its goal; begins anew where it slips."""

    def __init__(self, simulation: MujocoSimulation, task: LiftTask, action_map: ActionMap) -> None:
        """Read the worlds and their goals."""
        self._simulation, self._goal = simulation, task.goal[GOAL]
        self._arm = ArmExpert(simulation, action_map)

    def act(self) -> Tensor:
        """Actions of all worlds in their present state, (N, A), in [-1, 1]."""
        true_state, sensors = self._simulation.true_state, self._simulation.sensors
        cube, axis = sensors["cube_position"], sensors["cube_axis"]
        way = cube - true_state.end_effector_position_b
        beside = way[:, :2].norm(dim=-1, keepdim=True)
        at = way.norm(dim=-1, keepdim=True)
        held = (at < 2 * _AROUND) & (true_state.gripper_opening < _CLOSED)
        over = cube + torch.tensor([0.0, 0.0, _OVER])
        place = torch.where(beside < _ALIGNED, cube, over)
        place = torch.where(held, self._goal - way, place)
        opening = torch.where(held | (at < _AROUND), 0.0, 1.0)
        turn = torch.atan2(axis[:, 1], axis[:, 0])
        yaw = nearest_turn(turn, math.pi / 2, torch.zeros_like(turn))
        return self._arm.act(place, yaw, opening)
