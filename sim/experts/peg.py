"""Puts the peg of the task peg into its hole, by rules over the true state."""

import torch
from torch import Tensor

from robot_rl.core.action import ActionMap
from sim.experts.arm import ArmExpert
from sim.robots.joint_simulation import MujocoSimulation
from sim.tasks.arms.peg import GRIP, HOLE_DEPTH, PegTask

_PEG_LENGTH = 0.06
"""From the end effector to the peg's tip, as in sim/scenes/peg.xml [m]."""
_OVER = 0.004
"""Height of the tip over the mouth from which it goes down [m]."""
_ALIGNED = 0.0003
"""How exactly the tip must be over the hole to go down [m]; the clearance is 0.0005."""
_CAUGHT = -0.002
"""Height of the tip below which the walls lead it [m]."""
_CALM = 0.05
"""Speed of the joints below which the descent begins [rad/s]."""
_STRAY = 0.0006
"""How far from the axis a descent may stray before the walls lead it [m]; then it begins anew."""
_MOUTH_STEP, _INSIDE_STEP = 0.005, 0.02
"""How far below the tip it is asked to be, before and within the walls [m]; a tip that hurries
leaves the axis, as the joints are not damped alike."""


class PegExpert:
    """Brings the tip over the mouth, waits until it is exactly there, and goes down."""

    def __init__(self, simulation: MujocoSimulation, task: PegTask, action_map: ActionMap) -> None:
        """Read the worlds."""
        self._sensors, self._truth = simulation.sensors, simulation.true_state
        self._arm = ArmExpert(simulation, action_map)

    def act(self) -> Tensor:
        """Actions of all worlds in their present state, (N, A), in [-1, 1]."""
        mouth, axis = self._sensors["hole_position"], self._sensors["hole_axis"]
        tip = self._sensors["peg_position"]
        beside = tip[:, :2].norm(dim=-1)
        caught = tip[:, 2] < _CAUGHT
        calm = self._truth.joint_velocity.norm(dim=-1) < _CALM
        begun = (tip[:, 2] < 0.8 * _OVER) & (beside < _STRAY)
        down = caught | begun | (calm & (beside < _ALIGNED))
        lower = tip[:, 2] - torch.where(caught, _INSIDE_STEP, _MOUTH_STEP)
        height = torch.where(down, lower.clamp_min(-HOLE_DEPTH), _OVER) + _PEG_LENGTH
        place = mouth + torch.stack([0 * height, 0 * height, height], dim=-1)
        opening = torch.full_like(height, GRIP)[:, None]
        return self._arm.act(place, torch.atan2(axis[:, 1], axis[:, 0]), opening)
