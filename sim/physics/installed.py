"""Our engine of robots with joints: can it run here? Imports nothing that it needs."""

from importlib.util import find_spec

PACKAGE = "mujoco>=4.0"
"""The first MuJoCo that steps many worlds at once."""


def has_engine() -> bool:
    """True if such a MuJoCo is installed: foreign environments pin older ones, or have none."""
    try:
        return find_spec("mujoco.batch") is not None
    except (ModuleNotFoundError, ValueError):
        return False
