"""Contracts, learners, buffers, training, and in `cli` the command `robot-rl`."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("robot_rl")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
