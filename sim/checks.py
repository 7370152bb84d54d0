"""Checks of the configs of tasks and of their parts, with the same words for all.

A sentence names a field as the configuration does: `<of>.<field>`.
"""

import math
from collections.abc import Mapping, Sequence

from robot_rl.core.errors import ConfigError, unknown_name


def positive(config: object, *names: str, of: str = "task") -> None:
    """Refuse fields that are not above 0, and what has no end."""
    for name in names:
        if not 0 < _number(config, name, of) < math.inf:
            end = " and finite" * (getattr(config, name) == math.inf)
            raise ConfigError(f"{of}.{name} must be > 0{end}, got {getattr(config, name)}")


def not_negative(config: object, *names: str, of: str = "task") -> None:
    """Refuse fields below 0."""
    for name in names:
        if _number(config, name, of) < 0:
            raise ConfigError(f"{of}.{name} must be >= 0, got {getattr(config, name)}")


def angle(config: object, *names: str, of: str = "task") -> None:
    """Refuse fields outside (0, pi]: no angle between two directions is larger [rad]."""
    for name in names:
        if not 0 < _number(config, name, of) <= math.pi:
            raise ConfigError(f"{of}.{name} must lie in (0, pi] rad, got {getattr(config, name)}")


def share(config: object, *names: str, of: str = "task") -> None:
    """Refuse fields outside [0, 1]."""
    for name in names:
        if not 0 <= _number(config, name, of) <= 1:
            raise ConfigError(f"{of}.{name} must lie in [0, 1], got {getattr(config, name)}")


def below_one(config: object, *names: str, of: str = "task") -> None:
    """Refuse fields outside [0, 1)."""
    for name in names:
        if not 0 <= _number(config, name, of) < 1:
            raise ConfigError(f"{of}.{name} must lie in [0, 1), got {getattr(config, name)}")


def interval(config: object, *names: str, of: str = "task") -> None:
    """Refuse fields that are not two numbers, the lower one first."""
    for name in names:
        values = getattr(config, name)
        if len(values) != 2 or not values[0] <= values[1]:
            raise ConfigError(f"{of}.{name} must be [low, high], got {values}")


def box(config: object, low: str, high: str, size: int) -> None:
    """Refuse two fields of a task that are not opposite corners of a box."""
    corners = getattr(config, low), getattr(config, high)
    if any(len(one) != size for one in corners) or any(
        a > b for a, b in zip(*corners, strict=True)
    ):
        raise ConfigError(
            f"task.{low} and {high} must be points of {size} numbers with low <= high, got "
            f"{corners[0]} and {corners[1]}"
        )


def window(window: float, episode_length: float) -> None:
    """Refuse a time at the episode's end [s] that is longer than the episode [s]."""
    if window > episode_length:
        raise ConfigError(
            f"task.success_window {window} s is longer than the episode ({episode_length} s)"
        )


def _number(config: object, name: str, of: str) -> float:
    value = getattr(config, name)
    if value != value:
        raise ConfigError(f"{of}.{name} is not a number; expected one")
    return value


def by_parts(
    values: Mapping[str, float], names: Sequence[str], otherwise: float, *, of: str
) -> list[float]:
    """A number for each joint: that of the last part which its name has, or another.

    Raises:
        ConfigError: A part is in no name.
    """
    found = dict.fromkeys(names, otherwise)
    for part, value in values.items():
        having = [name for name in names if part in name]
        if not having:
            raise ConfigError(unknown_name(f"{of}: joint", part, names))
        found.update(dict.fromkeys(having, float(value)))
    return list(found.values())
