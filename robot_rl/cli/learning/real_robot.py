"""A real robot to learn on, whoever drives it: rewards, resets, and goals that hold.

What no real robot tells is not asked for: reward and success come from a person's labels, from a
place that the end effector has to come to or from a learned reward, and the start of an episode is
a pose that the robot is led to and a scene that a person puts back.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from configs.schema import RunConfig
from hardware.control.world import GOAL, SENSED
from hardware.learning.cameras import PictureSource
from hardware.learning.reset import ResetConfig, TaskReset
from hardware.learning.rewards import PersonReward, PlaceConfig, PlaceReward, RewardRule
from hardware.robot_file import RobotFile, load_robot_file
from hardware.ros.camera_inputs import TopicPictures
from hardware.ros.foreign_commands import absolute_name
from hardware.ros.session import RosSession
from robot_rl.cli.control_laws import PoseControl
from robot_rl.cli.deployment.options import PolicyOptions
from robot_rl.cli.learning.led_robot import LedRobot, LedRobotConfig
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.robot_command import CommandKind

_BEGIN_WORLD, _CONFIRM = "begin_world", "confirm"
_PROMPT = "put everything where an episode begins, leave the workspace, then confirm"


@dataclass(kw_only=True)
class RealRobotConfig(LedRobotConfig):
    """Actions, rewards and resets of a real robot."""

    robot_file: str = ""
    """Bounds of the robot at hand; `hardware/robots/<name>.yaml` if empty."""
    goal: dict[str, Any] = field(default_factory=dict)
    """Goals that always hold: name -> numbers."""
    place: PlaceConfig = field(default_factory=PlaceConfig)
    """Place at which an episode succeeds; without a radius a person's labels say so alone."""
    retreat: float = 0.08
    """Way up before the robot is led to the start of the next episode, where `reset` names no steps
    [m]."""
    domain: int = -1
    """ROS_DOMAIN_ID of cameras, and of the node where there is one; -1 takes the environment's."""
    namespace: str = ""
    """Namespace in which goals and further inputs are heard; the robot's name if empty."""
    drawn_pictures: bool = False
    """Its cameras are those of a simulation, whose pictures have no noise: the same picture again
    is no sign of a frozen camera then, unless the robot has moved."""


