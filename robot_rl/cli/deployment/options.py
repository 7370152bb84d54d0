"""Options of the commands around a deployment, and its parts as its processes get them.

`DeploymentParts` are settled once by the operator's process, plain values only: neither
configurations nor a simulator are needed to read them. Bridge, link and policy start without them,
and so does the robot process where nothing is simulated.
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from hardware.control.monitors import SafetyLimits
from hardware.control.pipeline import ControllerSet
from hardware.control.process import RobotChannels
from hardware.control.stopping import StopConfig
from hardware.drivers.fake_driver import FaultInjection
from hardware.registry import CONTROLLERS, OWN_DRIVERS, check_driver
from hardware.robot_file import camera_topics
from hardware.ros.command_messages import Gains
from hardware.ros.foreign_commands import Wiring, absolute_name
from hardware.ros.introspection import NodeParameter
from hardware.teleop.estop_button import EstopDevice
from policies.bundle import load_bundle
from policies.runner import PolicyRunner
from policies.zoo.catalog import place_beside
from robot_rl.cli.control_laws import PoseControl, RotorControl
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind, RobotCommand

MODES = ("policy", "shadow")
POSES = ("policy", "robot")
STARTS = ("rest", "thrown")
_LAST_DOMAIN = 232
_OPTIONS = {
    "ros2": ("source", "topics", "command", "joints"),
    "fake": ("delay", "noise", "dropout"),
}
"""Options that only one driver has."""


@dataclass(kw_only=True)
class DriverOptions:
    """A driver and its settings."""

    driver: str = "twin"
    """Driver of the robot: twin, a simulated one; ros2, somebody else's node; fake, nobody; or the
    name of a plug-in's."""
    driver_options: dict[str, Any] = field(default_factory=dict)
    """Options of a plug-in's driver, such as its port."""
    source: str = "/"
    """ros2: namespace of their topics."""
    topics: dict[str, str] = field(default_factory=dict)
    """ros2: topics that have other names, and `command`."""
    command: str = ""
    """ros2: form of commands; see `hardware.ros.foreign_commands`."""
    joints: list[str] = field(default_factory=list)
    """ros2: order of the joints in commands."""
    delay: float = 0.0
    """fake: age of every sample when it arrives [s]."""
    noise: float = 0.0
    """fake: multiple of the noise that the robot's sensors declare."""
    dropout: float = 0.0
    """fake: share of samples that never arrive."""

    def __post_init__(self) -> None:
        check_driver(self.driver, self.driver_options, OWN_DRIVERS)
        usual = {entry.name: _default(entry) for entry in fields(DriverOptions)}
        for driver, names in _OPTIONS.items():
            for name in names:
                if driver != self.driver and getattr(self, name) != usual[name]:
                    raise ConfigError(
                        f"'{name}' is an option of driver={driver}, but driver={self.driver}; "
                        "leave it out, or choose that driver"
                    )
        if not (self.delay >= 0 and self.noise >= 0 and 0 <= self.dropout < 1):
            raise ConfigError(
                "delay and noise must be >= 0 and dropout in [0, 1), got "
                f"delay={self.delay}, noise={self.noise}, dropout={self.dropout}"
            )

    @property
    def simulated(self) -> bool:
        """True if the robot, and with it the world around it, is none but ours."""
        return self.driver in ("twin", "fake")

    @property
    def faults(self) -> FaultInjection:
        """Of a fake robot."""
        return FaultInjection(delay=self.delay, noise=self.noise, dropout=self.dropout)

    def wiring(
        self, robot: RobotSpec, ours: str, given: Mapping[str, Any], *, grips: bool
    ) -> Wiring:
        """Of somebody else's node.

        Args:
            given: Options of driver=ros2 that the robot's file gives; others than the usual values
                here come before them.
            grips: The policy moves the robot's gripper.

        Raises:
            ConfigError: See `Wiring.check`.
        """
        usual = DriverOptions()
        own = {name: getattr(self, name) for name in _OPTIONS["ros2"]}
        chosen = {name: value for name, value in own.items() if value != getattr(usual, name)}
        found = {**own, **given, **chosen}
        return Wiring(
            source=found["source"], topics=found["topics"], form=found["command"],
            order=found["joints"], grips=grips,
        ).check(robot, ours)  # fmt: skip


