"""Options of `robot-rl learn`, and the places of its files in a run's folder."""

import json
import re
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any

from configs.compose import read_options
from hardware.registry import check_driver
from hardware.robot_file import camera_topics, load_robot_file
from hardware.teleop.estop_button import EstopDevice
from hardware.teleop.input_device import device_place
from robot_rl.cli.learning.direct_robot import DirectRobotConfig
from robot_rl.cli.learning.ros_robot import RosRobotConfig
from robot_rl.cli.learning.twin_robot import TwinRobotConfig
from robot_rl.core.errors import ConfigError
from robot_rl.link.transport import Security
from robot_rl.training.runs.run_folder import LEARN_OPTIONS, RunFolder

DEFAULT_ADDRESS = "127.0.0.1:50151"
OWN = ("twin", "ros2", "sim")
"""Robots without a plug-in: a simulated one in a robot process with its loop, limits and stops, so
that a person can take it over; one behind somebody else's ROS 2 node, with the same before it; an
environment in the actor's process, with nothing between policy and physics."""
SAVED = LEARN_OPTIONS
"""File in a run's folder: options that it was begun with, for those who go on with it."""

_GROUPS = {"twin": TwinRobotConfig, "ros2": RosRobotConfig, "direct": DirectRobotConfig}


def _group(driver: str) -> str:
    """Group of options that a driver reads; `direct` for those of plug-ins, none for sim."""
    return driver if driver in OWN else "direct"


def options_of_others(driver: str) -> tuple[str, ...]:
    """Beginnings of words that only other drivers than this one read."""
    own = _group(driver)
    others = [f"{group}." for group in _GROUPS if group != own]
    others += ["camera."] if own in ("twin", "sim") else []
    return (*others, *(["driver_options"] if own != "direct" else []))


class Role(Enum):
    """Processes that a command starts."""

    all = "all"
    """Learner and robot on this computer, supervised."""
    learner = "learner"
    """The learner alone."""
    robot = "robot"
    """The robot's side alone, supervised; the learner runs elsewhere."""
    loop = "loop"
    """The robot process: control loop, safety, simulated robot."""
    cameras = "cameras"
    """The process that draws what a simulated robot's cameras see."""
    link = "link"
    """The link to the node of a robot that speaks ROS 2."""
    estop = "estop"
    """The stop button of this computer that the robot's file names."""
    actor = "actor"
    """The policy that moves the robot, and the spool."""
    console = "console"
    """The operator's page in the browser."""
    person = "person"
    """A simulated person at the robot."""


class Person(Enum):
    """Whoever helps the policy."""

    console = "console"
    """An operator at the page in the browser."""
    simulated = "simulated"
    """A simulated one, who is late, noisy and sometimes wrong; knows task=peg."""
    none = "none"
    """Nobody."""


