"""A simulated robot to learn on, from a run's config: loop, control laws, limits, environment.

`lockstep_env` ticks the robot's loop in the caller's process, as fast as it can. `run_robot` is the
robot process that `channel_env` reaches through shared memory, in real time. Both make the same of
the config, so that what is learned in one goes on in the other.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

import numpy as np

from configs.schema import RunConfig
from configs.twin_builder import build_twin
from hardware.control.clock import LogicalClock, MonotonicClock
from hardware.control.ipc import ArrayPublisher
from hardware.control.monitors import SafetyLimits
from hardware.control.pipeline import ControllerSet
from hardware.control.process import RobotChannels, RobotProcess
from hardware.control.stopping import StopConfig
from hardware.control.world import (
    GOAL,
    OUTCOME,
    OUTCOME_WIDTH,
    SENSED,
    EpisodeSubscriber,
    WorldEpisodes,
)
from hardware.controllers.cartesian_impedance import CartesianImpedanceConfig
from hardware.controllers.chain import KinematicChain
from hardware.learning.hardware_env import HardwareEnv, HardwareEnvConfig
from hardware.learning.lockstep import LockstepPort
from hardware.learning.port import ChannelPort
from hardware.learning.reset import ResetConfig, TaskReset
from hardware.learning.rewards import (
    PersonReward,
    RewardRule,
    SparseWorldReward,
    WorldReward,
)
from hardware.robot_file import shipped_robot_file
from hardware.teleop.targets import JointTarget, PoseTarget, TargetConfig
from robot_rl.cli.control_laws import PoseControl, chain_of, default_arm_law
from robot_rl.core.action import ActionMap, PoseMotion
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind, RobotCommand
from sim.twin import Twin

RESPONSE = 0.08
"""Time constant of the end effector behind its target, as people feel it [s]."""


class LedBy(Enum):
    """Actions of a learning robot."""

    joint = "joint"
    """Joint targets, as the task's config says."""
    pose = "pose"
    """Displacements of the end effector."""


class Judge(Enum):
    """Judge of episodes."""

    world = "world"
    """The simulated task."""
    person = "person"
    """Labels of a person, which come by the actor's socket: 0 before any."""


@dataclass(kw_only=True)
class TwinRobotConfig:
    """Actions, rewards and episodes of a simulated robot that learns."""

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
    law: CartesianImpedanceConfig = field(default_factory=default_arm_law)
    """Control law that follows the target."""
    speed: float = 0.25
    """Largest speed of the end effector's target in the loop [m/s]."""
    judge: Judge = Judge.world
    """Whoever says what a step is worth."""
    success_reward: float | None = None
    """Reward of a step of the task from which on it counts as success: reward 1 and an end of the
    episode, 0 before. None for the task's own rewards."""
    reset: ResetConfig = field(
        default_factory=lambda: ResetConfig(tasks=[TaskReset(steps=[{"begin_world": {}}])])
    )
    """Way to the start of episodes."""
    patience: float = 1.0
    """Factor on every time that the robot waits, for a busy machine."""