@dataclass(kw_only=True)
class PolicyOptions:
    """A policy, a robot, and their place in ROS."""

    bundle: str = ""
    """Folder of the policy."""
    robot: str = ""
    """Name of the robot; the bundle's own if empty."""
    domain: int = -1
    """ROS_DOMAIN_ID; -1 takes the environment's."""
    namespace: str = ""
    """Of all topics; the robot's name if empty."""

    def __post_init__(self) -> None:
        if not -1 <= self.domain <= _LAST_DOMAIN:
            raise ConfigError(
                f"domain must lie in 0 to {_LAST_DOMAIN}, or be -1 for that of the environment, "
                f"got {self.domain}"
            )
        if self.namespace:
            absolute_name("namespace", self.namespace)

    @property
    def ros_domain(self) -> int:
        """ROS_DOMAIN_ID: what `domain` stands for.

        Raises:
            ConfigError: The environment's is none.
        """
        if self.domain >= 0:
            return self.domain
        text = os.environ.get("ROS_DOMAIN_ID") or "0"
        if not text.isdecimal() or int(text) > _LAST_DOMAIN:
            raise ConfigError(
                f"ROS_DOMAIN_ID={text} stands in the environment; expected 0 to {_LAST_DOMAIN}: "
                "correct it, or give domain="
            )
        return int(text)


@dataclass(kw_only=True)
class RobotOptions(PolicyOptions, DriverOptions):
    """A policy, and a robot that it may move."""

    patience: float = 1.0
    """Factor on every time that the robot waits for policy, samples and loop: above 1 for a
    simulated robot on a busy machine."""
    robot_file: str = ""
    """Bounds of the robot at hand; `hardware/robots/<name>.yaml` if empty."""
    camera: dict[str, dict[str, str]] = field(default_factory=dict)
    """Cameras of the policy over ROS 2: name -> `topic`; those of the robot's file besides."""
    clip: bool = False
    """Hold a policy that needs more than the robot allows within the limits; False refuses it."""
    controller: str = ""
    """Controller of a plug-in between policy and driver; the robot's own if empty."""

    def __post_init__(self) -> None:
        PolicyOptions.__post_init__(self)
        DriverOptions.__post_init__(self)
        if self.controller:
            CONTROLLERS.find(self.controller)
        if not 1 <= self.patience < math.inf:
            raise ConfigError(f"patience must be a number >= 1, got {self.patience}")
        _ = self.camera_topics

    @property
    def camera_topics(self) -> dict[str, str]:
        """Topic of each camera that the command line names.

        Raises:
            ConfigError: A camera names none.
        """
        return camera_topics("the command line", "camera", self.camera)


@dataclass(kw_only=True)
class DoctorOptions(RobotOptions):
    """Options of `robot-rl doctor`."""

    listen: float = 3.0
    """Time for which the robot's topics are listened to [s]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.listen < math.inf:
            raise ConfigError(f"listen must be a number of seconds > 0, got {self.listen}")


@dataclass(kw_only=True)
class RecordOptions(PolicyOptions):
    """Options of `robot-rl record`."""

    out: str = ""
    """Folder of the bag; a new one beside the bundle if empty, in runs/ for one of the zoo."""
    seconds: float = 0.0
    """Duration [s]; 0 until Ctrl-C."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_run(self.bundle, self.seconds)

    @property
    def folder(self) -> Path:
        """Of the bag."""
        if self.out:
            return Path(self.out)
        return place_beside(self.bundle) / time.strftime("bag_%Y-%m-%d_%H-%M-%S")


