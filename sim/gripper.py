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

    def __init__(self, spec: GripperSpec, num_worlds: int, control_dt: float) -> None:
        """Begin open.

        Args:
            spec: The gripper.
            num_worlds: N.
            control_dt: Control period [s].
        """
        self._spec = spec
        self._step = spec.speed * control_dt
        self._lead = spec.force_limit / spec.stiffness + self._step
        self._asked = torch.full((num_worlds, 1), spec.open, dtype=torch.float64)
        self._target = self._asked.clone()

    def move(self, opening: Tensor | None, position: Tensor) -> Tensor:
        """Inputs of the finger motors for one control period, (N, F).

        Args:
            opening: Asked opening as a fraction, (N, 1); None asks for nothing new.
            position: Of the finger joints, (N, F), [m] or [rad].
        """
        if opening is not None:
            self._asked.copy_(self._joint(opening.clamp(0.0, 1.0)))
        change = (self._asked - self._target).clamp(-self._step, self._step)
        ahead = self._target + change - position.mean(-1, keepdim=True)
        self._target += change - (ahead - ahead.clamp(-self._lead, self._lead))
        return (self._spec.stiffness * self._target).expand_as(position)

    def reset(self, rows: Rows, opening: Tensor | None) -> Tensor:
        """Positions of the finger joints where episodes begin, (count, F).

        Args:
            rows: Worlds that begin.
            opening: Fraction, (count, 1); None begins open.
        """
        start = torch.ones(rows.count, 1) if opening is None else opening
        position = self._joint(start)
        rows.put(self._asked, position)
        rows.put(self._target, position)
        return position.expand(-1, len(self._spec.joints))

    def opening(self, position: Tensor) -> Tensor:
        """Opening as a fraction, (N, 1), of finger joints at a position, (N, F)."""
        extent = self._spec.open - self._spec.closed
        return (position.mean(-1, keepdim=True) - self._spec.closed) / extent

    def state_dict(self) -> dict[str, Any]:
        """What is asked of the fingers, copied."""
        return {"asked": self._asked.clone(), "target": self._target.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._asked.copy_(state["asked"])
        self._target.copy_(state["target"])

    def _joint(self, opening: Tensor) -> Tensor:
        spec = self._spec
        return spec.closed + (spec.open - spec.closed) * opening.double()
