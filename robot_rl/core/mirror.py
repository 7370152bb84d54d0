"""Left and right exchanged: how what a robot measures, is asked for and does looks in a mirror.

The mirror stands in the plane of x and z: through the base for body axes, through the origin for
world axes. What it does to any array is a permutation of columns and a change of signs, and done
twice it does nothing. What is reflected is the whole world: gravity stays, and so does a floor.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import Mirrored
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind


@dataclass(frozen=True)
class SignedPermutation:
    """Column i of what comes out is `sign[i]` times column `source[i]` of what goes in."""

    source: tuple[int, ...]
    sign: tuple[float, ...]

    def __post_init__(self) -> None:
        for i, j in enumerate(self.source):
            if self.source[j] != i or self.sign[j] != self.sign[i]:
                raise ConfigError(
                    f"columns {list(self.source)} with signs {list(self.sign)} are no mirror: done "
                    f"twice, column {i} is not what it was"
                )

    @classmethod
    def signs(cls, *sign: float) -> "SignedPermutation":
        """Columns stay where they are."""
        return cls(tuple(range(len(sign))), sign)

    @classmethod
    def joined(cls, parts: Iterable["SignedPermutation"]) -> "SignedPermutation":
        """Of columns side by side."""
        source: list[int] = []
        sign: list[float] = []
        for part in parts:
            start = len(source)
            source += [start + i for i in part.source]
            sign += part.sign
        return cls(tuple(source), tuple(sign))

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.source)

    def times(self, count: int) -> "SignedPermutation":
        """Of so many frames side by side, each mirrored by itself."""
        return SignedPermutation.joined([self] * count)

    def of_parts(self, each: "SignedPermutation") -> "SignedPermutation":
        """Of an array with several columns for each of these, which `each` mirrors inside."""
        inside = [(each.width * i, s) for i, s in zip(self.source, self.sign, strict=True)]
        source = [start + k for start, _ in inside for k in each.source]
        sign = [s * t for _, s in inside for t in each.sign]
        return SignedPermutation(tuple(source), tuple(sign))


class RobotMirror:
    """Left and right of a robot, as its description says."""

    def __init__(self, robot: RobotSpec) -> None:
        """Find the counterparts of joints, feet and rotors.

        Raises:
            ConfigError: The robot describes no mirror, or one under which it is not itself.
        """
        if robot.mirror is None:
            raise ConfigError(
                f"robot '{robot.name}' cannot be mirrored: its description (spec.mirror) does not "
                "say what is left and right; use training.symmetry=none"
            )
        self.robot = robot
        self._spec = robot.mirror
        reversed_joints = set(self._spec.reversed)
        unknown = reversed_joints - set(robot.joint_names)
        if unknown:
            raise ConfigError(
                f"robot '{robot.name}': mirror.reversed names {sorted(unknown)}, which are no "
                f"joints; known: {', '.join(robot.joint_names)}"
            )
        sign = [-1.0 if name in reversed_joints else 1.0 for name in robot.joint_names]
        self.joints = SignedPermutation(self.counterparts(robot.joint_names), tuple(sign))
        """Of positions, velocities and efforts."""
        self.feet = self.unsigned(robot.feet)
        """Of one number per foot."""
        self._check_joints()

    def counterparts(self, names: Sequence[str]) -> tuple[int, ...]:
        """For each name the place of the one on the other side; what has no side is its own.

        Raises:
            ConfigError: One's counterpart is not among them.
        """
        found = [self._spec.counterpart(name) for name in names]
        missing = [name for name in found if name not in names]
        if missing:
            raise ConfigError(
                f"robot '{self.robot.name}': its mirror makes {', '.join(missing)} of "
                f"{', '.join(names)}; expected the same names in another order"
            )
        return tuple(list(names).index(name) for name in found)

    def unsigned(self, names: Sequence[str]) -> SignedPermutation:
        """Of one number for each name that has no direction, such as a force's magnitude."""
        return SignedPermutation(self.counterparts(names), (1.0,) * len(names))

    def kind(self, kind: Mirrored, width: int) -> SignedPermutation:
        """Of `width` columns of a kind.

        Raises:
            ConfigError: The kind has another width.
        """
        if kind is Mirrored.same:
            return SignedPermutation.signs(*[1.0] * width)
        if kind is Mirrored.opposite:
            return SignedPermutation.signs(*[-1.0] * width)
        whole = {Mirrored.joints: self.joints, Mirrored.feet: self.feet}
        unit = whole[kind] if kind in whole else SignedPermutation.signs(*_SIGNS.get(kind, ()))
        if unit.width == 0 or width % unit.width or (kind in whole and width != unit.width):
            raise ConfigError(f"it has {width} columns, which are no '{kind.value}'")
        return unit.times(width // unit.width)

    def action(self, action_map: ActionMap) -> SignedPermutation:
        """Of actions.

        Raises:
            ConfigError: The mirrored action is not the action of the mirrored command.
        """
        if action_map.kind is CommandKind.joint:
            gripper = [SignedPermutation.signs(1.0)] * action_map.gripper
            found = SignedPermutation.joined([self.joints, *gripper])
        elif action_map.kind is CommandKind.rotors:
            found = self.unsigned(self.robot.rotors)
        elif action_map.kind is CommandKind.body_rates:
            found = SignedPermutation.signs(*_SIGNS[Mirrored.pseudovector], 1.0)
        else:
            raise ConfigError(
                f"actions of kind '{action_map.kind.value}' have no mirror; choose "
                "training.symmetry=none"
            )
        for i, (j, s) in enumerate(zip(found.source, found.sign, strict=True)):
            other = (action_map.low[j], action_map.high[j])
            expected = other if s > 0 else (-other[1], -other[0])
            if not _close((action_map.low[i], action_map.high[i]), expected):
                raise ConfigError(
                    f"robot '{self.robot.name}': action {i} ranges over "
                    f"{action_map.low[i]:g} to {action_map.high[i]:g}, its counterpart in the "
                    f"mirror over {expected[0]:g} to {expected[1]:g}; expected the same"
                )
        return found

    def _check_joints(self) -> None:
        """A joint's limits and default position must be those of its counterpart, mirrored."""
        for i, joint in enumerate(self.robot.joints):
            other, s = self.robot.joints[self.joints.source[i]], self.joints.sign[i]
            low, high = other.position_limit if s > 0 else [-x for x in other.position_limit[::-1]]
            expected = (low, high, s * other.default_position)
            if not _close((*joint.position_limit, joint.default_position), expected):
                raise ConfigError(
                    f"robot '{self.robot.name}': joint '{joint.name}' with limits "
                    f"{joint.position_limit} and default {joint.default_position:g} is not the "
                    f"mirror image of '{other.name}', which has {[low, high]} and "
                    f"{expected[2]:g}; mend spec.mirror"
                )


@dataclass(frozen=True, kw_only=True)
class EnvMirror:
    """Mirror image of an environment's observations and actions."""

    groups: Mapping[str, SignedPermutation]
    """By observation group."""
    action: SignedPermutation


def _close(one: Sequence[float], two: Sequence[float]) -> bool:
    return all(abs(a - b) < 1e-6 for a, b in zip(one, two, strict=True))


_SIGNS: Mapping[Enum, tuple[float, ...]] = {
    Mirrored.vector: (1, -1, 1),
    Mirrored.pseudovector: (-1, 1, -1),
    Mirrored.quaternion: (1, -1, 1, -1),
    Mirrored.rotation: (1, -1, 1, -1, 1, -1, 1, -1, 1),
    Mirrored.wrench: (1, -1, 1, -1, 1, -1),
    Mirrored.ground_motion: (1, -1, -1),
}