@dataclass(kw_only=True)
class DeployOptions(RobotOptions):
    """Options of `robot-rl deploy`."""

    mode: str = "policy"
    """`policy` lets it move; `shadow` computes and holds."""
    arm_at: str = "policy"
    """Pose to arm in: `policy`, the pose around which the policy's targets lie, where they do, and
    for a policy that gets up the one in which the robot lies; `robot`, its default pose."""
    seconds: float = 0.0
    """Time for which the policy is in charge [s]; 0 until Ctrl-C."""
    seed: int = 0
    """Of the twin's start, goals and noise, and of a fake robot's faults."""
    start: str = "rest"
    """Start of a simulated robot: `rest`, a drone level and still, a robot on two feet held until
    the policy is in charge; `thrown`, as the task's episodes start."""
    goal: dict[str, Any] = field(default_factory=dict)
    """Goals that hold until a message changes them: name -> numbers."""
    record: str = ""
    """Folder of a recording of everything, a new one; none if empty."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode not in MODES:
            raise ConfigError(unknown_name("mode", self.mode, MODES))
        if self.arm_at not in POSES:
            raise ConfigError(unknown_name("pose to arm at", self.arm_at, POSES))
        if self.start not in STARTS:
            raise ConfigError(unknown_name("start", self.start, STARTS))
        _check_run(self.bundle, self.seconds)
        if self.record and Path(self.record).exists():
            raise ConfigError(f"record={self.record} exists already; name a new folder")


def _check_run(bundle: str, seconds: float) -> None:
    """Refuse a run of no policy, or one that ends before it begins."""
    if not bundle:
        raise ConfigError("which policy? bundle=runs/<run>/bundle")
    if not seconds >= 0:
        raise ConfigError(f"seconds must be >= 0, got {seconds}")


def _default(entry: Any) -> Any:
    return entry.default_factory() if callable(entry.default_factory) else entry.default


LOOP_NODE = "loop"
"""Name of the node that speaks for the robot process: its services are `loop/arm` and so on."""


@dataclass(frozen=True, kw_only=True)
class DeploymentParts:
    """Parts that the processes of a deployment share; `Deployment.parts` makes them."""

    options: DeployOptions
    robot: RobotSpec
    """The robot at hand, within its file's bounds."""
    period: float
    """Of the robot's loop [s]."""
    control_dt: float
    """Of the policy [s]."""
    namespace: str
    """Of all topics."""
    domain: int
    """ROS_DOMAIN_ID."""
    channels: RobotChannels
    """Of the robot process."""
    gain_sets: Mapping[str, Gains]
    """Sets of gains that the robot and the policy agree on."""
    setpoint: CommandKind
    """Kind of the policy's commands: the robot's own, or one that a law follows."""
    world_widths: Mapping[str, int]
    """Topics that the world of a robot that is not real fills."""
    goals: Mapping[str, np.ndarray]
    """Goals that hold until a message changes them, (1, width)."""
    limits: SafetyLimits
    """Thresholds of the robot."""
    wiring: Wiring
    """Topics of somebody else's node; empty where there is none."""
    rotors: RotorControl | None
    """Of a drone; None for joints."""
    led: PoseControl | None
    """Law of an arm whose policy displaces its end effector; None for joint targets."""
    arming_pose: tuple[float, ...]
    """Pose in which the joints are armed [rad]; empty for the robot's default pose."""
    arms_in_place: bool
    """The joints are armed where they are: the policy gets up a robot that lies."""
    urdf: str
    """Description of the robot; empty where nothing here knows its model."""
    parameters: tuple[NodeParameter, ...]
    """Options in force, as the nodes of a deployment show them."""
    cameras: Mapping[str, str] = field(default_factory=dict[str, str])
    """Topics of the pictures that the policy sees, by camera."""
    drawn_cameras: tuple[str, ...] = ()
    """Cameras of them that are drawn here, of a simulated robot."""
    estop: EstopDevice | None = None
    """Stop button of the robot on this computer; None where it has none."""
    steered: bool = False
    """A person's velocity goal goes to the policy by the bridge, and not by the robot process."""

    @property
    def stop(self) -> StopConfig:
        """Settings for standing up and stopping."""
        if self.rotors is None:
            return StopConfig(pose=self.arming_pose, in_place=self.arms_in_place)
        return StopConfig(hover_thrust=self.rotors.hover_thrust)

    @property
    def gain_names(self) -> list[str]:
        """Names of the gain sets, in the order of the channels; one empty name where none are."""
        return [*self.gain_sets] or [""]

    def load_policy(self) -> PolicyRunner:
        """The policy; a bundle of another robot is refused."""
        return load_bundle(
            self.options.bundle,
            robot=self.robot,
            control_dt=self.control_dt,
            ramp=False,  # the loop's range limiter does it
            pictures=True,
        )

    def controllers(
        self, on_setpoint: Callable[[RobotCommand], None] | None = None
    ) -> ControllerSet:
        """Controllers that stop the robot, and those between the policy and its driver."""
        control = self.rotors or self.led
        usual = ControllerSet(on_setpoint=on_setpoint)
        if control is not None:
            usual = control.controllers(on_setpoint)
        if not self.options.controller:
            return usual
        law = CONTROLLERS.find(self.options.controller)(self.robot)
        return replace(usual, by_kind={**usual.by_kind, law.setpoint: law})

    @property
    def human_setpoint(self) -> CommandKind:
        """Kind of commands by which a person leads the robot; of joints that of the policy."""
        return self.setpoint if self.rotors is None else CommandKind.pose
