"""Robot that a run learns on by its end effector or its joints, whatever moves it.

Actions, limits, workspace, the pose that episodes begin in and the environment of the actor are the
same for a simulated robot (`twin_robot.py`), for one that speaks ROS 2 (`ros_robot.py`) and for one
with a driver of a plug-in (`direct_robot.py`). The links of the arm are those of the simulated
model.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from configs.schema import RunConfig
from configs.twin_builder import build_twin
from hardware.control.monitors import SafetyLimits
from hardware.control.pipeline import ControllerSet
from hardware.control.stopping import StopConfig
from hardware.control.world import GOAL, SENSED
from hardware.controllers.chain import KinematicChain
from hardware.learning.cameras import EpisodeCameras, PictureSource
from hardware.learning.hardware_env import HardwareEnv, HardwareEnvConfig
from hardware.learning.port import ChannelPort, RobotPort
from hardware.learning.reset import ResetConfig
from hardware.learning.rewards import RewardRule
from hardware.robot_file import RobotFile, shipped_robot_file
from hardware.teleop.targets import JointTarget, PoseTarget, TargetConfig
from policies.cameras import CameraInput
from robot_rl.cli.control_laws import PoseControl, chain_of
from robot_rl.cli.learned_reward import LearnedRule
from robot_rl.cli.simulated_cameras import camera_input
from robot_rl.core.action import ActionMap, PoseMotion
from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind, RobotCommand
from sim.cameras.config import CameraConfig, chosen_cameras
from sim.twin import Twin


class LedBy(Enum):
    """Actions of a learning robot."""

    joint = "joint"
    """Joint targets, as the task's config says."""
    pose = "pose"
    """Displacements of the end effector."""


@dataclass(kw_only=True)
class LedRobotConfig:
    """Actions and resets of a robot that learns."""

    led_by: LedBy = LedBy.pose
    """Kind of actions."""
    translation: float = 0.01
    """Displacement of the end effector's target by an action of 1, along an axis [m]."""
    rotation: float = 0.05
    """Likewise, of an entry of the rotation vector [rad]."""
    motion: PoseMotion = field(default_factory=PoseMotion)
    """Axes, frame, leash and workspace of the end effector's target."""
    reach: float = 0.0
    """Half-width of the workspace around the end effector's place in the pose that the task begins
    in [m], where `motion` names none; 0 for no workspace. A peg needs 0.15."""
    gripper: bool = False
    """One more action moves the gripper, where the end effector is led."""
    speed: float = 0.25
    """Largest speed of the end effector's target in the loop [m/s]."""
    reset: ResetConfig = field(default_factory=ResetConfig)
    """Way to the start of episodes."""
    patience: float = 1.0
    """Factor on every time that the robot waits, for a busy machine."""


class _NoPictures:
    """Cameras that nobody hears; a `PictureSource`."""

    troubles = MappingProxyType({})
    """None."""

    def newest(self) -> Mapping[str, Any]:
        """None."""
        return {}

    def close(self) -> None:
        """Nothing is open."""


