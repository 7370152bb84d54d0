"""From where a task lets an episode begin to positions and velocities of MuJoCo."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sim.joints.joint_truth import BASE_POSITION, BASE_VELOCITY
from sim.joints.motors.gripper import Gripper
from sim.physics.engine import Engine
from sim.physics.joint_layout import JointLayout
from sim.task import InitialState


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Where `count` worlds begin."""

    position: Tensor
    """Generalised positions, (count, nq)."""
    velocity: Tensor
    """Generalised velocities, (count, nv)."""
    joints: Tensor
    """Positions of the robot's joints, (count, J)."""
    finger: Tensor | None
    """Position of every finger, (count, 1); None without a gripper."""
    fixtures: dict[int, Tensor]
    """Poses of mocap bodies by their number, (count, 7)."""


class Placement:
    """Puts robot and scene where a start says, and all else where the model has it."""

    def __init__(self, engine: Engine, layout: JointLayout, gripper: Gripper | None) -> None:
        """Remember the model's own pose.

        Args:
            engine: The worlds; they are not touched.
            layout: Where robot and scene stand in their positions and velocities.
            gripper: Where there is one.
        """
        self._reference = torch.tensor(engine.model.qpos0).to(engine.qpos)[None]
        self._velocities = engine.qvel.shape[1]
        self._layout, self._gripper = layout, gripper
        if gripper is not None:
            opened = torch.ones(1, 1, device=self._reference.device)
            self._reference[:, layout.fingers] = gripper.joint_position(opened)

    def of(self, count: int, start: InitialState) -> Placed:
        """Where `count` worlds begin; a gripper of which the start says nothing is open."""
        layout, robot = self._layout, start.robot.fields
        position = self._reference.repeat(count, 1)
        velocity = position.new_zeros(count, self._velocities)
        position[:, layout.position] = robot["joint_position"]
        velocity[:, layout.velocity] = robot["joint_velocity"]
        for columns, name in BASE_POSITION if layout.floating else ():
            position[:, columns] = robot[name]
        for columns, name in BASE_VELOCITY if layout.floating else ():
            velocity[:, columns] = robot[name]
        finger: Tensor | None = None
        if self._gripper is not None:
            if "gripper_opening" in robot:
                opening = robot["gripper_opening"]
                position[:, layout.fingers] = self._gripper.joint_position(opening)
            finger = position[:, layout.fingers][:, :1]
        fixtures: dict[int, Tensor] = {}
        for name, value in start.scene.items():
            if name in layout.fixtures:
                fixtures[layout.fixtures[name]] = value
            else:
                position[:, layout.scene[name]] = value
        return Placed(
            position=position, velocity=velocity, joints=position[:, layout.position],
            finger=finger, fixtures=fixtures,
        )  # fmt: skip
