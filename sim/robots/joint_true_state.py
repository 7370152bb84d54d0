"""The true state of robots with joints and of what stands around them, as views of the engine."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robot_rl.core.env_selection import counting_is_free
from robot_rl.core.errors import ConfigError, SpecMismatchError, unknown_name
from robot_rl.core.observation import STATE_FIELDS, RobotState
from sim.physics.engine import Engine
from sim.physics.joint_layout import JointLayout
from sim.robots.joint_motors import Gripper
from sim.robots.joint_robot import JointRobotConfig
from sim.scenes.potential_field import FIELD, PotentialField
from sim.scenes.scene import SceneConfig
from sim.scenes.terrain import SCAN, HeightScan, Terrain

BASE_POSITION = ((slice(0, 3), "position_w"), (slice(3, 7), "orientation_w"))
BASE_VELOCITY = ((slice(0, 3), "linear_velocity_w"), (slice(3, 6), "angular_velocity_b"))
"""Columns of a floating base and the fields of `RobotState` that they are."""


class JointTruth:
    """A single precision copy of the engine's state, a table whose views tasks and sensors read.

    The robot's state holds the base's pose and velocities where it floats, joint positions,
    velocities and efforts, and every sensor of the model that is named after a field of
    `RobotState`.
    """

    def __init__(
        self,
        config: JointRobotConfig,
        engine: Engine,
        layout: JointLayout,
        gripper: Gripper | None,
        scene: SceneConfig,
    ) -> None:
        """Copy the present state.

        Raises:
            ConfigError: A terrain or clutter was asked for under a fixed base.
            SpecMismatchError: The spec declares a sensor that the model lacks.
        """
        self._config, self._layout, self._gripper = config, layout, gripper
        sources = [engine.motion, engine.sensordata, engine.actuator_force]
        if gripper is not None:
            sources.append(gripper.opening)
        widths = [source.shape[1] for source in sources]
        self._table = torch.zeros(engine.num_worlds, sum(widths), device=engine.motion.device)
        motion, sensordata, self._effort, *self._opening = self._table.split(widths, dim=1)
        self._qpos, self._qvel = motion.split([engine.qpos.shape[1], engine.qvel.shape[1]], dim=1)
        self._copies = list(zip(self._table.split(widths, dim=1), sources, strict=True))
        self._copy: Callable[[Any, Any], Any] = Tensor.copy_
        if counting_is_free(self._table):  # numpy has much less to do before it copies
            self._copies = [(copy.numpy(), source.numpy()) for copy, source in self._copies]
            self._copy = np.copyto
        views = {name: sensordata[:, c] for name, c in engine.sensor_columns.items()}
        self.robot = RobotState(self._state_views(views))
        """The true state, live."""
        self.sensors = {name: view for name, view in views.items() if name not in STATE_FIELDS}
        """Sensors of the model that are no fields of `RobotState`, (N, width) each, and the height
        scan and the potential field where there is terrain and clutter."""
        for asked in ("terrain", "clutter"):
            if getattr(scene, asked) is not None and not layout.floating:
                raise ConfigError(
                    f"scene.{asked} was asked for under robot '{config.spec.name}', whose base is "
                    "fixed; leave it out or choose a robot with a floating base, such as robot=go2"
                )
        self._scan: HeightScan | None = None
        self._field: PotentialField | None = None
        device = self._qpos.device
        if scene.terrain is not None:
            self._scan = HeightScan(Terrain(scene.terrain, device), engine.num_worlds, device)
            self.sensors[SCAN] = self._scan.values
        if scene.clutter is not None:
            self._field = PotentialField(scene.clutter, self.sensors, device)
            self.sensors[FIELD] = self._field.values
        self.look()

    def look(self) -> None:
        """Bring everything up to date with the engine."""
        if self._gripper is not None:
            self._gripper.look()
        for copy, source in self._copies:
            self._copy(copy, source)
        if self._scan is not None:
            self._scan.look(self.robot)
        if self._field is not None:
            self._field.look(self.robot)

    def columns(self, names: Iterable[str]) -> Tensor:
        """Columns of fields of the robot's state, one after another, for `joined`."""
        parts = [self.robot.field(name) for name in names]
        first = [part.storage_offset() for part in parts]  # a view begins in the table's first row
        numbers = [
            column
            for start, part in zip(first, parts, strict=True)
            for column in range(start, start + part.shape[1])
        ]
        return torch.tensor(numbers, dtype=torch.int64, device=self._table.device)

    def joined(self, columns: Tensor) -> Tensor:
        """Fields of the robot's state side by side, (N, W), a new tensor."""
        return self._table.index_select(1, columns)

    def _state_views(self, sensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Fields of the true state."""
        robot, layout = self._config.spec, self._layout
        views = {
            "joint_position": self._qpos[:, layout.position],
            "joint_velocity": self._qvel[:, layout.velocity],
            "joint_effort": self._effort[:, : robot.num_joints],
        }
        if self._gripper is not None:
            (views["gripper_opening"],) = self._opening
        if layout.floating:
            views |= {name: self._qpos[:, columns] for columns, name in BASE_POSITION}
            views |= {name: self._qvel[:, columns] for columns, name in BASE_VELOCITY}
        views |= {name: view for name, view in sensors.items() if name in STATE_FIELDS}
        for name, width in robot.state_widths.items():
            if name not in views:
                told = unknown_name(f"robot '{robot.name}': sensor", name, views)
                raise SpecMismatchError(
                    f"{told}; declare a sensor of that name in {self._config.model}"
                )
            if views[name].shape[1] != width:
                raise SpecMismatchError(
                    f"robot '{robot.name}': sensor '{name}' of {self._config.model} has "
                    f"{views[name].shape[1]} entries, expected {width}"
                )
        return views
