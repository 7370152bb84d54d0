"""Grippers of simulated robots: fingers that follow one command at a limited speed and force."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.robot_gripper import GripperSpec
from robot_rl.core.rows import Rows


class Gripper:
    """The fingers of N worlds.

    The target of every finger moves towards what was asked, no faster than the gripper can, and
    never farther ahead of the fingers than where their motors reach the force limit: an object is
    held with that force and let go at once. Without a new command the fingers go on as before.
    """

    def __init__(self, spec: GripperSpec, position: Tensor, control_dt: float) -> None:
        """Begin open.

        Args:
            spec: The gripper.
            position: Of the finger joints, (N, F), live, [m] or [rad], float64.
            control_dt: Control period [s].
        """
        self._spec, self._position = spec, position
        self._step = spec.speed * control_dt
        self._lead = spec.force_limit / spec.stiffness + self._step
        self._asked = torch.full_like(position[:, :1], spec.open)
        self._target = self._asked.clone()
        self.opening = torch.ones(len(position), 1)
        """Opening as a fraction, (N, 1), as of the last `look`."""

    def move(self, opening: Tensor | None) -> Tensor:
        """Inputs of the finger motors for one control period, (N, F).

        Args:
            opening: Asked opening as a fraction, (N, 1); None asks for nothing new.
        """
        if opening is not None:
            self._asked.copy_(self.joint_positions(opening.clamp(0.0, 1.0))[:, :1])
        change = (self._asked - self._target).clamp(-self._step, self._step)
        ahead = self._target + change - self._position.mean(-1, keepdim=True)
        self._target += change - (ahead - ahead.clamp(-self._lead, self._lead))
        return (self._spec.stiffness * self._target).expand_as(self._position)

    def begin(self, rows: Rows, position: Tensor) -> Tensor:
        """Ask the picked worlds to stay at a position, (count, F); inputs of their motors."""
        rows.put(self._asked, position[:, :1])
        rows.put(self._target, position[:, :1])
        return self._spec.stiffness * position

    def look(self) -> None:
        """Bring `opening` up to date with the fingers."""
        spec = self._spec
        middle = self._position.mean(-1, keepdim=True)
        self.opening.copy_((middle - spec.closed) / (spec.open - spec.closed))

    def joint_positions(self, opening: Tensor) -> Tensor:
        """Positions of the finger joints, (count, F), float64, at openings, (count, 1)."""
        spec = self._spec
        position = spec.closed + (spec.open - spec.closed) * opening.double()
        return position.expand(-1, self._position.shape[1])

    def state_dict(self) -> dict[str, Any]:
        """What is asked of the fingers, copied."""
        return {"asked": self._asked.clone(), "target": self._target.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._asked.copy_(state["asked"])
        self._target.copy_(state["target"])