class LedRobot(ABC):
    """Parts that the robot process, the environment and a person's hand have in common."""

    operates = False
    """True where the robot may be armed and handed to the policy without a person."""
    response: float
    """Time constant of the end effector behind its target, as people feel it [s]."""

    def __init__(self, run: RunConfig, config: LedRobotConfig) -> None:
        """Read the robot; nothing is built yet.

        Raises:
            ConfigError: The run is not of our own worlds, or its robot cannot be led so.
        """
        if run.task is None or run.robot is None:
            raise ConfigError("learning on a robot needs a task and a robot of our own")
        spec = run.robot.spec
        if spec.rotors:
            raise ConfigError(
                f"'{spec.name}' flies, and only arms and legs are led to the start of an episode; "
                "take driver=sim"
            )
        if config.led_by is LedBy.pose and "end_effector_position_b" not in spec.sensors:
            raise ConfigError(
                f"actions were asked to displace the end effector of '{spec.name}', which has "
                "none; take led_by=joint of the driver's group, such as twin.led_by=joint"
            )
        self._run = run
        self.led = config
        """Its actions and resets."""
        self.period = run.robot.loop_dt
        """Of the robot's loop [s]."""
        self.control_dt = run.robot.physics_dt * run.robot.decimation
        """Control period of the policy [s]."""

    @cached_property
    def action_map(self) -> ActionMap:
        """From actions to setpoints."""
        config = self.led
        if config.led_by is LedBy.joint:
            return self._run.robot.action_map(self._run.task)
        motion = replace(config.motion, workspace=self.workspace)
        return ActionMap.end_effector(
            translation=config.translation, rotation=config.rotation, motion=motion,
            gripper=config.gripper,
        )  # fmt: skip

    def check_gripper(self) -> None:
        """Refuse a task that needs a gripper, where no action moves it.

        Raises:
            ConfigError: Names the option that adds the action.
        """
        if getattr(self._run.task.action, "gripper", False) and not self.action_map.gripper:
            raise ConfigError(
                f"the task moves the gripper of '{self._run.robot.spec.name}', and none of these "
                "actions does; add one: gripper=true of the driver's group, such as "
                "twin.gripper=true"
            )

    @cached_property
    def workspace(self) -> list[list[float]]:
        """Lower and upper limit of the target's position, (3, 2), [m]; empty for none."""
        given, reach = self.led.motion.workspace, self.led.reach
        if given or not reach:
            return given
        middle = self.chain.at(np.array(self.stop.pose))
        return [[place - reach, place + reach] for place in middle.tip_position_b.tolist()]

    @cached_property
    def cameras(self) -> dict[str, CameraConfig]:
        """Cameras that the run names, by name.

        Raises:
            ConfigError: The robot and the scene have no such camera.
        """
        return chosen_cameras(self._run.env.cameras, self._run.robot, self._run.task)

    @cached_property
    def camera_inputs(self) -> dict[str, CameraInput]:
        """Parts of their pictures that a policy sees, by name."""
        return {name: camera_input(one, self.control_dt) for name, one in self.cameras.items()}

    @cached_property
    def robot_file(self) -> RobotFile | None:
        """Bounds of the robot; None where nobody gives any."""
        return shipped_robot_file(self._run.robot.spec.name)

    @cached_property
    def narrowed(self) -> tuple[RobotSpec, SafetyLimits]:
        """The robot and its thresholds, within the bounds of its file."""
        spec = self._run.robot.spec
        limits = SafetyLimits.for_policy(spec, self.control_dt, self.period)
        if self.action_map.kind is CommandKind.joint:
            ends = zip(self.action_map.low, self.action_map.high, strict=True)
            reach = max((high - low) / 2 for low, high in ends)
            limits = replace(limits, first_command_jump=reach + limits.first_command_jump)
        if self.robot_file is not None:
            spec, limits, _ = replace(self.robot_file, clip=True).narrow(spec, limits)
        return spec, limits.stretched(self.led.patience, lease=True)

    @property
    def stop(self) -> StopConfig:
        """Arms where the task's episodes begin."""
        return StopConfig(pose=tuple(self._run.task.action.middle(self._run.robot.spec)))

    @cached_property
    @abstractmethod
    def world_widths(self) -> Mapping[str, int]:
        """Fields of the channel `world`, with their widths."""
        ...

    @property
    def told_widths(self) -> dict[str, int]:
        """Goals and further inputs that the simulated world tells, with their widths."""
        goals = {GOAL + name: one.shape[1] for name, one in self._sample.goal.items()}
        return goals | {SENSED + name: one.shape[1] for name, one in self._sample.sensed.items()}

    @cached_property
    def read_widths(self) -> Mapping[str, int]:
        """Goals and further inputs that a bundle's policy is told, with their widths."""
        return self.told_widths

    @property
    @abstractmethod
    def person_labels(self) -> bool:
        """True where episodes are judged by the labels of a person."""
        ...

    @property
    @abstractmethod
    def pose_control(self) -> PoseControl:
        """Law that follows the end effector's target, as bundles keep it.

        Raises:
            ConfigError: The robot is no arm that MuJoCo simulates.
        """
        ...

    @abstractmethod
    def rewards(self) -> Mapping[str, RewardRule]:
        """Rule of each task of the resets."""
        ...

    @abstractmethod
    def run_robot(self, name: str, until: Callable[[], bool], seed: int = 0) -> None:
        """The robot process: ticks in real time until asked to end.

        Args:
            name: Of its channels.
            until: True to end; asked once per tick.
            seed: Of a simulated world.

        Raises:
            ChannelBusyError: Another process runs this robot.
        """
        ...

    @cached_property
    def chain(self) -> KinematicChain:
        """Links of the simulated arm, for the laws of a real one.

        Raises:
            ConfigError: The robot is no arm that MuJoCo simulates.
        """
        return chain_of(self._sample)

    @cached_property
    def _sample(self) -> Twin:
        """A simulated robot that never moves: built once, to ask for its model and its world."""
        twin = build_twin(self._run, seed=0)
        twin.connect()
        return twin

    def controllers(self, on_setpoint: Callable[[RobotCommand], None] | None) -> ControllerSet:
        """Control laws of the loop; joint targets are followed by the motors themselves.

        Raises:
            ConfigError: The robot is no arm that MuJoCo simulates.
        """
        if self.led.led_by is LedBy.joint:
            return ControllerSet(on_setpoint=on_setpoint)
        return self.pose_control.controllers(on_setpoint)

    def person_target(self) -> PoseTarget:
        """Target that a person moves no faster than an action of a policy can.

        Raises:
            ConfigError: The robot has no end effector.
        """
        spec, config = self.narrowed[0], self.led
        if "end_effector_position_b" not in spec.sensors:
            raise ConfigError(
                f"'{spec.name}' has no end effector that a person could lead; take person=none"
            )
        speeds = TargetConfig.for_actions(config.translation, config.rotation, self.control_dt)
        if self.workspace:
            lower, upper = zip(*self.workspace, strict=True)
            speeds = replace(speeds, lower=[*lower], upper=[*upper])
        if config.led_by is LedBy.joint:
            return JointTarget(spec, self.chain, speeds)
        return PoseTarget(speeds)

    @property
    def meaning(self) -> dict[str, Any]:
        """Meaning of an action, in plain values: its map, and the law that follows it."""
        told: dict[str, Any] = {"action": self.action_map.to_dict()}
        if self.action_map.kind is CommandKind.pose:
            told["law"] = self.pose_control.to_dict()
        return told

    def channel_env(self, name: str, seed: int = 0) -> HardwareEnv:
        """Environment over the robot process of this name, in real time."""
        return self._env(self._port(name), seed, self._pictures(name))

    def shapes(self, name: str) -> EnvSpec:
        """Of that environment; nobody is heard, and no camera.

        Args:
            name: Of channels that no process has.
        """
        pictures = _NoPictures() if self.cameras else None
        with contextlib.closing(self._env(self._port(name), 0, pictures)) as env:
            return env.spec

    def _port(self, name: str) -> ChannelPort:
        return ChannelPort(
            name, self.narrowed[0], setpoint=self.action_map.kind, world_widths=self.world_widths
        )

    def _pictures(self, name: str) -> PictureSource | None:
        """Pictures that come beside the channels of this name; None without cameras."""
        return None

    @property
    def _drawn_pictures(self) -> bool:
        """Pictures are drawn, and have no noise."""
        return True

    @cached_property
    def _reset(self) -> ResetConfig:
        """Way to the start of episodes."""
        return self.led.reset

    @cached_property
    def _goals(self) -> Mapping[str, np.ndarray]:
        """Goals that nobody tells, (1, width)."""
        return {}

    @cached_property
    def _learned(self) -> LearnedRule | None:
        """Learned rule of all tasks in place of their own; None where the run names none."""
        given = self._run.reward
        return LearnedRule(self._run) if given.model or given.function else None

    @property
    def _ends_with_success(self) -> bool:
        """Success ends an episode."""
        return True

    def _env(self, port: RobotPort, seed: int, pictures: PictureSource | None) -> HardwareEnv:
        task = self._run.task
        made = HardwareEnvConfig(
            control_dt=self.control_dt, episode_length=task.episode_length,
            operates=self.operates, initial_action=self._run.robot.initial_action,
            reset=self._reset, max_age={"state": 0.1 * self.led.patience},
            terminate_on_success=self._ends_with_success or self._learned is not None,
        )  # fmt: skip
        cameras = None
        if pictures is not None:
            cameras = EpisodeCameras(
                self.camera_inputs, pictures, self.control_dt, drawn=self._drawn_pictures,
                patience=self.led.patience,
            )  # fmt: skip
        rewards, learned = self.rewards(), self._learned
        if learned is not None:
            rewards = dict.fromkeys(rewards, learned)
        env = HardwareEnv(
            port, self.action_map, task.actor, made, rewards, goals=self._goals, cameras=cameras,
            seed=seed,
        )  # fmt: skip
        if learned is not None:
            learned.check(env.spec)
        return env
