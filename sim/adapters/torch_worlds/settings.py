"""What a command line says of a foreign task: who registers it, and fields of its configuration."""

import importlib
from collections.abc import Mapping
from typing import Any

from robot_rl.core.errors import ConfigError, unknown_name


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
        target: The configuration, or a part of it.
        settings: Field -> value, or -> settings of that part.
        where: Path so far, for messages.

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