class TwinRobot:
    """Parts that the robot process and the environment of a run's robot have in common."""

    def __init__(self, run: RunConfig, config: TwinRobotConfig) -> None:
        """Read the robot; it is built by `lockstep_env` or `run_robot`.

        Raises:
            ConfigError: The run is not of our own worlds, or its robot cannot be led so.
        """
        if run.task is None or run.robot is None:
            raise ConfigError("learning on a simulated robot needs a task and a robot of our own")
        spec = run.robot.spec
        if spec.rotors:
            raise ConfigError(
                f"'{spec.name}' flies, and only arms and legs are led to the start of an episode; "
                "take driver=sim"
            )
        if config.led_by is LedBy.pose and "end_effector_position_b" not in spec.sensors:
            raise ConfigError(
                f"actions were asked to displace the end effector of '{spec.name}', which has "
                "none; take twin.led_by=joint"
            )
        self._run, self.config = run, config
        self.period = run.robot.loop_dt
        """Of the robot's loop [s]."""
        self.control_dt = run.robot.physics_dt * run.robot.decimation
        """Control period of the policy [s]."""

    @cached_property
    def action_map(self) -> ActionMap:
        """From actions to setpoints."""
        config = self.config
        if config.led_by is LedBy.joint:
            return self._run.robot.action_map(self._run.task)
        motion = replace(config.motion, workspace=self.workspace)
        return ActionMap.end_effector(
            translation=config.translation, rotation=config.rotation, motion=motion,
            gripper=config.gripper,
        )  # fmt: skip

    @cached_property
    def workspace(self) -> list[list[float]]:
        """Lower and upper limit of the target's position, (3, 2), [m]; empty for none."""
        given, reach = self.config.motion.workspace, self.config.reach
        if given or not reach:
            return given
        middle = self.chain.at(np.array(self.stop.pose))
        return [[place - reach, place + reach] for place in middle.tip_position_b.tolist()]

    @cached_property
    def narrowed(self) -> tuple[RobotSpec, SafetyLimits]:
        """The robot and its thresholds, within the bounds of its file."""
        spec = self._run.robot.spec
        limits = SafetyLimits.for_policy(spec, self.control_dt, self.period)
        if self.action_map.kind is CommandKind.joint:
            ends = zip(self.action_map.low, self.action_map.high, strict=True)
            reach = max((high - low) / 2 for low, high in ends)
            limits = replace(limits, first_command_jump=reach + limits.first_command_jump)
        file = shipped_robot_file(spec.name)
        if file is not None:
            spec, limits, _ = replace(file, clip=True).narrow(spec, limits)
        times = ("command_late", "command_lost", "state_late", "state_lost", "lease_late",
                 "lease_lost")  # fmt: skip
        longer = {name: self.config.patience * getattr(limits, name) for name in times}
        share = min(1.0, self.config.patience * limits.overrun_share)
        ticks = round(self.config.patience * limits.overrun_ticks)
        return spec, replace(limits, **longer, overrun_share=share, overrun_ticks=ticks)

    @property
    def stop(self) -> StopConfig:
        """Arms where the task's episodes begin."""
        return StopConfig(pose=tuple(self._run.task.action.middle(self._run.robot.spec)))

    @cached_property
    def world_widths(self) -> dict[str, int]:
        """Fields of the channel `world`."""
        twin = self._sample
        goals = {GOAL + name: value.shape[1] for name, value in twin.goal.items()}
        sensed = {SENSED + name: value.shape[1] for name, value in twin.sensed.items()}
        return {**goals, **sensed, OUTCOME: OUTCOME_WIDTH}

    @cached_property
    def chain(self) -> KinematicChain:
        """Links of the simulated arm, for the laws of a real one.

        Raises:
            ConfigError: The robot is no arm that MuJoCo simulates.
        """
        return chain_of(self._sample)

    @cached_property
    def _sample(self) -> Twin:
        """A robot that never moves: built once, to ask it for its model and its world."""
        twin = self.make_twin(seed=0)
        twin.connect()
        return twin

    def make_twin(self, seed: int, now: Callable[[], float] = time.monotonic) -> Twin:
        """The simulated robot, whose clock is `now` [s]."""
        return build_twin(self._run, seed=seed, now=now)

    def controllers(self, twin: Twin, on_setpoint: Callable[[RobotCommand], None]) -> ControllerSet:
        """Control laws of the loop; joint targets are followed by the motors themselves.

        Raises:
            ConfigError: The robot is no arm that MuJoCo simulates.
        """
        if self.config.led_by is LedBy.joint:
            return ControllerSet(on_setpoint=on_setpoint)
        return self.pose_control.controllers(on_setpoint)

    @property
    def pose_control(self) -> PoseControl:
        """Law that follows the end effector's target.

        Raises:
            ConfigError: The robot is no arm that MuJoCo simulates.
        """
        efforts = tuple(joint.effort_limit for joint in self._run.robot.spec.joints)
        return PoseControl(
            chain=self.chain, effort_limit=efforts, law=self.config.law, speed=self.config.speed
        )

    def person_target(self) -> PoseTarget:
        """Target that a person moves no faster than an action of a policy can.

        Raises:
            ConfigError: The robot has no end effector.
        """
        spec, config = self.narrowed[0], self.config
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

    def lockstep_env(self, seed: int = 0) -> HardwareEnv:
        """Environment of a robot in this process, on a logical clock: fast, bit for bit."""
        clock = LogicalClock()
        twin = self.make_twin(seed, clock.now)
        spec, limits = self.narrowed
        port = LockstepPort(
            twin, clock=clock, period=self.period, setpoint=self.action_map.kind, spec=spec,
            limits=limits, controllers=self.controllers(twin, twin.on_setpoint), stop=self.stop,
            world=twin,
        )  # fmt: skip
        return self._env(port, seed)

    def channel_env(self, name: str, seed: int = 0) -> HardwareEnv:
        """Environment over the robot process of this name, in real time."""
        port = ChannelPort(
            name, self.narrowed[0], setpoint=self.action_map.kind, world_widths=self.world_widths
        )
        return self._env(port, seed)

    def run_robot(self, name: str, until: Callable[[], bool], seed: int = 0) -> None:
        """The robot process: ticks in real time until asked to end.

        Args:
            name: Of its channels.
            until: True to end; asked once per tick.
            seed: Of the world.

        Raises:
            ChannelBusyError: Another process runs this robot.
        """
        clock, channels = MonotonicClock(), RobotChannels(name)
        twin = self.make_twin(seed, clock.now)
        episodes = WorldEpisodes(twin)

        def on_setpoint(setpoint: RobotCommand) -> None:
            episodes.on_setpoint()
            twin.on_setpoint(setpoint)

        spec, limits = self.narrowed
        process = RobotProcess(
            twin, name=name, clock=clock, period=self.period, spec=spec, limits=limits,
            controllers=self.controllers(twin, on_setpoint), stop=self.stop,
            setpoint=self.action_map.kind,
        )  # fmt: skip
        requests = EpisodeSubscriber(channels.episodes)
        world = ArrayPublisher(channels.world, self.world_widths)

        def between_ticks() -> bool:
            episodes.between_ticks(process.loop, requests.newest(), clock)
            world.send(episodes.fields(), twin.stamp)
            return until()

        try:
            process.run(between_ticks)
        finally:
            requests.close()
            world.close()

    def _env(self, port: LockstepPort | ChannelPort, seed: int) -> HardwareEnv:
        config, task = self.config, self._run.task
        made = HardwareEnvConfig(
            control_dt=self.control_dt, episode_length=task.episode_length, operates=True,
            initial_action=self._run.robot.initial_action, reset=config.reset,
            max_age={"state": 0.1 * config.patience},
            terminate_on_success=self._ends_with_success,
        )  # fmt: skip
        return HardwareEnv(port, self.action_map, task.actor, made, self._rewards(), seed=seed)

    def _rewards(self) -> Mapping[str, RewardRule]:
        reward = self.config.success_reward
        rule: RewardRule = WorldReward() if reward is None else SparseWorldReward(reward)
        if self.config.judge is Judge.person:
            rule = PersonReward()
        return {task.name: rule for task in self.config.reset.tasks}

    @property
    def _ends_with_success(self) -> bool:
        return self.config.judge is Judge.person or self.config.success_reward is not None
