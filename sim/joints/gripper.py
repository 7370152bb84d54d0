"""Grippers of simulated robots: fingers that follow one command at a limited speed and force."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.core.robot_gripper import GripperSpec
from robot_rl.core.rows import Rows


class Gripper:
    """The fingers of N worlds.

    The target of every finger moves towards what was asked, no faster than the gripper can, and
    never farther ahead of the fingers than where their motors reach the force limit: an object is
    held with that force and let go at once. Without a new command the fingers go on as before.
    """

    def __init__(self, spec: GripperSpec, position: NDArray[np.float64], control_dt: float) -> None:
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
        self._asked = np.full((count, 1), spec.open)
        self._target = self._asked.copy()
        self._arrived = True  # every target is where it was asked to be
        self._share = np.full((fingers, 1), 1 / fingers)
        self._middle = position @ self._share
        self.opening = torch.ones(count, 1)
        """Opening as a fraction, (N, 1), as of the last `look`."""
        self._opening = self.opening.numpy()

    def move(self, opening: Tensor | None) -> NDArray[np.float64]:
        """Inputs of the finger motors for one control period, one for all fingers, (N, 1).

        Args:
            opening: Asked opening as a fraction, (N, 1); None asks for nothing new.
        """
        target, middle = self._target, self._middle
        if opening is not None:
            self._asked[:] = self.joint_position(opening.detach().numpy())
        elif self._arrived and np.abs(target - middle).max() <= self._lead:
            return self._spec.stiffness * target  # as most fingers most of the time
        target = _within(self._asked, target - self._step, target + self._step)
        self._target = _within(target, middle - self._lead, middle + self._lead)
        self._arrived = np.array_equal(self._target, self._asked)
        return self._spec.stiffness * self._target

    def begin(self, rows: Rows, position: NDArray[np.float64]) -> NDArray[np.float64]:
        """Ask the picked worlds to stay at a position, (count, 1); input of their motors."""
        self._asked[rows.ids] = position
        self._target[rows.ids] = position
        return self._spec.stiffness * position

    def look(self) -> None:
        """Bring `opening` up to date with the fingers."""
        spec = self._spec
        np.matmul(self._position, self._share, out=self._middle)
        np.subtract(self._middle, spec.closed, out=self._opening)
        self._opening /= spec.open - spec.closed

    def joint_position(self, opening: NDArray[np.float32]) -> NDArray[np.float64]:
        """Position of every finger joint, (count, 1), at an opening, (count, 1)."""
        spec = self._spec
        fraction = _within(opening.astype(np.float64), 0.0, 1.0)
        return spec.closed + (spec.open - spec.closed) * fraction

    def state_dict(self) -> dict[str, Any]:
        """What is asked of the fingers, copied."""
        return {"asked": torch.tensor(self._asked), "target": torch.tensor(self._target)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._asked[:] = state["asked"]
        self._target[:] = state["target"]
        self._arrived = np.array_equal(self._target, self._asked)


def _within(values: Any, low: Any, high: Any) -> Any:
    """As `np.clip`, which takes several times as long for so few numbers."""
    return np.minimum(np.maximum(values, low), high)