@dataclass(kw_only=True)
class LearnOptions:
    """Options beside the fields of a run."""

    run: str = ""
    """Folder of a run to go on with, or `latest`; empty begins a new one."""
    role: Role = Role.all
    """Processes to start."""
    driver: str = "twin"
    """Robot that is learned on: one of `OWN`, or a driver of a plug-in."""
    driver_options: dict[str, Any] = field(default_factory=dict)
    """Options of a plug-in's driver, such as its port."""
    person: Person = Person.console
    """Person who helps; of every driver but sim."""
    host: str = "127.0.0.1"
    """Address that the console listens on."""
    port: int = 8765
    """Port of the console; 0 for any free one."""
    stick: str = ""
    """Device of this computer that leads the robot, in place of those of the console's pages."""
    twin: TwinRobotConfig = field(default_factory=TwinRobotConfig)
    """Actions, rewards and resets of driver=twin."""
    ros2: RosRobotConfig = field(default_factory=RosRobotConfig)
    """Topics, actions, rewards and resets of driver=ros2."""
    direct: DirectRobotConfig = field(default_factory=DirectRobotConfig)
    """Actions, rewards and resets of a plug-in's driver."""
    camera: dict[str, dict[str, str]] = field(default_factory=dict)
    """Cameras of a real robot over ROS 2: name -> `topic`; those of the robot's file besides."""
    address: str = ""
    """Of the learner, host:port; with role=all any free port of this computer."""
    name: str = "robot"
    """Name of the robot at the learner; several robots need different ones."""
    pace: bool = True
    """Of a simulated robot: real time; false steps as fast as it can."""
    token_file: str = ""
    """File with the word that both sides know."""
    certificate: str = ""
    """File with the learner's certificate (PEM)."""
    key: str = ""
    """File with the certificate's private key (PEM), for the learner."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,60}", self.name) or self.name.startswith("."):
            raise ConfigError(
                f"name={self.name} names a folder: expected letters, digits, '_', '-' and '.'"
            )
        check_driver(self.driver, self.driver_options, OWN)
        self._refuse_options_of_others()
        _ = self.cameras
        if self.stick:
            device_place(self.stick)
            if self.driver == "sim" or self.person is not Person.console:
                raise ConfigError(
                    f"stick={self.stick} is of an operator at the console, but "
                    f"driver={self.driver} person={self.person.value} have none; leave it out"
                )

    @property
    def cameras(self) -> dict[str, str]:
        """Topic of each camera that the command line names.

        Raises:
            ConfigError: A camera names none.
        """
        return camera_topics("the command line", "camera", self.camera)

    @property
    def channels(self) -> str:
        """Name of the robot process's channels."""
        return f"{self.name}.learn"

    @property
    def parts(self) -> tuple[Role, ...]:
        """Processes of the robot's side, the first one needed longest."""
        if self.driver == "sim":
            return (Role.actor,)
        helper = {Person.console: (Role.console,), Person.simulated: (Role.person,)}
        parts = (Role.loop, Role.actor, *helper.get(self.person, ()))
        if self.driver == "ros2":  # the link outlives the loop: it sends the last stop
            parts = (Role.link, *parts)
        return (Role.estop, *parts) if self.stop_button is not None else parts

    @property
    def stop_button(self) -> EstopDevice | None:
        """Stop button of this computer, where the file of a real robot names one.

        Raises:
            ConfigError: The file cannot be read.
        """
        real = self.ros2 if self.driver == "ros2" else self.direct
        if self.driver in ("twin", "sim") or not real.robot_file:
            return None
        return load_robot_file(real.robot_file).estop_device

    def _refuse_options_of_others(self) -> None:
        """Raise for what only a driver reads that was not chosen."""
        own = _group(self.driver)
        for group, kind in _GROUPS.items():
            given, usual = getattr(self, group), kind()
            named = [
                one.name
                for one in fields(given)
                if getattr(given, one.name) != getattr(usual, one.name)
            ]
            if named and group != own:
                owner = "a plug-in's driver" if group == "direct" else f"driver={group}"
                raise ConfigError(
                    f"'{group}.{named[0]}' is an option of {owner}, but driver={self.driver}; "
                    "leave it out, or choose that driver"
                )
        if self.camera and own in ("twin", "sim"):
            raise ConfigError(
                f"'camera.{next(iter(self.camera))}' is an option of real robots, but "
                f"driver={self.driver}, whose cameras are drawn; leave it out"
            )

    def security(self) -> Security:
        """Secrets of the link.

        Raises:
            ConfigError: The file of the token cannot be read, or is empty.
        """
        token = ""
        if self.token_file:
            try:
                token = Path(self.token_file).read_text().strip()
            except OSError as error:
                raise ConfigError(f"token_file={self.token_file}: {error.strerror}") from None
            if not token:
                raise ConfigError(f"token_file={self.token_file} is empty; expected a word")
        return Security(token=token, certificate=self.certificate, key=self.key)


def begun_with(run: RunFolder) -> LearnOptions:
    """Options that a run of `robot-rl learn` was begun with.

    Raises:
        ConfigError: It does not say them.
    """
    saved = run.path / SAVED
    if not saved.exists():
        raise ConfigError(
            f"the run {run.path} learned beside robots and does not say how its actions moved "
            f"them: {SAVED} is missing, as in runs that older versions began with "
            "role=learner; go on with it once, with the options that it was begun with"
        )
    return read_options(LearnOptions, json.loads(saved.read_text()))[0]


def experience_folder(run: Path) -> Path:
    """The learner's log of everything that robots have sent."""
    return run / "experience"


def weights_folder(run: Path) -> Path:
    """Published weights."""
    return run / "weights"


def robot_folder(run: Path, name: str) -> Path:
    """Spool and weights of a robot."""
    return run / "robots" / name
