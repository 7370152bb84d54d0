"""Options of deployments, of their recordings and of the doctor: which policy, who moves what."""

import math
import os
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from hardware.drivers.fake_driver import FaultInjection
from hardware.ros.foreign_commands import Wiring, absolute_name
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.robot import RobotSpec

DRIVERS = ("twin", "ros2", "fake")
MODES = ("policy", "shadow")
POSES = ("robot", "policy")
_LAST_DOMAIN = 232
_OPTIONS = {
    "ros2": ("source", "topics", "command", "joints"),
    "fake": ("delay", "noise", "dropout"),
}
"""Options that only one driver has."""


@dataclass(kw_only=True)
class DriverOptions:
    """Which driver, and what it needs to know."""

    driver: str = "twin"
    """Who moves the robot: twin, a simulated one; ros2, somebody else's node; fake, nobody."""
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
        """Refuse an unknown driver, and options of another one."""
        if self.driver not in DRIVERS:
            raise ConfigError(unknown_name("driver", self.driver, DRIVERS))
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
    def faults(self) -> FaultInjection:
        """Of a fake robot."""
        return FaultInjection(delay=self.delay, noise=self.noise, dropout=self.dropout)

    def wiring(self, robot: RobotSpec, ours: str) -> Wiring:
        """Of somebody else's node.

        Args:
            robot: Whose topics.
            ours: Namespace in which this deployment publishes.

        Raises:
            ConfigError: See `Wiring.check`.
        """
        found = Wiring(source=self.source, topics=self.topics, form=self.command, order=self.joints)
        return found.check(robot, ours)


@dataclass(kw_only=True)
class PolicyOptions:
    """Which policy, which robot, and where it is heard."""

    bundle: str = ""
    """Folder of the policy."""
    robot: str = ""
    """Name of the robot; the bundle's own if empty."""
    domain: int = -1
    """ROS_DOMAIN_ID; -1 takes the environment's."""
    namespace: str = ""
    """Of all topics; the robot's name if empty."""

    def __post_init__(self) -> None:
        """Refuse names and numbers that ROS does not know."""
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

    def __post_init__(self) -> None:
        """Refuse what cannot be deployed."""
        PolicyOptions.__post_init__(self)
        DriverOptions.__post_init__(self)
        if not self.patience >= 1:
            raise ConfigError(f"patience must be >= 1, got {self.patience}")


@dataclass(kw_only=True)
class DoctorOptions(RobotOptions):
    """What `robot-rl doctor` takes."""

    listen: float = 3.0
    """How long to listen to the robot's topics [s]."""

    def __post_init__(self) -> None:
        """Refuse to hear nothing."""
        super().__post_init__()
        if not 0 < self.listen < math.inf:
            raise ConfigError(f"listen must be a number of seconds > 0, got {self.listen}")


@dataclass(kw_only=True)
class RecordOptions(PolicyOptions):
    """What `robot-rl record` takes."""

    out: str = ""
    """Folder of the bag; a new one beside the bundle if empty."""
    seconds: float = 0.0
    """How long [s]; 0 until Ctrl-C."""

    def __post_init__(self) -> None:
        """Refuse what cannot be recorded."""
        super().__post_init__()
        _check_run(self.bundle, self.seconds)

    @property
    def folder(self) -> Path:
        """Of the bag."""
        if self.out:
            return Path(self.out)
        return Path(self.bundle).parent / time.strftime("bag_%Y-%m-%d_%H-%M-%S")


@dataclass(kw_only=True)
class DeployOptions(RobotOptions):
    """What `robot-rl deploy` takes."""

    mode: str = "policy"
    """`policy` lets it move; `shadow` computes and holds."""
    arm_at: str = "robot"
    """Where arming leads the joints: `robot`, its default pose; `policy`, the pose around which the
    policy's targets lie."""
    seconds: float = 0.0
    """How long the policy is in charge [s]; 0 until Ctrl-C."""
    seed: int = 0
    """Of the twin's start, goals and noise, and of a fake robot's faults."""
    goal: dict[str, Any] = field(default_factory=dict)
    """Goals that hold until a message changes them: name -> numbers."""
    record: str = ""
    """Folder of a recording of everything, a new one; none if empty."""

    def __post_init__(self) -> None:
        """Refuse what cannot be deployed."""
        super().__post_init__()
        if self.mode not in MODES:
            raise ConfigError(unknown_name("mode", self.mode, MODES))
        if self.arm_at not in POSES:
            raise ConfigError(unknown_name("pose to arm at", self.arm_at, POSES))
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
