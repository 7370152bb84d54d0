"""A simulated robot to learn on, from a run's config: loop, control laws, limits, environment.

`lockstep_env` ticks the robot's loop in the caller's process, as fast as it can. `run_robot` is the
robot process that `channel_env` reaches through shared memory, in real time. Both make the same of
the config, so that what is learned in one goes on in the other.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from configs.schema import RunConfig
from configs.twin_builder import build_twin
from hardware.control.clock import LogicalClock, MonotonicClock
from hardware.control.ipc import ArrayPublisher
from hardware.control.process import RobotChannels, RobotProcess
from hardware.control.world import (
    OUTCOME,
    OUTCOME_WIDTH,
    EpisodeSubscriber,
    WorldEpisodes,
)
from hardware.controllers.cartesian_impedance import CartesianImpedanceConfig
from hardware.learning.cameras import PictureSource
from hardware.learning.hardware_env import HardwareEnv
from hardware.learning.lockstep import LockstepPort
from hardware.learning.reset import ResetConfig, TaskReset
from hardware.learning.rewards import (
    PersonReward,
    RewardRule,
    SparseWorldReward,
    WorldReward,
)
from robot_rl.cli.control_laws import PoseControl, default_arm_law
from robot_rl.cli.learning.led_robot import LedRobot, LedRobotConfig
from robot_rl.cli.learning.twin_cameras import (
    DrawnPictures,
    ReceivedPictures,
    ShownCamera,
    draw_pictures,
)
from robot_rl.core.robot_command import RobotCommand
from sim.cameras.config import ImageRenderer
from sim.twin import Twin
from sim.twin_cameras import scene_fields, scene_widths

RESPONSE = 0.08
"""Time constant of the end effector behind its target, as people feel it [s]."""


class Judge(Enum):
    """Judge of episodes."""

    world = "world"
    """The simulated task."""
    person = "person"
    """Labels of a person, which come by the actor's socket: 0 before any."""


@dataclass(kw_only=True)
class TwinRobotConfig(LedRobotConfig):
    """Actions, rewards and episodes of a simulated robot that learns."""

    law: CartesianImpedanceConfig = field(default_factory=default_arm_law)
    """Control law that follows the target."""
    judge: Judge = Judge.world
    """Whoever says what a step is worth."""
    success_reward: float | None = None
    """Reward of a step of the task from which on it counts as success: reward 1 and an end of the
    episode, 0 before. None for the task's own rewards."""
    reset: ResetConfig = field(
        default_factory=lambda: ResetConfig(tasks=[TaskReset(steps=[{"begin_world": {}}])])
    )
    """Way to the start of episodes."""


class TwinRobot(LedRobot):
    """A simulated robot in its loop; it is built by `lockstep_env` or `run_robot`."""

    operates = True
    response = RESPONSE

    def __init__(self, run: RunConfig, config: TwinRobotConfig) -> None:
        """Read the robot.

        Raises:
            ConfigError: The run is not of our own worlds, or its robot cannot be led so.
        """
        super().__init__(run, config)
        self.config = config

    @cached_property
    def world_widths(self) -> dict[str, int]:
        """Fields of the channel `world`."""
        return {**self.read_widths, OUTCOME: OUTCOME_WIDTH}

    @property
    def person_labels(self) -> bool:
        """True where a person is the judge."""
        return self.config.judge is Judge.person and self._learned is None

    def make_twin(self, seed: int, now: Callable[[], float] = time.monotonic) -> Twin:
        """The simulated robot, whose clock is `now` [s]."""
        return build_twin(self._run, seed=seed, cameras=self.cameras, now=now)

    @property
    def pose_control(self) -> PoseControl:
        """Springs and dampers at the end effector, through torques."""
        return PoseControl(
            robot=self._run.robot.spec, chain=self.chain, law=self.config.law,
            speed=self.config.speed,
        )  # fmt: skip

    def lockstep_env(self, seed: int = 0) -> HardwareEnv:
        """Environment of a robot in this process, on a logical clock: fast, bit for bit."""
        clock = LogicalClock()
        twin = self.make_twin(seed, clock.now)
        spec, limits = self.narrowed
        port = LockstepPort(
            twin, clock=clock, period=self.period, setpoint=self.action_map.kind, spec=spec,
            limits=limits, controllers=self.controllers(twin.on_setpoint), stop=self.stop,
            world=twin,
        )  # fmt: skip
        pictures = DrawnPictures(twin, self.cameras, self._renderer) if self.cameras else None
        return self._env(port, seed, pictures)

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
            controllers=self.controllers(on_setpoint), stop=self.stop,
            setpoint=self.action_map.kind,
        )  # fmt: skip
        requests = EpisodeSubscriber(channels.episodes)
        world = ArrayPublisher(channels.world, self.world_widths)
        scene: ArrayPublisher | None = None
        if self.cameras:
            scene = ArrayPublisher(channels.scene, scene_widths(twin.simulation))

        def between_ticks() -> bool:
            episodes.between_ticks(process.loop, requests.newest(), clock)
            world.send(episodes.fields(), twin.stamp)
            if scene is not None:
                scene.send(scene_fields(twin.simulation), twin.stamp)
            return until()

        try:
            process.run(between_ticks)
        finally:
            requests.close()
            world.close()
            if scene is not None:
                scene.close()

    def draw_cameras(self, name: str, until: Callable[[], bool]) -> None:
        """The process that draws what the cameras of the robot process of this name see.

        Raises:
            ChannelBusyError: Another process draws for this robot.
            ConfigError: Nothing can be drawn here.
        """
        draw_pictures(self.make_twin(0), self.cameras, self._renderer, name, until)

    def shown_cameras(self, name: str) -> list[ShownCamera]:
        """The cameras for a console beside the robot process of this name."""
        return [ShownCamera(one, name, self.cameras) for one in self.cameras]

    def _pictures(self, name: str) -> PictureSource | None:
        return ReceivedPictures(name, self.cameras) if self.cameras else None

    @property
    def _renderer(self) -> ImageRenderer:
        return self._run.env.renderer

    def rewards(self) -> Mapping[str, RewardRule]:
        """The task's own rewards, sparse ones, or a person's."""
        reward = self.config.success_reward
        rule: RewardRule = WorldReward() if reward is None else SparseWorldReward(reward)
        if self.person_labels:
            rule = PersonReward()
        return {task.name: rule for task in self.config.reset.tasks}

    @property
    def _ends_with_success(self) -> bool:
        return self.person_labels or self.config.success_reward is not None
