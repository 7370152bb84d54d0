"""Opens the drawer of the task drawer, by rules over the true state."""

import torch
from torch import Tensor

from robot_rl.core.action import ActionMap
from sim.experts.arm import ArmExpert
from sim.robots.joint_simulation import MujocoSimulation
from sim.tasks.arms.drawer import DrawerTask

_OVER = 0.05
"""Height over the place behind the handle from which the hand comes down [m]."""
_ALIGNED, _AT = 0.008, 0.02
"""How exactly the hand must be over that place to come down, and in it to pull [m]."""
_CLEAR = 0.03
"""Height below which a hand that is not in its place goes straight up: it may touch the handle."""
_PULL = 0.05
"""How far before the handle the hand is asked to be while it pulls [m]."""


class DrawerExpert:
    """Goes over the gap behind the handle, down into it, and pulls."""

    def __init__(
        self, simulation: MujocoSimulation, task: DrawerTask, action_map: ActionMap
    ) -> None:
        """Read the worlds."""
        self._sensors = simulation.sensors
        self._hand = simulation.true_state.end_effector_position_b
        self._arm = ArmExpert(simulation, action_map)
        self._closed = torch.full((simulation.num_worlds, 1), task.config.opening)

    def act(self) -> Tensor:
        """Actions of all worlds in their present state, (N, A), in [-1, 1]."""
        hook, axis = self._sensors["handle_position"], self._sensors["handle_axis"]
        hand = self._sensors["hand_position"]  # in the axes of the drawer
        beside = hand[:, :2].norm(dim=-1, keepdim=True)
        low = hand[:, 2:] < 0.5 * _AT
        up = torch.tensor([0.0, 0.0, _OVER])
        place = torch.where(beside < _ALIGNED, hook, hook + up)
        place = torch.where((hand[:, 2:] < _CLEAR) & (beside > _AT), self._hand + up, place)
        place = torch.where(low & (beside < _AT), hook - _PULL * axis, place)
        return self._arm.act(place, torch.atan2(axis[:, 1], axis[:, 0]), self._closed)
