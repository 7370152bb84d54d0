"""A robot behind somebody else's ROS 2 node to learn on: robot process, link, rewards, resets.

    their node <--- topics ---> link <--- channels ---> loop <--- channels ---> actor, console

The loop with its limits, monitors and stops stands between whoever leads the robot and its node, as
in a deployment (`driver=ros2` of `robot-rl deploy`). What no real robot tells is not asked for:
reward and success come from a person's labels or from a place that the end effector has to come to,
and the start of an episode is a pose that the robot is led to and a scene that a person puts back.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from configs.schema import RunConfig
from hardware.control.clock import MonotonicClock
from hardware.control.process import RobotChannels, RobotProcess
from hardware.control.world import GOAL, SENSED
from hardware.drivers.ipc_driver import IpcDriver
from hardware.learning.reset import ResetConfig, TaskReset
from hardware.learning.rewards import PersonReward, PlaceConfig, PlaceReward, RewardRule
from hardware.robot_file import RobotFile, load_robot_file
from hardware.ros.command_messages import Gains
from hardware.ros.foreign_commands import Wiring, absolute_name
from hardware.ros.robot_link import RobotLink
from hardware.ros.scene_link import SceneLink
from hardware.ros.session import RosSession
from robot_rl.cli.control_laws import PoseControl
from robot_rl.cli.deployment.options import DriverOptions, PolicyOptions
from robot_rl.cli.learning.led_robot import LedRobot, LedRobotConfig
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.robot_command import CommandKind

GAINS = "robot"
"""Name of the set of gains that commands are made for: those of the robot's description."""
_MAX_AGE = 0.2
"""Of a sample, times the patience [s]; the loop's monitors react long before."""
_NODE_SECONDS = 60.0
"""Longest wait of the loop for a first sample [s]."""
_LOOKS_PER_PERIOD, _LONGEST_REST = 4, 0.001
"""Polls of the link in a period of the loop, and the longest rest between two [s]."""
_BEGIN_WORLD, _CONFIRM = "begin_world", "confirm"
_PROMPT = "put everything where an episode begins, leave the workspace, then confirm"


@dataclass(kw_only=True)
class RosRobotConfig(LedRobotConfig):
    """Topics, actions, rewards and resets of a robot behind a ROS 2 node."""

    source: str = "/"
    """Namespace of the node's topics."""
    topics: dict[str, str] = field(default_factory=dict)
    """Topics that have other names, and `command`."""
    command: str = ""
    """Form of commands; see `hardware.ros.foreign_commands`."""
    joints: list[str] = field(default_factory=list)
    """Order of the joints in commands."""
    domain: int = -1
    """ROS_DOMAIN_ID; -1 takes the environment's."""
    namespace: str = ""
    """Namespace in which goals and further inputs are heard; the robot's name if empty."""
    robot_file: str = ""
    """Bounds of the robot at hand; `hardware/robots/<name>.yaml` if empty."""
    goal: dict[str, Any] = field(default_factory=dict)
    """Goals that always hold: name -> numbers; the others are heard on `goal/<name>`."""
    place: PlaceConfig = field(default_factory=PlaceConfig)
    """Place at which an episode succeeds; without a radius a person's labels say so alone."""
    retreat: float = 0.08
    """Way up before the robot is led to the start of the next episode, where `reset` names no steps
    [m]."""


