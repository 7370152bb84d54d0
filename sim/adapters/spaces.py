"""Spaces of foreign environments as our groups and bounds: Gymnasium's, Isaac Lab's and mjlab's.

All say `shape`, `dtype`, bounds and, where a space is a dict of others, `spaces`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.observation import IMAGE_PREFIX


class GroupLayout:
    """Parts of an observation and their places in our groups."""

    def __init__(
        self, space: Any, groups: Mapping[str, Sequence[str]], *, takes_images: bool = False
    ) -> None:
        """Lay out the groups.

        Args:
            space: Observation of one world: a box or a choice, or a dict or a tuple of such.
            groups: Ours -> keys, nested ones as a/b, where `a` is all that is below it; parts of a
                tuple by their number; empty puts vectors into `actor` and every image into a group
                of its own.
            takes_images: Where no groups are named every image becomes one, and a choice is a
                vector with 1 at its number; otherwise images are named, and choices refused.

        Raises:
            ConfigError: A part is no vector of numbers, or a key is unknown.
        """
        leaves = leaves_of(space)
        self._parts: dict[str, list[str]] = {}
        self._widths: dict[str, int] = {}
        self._choices: dict[str, tuple[int, int]] = {}  # path -> how many, number of the first
        self._takes_choices = takes_images
        self.images: dict[str, tuple[int, int, int]] = {}
        """Groups that are images: name -> height, width, channels."""
        images = [path for path, leaf in leaves.items() if takes_images and self.is_image(leaf)]
        for name, paths in (groups or _usual(leaves, images)).items():
            found = [leaf for path in paths for leaf in _below(path, leaves, name)]
            self._parts[name] = found
            if name.startswith(IMAGE_PREFIX):
                self.images[name] = self._picture(name, found, leaves)
                continue
            self._widths |= {path: self._width(leaves[path], path) for path in found}
        self.sizes = {
            name: sum(self._widths[path] for path in paths)
            for name, paths in self._parts.items() if name not in self.images
        }  # fmt: skip
        """Width of every group that is a vector."""

    def column_names(self, group: str) -> list[str]:
        """Name of every column of a group, for messages."""
        return [
            f"{path or 'observation'}[{i}]"
            for path in self._parts[group]
            for i in range(self._widths[path])
        ]

    def is_image(self, space: Any) -> bool:
        """True for height x width x channels of bytes, and for a grey picture without channels."""
        return len(space.shape or ()) in (2, 3) and "uint8" in str(space.dtype)

    def _width(self, space: Any, path: str) -> int:
        what = f"the observation '{path}'" if path else "the observation"
        if self._takes_choices and hasattr(space, "start") and hasattr(space, "n"):
            self._choices[path] = (int(space.n), int(space.start))
            return int(space.n)
        if not hasattr(space, "low"):
            choice = " or a Discrete" if self._takes_choices else ""
            raise ConfigError(
                f"{what} is {space}; expected a Box{choice}, or a Dict of them: leave it out with "
                "env.groups, or wrap the environment, with gymnasium.wrappers.FlattenObservation "
                "for example"
            )
        if self.is_image(space) and len(space.shape) == 3:
            raise ConfigError(
                f"{what} is an image of shape {tuple(space.shape)}; expected vectors: leave it "
                f"out with env.groups, or give it a group of its own there, {IMAGE_PREFIX}<name>"
            )
        return math.prod(space.shape)

    def _picture(
        self, group: str, paths: Sequence[str], leaves: Mapping[str, Any]
    ) -> tuple[int, int, int]:
        """Height, width and channels of an image's group."""
        shapes = [tuple(leaves[path].shape or ()) for path in paths]
        shape = [*shapes[0], 1][:3]  # a grey one may leave its channel out
        if len(paths) > 1 or not self.is_image(leaves[paths[0]]) or shape[2] not in (1, 3):
            raise ConfigError(
                f"the group '{group}' is {', '.join(paths)} of shape {shapes}; expected one uint8 "
                "image of height x width, with 1 or 3 channels or without: leave it out with "
                "env.groups, or wrap the environment, with "
                "gymnasium.wrappers.TransformObservation for example"
            )
        return shape[0], shape[1], shape[2]


def part_of(observation: Any, path: str) -> Any:
    """Part of an observation by its path."""
    for key in filter(None, path.split("/")):
        observation = observation[int(key) if isinstance(observation, tuple | list) else key]
    return observation


