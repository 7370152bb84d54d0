"""Simulated robots with joints: MuJoCo envs, motors, sensors, and parameters drawn per env.

The state that can be put into another env later is what a reset sets: positions, velocities, the
targets that motors hold, and where fixtures stand. Drawn parameters, delays and noise are not in
it: an env that begins in it has its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, DeviceError, SpecMismatchError, unknown_name
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import SensorSpec
from robot_rl.core.robot_command import JointCommand, RobotCommand
from robot_rl.core.seeding import derive_seed
from sim.cameras.config import CameraConfig
from sim.physics.engine import Engine
from sim.physics.joint_layout import JointLayout, mirror_model_sensors
from sim.physics.kinematics import Mechanism, settle
from sim.physics.mujoco_model import load_model
from sim.physics.starting_poses import starting_poses
from sim.randomization import CurriculumConfig, PushConfig, Pushes, widening
from sim.robots.joint_motors import JointMotors
from sim.robots.joint_plant import JointPlants
from sim.robots.joint_robot import (
    START_KINDS,
    FallenConfig,
    JointRandomization,
    JointRobotConfig,
    PhysicsEngine,
    StartsConfig,
    dropped,
)
from sim.robots.joint_true_state import BASE_POSITION, BASE_VELOCITY, JointTruth
from sim.scenes.potential_field import mirror_clutter
from sim.scenes.scene import SceneConfig
from sim.scenes.terrain import SCAN, mirror_scan
from sim.sensing import SimulatedSensors
from sim.task import InitialState

_FIXTURE = "fixture."


@dataclass(frozen=True, kw_only=True)
class Placed:
    """State that `count` envs are reset to."""

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
    """Puts robot and scene where a start or a state of another world says, and takes states.

    What a start leaves out stands where the model has it.
    """

    def __init__(self, engine: Engine, layout: JointLayout, motors: JointMotors) -> None:
        """Remember the model's own pose; the parts are only read."""
        self._reference = torch.tensor(engine.model.qpos0).to(engine.qpos)[None]
        self._engine, self._layout, self._motors = engine, layout, motors
        self._gripper = gripper = motors.gripper
        if gripper is not None:
            opened = torch.ones(1, 1, device=self._reference.device)
            self._reference[:, layout.fingers] = gripper.joint_position(opened)

    def of(self, count: int, start: InitialState) -> Placed:
        """State that `count` envs are reset to; a gripper that the task leaves out is open."""
        layout, robot = self._layout, start.robot.fields
        position = self._reference.repeat(count, 1)
        velocity = position.new_zeros(count, self._engine.qvel.shape[1])
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

    @property
    def widths(self) -> Mapping[str, int]:
        """Part -> width."""
        return {name: part.shape[1] for name, part in self._parts().items()}

    def take(self) -> dict[str, Tensor]:
        """All parts of all worlds, (N, W) float32, copied."""
        return {name: part.float().clone() for name, part in self._parts().items()}

    def placed(self, state: Mapping[str, Tensor]) -> Placed:
        """State of envs that begin in stored states, (count, W) each."""
        like = self._engine.qpos
        parts = {name: part.to(like) for name, part in state.items()}
        fixtures = {n: parts[_FIXTURE + name] for name, n in self._layout.fixtures.items()}
        return Placed(
            position=parts["position"], velocity=parts["velocity"], joints=parts["targets"],
            finger=parts.get("finger"), fixtures=fixtures,
        )  # fmt: skip

    def _parts(self) -> dict[str, Tensor]:
        engine, layout, gripper = self._engine, self._layout, self._gripper
        parts = {
            "position": engine.qpos,
            "velocity": engine.qvel,
            "targets": self._motors.targets(engine.qpos[:, layout.position]),
        }
        if gripper is not None:
            parts["finger"] = gripper.target
        for name, n in layout.fixtures.items():
            parts[_FIXTURE + name] = torch.cat([one[:, n] for one in engine.fixtures], dim=-1)
        return parts


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
        curriculum: CurriculumConfig | None = None,
        cameras: Mapping[str, CameraConfig] | None = None,
    ) -> None:
        """Build the worlds; `reset` must place the robots before the first step.

        Args:
            seed: Seed of sensor noise and pushes.
            curriculum: How the ranges widen; None draws from all of them.
            cameras: Cameras to put into the model, for whoever draws it.

        Raises:
            ConfigError: The model cannot be used or is unstable, or pushes meet a fixed base.
            DeviceError: The engine does not simulate there.
            SpecMismatchError: Joints, limits or sensors of spec and model differ.
        """
        self.config, self.robot = config, config.spec
        self.randomization = randomization
        self.device = device
        self.num_worlds = num_worlds
        scene = self._scene = scene or SceneConfig()
        model = load_model(
            config.model, config.spec, physics_dt=config.physics_dt, scene=scene,
            further_delay=randomization.actuator_delay[1],
            menagerie=config.menagerie, gripper=config.gripper_model,
            passive_joints=config.passive_joints, cameras=cameras,
        )  # fmt: skip
        self.engine = _make_engine(config, model, num_worlds, device)
        self.control_dt = self.engine.control_dt
        fingers = config.spec.gripper.joints if config.spec.gripper else []
        self.layout = JointLayout.of(model, config.spec.num_joints, len(fingers))
        """Columns of robot and scene in the engine's state."""
        self._motors = JointMotors(
            self.robot, self.engine, self.layout, limit_target_speed=config.limit_target_speed
        )
        self.states = Placement(self.engine, self.layout, self._motors)
        """Places robots, and takes states for episodes that begin in the middle of others."""
        self._true = JointTruth(config, self.engine, self.layout, self._motors.gripper, scene)
        self.sensors = self._true.sensors
        """True sensors of what stands around the robot and of its model, for tasks."""
        self._robot_sensors = self._make_sensors(
            config.spec.sensors, self.robot.state_widths, {"orientation_w": [0]},
            derive_seed(seed, "sensor noise"),
        )  # fmt: skip
        self._sensed_columns = self._true.columns(self._robot_sensors.columns)
        self.true_state, self.fault = self._true.robot, self.engine.fault
        self.measured = RobotState(self._robot_sensors.views)
        self._scene_sensors = self._make_sensors(
            scene.measured, self._scene_widths(scene), self.engine.quaternions,
            derive_seed(seed, "scene noise"),
        )  # fmt: skip
        self._pushes = self._make_pushes(randomization.pushes, seed)
        self._plants = JointPlants(config, randomization, self.engine, self.layout, self._motors)
        self._tuned = self._drawn_for_sensors()
        self._standing: Tensor | None = None
        self.curriculum = widening(curriculum, device)
        """Curriculum of ranges and pushes; None where they are whole."""
        if self.curriculum is not None:
            self._plants.level = self.curriculum.level
            if self._pushes is not None:
                self._pushes.level = self.curriculum.level
        self.sensed: Mapping[str, Tensor] = self._scene_sensors.views
        """Measurements of the scene, by the names of `SceneConfig.measured`."""
        self.privileged: Mapping[str, Tensor] = {**self.sensors, "plant": self._plants.drawn}
        """Drawn parameters, each column in [-1, 1] over its range, and the sensors of the model."""

    def sensor_mirrors(self, robot: RobotMirror) -> dict[str, SignedPermutation]:
        """Mirrors of sensors and drawn parameters, by name."""
        found = mirror_model_sensors(self.engine.model, robot)
        if self._scene.terrain is not None:
            found[SCAN] = mirror_scan(self._scene.terrain.scan)
        if self._scene.clutter is not None:
            found |= mirror_clutter(self._scene.clutter, robot)
        return {**found, "plant": self._plants.mirror(robot)}

    def step(self, command: RobotCommand) -> None:
        """Simulate one control period."""
        if not isinstance(command, JointCommand):
            raise SpecMismatchError(
                f"a simulated robot with joints takes joint commands, got {type(command).__name__}"
            )
        if self._pushes is not None:
            self._pushes.push(self.engine.qvel[:, :6])
        self._motors.command(command)
        self.engine.step(ramped=self._motors.ramped)
        self._true.look()
        self._robot_sensors.measure(self._sensed())
        self._scene_sensors.measure(self._scene_truth())

    def reset(self, rows: EnvSelection, start: InitialState, generator: torch.Generator) -> None:
        """Place the picked robots and draw their physical parameters."""
        self._begin(rows, self.states.of(rows.count, start), generator)

    def resume(
        self, rows: EnvSelection, state: Mapping[str, Tensor], generator: torch.Generator
    ) -> None:  # fmt: skip
        """Put the picked worlds into states that `states` took; parameters are drawn anew."""
        self._begin(rows, self.states.placed(state), generator)

    def _begin(self, rows: EnvSelection, placed: Placed, generator: torch.Generator) -> None:
        drawn = self._plants.begin(rows, generator)
        for name, target in self._tuned:
            rows.put(target, drawn[name][:, 0])
        control = self._motors.begin(rows, placed.joints, placed.finger)
        self.engine.reset(rows, placed.position, placed.velocity, control, fixtures=placed.fixtures)
        self._true.look()
        self._robot_sensors.reset(rows, self._sensed())
        self._scene_sensors.reset(rows, self._scene_truth())

    def move_fixtures(self, env: int, poses: Mapping[str, Tensor]) -> None:
        """Put fixtures of one env elsewhere, (7,) each by name; sensors tell it after a step."""
        for name, pose in poses.items():
            body = self.layout.fixtures[name]
            for part, columns in zip(self.engine.fixtures, (slice(0, 3), slice(3, 7)), strict=True):
                part[env, body] = pose[columns].to(part)

    def hold_base(self) -> None:
        """Put every floating base where the robot stands in its default pose, at rest.

        Upright, with the lowest point of the default pose on flat ground.
        """
        if self._standing is None:
            default = np.array([[joint.default_position for joint in self.robot.joints]])
            height = Mechanism(self.engine.model, self.robot).base_path(default)[0, 2]
            pose = [0.0, 0.0, height, 1.0, 0.0, 0.0, 0.0]
            self._standing = torch.tensor(pose, dtype=self.engine.qpos.dtype, device=self.device)
        self.engine.qpos[:, :7] = self._standing
        self.engine.qvel[:, :6] = 0.0

    def check(self) -> None:
        """Raise what the engine left out of the simulation since the last check."""
        self.engine.check()
        self._plants.restock()

    def fallen(self, config: FallenConfig) -> Tensor:
        """Poses of robots after a fall: position, quaternion, joint positions, (M, 7 + J)."""
        return settle(
            self.engine.model, self.layout, dropped(config, self.robot), seconds=config.seconds,
            damping=config.damping,
        )  # fmt: skip

    def starting_poses(self, config: StartsConfig) -> dict[str, Tensor]:
        """Poses of the kinds of starts that have a share, on level ground, (M, 7 + J) each.

        Raises:
            ConfigError: The robot cannot crouch so low, or does not lie on its belly.
        """
        shares = zip(START_KINDS, config.shares, strict=True)
        wanted = [kind for kind, share in shares if share > 0]
        if not wanted:
            return {}
        found = starting_poses(
            self.engine.model, self.layout, self.robot, crouch=config.crouch_height,
            offset=config.joint_offset, kinds=wanted,
        )  # fmt: skip
        return {kind: pose.float() for kind, pose in found.items()}

    def reseed(self, seed: int) -> None:
        """Restart the streams of sensor noise and pushes, and drop what was drawn ahead."""
        self._plants.forget()
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
            "curriculum": {} if self.curriculum is None else self.curriculum.state_dict(),
            "pushes": {} if self._pushes is None else self._pushes.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.engine.load_state_dict(state["engine"])
        self._robot_sensors.load_state_dict(state["sensors"])
        self._scene_sensors.load_state_dict(state["scene_sensors"])
        self._plants.load_state_dict(state["plants"])
        if self._pushes is not None:
            self._pushes.load_state_dict(state["pushes"])
        if self.curriculum is not None and state["curriculum"]:
            self.curriculum.load_state_dict(state["curriculum"])
        self._true.look()

    def drawn_parameters(self) -> dict[str, Tensor]:
        """Drawn parameters of every env's episode, by name, (N, width) each, in real units.

        Ranges of `JointRandomization` under their names; the bias of each sensor, as it is now,
        under `bias/<sensor>` in the unit of its noise.
        """
        drawn = self._plants.drawn_parameters()
        for sensors in (self._robot_sensors, self._scene_sensors):
            drawn |= {f"bias/{name}": bias.clone() for name, bias in sensors.biases().items()}
        return drawn

    def _drawn_for_sensors(self) -> list[tuple[str, Tensor]]:
        """Parameters that plants draw for sensors: names, and tensors of their values, (N,)."""
        return [
            (name, target)
            for sensors in (self._robot_sensors, self._scene_sensors)
            for name, target in (
                ("sensor_noise", sensors.noise_factor), ("sensor_bias", sensors.bias_factor),
                ("latency", sensors.extra_latency), ("sensor_jitter", sensors.jitter_factor),
            )
            if self._plants.changes(name)
        ]  # fmt: skip

    def _sensed(self) -> list[Tensor]:
        return [self._true.joined(self._sensed_columns)]

    def _scene_truth(self) -> list[Tensor]:
        return [self.sensors[name] for name in self._scene_sensors.columns]

    def _make_sensors(
        self, sensors: Mapping[str, SensorSpec], widths: Mapping[str, int],
        attitudes: Mapping[str, Sequence[int]], seed: int,
    ) -> SimulatedSensors:  # fmt: skip
        return SimulatedSensors(
            sensors, widths, attitudes=attitudes, num_worlds=self.num_worlds,
            control_dt=self.control_dt, longest_extra_latency=self.randomization.latency[1],
            largest_jitter_factor=self.randomization.sensor_jitter[1], device=self.device,
            seed=seed,
        )  # fmt: skip

    def _make_pushes(self, config: PushConfig, seed: int) -> Pushes | None:
        if not config.active:
            return None
        if not self.layout.floating:
            raise ConfigError(
                f"randomization.pushes asks to push the base of robot '{self.robot.name}', which "
                "is fixed; name a robot whose base floats, or leave pushes.speed and pushes.turn "
                "at 0"
            )
        return Pushes(
            config, num_worlds=self.num_worlds, control_dt=self.control_dt, seed=seed,
            device=self.device,
        )  # fmt: skip

    def _scene_widths(self, scene: SceneConfig) -> dict[str, int]:
        for name in scene.measured:
            if name not in self.sensors:
                told = unknown_name("task.scene.measured: sensor of the model", name, self.sensors)
                raise SpecMismatchError(told)
        return {name: self.sensors[name].shape[1] for name in scene.measured}


def _make_engine(
    config: JointRobotConfig, model: Any, num_worlds: int, device: torch.device
) -> Engine:
    """The engine that the config names, in the model's reference pose."""
    if config.engine is PhysicsEngine.warp:
        from sim.physics.warp_engine import MujocoWarpEngine  # an extra, only where asked for

        return MujocoWarpEngine(
            model, num_worlds, decimation=config.decimation, contacts=config.contacts, device=device
        )
    if device.type != "cpu":
        raise DeviceError(
            f"robot.engine=batch simulates on the CPU only, device '{device}' was asked for; "
            "use device=cpu, or robot.engine=warp"
        )
    from sim.physics.mujoco_engine import MujocoEngine

    return MujocoEngine(
        model, num_worlds, decimation=config.decimation, threads=config.physics_threads
    )
