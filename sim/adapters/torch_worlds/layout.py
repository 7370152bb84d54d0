"""A task's spaces in our terms: flat float32 observation groups, and actions in [-1, 1].

mjlab has spaces of its own, Isaac Lab has Gymnasium's; both say `shape`, bounds and, where a group
is a dict of terms, `spaces`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError, ShapeError, unknown_name

_ACTOR = ("actor", "policy")
"""What mjlab and Isaac Lab call the group that the policy sees."""


class GroupLayout:
    """Which part of a task's observation goes where in which of our groups."""

    def __init__(
        self,
        space: Any,
        groups: Mapping[str, Sequence[str]],
        orders: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Lay out the groups.

        Args:
            space: Observations of one world, group -> space or dict of spaces.
            groups: Ours -> theirs; empty finds actor and critic by their usual names.
            orders: Part -> its columns in another order.

        Raises:
            ConfigError: A part is no vector of numbers, or is unknown.
        """
        leaves = dict(_leaves(space, ""))
        asked = dict(groups) or _usual(space.spaces)
        self._parts: dict[str, list[str]] = {}
        self._widths: dict[str, int] = {}
        for name, paths in asked.items():
            found = [leaf for path in paths for leaf in _below(path, leaves, name)]
            self._widths |= {path: _width(leaves[path], path) for path in found}
            self._parts[name] = found
        self._orders = {
            path: torch.as_tensor(order) for path, order in (orders or {}).items() if path in leaves
        }
        self.sizes = {
            name: sum(self._widths[path] for path in paths) for name, paths in self._parts.items()
        }
        """Width of every group."""

    def column_names(self, group: str) -> list[str]:
        """Name of every column of a group, for messages."""
        return [f"{path}[{i}]" for path in self._parts[group] for i in range(self._widths[path])]

    def read(self, observation: Mapping[str, Any], group: str) -> Tensor:
        """One of our groups, (N, width) float32, in memory of its own.

        Raises:
            ShapeError: An observation is wider or narrower than its space says.
        """
        parts: list[Tensor] = []
        for path in self._parts[group]:
            value: Any = observation
            for key in path.split("/"):
                value = value[key]
            value = value.reshape(len(value), -1)
            if value.shape[1] != self._widths[path]:
                raise ShapeError(
                    f"the observation '{path}' is {value.shape[1]} wide; its space says "
                    f"{self._widths[path]}"
                )
            order = self._orders.get(path)
            parts.append(value if order is None else value[:, order.to(value.device)])
        return torch.cat(parts, dim=-1).to(torch.float32, copy=len(parts) == 1)


class ActionRange:
    """From [-1, 1] to what a task takes."""

    def __init__(
        self, space: Any, low: Sequence[float], high: Sequence[float], device: torch.device
    ) -> None:
        """Find the bounds.

        Args:
            space: Actions of one world.
            low: What -1 means: one number, one per entry, or none for the task's, else -1.
            high: What 1 means, likewise, else 1.
            device: Where actions live.

        Raises:
            ConfigError: Actions are not continuous, or the bounds do not fit.
        """
        if not hasattr(space, "low") or "int" in str(space.dtype):
            raise ConfigError(
                f"the action space is {space}; expected a box of real numbers, as policies here "
                "are continuous: choose another task"
            )
        self._shape = tuple(space.shape)
        self.size = math.prod(self._shape)
        """A."""
        bounds = [
            self._bound(name, given, own, missing)
            for name, given, own, missing in (
                ("low", low, space.low, -1.0), ("high", high, space.high, 1.0)
            )
        ]  # fmt: skip
        if not bool((bounds[0] < bounds[1]).all()):
            raise ConfigError(
                f"actions go from {bounds[0].tolist()} to {bounds[1].tolist()}; expected every "
                "low below its high: check env.action_low and env.action_high"
            )
        self._middle = (0.5 * (bounds[0] + bounds[1])).to(device, torch.float32)
        self._half = (0.5 * (bounds[1] - bounds[0])).to(device, torch.float32)

    def to_native(self, action: Tensor) -> Tensor:
        """Actions (N, A), in [-1, 1], as the task takes them (N, ...)."""
        return (self._middle + self._half * action).reshape(-1, *self._shape)

    def _bound(self, name: str, given: Sequence[float], own: Any, missing: float) -> Tensor:
        if len(given) not in (0, 1, self.size):
            raise ConfigError(
                f"env.action_{name} has {len(given)} numbers; expected one, or one for each of the "
                f"{self.size} entries of an action"
            )
        if not given:
            bound = torch.as_tensor(own, dtype=torch.float64).expand(self._shape).reshape(-1)
            return torch.where(bound.isfinite(), bound, missing)
        bound = torch.tensor(given, dtype=torch.float64).expand(self.size)
        if not bool(bound.isfinite().all()):
            raise ConfigError(f"env.action_{name} is {list(given)}; expected finite numbers")
        return bound


def _usual(spaces: Mapping[str, Any]) -> dict[str, list[str]]:
    actor = next((name for name in _ACTOR if name in spaces), None)
    if actor is None:
        raise ConfigError(
            f"the task has no observation group called {' or '.join(_ACTOR)}; say which group is "
            f"what the policy sees: env.groups.actor=[...], known: {', '.join(spaces)}"
        )
    return {"actor": [actor], **({"critic": ["critic"]} if "critic" in spaces else {})}


def _leaves(space: Any, path: str) -> list[tuple[str, Any]]:
    """Every vector with its path: `group`, or `group/term` in groups that are not joined."""
    if not hasattr(space, "spaces"):
        return [(path, space)]
    return [
        leaf
        for key, part in space.spaces.items()
        for leaf in _leaves(part, f"{path}/{key}" if path else key)
    ]


def _below(path: str, leaves: Mapping[str, Any], group: str) -> list[str]:
    found = [leaf for leaf in leaves if leaf == path or leaf.startswith(f"{path}/")]
    if not found:
        groups = {leaf.partition("/")[0] for leaf in leaves}
        raise ConfigError(unknown_name(f"part of env.groups.{group}", path, {*leaves, *groups}))
    return found


def _width(space: Any, path: str) -> int:
    if len(space.shape) > 2 or "uint8" in str(space.dtype):
        raise ConfigError(
            f"the observation '{path}' is an image of shape {tuple(space.shape)}; expected "
            "vectors, as images of foreign environments are not read yet: leave it out with "
            "env.groups"
        )
    return math.prod(space.shape)
