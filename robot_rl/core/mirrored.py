"""Kinds of quantities by what a mirror does to them; terms declare theirs beside their function."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from robot_rl.core.errors import ConfigError


class Mirrored(Enum):
    """What exchanging left and right does to columns; the first six may be repeated."""

    vector = "vector"
    """(x, y, z): y flips."""
    pseudovector = "pseudovector"
    """(x, y, z) of a rotation, an angular velocity, a torque: x and z flip."""
    quaternion = "quaternion"
    """wxyz: x and z flip."""
    rotation = "rotation"
    """Matrix, row-major: entries with one y in row or column flip."""
    wrench = "wrench"
    """A force, then a torque."""
    ground_motion = "ground motion"
    """(forward, to the left, turning to the left): the last two flip."""
    same = "same"
    """Any number of columns that stay."""
    opposite = "opposite"
    """Any number of columns that flip, such as a clock that is half a cycle ahead there."""
    joints = "joints"
    """One per joint."""
    action = "action"
    """One action, as the robot's action map makes commands of it."""
    feet = "feet"
    """One per foot, without a direction."""


@dataclass(kw_only=True)
class MirrorSpec:
    """What is left and right of a robot that looks along x; its plane is that of x and z."""

    swap: dict[str, str] = field(default_factory=dict[str, str])
    """Parts of names that exchange each other, such as FL: FR; a name's parts are joined by `_`.
    Joints, feet, rotors and the bodies of a model are found by it."""
    reversed: list[str] = field(default_factory=list[str])
    """Joints that turn the other way in the mirror: those about x and z, where both sides have
    the same axes."""

    def __post_init__(self) -> None:
        """Refuse names that are exchanged twice."""
        parts = [*self.swap, *self.swap.values()]
        if len(set(parts)) != len(parts) or "" in parts:
            raise ConfigError(f"mirror.swap: expected pairs of distinct names, got {self.swap}")

    def counterpart(self, name: str) -> str:
        """Name of the same thing on the other side; of what has no side its own."""
        both = {**self.swap, **{right: left for left, right in self.swap.items()}}
        return "_".join(both.get(part, part) for part in name.split("_"))


TERM_KINDS: dict[str, Mirrored] = {}
"""What a mirror does to observation terms, by name; those that are not here have no mirror."""

_Function = TypeVar("_Function", bound=Callable[..., object])


def mirrored(kind: Mirrored) -> Callable[[_Function], _Function]:
    """Declare what a mirror does to an observation term, above its function."""

    def declare(function: _Function) -> _Function:
        TERM_KINDS[function.__name__] = kind
        return function

    return declare
