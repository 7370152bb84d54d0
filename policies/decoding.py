"""Values of a JSON file as typed dataclasses: every type, key and size is checked on the way.

A sealed file may still be wrong, so nothing is taken over as it is: a number is finite, a list and
a string have bounded lengths, and an error names the place, such as `policy.widths[2]`.
"""

import dataclasses
import json
from collections.abc import Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.robot import GripperSpec, JointSpec

_MOST_ENTRIES = 65_536
"""Of a list or an object."""
_LONGEST_TEXT = 1024
"""Of a name or another text [characters]."""
_LARGEST_INTEGER = 2**31 - 1
_LARGEST_NUMBER = 1e30
"""Of magnitudes; float32 still computes with it."""
_WITHOUT_LIMIT = (JointSpec, GripperSpec)
"""Numbers in these may be the texts 'inf' and '-inf': JSON has no infinity."""


def read_json(raw: bytes, where: str) -> dict[str, Any]:
    """Object of a JSON file; NaN and infinity are no JSON.

    Raises:
        ConfigError: It is something else, or too deep.
    """
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is no JSON: {str(error)[:100]}") from None
    return as_object(content, where)


def as_object(value: object, where: str) -> dict[str, Any]:
    """The same, which is an object.

    Raises:
        ConfigError: It is something else.
    """
    if not isinstance(value, dict) or len(cast("dict[str, Any]", value)) > _MOST_ENTRIES:
        raise _wrong(where, "an object", value)
    return cast("dict[str, Any]", value)


def entry(values: Mapping[str, Any], name: str, kind: Any, where: str) -> Any:
    """Typed value of a key that must be there; `decode`."""
    if name not in values:
        raise ConfigError(f"{where} lacks '{name}'; it has {_short(sorted(values))}")
    return decode(values[name], kind, f"{where}.{name}")


def decode(value: Any, kind: Any, where: str, *, infinite: bool = False) -> Any:
    """Value of a type: a dataclass, an enum, list, dict, optional, float, int, bool or str.

    Args:
        kind: As an annotation says it.
        where: Place in the file, for errors.
        infinite: Accept 'inf' and '-inf' for numbers.

    Raises:
        ConfigError: It is of another type, is not finite, too long, or has a key too many.
    """
    if kind is Any:
        return value
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        inner = [one for one in inner if one is not NoneType]
        return None if value is None else decode(value, inner[0], where, infinite=infinite)
    if origin is list:
        if not isinstance(value, list) or len(cast("list[Any]", value)) > _MOST_ENTRIES:
            raise _wrong(where, f"a list of at most {_MOST_ENTRIES} entries", value)
        return [
            decode(one, inner[0], f"{where}[{i}]", infinite=infinite)
            for i, one in enumerate(cast("list[Any]", value))
        ]
    if origin is dict:
        return {
            decode(name, str, f"key of {where}"): decode(
                one, inner[1], f"{where}.{_short(name)}", infinite=infinite
            )
            for name, one in as_object(value, where).items()
        }
    if dataclasses.is_dataclass(kind):
        return _dataclass(value, cast("type[Any]", kind), where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        known = [str(one.value) for one in kind]
        name = decode(value, str, where)
        if name not in known:
            raise ConfigError(unknown_name(where, name, known))
        return kind(name)
    return _scalar(value, kind, where, infinite=infinite)


def _dataclass(value: Any, kind: type[Any], where: str) -> Any:
    values, hints = as_object(value, where), get_type_hints(kind)
    fields = {one.name: one for one in dataclasses.fields(kind)}
    for name in values:
        if name not in fields:
            raise ConfigError(
                unknown_name(f"key of {where}", ascii(name)[1:81].rstrip("'"), fields)
            )
    for name, one in fields.items():
        missing = dataclasses.MISSING
        if name not in values and one.default is missing and one.default_factory is missing:
            raise ConfigError(f"{where} lacks '{name}'; it has {_short(sorted(values))}")
    infinite = kind in _WITHOUT_LIMIT
    typed = {
        name: decode(one, hints[name], f"{where}.{name}", infinite=infinite)
        for name, one in values.items()
    }
    return kind(**typed)


def _scalar(value: Any, kind: type[Any], where: str, *, infinite: bool) -> Any:
    if kind is str:
        if not isinstance(value, str) or len(value) > _LONGEST_TEXT or not value.isprintable():
            raise _wrong(where, f"a printable text of at most {_LONGEST_TEXT} characters", value)
        return value
    if kind is bool:
        if not isinstance(value, bool):
            raise _wrong(where, "true or false", value)
        return value
    if kind is float and infinite and value in ("inf", "-inf"):
        return float(value)
    number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    if kind is int:
        if not number or abs(value) > _LARGEST_INTEGER:
            raise _wrong(where, f"a whole number up to {_LARGEST_INTEGER}", value)
        return value
    try:
        if number and abs(float(value)) <= _LARGEST_NUMBER:  # not NaN either
            return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        pass
    raise _wrong(where, f"a finite number up to {_LARGEST_NUMBER:g}", value)


def _wrong(where: str, expected: str, got: object) -> ConfigError:
    return ConfigError(f"{where}: expected {expected}, got {_short(got)}")


def _short(value: object) -> str:
    """A value as an error shows it, however large it is."""
    if isinstance(value, list | dict):
        size = len(cast("list[Any]", value))
        if size > 20:
            return f"{'a list' if isinstance(value, list) else 'an object'} of {size} entries"
    if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
        return "a larger one"
    try:
        text = ascii(value)
    except RecursionError:
        text = "something nested without end"
    return text if len(text) <= 80 else f"{text[:77]}..."
