"""Simulated robots with joints: MuJoCo worlds, motors, sensors, and parameters drawn per world."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError, DeviceError, SpecMismatchError, unknown_name
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import JointCommand, RobotCommand
from robot_rl.core.robot_state import STATE_FIELDS, RobotState
from robot_rl.core.rows import Rows
from robot_rl.core.seeding import derive_seed
from sim.gripper import Gripper
from sim.joint_plant import JointPlants
from sim.joint_robot import JointRandomization, JointRobotConfig
from sim.physics.joint_layout import JointLayout
from sim.physics.mujoco_batch import MujocoEngine
from sim.physics.mujoco_model import load_model
from sim.pushes import PushConfig, Pushes
from sim.scene import SceneConfig
from sim.sensing import DelayedSensors
from sim.task import Start

_STIFFNESS, _DAMPING = 1, 2
"""Columns of `actuator_biasprm`, where a motor's gains stand with a minus sign."""
_BASE_POSITION = ((slice(0, 3), "position_w"), (slice(3, 7), "orientation_w"))
_BASE_VELOCITY = ((slice(0, 3), "linear_velocity_w"), (slice(3, 6), "angular_velocity_b"))
"""Columns of a floating base and the fields of `RobotState` that they are."""


class MujocoSimulation:
    """N robots with joints, on fixed or floating bases, behind the `Simulation` protocol.

    The truth holds the base's pose and velocities where it floats, joint positions, velocities and
    efforts, and every sensor of the model that is named after a field of `RobotState`. What is
    measured is what the `RobotSpec` declares, noisy and late. Other sensors of the model are in
    `sensors`, for tasks and critics.
    """

    def __init__(
        self,
        config: JointRobotConfig,
        randomization: JointRandomization,
        *,
        num_worlds: int,
        device: torch.device,
        seed: int,
        scene: SceneConfig | None = None,
    ) -> None:
        """Build the worlds; `reset` must place the robots before the first step.

        Args:
            config: Robot and model.
            randomization: Ranges drawn at every reset.
            num_worlds: N.
            device: The CPU.
            seed: Seed of sensor noise and pushes.
            scene: What stands around the robot.

        Raises:
            ConfigError: The model cannot be used or is unstable, or pushes meet a fixed base.
            DeviceError: Another device was asked for.
            SpecMismatchError: Joints, limits or sensors of spec and model differ.
        """
        if device.type != "cpu":
            raise DeviceError(
                f"robot '{config.spec.name}' is simulated on the CPU only, device '{device}' was "
                "asked for; use device=cpu"
            )
        self.config = config
        self.randomization = randomization
        self.device = device
        self.num_worlds = num_worlds
        scene = scene or SceneConfig()
        model = load_model(
            config.model, config.spec, physics_dt=config.physics_dt, scene=scene,
            menagerie=config.menagerie,
        )  # fmt: skip
        self.engine = MujocoEngine(
            model, num_worlds, decimation=config.decimation, threads=config.physics_threads
        )
        self.control_dt = self.engine.control_dt
        hand = config.spec.gripper
        self.layout = JointLayout.of(model, config.spec.num_joints, len(hand.joints) if hand else 0)
        """Where robot and scene stand in the engine's state."""
        self._gripper = Gripper(hand, num_worlds, self.control_dt) if hand else None
        self._opening = torch.zeros(num_worlds, 1)
        self._start_position = torch.tensor(model.qpos0)
        # Single precision copies of the engine's state; what tasks and sensors read are views.
        self._qpos, self._qvel = self.engine.qpos.float(), self.engine.qvel.float()
        self._sensordata = self.engine.sensordata.float()
        self._effort = self.engine.actuator_force.float()
        views = {name: self._sensordata[:, c] for name, c in self.engine.sensor_columns.items()}
        self._truth = RobotState(self._state_views(views))
        self.sensors = {name: view for name, view in views.items() if name not in STATE_FIELDS}
        """Sensors of the model that are no fields of `RobotState`, (N, width) each: for tasks."""
        max_delay = round(randomization.latency[1] / self.control_dt)
        self._robot_sensors = DelayedSensors(
            config.spec.sensors, self.robot.state_widths, owner=f"robot '{self.robot.name}'",
            num_worlds=num_worlds, control_dt=self.control_dt, max_delay=max_delay, device=device,
            seed=derive_seed(seed, "sensor noise"),
        )  # fmt: skip
        self._measured = RobotState(self._robot_sensors.views)
        self._scene_sensors = DelayedSensors(
            scene.measured, self._scene_widths(scene), owner="task.scene.measured",
            num_worlds=num_worlds, control_dt=self.control_dt, max_delay=max_delay, device=device,
            seed=derive_seed(seed, "scene noise"),
        )  # fmt: skip
        self._pushes = self._make_pushes(randomization.pushes, seed)
        gains = self.engine.model_field("actuator_biasprm")[:, :, _STIFFNESS : _DAMPING + 1]
        self._gains = gains[:, : config.spec.num_joints]
        self._stiffness_factor = torch.ones(num_worlds, 1)
        self._damping_factor = torch.ones(num_worlds, 1)
        self._plants = JointPlants(config, randomization, self.engine, self.layout.velocity)
        self._privileged = {**self.sensors, "plant": self._plants.drawn}

    @property
    def robot(self) -> RobotSpec:
        """The robot in every world."""
        return self.config.spec

    @property
    def truth(self) -> RobotState:
        """The true state."""
        return self._truth

    @property
    def measured(self) -> RobotState:
        """What the sensors say."""
        return self._measured

    @property
    def fault(self) -> Tensor:
        """(N,) bool: MuJoCo warned, reset a world by itself, or failed."""
        return self.engine.fault

    @property
    def sensed(self) -> Mapping[str, Tensor]:
        """What is measured of the scene, by the names of `SceneConfig.measured`."""
        return self._scene_sensors.views

    @property
    def privileged(self) -> Mapping[str, Tensor]:
        """Drawn parameters, each column in [-1, 1] over its range, and the sensors of the model."""
        return self._privileged

    def step(self, command: RobotCommand) -> None:
        """Simulate one control period."""
        if not isinstance(command, JointCommand):
            raise SpecMismatchError(
                f"a simulated robot with joints takes joint commands, got {type(command).__name__}"
            )
        if self._pushes is not None:
            self._pushes.push(self.engine.qvel[:, :6])
        kp, kd = command.kp * self._stiffness_factor, command.kd * self._damping_factor
        self._gains[..., 0] = -kp
        self._gains[..., 1] = -kd
        control, J = self.engine.control, self.robot.num_joints
        control[:, :J] = kp * command.q + kd * command.dq + command.tau
        if self._gripper is not None:
            fingers = self.engine.qpos[:, self.layout.fingers]
            control[:, J:] = self._gripper.move(command.gripper, fingers)
        self.engine.step()
        self._look()
        self._robot_sensors.measure(self._sensed())
        self._scene_sensors.measure(self._scene_truth())

    def reset(self, rows: Rows, start: Start, generator: torch.Generator) -> None:
        """Place the picked robots and draw their physical parameters."""
        self._plants.begin(rows, generator)
        self._tune(rows)
        position = self._start_position.repeat(rows.count, 1)
        velocity = torch.zeros(rows.count, self._qvel.shape[1], dtype=torch.float64)
        robot = start.robot.fields
        position[:, self.layout.position] = robot["joint_position"].double()
        velocity[:, self.layout.velocity] = robot["joint_velocity"].double()
        for columns, name in _BASE_POSITION if self.layout.floating else ():
            position[:, columns] = robot[name].double()
        for columns, name in _BASE_VELOCITY if self.layout.floating else ():
            velocity[:, columns] = robot[name].double()
        fixtures: dict[int, Tensor] = {}
        for name, value in start.scene.items():
            if name in self.layout.fixtures:
                fixtures[self.layout.fixtures[name]] = value
            else:
                position[:, self.layout.scene[name]] = value.double()
        # Motors begin at rest: their torque is zero where they stand.
        kp = -rows.take(self._gains)[..., 0]
        control = [kp * position[:, self.layout.position]]
        if self.robot.gripper is not None and self._gripper is not None:
            fingers = self._gripper.reset(rows, robot.get("gripper_opening"))
            position[:, self.layout.fingers] = fingers
            control.append(self.robot.gripper.stiffness * fingers)
        self.engine.reset(rows, position, velocity, torch.cat(control, dim=-1), fixtures=fixtures)
        self._look()
        self._robot_sensors.reset(rows, self._sensed())
        self._scene_sensors.reset(rows, self._scene_truth())

    def push(self, world: int, velocity: Tensor) -> None:
        """Change a robot's velocity at once: a person's push.

        Args:
            world: Which one.
            velocity: Added to the base's linear (world axes) and angular velocity where it floats,
                (6,), [m/s] and [rad/s]; to the joints' velocities otherwise, (J,), [rad/s].
        """
        columns = slice(0, 6) if self.layout.floating else self.layout.velocity
        self.engine.qvel[world, columns] += velocity.to(self.engine.qvel.dtype)

    def reseed(self, seed: int) -> None:
        """Restart the streams of sensor noise and pushes."""
        self._robot_sensors.reseed(derive_seed(seed, "sensor noise"))
        self._scene_sensors.reseed(derive_seed(seed, "scene noise"))
        if self._pushes is not None:
            self._pushes.reseed(seed)

    def state_dict(self) -> dict[str, Any]:
        """Worlds, drawn parameters, samples in flight and the streams of noise and pushes."""
        return {
            "engine": self.engine.state_dict(),
            "sensors": self._robot_sensors.state_dict(),
            "scene_sensors": self._scene_sensors.state_dict(),
            "plants": self._plants.state_dict(),
            "gripper": {} if self._gripper is None else self._gripper.state_dict(),
            "pushes": {} if self._pushes is None else self._pushes.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.engine.load_state_dict(state["engine"])
        self._robot_sensors.load_state_dict(state["sensors"])
        self._scene_sensors.load_state_dict(state["scene_sensors"])
        self._plants.load_state_dict(state["plants"])
        if self._gripper is not None:
            self._gripper.load_state_dict(state["gripper"])
        if self._pushes is not None:
            self._pushes.load_state_dict(state["pushes"])
        self._tune(Rows(torch.ones_like(self.fault)))
        self._look()

    def _tune(self, rows: Rows) -> None:
        """Hand drawn gains, noise and latency to motors and sensors."""
        value = self._plants.value
        rows.put(self._stiffness_factor, value("stiffness", rows).float())
        rows.put(self._damping_factor, value("damping", rows).float())
        for sensors in (self._robot_sensors, self._scene_sensors):
            rows.put(sensors.noise_factor, value("sensor_noise", rows)[:, 0].float())
            delay = (value("latency", rows)[:, 0] / self.control_dt).round().long()
            rows.put(sensors.delay, delay)

    def _look(self) -> None:
        """Bring the truth up to date with the engine."""
        self._qpos.copy_(self.engine.qpos)
        self._qvel.copy_(self.engine.qvel)
        self._sensordata.copy_(self.engine.sensordata)
        self._effort.copy_(self.engine.actuator_force)
        if self._gripper is not None:
            self._opening.copy_(self._gripper.opening(self._qpos[:, self.layout.fingers]))

    def _sensed(self) -> list[Tensor]:
        return [self._truth.fields[name] for name in self._robot_sensors.columns]

    def _scene_truth(self) -> list[Tensor]:
        return [self.sensors[name] for name in self._scene_sensors.columns]

    def _make_pushes(self, config: PushConfig, seed: int) -> Pushes | None:
        if not config.active:
            return None
        if not self.layout.floating:
            raise ConfigError(
                f"randomization.pushes asks to push the base of robot '{self.robot.name}', which "
                "is fixed; leave pushes.speed and pushes.turn at 0"
            )
        return Pushes(config, num_worlds=self.num_worlds, control_dt=self.control_dt, seed=seed)

    def _scene_widths(self, scene: SceneConfig) -> dict[str, int]:
        for name in scene.measured:
            if name not in self.sensors:
                told = unknown_name("task.scene.measured: sensor of the model", name, self.sensors)
                raise SpecMismatchError(told)
        return {name: self.sensors[name].shape[1] for name in scene.measured}

    def _state_views(self, sensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Fields of the true state."""
        views = {
            "joint_position": self._qpos[:, self.layout.position],
            "joint_velocity": self._qvel[:, self.layout.velocity],
            "joint_effort": self._effort[:, : self.robot.num_joints],
        }
        if self._gripper is not None:
            views["gripper_opening"] = self._opening
        if self.layout.floating:
            views |= {name: self._qpos[:, columns] for columns, name in _BASE_POSITION}
            views |= {name: self._qvel[:, columns] for columns, name in _BASE_VELOCITY}
        views |= {name: view for name, view in sensors.items() if name in STATE_FIELDS}
        for name, width in self.robot.state_widths.items():
            if name not in views:
                told = unknown_name(f"robot '{self.robot.name}': sensor", name, views)
                raise SpecMismatchError(
                    f"{told}; declare a sensor of that name in {self.config.model}"
                )
            if views[name].shape[1] != width:
                raise SpecMismatchError(
                    f"robot '{self.robot.name}': sensor '{name}' of {self.config.model} has "
                    f"{views[name].shape[1]} entries, expected {width}"
                )
        return views
