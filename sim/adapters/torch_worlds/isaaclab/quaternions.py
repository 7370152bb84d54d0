"""Columns of observations that are quaternions, put into the order w, x, y, z."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from robot_rl.core.errors import ConfigError, unknown_name


def quaternion_orders(env: Any, named: Sequence[str], *, scalar_last: bool) -> dict[str, list[int]]:
    """Order of columns that brings the scalar of every quaternion to the front.

    Args:
        env: An environment of Isaac Lab.
        named: Quaternions as group/term, group/term:column or group:column; besides them, terms
            with `quat` in their name or their function's are found, if a multiple of four wide.
        scalar_last: Whether the version has them as x, y, z, w; else nothing is changed.

    Returns:
        Part of the observation (group, or group/term where a group is not joined) -> columns.

    Raises:
        ConfigError: A name or a column does not exist.
    """
    terms = {f"{term.group}/{term.name}": term for term in _terms(env)}
    firsts: dict[str, set[int]] = {}
    for term in terms.values():
        if term.is_called_quaternion and term.width % 4 == 0:
            found = range(term.first, term.first + term.width, 4)
            firsts.setdefault(term.part, set()).update(found)
    spaces = env.single_observation_space.spaces
    for entry in named:
        path, _, column = entry.partition(":")
        if not (column or "0").isdigit() or (not column and "/" not in path):
            raise ConfigError(
                f"env.quaternions has '{entry}'; expected group/term, group/term:column or "
                "group:column"
            )
        first = int(column or 0)
        if path in terms:
            part, first, end = terms[path].part, first + terms[path].first, terms[path].end
        elif path in spaces and hasattr(spaces[path], "low"):
            part, end = path, math.prod(spaces[path].shape)
        else:
            raise ConfigError(unknown_name("part of env.quaternions", path, {*terms, *spaces}))
        if first + 4 > end:
            raise ConfigError(f"env.quaternions has '{entry}', which ends at column {end}")
        firsts.setdefault(part, set()).add(first)
    if not scalar_last:
        return {}
    widths = {term.part: term.part_width for term in terms.values()}
    return {
        part: _order(columns, widths.get(part) or math.prod(spaces[part].shape))
        for part, columns in firsts.items()
    }


class _Term:
    """A term of a manager-based environment, and where it lies."""

    def __init__(self, group: str, name: str, width: int, joined: bool, first: int) -> None:
        self.group, self.name, self.width = group, name, width
        self.part = group if joined else f"{group}/{name}"
        self.first = first if joined else 0
        self.end = self.first + width
        self.part_width = width
        self.is_called_quaternion = False


def _terms(env: Any) -> Iterator[_Term]:
    manager: Any = getattr(env, "observation_manager", None)
    for group, names in manager.active_terms.items() if manager else ():
        joined, first = manager.group_obs_concatenate[group], 0
        widths = [math.prod(shape) for shape in manager.group_obs_term_dim[group]]
        for name, width in zip(names, widths, strict=True):
            term = _Term(group, name, width, joined, first)
            term.part_width = sum(widths) if joined else width
            term.is_called_quaternion = "quat" in f"{name} {_function(env, group, name)}"
            yield term
            first += width


def _function(env: Any, group: str, name: str) -> str:
    """Name of a term's function, where the configuration says it."""
    observations: Any = getattr(env.cfg, "observations", None)
    for key in (group, name):
        if isinstance(observations, Mapping):
            observations = observations.get(key)
        else:
            observations = getattr(observations, key, None)
    function = getattr(observations, "func", None)
    return str(getattr(function, "__name__", function or ""))


def _order(firsts: set[int], width: int) -> list[int]:
    order = list(range(width))
    for first in firsts:
        order[first : first + 4] = [first + 3, first, first + 1, first + 2]
    return order
