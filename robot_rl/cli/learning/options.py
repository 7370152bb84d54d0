"""Options of `robot-rl learn`, and the places of its files in a run's folder."""

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from robot_rl.core.errors import ConfigError
from robot_rl.link.transport import Security

DEFAULT_ADDRESS = "127.0.0.1:50151"


class Role(Enum):
    """Processes that a command starts."""

    all = "all"
    """Learner and robot on this computer, supervised."""
    learner = "learner"
    """The learner alone."""
    robot = "robot"
    """The robot's side alone; the learner runs elsewhere."""


class RobotDriver(Enum):
    """Robot that is learned on."""

    sim = "sim"
    """A simulated one in the actor's process, in real time."""


@dataclass(kw_only=True)
class LearnOptions:
    """Options beside the fields of a run."""

    run: str = ""
    """Folder of a run to go on with, or `latest`; empty begins a new one."""
    role: Role = Role.all
    """Processes to start."""
    driver: RobotDriver = RobotDriver.sim
    """Robot that is learned on."""
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


def experience_folder(run: Path) -> Path:
    """The learner's log of everything that robots have sent."""
    return run / "experience"


def weights_folder(run: Path) -> Path:
    """Published weights."""
    return run / "weights"


def robot_folder(run: Path, name: str) -> Path:
    """Spool and weights of a robot."""
    return run / "robots" / name
