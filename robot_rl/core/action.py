"""From policy actions in [-1, 1] to robot commands and back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from math import inf
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_torch_array
from numpy.typing import NDArray

from robot_rl.core.env_selection import Array
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.observation import TermConfig
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import (
    COMMANDS,
    BodyRateCommand,
    CommandKind,
    JointCommand,
    RobotCommand,
    RotorCommand,
)

NO_OPENING = "the action map has an entry for a gripper, but the command says nothing of one"


def within_bounds(
    unit: NDArray[np.floating], low: NDArray[np.float64], high: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Actions of [-1, 1] between bounds, whose ends are met exactly.

    Half a rounding outside is an error to a strict environment.

    Args:
        unit: Actions, (N, A).
        low: What -1 means, (A,).
        high: What 1 means, (A,).
    """
    return (low + 0.5 * (unit.astype(np.float64) + 1.0) * (high - low)).clip(low, high)


class PoseFrame(Enum):
    """Axes of the displacements of an end effector."""

    base = "base"
    """Of the robot's base."""
    start = "start"
    """Of the end effector at the episode's start: a policy does not see where that was."""


POSE_AXES = ("x", "y", "z", "rx", "ry", "rz")
"""Displacements of an end effector: along three axes [m], and the rotation vector [rad]."""


@dataclass(kw_only=True)
class PoseMotion:
    """Motion of an end effector's target by displacements; `pose_target.PoseTarget` does it."""

    axes: list[str] = field(default_factory=lambda: [*POSE_AXES])
    """Entries of `POSE_AXES` that actions displace, in their order; the others stay."""
    frame: PoseFrame = PoseFrame.base
    """Axes of the displacements."""
    position_leash: float = 0.03
    """Largest distance of the target from the measured position [m]."""
    rotation_leash: float = 0.2
    """Largest angle between the target and the measured attitude [rad]."""
    workspace: list[list[float]] = field(default_factory=list[list[float]])
    """Lower and upper limit of the target's position, (3, 2), [m], base axes; empty for none."""

    def __post_init__(self) -> None:
        if not self.axes or self.axes != [axis for axis in POSE_AXES if axis in self.axes]:
            raise ConfigError(
                f"pose axes must be some of {', '.join(POSE_AXES)} in this order, got {self.axes}"
            )
        for name in ("position_leash", "rotation_leash"):
            if not 0 < getattr(self, name) < inf:
                raise ConfigError(
                    f"{name} must be > 0 and finite, got {getattr(self, name)}; none is a large one"
                )
        ends = [len(pair) == 2 and -inf <= pair[0] < pair[1] <= inf for pair in self.workspace]
        if self.workspace and not (len(ends) == 3 and all(ends)):
            raise ConfigError(
                f"a workspace has a lower and a larger upper limit for x, y and z, "
                f"got {self.workspace}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "frame": self.frame.value}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "PoseMotion":
        """Rebuild from `to_dict`."""
        plain = dict(values)
        plain["frame"] = PoseFrame(values["frame"])
        return cls(**plain)


@dataclass(kw_only=True)
class ActionMap:
    """Affine map of each action entry from [-1, 1] to a range of the command.

    It has an inverse, so that human and demonstrated commands come back into [-1, 1].
    For joints the command is a position target with gains, clipped to the joints' limits: where the
    range leaves them, an action of 0 is still the default pose.

    An action of kind `pose` displaces the target of an end effector, so that its command depends on
    the target before: `PoseTarget` remembers that, and this map knows the displacements.
    """

    kind: CommandKind = CommandKind.rotors
    """The command that is made."""
    low: list[float] = field(default_factory=list[float])
    """Command entry at action -1, (A), unit of the command."""
    high: list[float] = field(default_factory=list[float])
    """Command entry at action +1, (A), unit of the command."""
    limit: list[list[float]] = field(default_factory=list[list[float]])
    """Lower and upper limit that each command entry is clipped to, (A, 2); empty clips none."""
    stiffness: list[float] = field(default_factory=list[float])
    """Proportional gains that go with joint positions, (A), [N m/rad]."""
    damping: list[float] = field(default_factory=list[float])
    """Derivative gains that go with joint positions, (A), [N m s/rad]."""
    gripper: bool = False
    """True if one more entry, the last, is the gripper's opening; gains are the joints' only."""
    pose: PoseMotion | None = None
    """Motion of the end effector's target, for the kind `pose`; `low` and `high` are displacements
    of a control period then, [m] and [rad], and the gripper's opening."""

    def __post_init__(self) -> None:
        if len(self.low) != len(self.high) or not self.low:
            raise ConfigError(
                f"an action map needs as many low as high values, at least one; "
                f"got low {self.low}, high {self.high}"
            )
        if not all(-inf < lo < hi < inf for lo, hi in zip(self.low, self.high, strict=True)):
            raise ConfigError(
                f"action map: low {self.low} must lie below high {self.high}, all of them finite"
            )
        if self.limit and len(self.limit) != self.size:
            raise ConfigError(f"action map: got {len(self.limit)} limits for {self.size} entries")
        grips = self.kind in (CommandKind.joint, CommandKind.pose)
        if self.gripper and not (grips and self.size >= 2):
            raise ConfigError(
                f"an action map to '{self.kind.value}' commands with {self.size} entries has no "
                "room for a gripper; joint and pose commands with two entries or more have"
            )
        self._check_pose()
        gains = self.size - self.gripper if self.kind is CommandKind.joint else 0
        if (len(self.stiffness), len(self.damping)) != (gains, gains):
            raise ConfigError(
                f"an action map to '{self.kind.value}' commands with {self.size} entries needs "
                f"{gains} gains of each kind; got stiffness {self.stiffness}, "
                f"damping {self.damping}"
            )
        self._made: dict[tuple[Any, ...], _Constants] = {}

    @classmethod
    def joint_positions(
        cls, robot: RobotSpec, scale: float | Sequence[float], *, gripper: bool = False
    ) -> "ActionMap":
        """Joint position targets around the default pose: default + scale * action, in the limits.

        Args:
            scale: What an action of 1 adds to the default position [rad] or [m]; one number, or
                one for each joint.
            gripper: Add an entry for the gripper: closed at -1, open at +1.
        """
        joints = robot.joints
        scales = [scale] * len(joints) if isinstance(scale, int | float) else list(scale)
        reach = list(zip(joints, scales, strict=True))
        opening = int(gripper)  # this often, from closed to open
        return cls(
            kind=CommandKind.joint,
            low=[joint.default_position - most for joint, most in reach] + opening * [0.0],
            high=[joint.default_position + most for joint, most in reach] + opening * [1.0],
            limit=[list(joint.position_limit) for joint in joints] + opening * [[0.0, 1.0]],
            stiffness=[joint.stiffness for joint in joints],
            damping=[joint.damping for joint in joints],
            gripper=gripper,
        )

    @classmethod
    def end_effector(
        cls, *, translation: float, rotation: float, motion: PoseMotion | None = None,
        gripper: bool = False,
    ) -> "ActionMap":  # fmt: skip
        """Displacements of an end effector's target in a control period.

        Args:
            translation: What an action of 1 adds along an axis [m].
            rotation: What an action of 1 adds to an entry of the rotation vector [rad].
            motion: Axes, frame, leash and workspace; the usual ones if None.
            gripper: Add an entry for the gripper: closed at -1, open at +1.
        """
        motion = motion or PoseMotion()
        reach = [rotation if axis.startswith("r") else translation for axis in motion.axes]
        return cls(
            kind=CommandKind.pose, low=[-step for step in reach] + int(gripper) * [0.0],
            high=reach + int(gripper) * [1.0], gripper=gripper, pose=motion,
        )  # fmt: skip

    @property
    def reach(self) -> Array | None:
        """Actions at the limits that commands are cut to, (2, A); None where none are cut."""
        if not self.limit:
            return None
        low, high = (np.array(ends, np.float32) for ends in (self.low, self.high))
        ends = (np.array(self.limit, np.float32).T - low) / (high - low) * 2 - 1
        return ends if bool((np.abs(ends) < 1).any()) else None

    @property
    def size(self) -> int:
        """A: number of action entries."""
        return len(self.low)

    def check_robot(self, robot: RobotSpec) -> None:
        """Refuse a robot that does not accept the commands made here.

        Body rates are accepted where rotors are: an inner loop leads from one to the other.
        """
        if self.pose is not None:
            self._check_end_effector(robot)
            return
        inner = robot.command is CommandKind.rotors and self.kind is CommandKind.body_rates
        if robot.command is not self.kind and not inner:
            raise SpecMismatchError(
                f"the action map makes '{self.kind.value}' commands, "
                f"but robot '{robot.name}' accepts '{robot.command.value}'"
            )
        self._check_gripper(robot)
        joints = robot.num_joints + self.gripper
        sizes = {CommandKind.rotors: len(robot.rotors), CommandKind.joint: joints}
        entries = sizes.get(self.kind, 4)
        if self.size != entries:
            raise SpecMismatchError(
                f"the action map has {self.size} entries, but a '{self.kind.value}' command of "
                f"robot '{robot.name}' has {entries}"
            )

    def to_command(self, action: Array) -> RobotCommand:
        """Command of actions (N, A) in [-1, 1]; values outside are clipped.

        Raises:
            SpecMismatchError: The kind is `pose`, whose commands depend on the target before.
        """
        self._check_stateless()
        return _COMMAND_MAKERS[self.kind](self._constants(action), self.to_entries(action))

    def from_command(self, command: RobotCommand) -> Array:
        """Action of a command, (N, A); outside [-1, 1] where the command is out of range.

        Raises:
            SpecMismatchError: The kind is `pose`, the command is of another kind, or it says
                nothing of a gripper that the map has an entry for (`with_opening`).
        """
        self._check_stateless()
        return self.from_entries(self._entries(command))

    def to_entries(self, action: Array) -> Array:
        """Entries of the command, or displacements, of actions (N, A); clipped to their range."""
        constants = self._constants(action)
        values = constants.middle + constants.half * action
        # The method, which numpy and torch share: `xp.clip` is slow.
        return values.clip(constants.lowest, constants.highest)

    def from_entries(self, values: Array) -> Array:
        """Action of entries (N, A), the inverse of `to_entries`; may lie outside [-1, 1]."""
        constants = self._constants(values)
        return (values - constants.middle) / constants.half

    def opening(self, action: Array) -> Array | None:
        """Opening that actions (N, A) ask of the gripper, (N, 1); None without an entry for it."""
        return self.to_entries(action)[..., -1:] if self.gripper else None

    def makes(self, command: RobotCommand) -> bool:
        """True if it is of the kind that is made here."""
        return isinstance(command, COMMANDS[self.kind])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; other kinds than `pose` do not speak of a pose."""
        plain = {**asdict(self), "kind": self.kind.value}
        del plain["pose"]
        return plain if self.pose is None else {**plain, "pose": self.pose.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ActionMap":
        """Rebuild from `to_dict`."""
        plain = dict(values)
        plain["kind"] = CommandKind(values["kind"])
        if plain.get("pose"):
            plain["pose"] = PoseMotion.from_dict(plain["pose"])
        return cls(**plain)

    def _check_pose(self) -> None:
        if (self.pose is None) == (self.kind is CommandKind.pose):
            raise ConfigError(
                f"an action map to '{self.kind.value}' commands got pose={self.pose}; the kind "
                "'pose' needs one, and no other kind has any"
            )
        if self.pose is None:
            return
        count = len(self.pose.axes)
        if self.size != count + self.gripper or self.limit:
            raise ConfigError(
                f"an action map of the axes {self.pose.axes} needs {count + self.gripper} entries "
                f"and takes limits as a workspace; got {self.size} entries, limit {self.limit}"
            )
        pairs = list(zip(self.low, self.high, strict=True))[:count]
        if any(low != -high for low, high in pairs):
            raise ConfigError(
                f"displacements must reach as far back as forth, so that an action of 0 stays; "
                f"got low {self.low}, high {self.high}"
            )

    def _check_stateless(self) -> None:
        if self.pose is not None:
            raise SpecMismatchError(
                "an action of kind 'pose' displaces a target, which a command alone does not tell; "
                "make commands and actions by robot_rl.core.pose_target.PoseTarget"
            )

    def _check_gripper(self, robot: RobotSpec) -> None:
        if self.gripper and robot.gripper is None:
            raise SpecMismatchError(
                f"the action map has an entry for a gripper, but robot '{robot.name}' has none"
            )

    def _check_end_effector(self, robot: RobotSpec) -> None:
        """A pose is followed by a law in the loop, which makes joint commands of it."""
        self._check_gripper(robot)
        needed = ("end_effector_position_b", "end_effector_orientation_b")
        if robot.command not in (CommandKind.joint, CommandKind.pose) or any(
            name not in robot.sensors for name in needed
        ):
            raise SpecMismatchError(
                f"the action map displaces an end effector, which takes joint or pose commands and "
                f"the sensors {list(needed)}; robot '{robot.name}' takes '{robot.command.value}' "
                f"commands and has the sensors {sorted(robot.sensors)}"
            )

    def _entries(self, command: Any) -> Array:
        """Entries of a command in the order of the action, (N, A)."""
        if not self.makes(command):
            wanted, got = COMMANDS[self.kind].__name__, type(command).__name__
            raise SpecMismatchError(f"expected a {wanted}, got a {got}")
        if self.kind is CommandKind.rotors:
            return command.speed
        if self.kind is CommandKind.body_rates:
            parts = [command.rates_b, command.thrust]
        else:
            parts = [command.q, command.gripper] if self.gripper else [command.q]
        if parts[-1] is None:
            raise SpecMismatchError(NO_OPENING)
        return parts[0] if len(parts) == 1 else array_namespace(parts[0]).concat(parts, axis=-1)

    def _constants(self, like: Array) -> "_Constants":
        """Made once: a step must not copy from the host to an accelerator."""
        # What torch makes in inference mode cannot be differentiated outside of it.
        inference = is_torch_array(like) and like.is_inference()
        key = (like.shape, like.dtype, like.device, inference)
        if key not in self._made:
            self._made[key] = _Constants.of(self, like)
        return self._made[key]


def describe_meaning(
    action_map: ActionMap, terms: Mapping[str, Sequence[TermConfig]]
) -> dict[str, Any]:
    """Meaning of actions of this map, and of groups of these terms, for `robot_rl.core.meaning`.

    Gains and a workspace are no part of it: they decide how a target is followed and whether it is
    reached, not what it is.
    """
    action = action_map.to_dict()
    del action["stiffness"], action["damping"]
    if "pose" in action:
        action["pose"] = {k: v for k, v in action["pose"].items() if k != "workspace"}
    told = {name: [asdict(one) for one in group] for name, group in terms.items() if group}
    return {"action": action, "terms": told}


@dataclass(frozen=True, kw_only=True)
class _Constants:
    """Numbers of a map as arrays of one type, on one device, for one number of envs."""

    middle: Array
    """Command entry at action 0, (A,)."""
    half: Array
    """Offset that an action of 1 adds to it, (A,)."""
    lowest: Array
    """Command entry at action -1, clipped, (A,)."""
    highest: Array
    """Command entry at action 1, clipped, (A,)."""
    gripper: bool
    """True if the last entry is the gripper's."""
    still: Array
    """Zeros, (N, J)."""
    stiffness: Array
    """(N, J), [N m/rad]."""
    damping: Array
    """(N, J), [N m s/rad]."""

    @classmethod
    def of(cls, action_map: ActionMap, like: Array) -> "_Constants":
        """For actions like these, (N, A)."""
        xp = array_namespace(like)

        def array(values: Iterable[float]) -> Array:
            return xp.asarray(list(values), dtype=like.dtype, device=like.device)

        ends = list(zip(action_map.low, action_map.high, strict=True))
        limits = action_map.limit or [[-inf, inf]] * action_map.size
        clipped = [
            [min(max(end, lowest), highest) for end in pair]
            for pair, (lowest, highest) in zip(ends, limits, strict=True)
        ]
        still = xp.zeros_like(like[..., : len(action_map.stiffness)])
        return cls(
            middle=array(0.5 * (low + high) for low, high in ends),
            half=array(0.5 * (high - low) for low, high in ends),
            lowest=array(low for low, _ in clipped),
            highest=array(high for _, high in clipped),
            gripper=action_map.gripper,
            still=still,
            stiffness=still + array(action_map.stiffness),
            damping=still + array(action_map.damping),
        )


def _rotors(_: _Constants, values: Array) -> RobotCommand:
    return RotorCommand(speed=values)


def _body_rates(_: _Constants, values: Array) -> RobotCommand:
    return BodyRateCommand(rates_b=values[..., :3], thrust=values[..., 3:4])


def _joint(constants: _Constants, values: Array) -> RobotCommand:
    q, opening = (values[..., :-1], values[..., -1:]) if constants.gripper else (values, None)
    still = constants.still
    return JointCommand(
        q=q, dq=still, tau=still, kp=constants.stiffness, kd=constants.damping, gripper=opening
    )


_COMMAND_MAKERS = {
    CommandKind.rotors: _rotors,
    CommandKind.body_rates: _body_rates,
    CommandKind.joint: _joint,
}
