"""Grippers of simulated robots: fingers that follow one command at a limited speed and force."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection, counting_is_free
from robot_rl.core.robot import GripperSpec


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
            position: Of the finger joints, (N, F), live, [m] or [rad].
            control_dt: Control period [s].
        """
        self._spec, self._position = spec, position
        self._step = spec.speed * control_dt
        self._lead = spec.force_limit / spec.stiffness + self._step
        count, fingers = position.shape
        self._asked = position.new_full((count, 1), spec.open)
        self._target = self._asked.clone()
        self._looking_is_free = counting_is_free(position)
        self._arrived = self._looking_is_free  # every target is known to be where it was asked
        self._share = position.new_full((fingers, 1), 1 / fingers)
        self._middle = position @ self._share
        self.opening = torch.ones(count, 1, device=position.device)
        """Opening as a fraction, (N, 1), as of the last `look`."""
        # Behind a step of the engine numpy takes a third of torch's time for so few numbers.
        self._xp: Any = np if self._looking_is_free else torch
        parts = self._position, self._share, self._middle, self.opening
        self._looked: Any = [part.numpy() for part in parts] if self._looking_is_free else parts

    def move(self, opening: Tensor | None) -> Tensor:
        """Inputs of the finger motors for one control period, one for all fingers, (N, 1).

        Args:
            opening: Asked opening as a fraction, (N, 1); None asks for nothing new.
        """
        target, middle = self._target, self._middle
        if opening is not None:
            self._asked.copy_(self.joint_position(opening))
        elif self._arrived and float((target - middle).abs_().max()) <= self._lead:
            return self._spec.stiffness * target  # as most fingers most of the time
        target = self._asked.clamp(target - self._step, target + self._step)
        self._target = target.clamp_(middle - self._lead, middle + self._lead)
        self._arrived = self._looking_is_free and torch.equal(self._target, self._asked)
        return self._spec.stiffness * self._target

    def begin(self, rows: EnvSelection, position: Tensor) -> Tensor:
        """Ask the picked worlds to stay at a position, (count, 1); input of their motors."""
        rows.put(self._asked, position)
        rows.put(self._target, position)
        return self._spec.stiffness * position

    @property
    def target(self) -> Tensor:
        """Position that the motor of every finger holds, (N, 1)."""
        return self._target

    def look(self) -> None:
        """Bring `opening` up to date with the fingers."""
        spec, xp = self._spec, self._xp
        position, share, middle, opening = self._looked
        xp.matmul(position, share, out=middle)
        xp.subtract(middle, spec.closed, out=opening)
        xp.divide(opening, spec.open - spec.closed, out=opening)

    def joint_position(self, opening: Tensor) -> Tensor:
        """Position of every finger joint, (count, 1), at an opening, (count, 1)."""
        spec = self._spec
        fraction = opening.detach().to(self._position.dtype).clamp(0.0, 1.0)
        return spec.closed + (spec.open - spec.closed) * fraction

    def state_dict(self) -> dict[str, Any]:
        """What is asked of the fingers, copied."""
        return {"asked": self._asked.clone(), "target": self._target.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._asked.copy_(state["asked"])
        self._target.copy_(state["target"])
        self._arrived = self._looking_is_free and torch.equal(self._target, self._asked)
