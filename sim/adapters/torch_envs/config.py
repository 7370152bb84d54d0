"""Settings of mjlab's and Isaac Lab's environments; readable without either package."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from robot_rl.core.errors import ConfigError, unknown_name
from sim.adapters.gymnasium_config import check_groups


class FinalObs(Enum):
    """Source of an episode's last observation."""

    exact = "exact"
    """Computed before the reset."""
    drop = "drop"
    """Not asked for: steps that end by time are invalid, and those that the task ended keep
    the observation before them as successor, which no value is bootstrapped from."""


@dataclass(kw_only=True)
class TorchWorldsConfig:
    """Task, and how its observations, actions and logs are read."""

    id: str = ""
    """Registered task, such as Mjlab-Velocity-Flat-Unitree-Go1."""
    groups: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Our group -> groups of the task, or single terms as group/term where a group is not joined,
    in that order; empty takes `actor` or `policy` for our actor, `critic` if there is one, and
    every picture as `image/<path>`."""
    action_low: list[float] = field(default_factory=list[float])
    """Meaning of action -1: one number, or one per entry; empty takes the task's bound, or -1 where
    it has none."""
    action_high: list[float] = field(default_factory=list[float])
    """Meaning of action 1: one number, or one per entry; empty takes the task's bound, or 1 where
    it has none."""
    success: list[str] = field(default_factory=list[str])
    """Termination terms, one of which ends an episode that succeeded."""
    metrics: list[str] = field(default_factory=list[str])
    """Keys of the task's log to log, such as Metrics/slip_velocity_mean; means over worlds."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the task's own configuration, nested ones as {sim: {dt: 0.01}}."""

    def __post_init__(self) -> None:
        check_groups(self.groups)


@dataclass(kw_only=True)
class MjlabConfig(TorchWorldsConfig):
    """A task of mjlab."""


@dataclass(kw_only=True)
class IsaacLabConfig(TorchWorldsConfig):
    """A task of Isaac Lab, 2.x or 3.x, manager-based or direct."""

    presets: list[str] = field(default_factory=list[str])
    """Presets of a 3.x task, such as newton_mjwarp; empty takes its default ones."""
    final_obs: FinalObs = FinalObs.exact
    """exact, or drop where a task's observations must not be computed twice in a step."""
    quaternions: list[str] = field(default_factory=list[str])
    """Quaternions in the observations, as group/term, group/term:column or group:column of the
    first entry; brought into the order w, x, y, z where the version has another. Terms called
    after quaternions are found without."""


def import_tasks(module: str) -> None:
    """Import a module that registers tasks of its own; empty for none.

    Raises:
        ConfigError: It cannot be imported.
    """
    try:
        if module:
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"env.id names the module '{module}', which cannot be imported: {error}"
        ) from error


def put_settings(target: Any, settings: Mapping[str, Any], where: str = "env.settings") -> None:
    """Set fields of nested objects and dicts; both are changed.

    Args:
        settings: Field -> value, or -> settings of that part.

    Raises:
        ConfigError: A field is unknown, or a value is of another type than the one before.
    """
    inside_dict = isinstance(target, dict)
    known = [name for name in map(str, target if inside_dict else dir(target)) if name[:1] != "_"]
    for name, value in settings.items():
        if name not in known:
            raise ConfigError(unknown_name(f"field of {where}", name, known))
        before = target[name] if inside_dict else getattr(target, name)
        if isinstance(value, Mapping) and before is not None:
            put_settings(before, value, f"{where}.{name}")
            continue
        value = _fitting(value, before, f"{where}.{name}")
        if inside_dict:
            target[name] = value
        else:
            setattr(target, name, value)


def _fitting(value: Any, before: Any, where: str) -> Any:
    if isinstance(value, list) and isinstance(before, tuple):
        return tuple(value)
    if type(value) is int and isinstance(before, float):
        return float(value)
    if isinstance(value, float) and type(before) is int:
        return value  # an episode of 5 s may be one of 1.5 s
    if value is not None and isinstance(before, bool | int | float | str | list | tuple):
        if type(value) is not type(before):
            raise ConfigError(
                f"{where} is {value!r}; expected {type(before).__name__}, as {before!r} is"
            )
    elif value is not None and before is not None:
        raise ConfigError(
            f"{where} is {value!r}; expected fields of a {type(before).__name__}, as "
            "{field: value}"
        )
    return value
