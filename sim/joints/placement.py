"""From where a task lets an episode begin to positions and velocities of MuJoCo."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sim.joints.gripper import Gripper
from sim.joints.joint_truth import BASE_POSITION, BASE_VELOCITY
from sim.physics.joint_layout import JointLayout
from sim.task import Start


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Where `count` worlds begin."""

    position: NDArray[np.float64]
    """Generalised positions, (count, nq)."""
    velocity: NDArray[np.float64]
    """Generalised velocities, (count, nv)."""
    joints: NDArray[np.float64]
    """Positions of the robot's joints, (count, J)."""
    finger: NDArray[np.float64] | None
    """Position of every finger, (count, 1); None without a gripper."""
    fixtures: dict[int, Tensor]
    """Poses of mocap bodies by their number, (count, 7)."""


class Placement:
    """Puts robot and scene where a start says, and all else where the model has it."""

    def __init__(
        self, reference: NDArray[np.float64], velocities: int, layout: JointLayout,
        gripper: Gripper | None,
    ) -> None:  # fmt: skip
        """Remember the model's own pose.

        Args:
            reference: Generalised positions of the model, (nq,); copied.
            velocities: Number of generalised velocities, nv.
            layout: Where robot and scene stand in them.
            gripper: Where there is one.
        """
        self._reference, self._velocities = np.array(reference)[None], velocities
        self._layout, self._gripper = layout, gripper
        if gripper is not None:
            self._reference[:, layout.fingers] = gripper.joint_position(_OPEN)

    def of(self, count: int, start: Start) -> Placed:
        """Where `count` worlds begin; a gripper of which the start says nothing is open."""
        layout, robot = self._layout, start.robot.fields
        position = self._reference.repeat(count, 0)
        velocity = np.zeros((count, self._velocities))
        position[:, layout.position] = robot["joint_position"].numpy()
        velocity[:, layout.velocity] = robot["joint_velocity"].numpy()
        for columns, name in BASE_POSITION if layout.floating else ():
            position[:, columns] = robot[name].numpy()
        for columns, name in BASE_VELOCITY if layout.floating else ():
            velocity[:, columns] = robot[name].numpy()
        finger: NDArray[np.float64] | None = None
        if self._gripper is not None:
            if "gripper_opening" in robot:
                opening = robot["gripper_opening"].numpy()
                position[:, layout.fingers] = self._gripper.joint_position(opening)
            finger = position[:, layout.fingers][:, :1]
        fixtures: dict[int, Tensor] = {}
        for name, value in start.scene.items():
            if name in layout.fixtures:
                fixtures[layout.fixtures[name]] = value
            else:
                position[:, layout.scene[name]] = value.numpy()
        return Placed(
            position=position, velocity=velocity, joints=position[:, layout.position],
            finger=finger, fixtures=fixtures,
        )  # fmt: skip


_OPEN = np.ones((1, 1), dtype=np.float32)
