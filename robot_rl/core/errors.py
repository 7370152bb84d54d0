"""Errors that people can act on: what was asked, what was got, what was expected, what to do.

Everything that a user's input can cause derives from `RobotRLError`; the commands print its message
as one sentence and leave with exit code 2. Any other exception is a defect of ours and keeps its
traceback.
"""

import difflib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version


class RobotRLError(Exception):
    """Base of all errors that a user can cause and mend."""


class ConfigError(RobotRLError, ValueError):
    """A configuration value is unknown, of the wrong type or out of range."""


class ShapeError(RobotRLError, ValueError):
    """An array has another shape, dtype or device than the contract says."""


class SpecMismatchError(RobotRLError, ValueError):
    """Two descriptions that must agree (robot, observation, bundle, checkpoint) do not."""


class BundleError(RobotRLError):
    """A policy bundle is damaged, incomplete or of an unknown version."""


class CheckpointError(RobotRLError):
    """A checkpoint is damaged, incomplete or cannot be continued from."""


class DatasetError(RobotRLError):
    """A data set of episodes is damaged, incomplete, or is not what was expected."""


class RewardError(RobotRLError):
    """A learned reward is damaged, or not one."""


class StorageError(RobotRLError):
    """A run folder cannot be written: no space, no right, or not a folder."""


class NoSpaceError(StorageError):
    """A disk, or the quota of a user on it, is full."""


class DeviceError(RobotRLError):
    """A device was asked for that this machine does not have."""


class MissingExtraError(RobotRLError, ImportError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        """Write the sentence.

        Args:
            package: What is needed, with the oldest version that will do, such as `mujoco>=4.0`.
            extra: Extra of robot_rl that brings it.
            purpose: What needs it.
        """
        name, asks_version, _ = package.partition(">=")
        has = f"; there is {name} {_version(name)}" if asks_version and _version(name) else ""
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed{has}; "
            f"install it with: pip install 'robot_rl[{extra}]'"
        )


class NonFiniteError(RobotRLError, ArithmeticError):
    """A NaN or an infinity appeared in a state, an observation, a reward or a loss."""


class RankError(RobotRLError):
    """One of several processes that train together died, ended, or does not answer."""


class LimitError(RobotRLError, ValueError):
    """A command or a state is outside a declared limit."""


class StaleStateError(RobotRLError):
    """A measurement is older than its declared maximum age."""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def unknown_name(kind: str, got: str, known: Iterable[str]) -> str:
    """Sentence for a misspelt name: what was got, the nearest known name, and all known names."""
    names = sorted(known)
    near = difflib.get_close_matches(got, names, n=1, cutoff=0.5)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    return f"{kind} '{got}' is unknown{hint}; known: {', '.join(names) or 'none'}"
