"""Gymnasium's spaces in our terms: flat float32 observation groups, and actions in [-1, 1]."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError, unknown_name


class ObservationLayout:
    """Which part of an observation goes where in which group."""

    def __init__(self, space: gymnasium.Space[Any], groups: Mapping[str, Sequence[str]]) -> None:
        """Lay out the groups.

        Args:
            space: Observation space of one world: a Box, or a Dict of them.
            groups: Group -> keys of the Dict; empty puts everything into `actor`.

        Raises:
            ConfigError: A part is no vector of numbers, or a key is unknown.
        """
        leaves = dict(_leaves(space, ""))
        self._keys = {name: list(keys) for name, keys in groups.items()} or {"actor": list(leaves)}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for name, keys in self._keys.items():
            for key in keys:
                if key not in leaves:
                    raise ConfigError(unknown_name(f"key of env.groups.{name}", key, leaves))
                self._shapes[key] = _vector(leaves[key], key).shape
        self.sizes = {
            name: sum(int(np.prod(self._shapes[key])) for key in keys)
            for name, keys in self._keys.items()
        }
        """Width of every group."""

    def column_names(self, group: str) -> list[str]:
        """Name of every column of a group, for messages."""
        return [
            f"{key or 'observation'}[{i}]"
            for key in self._keys[group]
            for i in range(int(np.prod(self._shapes[key])))
        ]

    def write(self, observation: Any, out: Obs) -> None:
        """Write observations of N worlds, as one structure of arrays (N, ...), into the groups."""
        for name, keys in self._keys.items():
            parts = [
                np.reshape(_part(observation, key), (len(out[name]), -1)).astype(np.float32)
                for key in keys
            ]
            joined = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
            out[name].copy_(torch.from_numpy(joined))

    def write_world(self, observation: Any, out: Obs, world: int) -> None:
        """Write the observation of one world into its row of the groups."""
        for name, keys in self._keys.items():
            parts = [np.ravel(_part(observation, key)).astype(np.float32) for key in keys]
            out[name][world] = torch.from_numpy(np.concatenate(parts))


class ActionScale:
    """From [-1, 1] to the bounds of an action space."""

    def __init__(
        self, space: gymnasium.Space[Any], low: Sequence[float], high: Sequence[float]
    ) -> None:
        """Find the bounds.

        Args:
            space: Action space of one world.
            low: What -1 means: one number, one per entry, or none for the space's own bound.
            high: What 1 means, likewise.

        Raises:
            ConfigError: Actions are not continuous, or have no bounds.
        """
        if not isinstance(space, gymnasium.spaces.Box) or space.dtype.kind != "f":
            raise ConfigError(
                f"the action space is {space}; expected a Box of real numbers, as policies here "
                "are continuous: choose another environment, or wrap it"
            )
        self._space = space
        self.size = int(np.prod(space.shape))
        """A."""
        self._low = self._bound("low", low, space.low)
        self._high = self._bound("high", high, space.high)
        if not (self._low < self._high).all():
            raise ConfigError(
                f"actions go from {self._low.tolist()} to {self._high.tolist()}; expected every "
                "low below its high: check env.action_low and env.action_high"
            )

    def to_native(self, action: Tensor) -> np.ndarray:
        """Actions (N, A), in [-1, 1], as the space's own (N, ...)."""
        unit = action.cpu().numpy().astype(np.float64)
        native = self._low + 0.5 * (unit + 1.0) * (self._high - self._low)
        # The ends exactly: half a rounding outside is an error to a strict environment.
        native = native.clip(self._low, self._high).astype(self._space.dtype)
        return native.reshape(-1, *self._space.shape)

    def _bound(self, name: str, given: Sequence[float], own: np.ndarray) -> np.ndarray:
        if len(given) not in (0, 1, self.size):
            raise ConfigError(
                f"env.action_{name} has {len(given)} numbers; expected one, or one for each of the "
                f"{self.size} entries of {self._space}"
            )
        own = own.ravel().astype(np.float64)
        bound = np.broadcast_to(np.array(given, dtype=np.float64), own.shape) if given else own
        if not np.isfinite(bound).all():
            raise ConfigError(
                f"the action space {self._space} has no bounds; say what -1 and 1 mean with "
                "env.action_low=[...] and env.action_high=[...]"
            )
        return bound


def _leaves(space: gymnasium.Space[Any], path: str) -> list[tuple[str, gymnasium.Space[Any]]]:
    """Every part of a space with its path: `a/b` in nested Dicts, empty for the space itself."""
    if not isinstance(space, gymnasium.spaces.Dict):
        return [(path, space)]
    return [
        leaf
        for key, part in space.spaces.items()
        for leaf in _leaves(part, f"{path}/{key}" if path else key)
    ]


def _vector(space: gymnasium.Space[Any], path: str) -> gymnasium.spaces.Box:
    what = f"the observation '{path}'" if path else "the observation"
    if not isinstance(space, gymnasium.spaces.Box):
        raise ConfigError(
            f"{what} is {space}; expected a Box, or a Dict of them: leave it out with env.groups, "
            "or wrap the environment, with gymnasium.wrappers.FlattenObservation for example"
        )
    if space.dtype == np.uint8 and len(space.shape) == 3:
        raise ConfigError(
            f"{what} is an image of shape {space.shape}; expected vectors, as images of foreign "
            "environments are not read yet: leave it out with env.groups"
        )
    return space


def _part(observation: Any, path: str) -> np.ndarray:
    for key in filter(None, path.split("/")):
        observation = observation[key]
    return np.asarray(observation)