class RosRobot(LedRobot):
    """A robot that a node drives; positions of its joints are what it is told."""

    response = 0.03
    """The simulated Panda trails a pose at 0.125 m/s by 2 mm at most; the link takes its time."""

    def __init__(self, run: RunConfig, config: RosRobotConfig, *, helped: bool) -> None:
        """Read the robot; its node is first asked for by `run_robot` and `run_link`.

        Args:
            helped: A person is there who confirms and labels.

        Raises:
            ConfigError: The run is not of our own worlds, or its robot cannot be led so.
        """
        super().__init__(run, config)
        self.config, self._helped = config, helped

    def check(self) -> None:
        """Refuse what this robot could not be learned on with.

        Raises:
            RobotRLError: Topics, goals, reward or resets cannot be, or need a person who is not
                there; says so in a sentence.
        """
        if self._run.env.cameras:
            raise ConfigError(
                f"env.cameras={self._run.env.cameras} was asked for; over ROS 2 robot-rl learn "
                "reads vectors only: leave it out, with learner.images.encoder=none, or take "
                "driver=twin"
            )
        _ = self.wiring, self.domain, self._goals
        self.config.place.check(self.read_widths)
        spec = self._run.robot.spec
        if self.config.place.radius > 0 and "end_effector_position_b" not in spec.sensors:
            raise ConfigError(
                f"ros2.place.radius={self.config.place.radius:g} waits for the end effector, which "
                f"'{spec.name}' does not measure; it measures {[*spec.sensors]}"
            )
        judged = self.config.place.radius > 0 or self._learned is not None
        if not judged and not self._helped:
            raise ConfigError(
                "who says that an episode succeeded? a robot over ROS 2 tells no reward: take "
                "person=console, whose labels do, ros2.place.radius= and ros2.place.at=, or "
                "reward.model=<learned reward>"
            )
        for name in [name for task in self._reset.tasks for step in task.steps for name in step]:
            if name == _BEGIN_WORLD:
                raise ConfigError(
                    "ros2.reset asks to begin_world, which only a simulated robot can; lead the "
                    "robot with move_end_effector or move_joints, and let a person confirm"
                )
            if name == _CONFIRM and not self._helped:
                raise ConfigError("ros2.reset waits for a person to confirm, but person=none")

    @cached_property
    def robot_file(self) -> RobotFile | None:
        """Bounds of the robot, and its topics, stop button and cameras."""
        chosen = self.config.robot_file
        return load_robot_file(chosen) if chosen else super().robot_file

    @property
    def domain(self) -> int:
        """ROS_DOMAIN_ID."""
        return PolicyOptions(domain=self.config.domain).ros_domain

    @property
    def namespace(self) -> str:
        """Of our own nodes."""
        return absolute_name("namespace", self.config.namespace or self._run.robot.spec.name)

    @cached_property
    def wiring(self) -> Wiring:
        """Topics of the robot's node, and the form of commands that it takes."""
        config, file = self.config, self.robot_file
        options = DriverOptions(
            driver="ros2", source=config.source, topics=dict(config.topics),
            command=config.command, joints=list(config.joints),
        )  # fmt: skip
        given = file.ros2 if file is not None else {}
        return options.wiring(self._run.robot.spec, self.namespace, given)

    @cached_property
    def world_widths(self) -> dict[str, int]:
        """Goals and further inputs that are heard: those that the policy's observation reads."""
        return {
            n: w for n, w in self.read_widths.items() if n.removeprefix(GOAL) not in self._goals
        }

    @property
    def person_labels(self) -> bool:
        """True where neither a place nor a learned reward says that an episode succeeded."""
        return self.config.place.radius == 0 and self._learned is None

    @property
    def pose_control(self) -> PoseControl:
        """Joint positions by inverse kinematics, which every form of commands carries."""
        return PoseControl(
            robot=self.narrowed[0], chain=self.chain, law=None, speed=self.config.speed,
            rest=tuple(self.stop.pose),
        )  # fmt: skip

    def rewards(self) -> Mapping[str, RewardRule]:
        """A place, or labels alone."""
        place = self.config.place
        rule: RewardRule = PlaceReward(place) if place.radius > 0 else PersonReward()
        return {task.name: rule for task in self._reset.tasks}

    def run_robot(self, name: str, until: Callable[[], bool], seed: int = 0) -> None:
        """The robot process: waits for the first sample, then ticks until asked to end.

        Raises:
            ChannelBusyError: Another process runs this robot.
            StaleStateError: Its node sends nothing.
        """
        clock, channels, (spec, limits) = MonotonicClock(), RobotChannels(name), self.narrowed
        patience = self.config.patience
        file = self.robot_file

        def waiting() -> None:
            if until():
                raise _EndedError

        driver = IpcDriver(
            spec, clock, measured=channels.measured, sent=channels.sent,
            max_age=_MAX_AGE * patience, patience=_NODE_SECONDS * patience, waiting=waiting,
        )  # fmt: skip
        try:
            process = RobotProcess(
                driver, name=name, clock=clock, period=self.period, spec=spec, limits=limits,
                controllers=self.controllers(None), stop=self.stop,
                setpoint=self.action_map.kind,
                estop=file is not None and file.estop_device is not None,
            )  # fmt: skip
        except _EndedError:
            return

        def between_ticks() -> bool:
            requests = process.loop.requests
            requests.publishers = max(requests.publishers, driver.publishers)
            requests.doubled = driver.doubled
            return until()

        process.run(between_ticks)

    def run_link(self, name: str, until: Callable[[], bool], say: Callable[[str], object]) -> None:
        """The link to the robot's node, and to whoever tells goals and the scene.

        It outlives the robot process that it speaks for, so that their node hears a last stop.

        Args:
            name: Of the robot's channels.
            until: True to end.
            say: Is told why nothing is heard, when that changes.
        """
        clock, (spec, limits) = MonotonicClock(), self.narrowed
        session = RosSession("link", namespace=self.namespace, domain=self.domain)
        link = RobotLink(
            session, spec, name=name, clock=clock, wiring=self.wiring, period=self.period,
            gain_sets=self._gain_sets, silence=limits.command_lost,
        )  # fmt: skip
        scene = SceneLink(session, RobotChannels(name).world, self.world_widths, clock)
        rest, told = min(self.period / _LOOKS_PER_PERIOD, _LONGEST_REST), ""
        try:
            while link.driving or not until():
                session.wait(rest)
                link.poll()
                scene.poll()
                trouble = link.trouble or link.doubled or scene.trouble
                if trouble.partition("(")[0] != told.partition("(")[0]:
                    say(f"over ROS 2: {trouble}" if trouble else "over ROS 2: everything is heard")
                    told = trouble
        finally:
            link.close()
            scene.close()
            session.close()

    @property
    def _gain_sets(self) -> dict[str, Gains]:
        joints = self.narrowed[0].joints
        return {
            GAINS: Gains(
                stiffness=np.array([[joint.stiffness for joint in joints]]),
                damping=np.array([[joint.damping for joint in joints]]),
            )
        }

    @cached_property
    def read_widths(self) -> dict[str, int]:
        """Goals of the task, and further inputs that the observation reads or a place is."""
        terms = [term.term for term in self._run.task.actor]
        read = {SENSED + term.rpartition("/")[2] for term in terms if "/" in term}
        read.add(self.config.place.input)
        return {
            name: width
            for name, width in self.told_widths.items()
            if name.startswith(GOAL) or name in read
        }

    @cached_property
    def _goals(self) -> dict[str, np.ndarray]:
        """Goals that hold, (1, width).

        Raises:
            ConfigError: The task has no such goal, or the numbers do not fit.
        """
        widths = {name: value.shape[1] for name, value in self._sample.goal.items()}
        found: dict[str, np.ndarray] = {}
        for name, value in self.config.goal.items():
            if name not in widths:
                raise ConfigError(unknown_name("goal", name, widths))
            row = np.asarray(value, dtype=np.float64).reshape(1, -1)
            if row.shape[1] != widths[name] or not np.isfinite(row).all():
                raise ConfigError(f"goal '{name}' takes {widths[name]} numbers, got {value}")
            found[name] = row
        return found

    @cached_property
    def _reset(self) -> ResetConfig:
        """As configured, with the usual way to the start where no steps are named."""
        given = self.config.reset
        tasks = [
            task if task.steps else TaskReset(name=task.name, steps=self._way_to_start())
            for task in given.tasks
        ]
        return ResetConfig(tasks=tasks, speed=given.speed, turn_speed=given.turn_speed)

    def _way_to_start(self) -> list[dict[str, Any]]:
        """Steps of a reset: off the obstacle, up, to the pose of the task, and a confirmation."""
        confirm: list[dict[str, Any]] = [{_CONFIRM: {"prompt": _PROMPT}}] if self._helped else []
        pose = self.stop.pose
        if self.action_map.kind is CommandKind.joint:
            return [{"relax": {}}, {"move_joints": {"position": [*pose]}}, *confirm]
        start = self.chain.at(np.array(pose))
        up = {  # as far as it gets: a joint may be at its limit in a hand that is tilted
            "position": [0.0, 0.0, self.config.retreat], "relative": True, "seconds": 1.0,
            "tolerance": 1.0, "turn_tolerance": math.pi,
        }  # fmt: skip
        place = {
            "position": start.tip_position_b.tolist(),
            "orientation": [*map(float, start.tip_orientation_b)],
        }
        way = [{"move_end_effector": up}] if self.config.retreat > 0 else []
        return [{"relax": {}}, *way, {"move_end_effector": place}, *confirm]


class _EndedError(Exception):
    """The robot process is to end before its robot was ever heard."""