class RealRobot(LedRobot):
    """A real robot; positions of its joints are what it is told."""

    group: str
    """Prefix of its options, for messages."""
    response = 0.03
    """The simulated Panda trails a pose at 0.125 m/s by 2 mm at most; a driver takes its time."""

    def __init__(
        self, run: RunConfig, config: RealRobotConfig, *, helped: bool,
        topics: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Read the robot.

        Args:
            helped: A person is there who confirms and labels.
            topics: Camera -> topic of its pictures; those of the robot's file besides.

        Raises:
            ConfigError: The run is not of our own worlds, or its robot cannot be led so.
        """
        super().__init__(run, config)
        self.real = config
        """Its actions, rewards and resets."""
        self._helped = helped
        self._topics = dict(topics or {})

    def check(self) -> None:
        """Refuse what this robot could not be learned on with.

        Raises:
            RobotRLError: Goals, reward or resets cannot be, or need a person who is not there; says
                so in a sentence.
        """
        group, place = self.group, self.real.place
        self._check_cameras()
        _ = self._goals
        place.check(self.read_widths)
        spec = self._run.robot.spec
        if place.radius > 0 and "end_effector_position_b" not in spec.sensors:
            raise ConfigError(
                f"{group}.place.radius={place.radius:g} waits for the end effector, which "
                f"'{spec.name}' does not measure; it measures {[*spec.sensors]}"
            )
        judged = place.radius > 0 or self._learned is not None
        if not judged and not self._helped:
            raise ConfigError(
                "who says that an episode succeeded? a real robot tells no reward: take "
                f"person=console, whose labels do, {group}.place.radius= and {group}.place.at=, or "
                "reward.model=<learned reward>"
            )
        for name in [name for task in self._reset.tasks for step in task.steps for name in step]:
            if name == _BEGIN_WORLD:
                raise ConfigError(
                    f"{group}.reset asks to begin_world, which only a simulated robot can; lead "
                    "the robot with move_end_effector or move_joints, and let a person confirm"
                )
            if name == _CONFIRM and not self._helped:
                raise ConfigError(f"{group}.reset waits for a person to confirm, but person=none")

    def _check_cameras(self) -> None:
        """Refuse cameras that nobody would hear."""
        _ = self.domain
        missing = [name for name in self.cameras if name not in self.camera_topics]
        if missing:
            raise ConfigError(
                f"env.cameras={self._run.env.cameras} was asked for; which topic has the pictures "
                f"of {', '.join(missing)}? name it: camera.{missing[0]}.topic=/.../image_raw, or "
                f"cameras: in the robot file. Known: {self.camera_topics or 'none'}"
            )

    def _pictures(self, name: str) -> PictureSource | None:
        if not self.cameras:
            return None
        session = RosSession("cameras", namespace=self.namespace, domain=self.domain)
        topics = {one: self.camera_topics[one] for one in self.cameras}
        return TopicPictures(session, self.camera_inputs, topics)

    @property
    def _drawn_pictures(self) -> bool:
        return self.real.drawn_pictures

    @cached_property
    def camera_topics(self) -> dict[str, str]:
        """Topics of cameras by name: those of the robot's file, and named ones over them."""
        file = self.robot_file
        return {**(file.camera_topics if file is not None else {}), **self._topics}

    @property
    def domain(self) -> int:
        """ROS_DOMAIN_ID."""
        return PolicyOptions(domain=self.real.domain).ros_domain

    @property
    def namespace(self) -> str:
        """Of our own nodes."""
        return absolute_name("namespace", self.real.namespace or self._run.robot.spec.name)

    @cached_property
    def robot_file(self) -> RobotFile | None:
        """Bounds of the robot, its stop button, and what else the file says."""
        chosen = self.real.robot_file
        return load_robot_file(chosen) if chosen else super().robot_file

    @property
    def person_labels(self) -> bool:
        """True where neither a place nor a learned reward says that an episode succeeded."""
        return self.real.place.radius == 0 and self._learned is None

    @property
    def pose_control(self) -> PoseControl:
        """Joint positions by inverse kinematics, which every robot with joints takes."""
        return PoseControl(
            robot=self.narrowed[0], chain=self.chain, law=None, speed=self.real.speed,
            rest=tuple(self.stop.pose),
        )  # fmt: skip

    def rewards(self) -> Mapping[str, RewardRule]:
        """A place, or labels alone."""
        place = self.real.place
        rule: RewardRule = PlaceReward(place) if place.radius > 0 else PersonReward()
        return {task.name: rule for task in self._reset.tasks}

    @cached_property
    def read_widths(self) -> dict[str, int]:
        """Goals of the task, and further inputs that the observation reads or a place is."""
        terms = [term.term for term in self._run.task.actor]
        read = {SENSED + term.rpartition("/")[2] for term in terms if "/" in term}
        read.add(self.real.place.input)
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
        return self._held("goal", self.real.goal, self._sample.goal)

    @staticmethod
    def _held(
        what: str, given: Mapping[str, Any], like: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Numbers that always hold, (1, width) by name; `like` has all that there are."""
        found: dict[str, np.ndarray] = {}
        for name, value in given.items():
            if name not in like:
                raise ConfigError(unknown_name(what, name, like))
            width = like[name].shape[1]
            try:
                row = np.asarray(value, dtype=np.float64).reshape(1, -1)
            except (TypeError, ValueError):  # words, or rows of unlike lengths
                row = np.zeros((1, 0))
            if row.shape[1] != width or not np.isfinite(row).all():
                raise ConfigError(f"{what} '{name}' takes {width} numbers, got {value}")
            found[name] = row
        return found

    @cached_property
    def _reset(self) -> ResetConfig:
        """As configured, with the usual way to the start where no steps are named."""
        given = self.real.reset
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
            "position": [0.0, 0.0, self.real.retreat], "relative": True, "seconds": 1.0,
            "tolerance": 1.0, "turn_tolerance": math.pi,
        }  # fmt: skip
        place = {
            "position": start.tip_position_b.tolist(),
            "orientation": [*map(float, start.tip_orientation_b)],
        }
        way = [{"move_end_effector": up}] if self.real.retreat > 0 else []
        return [{"relax": {}}, *way, {"move_end_effector": place}, *confirm]