class ActionBounds:
    """Meaning of -1 and 1 in an action space."""

    def __init__(
        self,
        space: Any,
        low: Sequence[float],
        high: Sequence[float],
        missing: tuple[float, float] | None = None,
    ) -> None:
        """Find the bounds.

        Args:
            low: What -1 means: one number, one per entry, or none for the space's own bound.
            high: What 1 means, likewise.
            missing: Bounds where the space has none; None refuses it.

        Raises:
            ConfigError: Actions are not continuous, or have no bounds, or no fitting ones.
        """
        if not hasattr(space, "low") or "float" not in str(space.dtype):
            raise ConfigError(
                f"the action space is {space}; expected a Box of real numbers, or in Gymnasium one "
                "Discrete of two or more: no learner here chooses several things at once. Take a "
                "variant of the environment, or wrap it so that its actions are one of these"
            )
        self._space, self._shape = space, tuple(space.shape)
        self.size = math.prod(self._shape)
        """A."""
        ends = missing or (None, None)
        self.low = self._bound("low", low, space.low, ends[0])
        """(A,) float64."""
        self.high = self._bound("high", high, space.high, ends[1])
        """(A,) float64."""
        if not (self.low < self.high).all():
            raise ConfigError(
                f"actions go from {self.low.tolist()} to {self.high.tolist()}; expected every "
                "low below its high: check env.action_low and env.action_high"
            )

    def _each(self, end: Any) -> np.ndarray:
        """An end of the space, which may be one number, for every entry, (A,)."""
        return np.broadcast_to(np.asarray(end, dtype=np.float64), self._shape).ravel()

    def _bound(
        self, name: str, given: Sequence[float], own: Any, missing: float | None
    ) -> np.ndarray:
        if len(given) not in (0, 1, self.size):
            raise ConfigError(
                f"env.action_{name} has {len(given)} numbers; expected one, or one for each of the "
                f"{self.size} entries of an action"
            )
        if given:
            bound = np.broadcast_to(np.array(given, dtype=np.float64), (self.size,))
            if not np.isfinite(bound).all():
                raise ConfigError(f"env.action_{name} is {list(given)}; expected finite numbers")
            if (bound < self._each(self._space.low)).any() or (
                bound > self._each(self._space.high)
            ).any():
                raise ConfigError(
                    f"env.action_{name} is {list(given)}; expected numbers within the action space "
                    f"{self._space}"
                )
            return bound
        bound = self._each(own)
        if missing is not None:
            return np.where(np.isfinite(bound), bound, missing)
        if not np.isfinite(bound).all():
            raise ConfigError(
                f"the action space {self._space} has no bounds; say what -1 and 1 mean with "
                "env.action_low=[...] and env.action_high=[...]"
            )
        return bound


def _usual(leaves: Mapping[str, Any], images: Sequence[str]) -> dict[str, list[str]]:
    """All vectors as the policy's group, and each image as one of its own."""
    vectors = [path for path in leaves if path not in images]
    found = {IMAGE_PREFIX + (path or "observation"): [path] for path in images}
    return {"actor": vectors, **found} if vectors or not found else found


def leaves_of(space: Any) -> dict[str, Any]:
    """Every part of a space by its path: `a/b` in nested dicts, empty for the space itself."""
    return dict(_leaves(space, ""))


def _leaves(space: Any, path: str) -> list[tuple[str, Any]]:
    """Every part of a space with its path: `a/b` in nested dicts, empty for the space itself."""
    parts = getattr(space, "spaces", None)
    if isinstance(parts, tuple | list):
        parts = {str(number): part for number, part in enumerate(parts)}
    if not isinstance(parts, Mapping):
        return [(path, space)]
    for key in parts:
        if "/" in str(key):
            raise ConfigError(
                f"the observation has a part '{key}'; expected names without '/', which stands "
                "between a Dict and its parts: wrap the environment so that it is named otherwise"
            )
    return [
        leaf
        for key, part in parts.items()
        for leaf in _leaves(part, f"{path}/{key}" if path else key)
    ]


def _below(path: str, leaves: Mapping[str, Any], group: str) -> list[str]:
    found = [leaf for leaf in leaves if leaf == path or leaf.startswith(f"{path}/")]
    if not found:
        groups = {leaf.partition("/")[0] for leaf in leaves}
        raise ConfigError(unknown_name(f"part of env.groups.{group}", path, {*leaves, *groups}))
    return found
