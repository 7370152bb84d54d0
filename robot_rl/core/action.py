"""From policy actions in [-1, 1] to robot commands and back."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from math import inf
from typing import Any

from array_api_compat import array_namespace

from robot_rl.core.array import Array
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import (
    BodyRateCommand,
    CommandKind,
    JointCommand,
    RobotCommand,
    RotorCommand,
)


@dataclass(kw_only=True)
class ActionMap:
    """Affine map of each action entry from [-1, 1] to a range of the command.

    It has an inverse, so that human and demonstrated commands come back into [-1, 1].
    For joints the command is a position target with gains, clipped to the joints' limits: where the
    range leaves them, an action of 0 is still the default pose.
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
    """Whether one more entry, the last, is the gripper's opening; gains are the joints' only."""

    def __post_init__(self) -> None:
        """Refuse ranges without extent and kinds that no map makes yet."""
        if self.kind not in _MAKERS:
            known = ", ".join(kind.value for kind in _MAKERS)
            raise ConfigError(f"no action map makes '{self.kind.value}' commands; known: {known}")
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
        if self.gripper and (self.kind is not CommandKind.joint or self.size < 2):
            raise ConfigError(
                f"an action map to '{self.kind.value}' commands with {self.size} entries has no "
                "room for a gripper; joint commands with two entries or more have"
            )
        gains = self.size - self.gripper if self.kind is CommandKind.joint else 0
        if (len(self.stiffness), len(self.damping)) != (gains, gains):
            raise ConfigError(
                f"an action map to '{self.kind.value}' commands with {self.size} entries needs "
                f"{gains} gains of each kind; got stiffness {self.stiffness}, "
                f"damping {self.damping}"
            )

    @classmethod
    def joint_positions(
        cls, robot: RobotSpec, scale: float, *, gripper: bool = False
    ) -> "ActionMap":
        """Joint position targets around the default pose: default + scale * action, in the limits.

        Args:
            robot: Joints with default position, limits and gains.
            scale: What an action of 1 adds to the default position [rad] or [m].
            gripper: Add an entry for the gripper: closed at -1, open at +1.
        """
        joints = robot.joints
        opening = int(gripper)  # this often, from closed to open
        return cls(
            kind=CommandKind.joint,
            low=[joint.default_position - scale for joint in joints] + opening * [0.0],
            high=[joint.default_position + scale for joint in joints] + opening * [1.0],
            limit=[list(joint.position_limit) for joint in joints] + opening * [[0.0, 1.0]],
            stiffness=[joint.stiffness for joint in joints],
            damping=[joint.damping for joint in joints],
            gripper=gripper,
        )

    @property
    def size(self) -> int:
        """A: number of action entries."""
        return len(self.low)

    def check_robot(self, robot: RobotSpec) -> None:
        """Refuse a robot that does not accept the commands made here."""
        if robot.command is not self.kind:
            raise SpecMismatchError(
                f"the action map makes '{self.kind.value}' commands, "
                f"but robot '{robot.name}' accepts '{robot.command.value}'"
            )
        if self.gripper and robot.gripper is None:
            raise SpecMismatchError(
                f"the action map has an entry for a gripper, but robot '{robot.name}' has none"
            )
        joints = robot.num_joints + self.gripper
        sizes = {CommandKind.rotors: len(robot.rotors), CommandKind.joint: joints}
        entries = sizes.get(self.kind, 4)
        if self.size != entries:
            raise SpecMismatchError(
                f"the action map has {self.size} entries, but a '{self.kind.value}' command of "
                f"robot '{robot.name}' has {entries}"
            )

    def to_command(self, action: Array) -> RobotCommand:
        """Command of an action.

        Args:
            action: (N, A), in [-1, 1]; values outside are clipped (see `out_of_range`).
        """
        xp = array_namespace(action)
        low, high = self._range(action)
        values = low + (xp.clip(action, -1.0, 1.0) + 1) * (0.5 * (high - low))
        if self.limit:
            lowest, highest = _constants(xp, *zip(*self.limit, strict=True), *_like(action))
            values = xp.minimum(xp.maximum(values, lowest), highest)
        return _MAKERS[self.kind](self, values)

    def from_command(self, command: RobotCommand) -> Array:
        """Action of a command, (N, A); outside [-1, 1] where the command is out of range."""
        values = _READERS[self.kind](self, command)
        low, high = self._range(values)
        return 2 * (values - low) / (high - low) - 1

    def out_of_range(self, action: Array) -> Array:
        """Worlds whose action leaves [-1, 1] or is not a number, (N,) bool."""
        xp = array_namespace(action)
        return ~xp.all(xp.abs(action) <= 1.0, axis=-1)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "kind": self.kind.value}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ActionMap":
        """Rebuild from `to_dict`."""
        plain = dict(values)
        plain["kind"] = CommandKind(values["kind"])
        return cls(**plain)

    def _range(self, like: Array) -> tuple[Array, Array]:
        xp = array_namespace(like)
        return _constants(xp, tuple(self.low), tuple(self.high), *_like(like))


def _like(array: Array) -> tuple[Any, Any]:
    return array.dtype, array.device


@lru_cache(maxsize=32)
def _constants(
    xp: Any, low: tuple[float, ...], high: tuple[float, ...], dtype: Any, device: Any
) -> tuple[Array, Array]:
    """Made once per type and device: a step must not copy from the host to an accelerator."""
    make = {"dtype": dtype, "device": device}
    return xp.asarray(low, **make), xp.asarray(high, **make)


def _rotors(_: ActionMap, values: Array) -> RobotCommand:
    return RotorCommand(speed=values)


def _body_rates(_: ActionMap, values: Array) -> RobotCommand:
    return BodyRateCommand(rates_b=values[..., :3], thrust=values[..., 3:4])


def _joint(action_map: ActionMap, values: Array) -> RobotCommand:
    xp = array_namespace(values)
    gains = _constants(xp, tuple(action_map.stiffness), tuple(action_map.damping), *_like(values))
    q, opening = (values[..., :-1], values[..., -1:]) if action_map.gripper else (values, None)
    stiffness, damping = (xp.broadcast_to(gain, q.shape) for gain in gains)
    still = xp.zeros_like(q)
    return JointCommand(q=q, dq=still, tau=still, kp=stiffness, kd=damping, gripper=opening)


def _read_rotors(_: ActionMap, command: RobotCommand) -> Array:
    if not isinstance(command, RotorCommand):
        raise SpecMismatchError(f"expected a RotorCommand, got a {type(command).__name__}")
    return command.speed


def _read_body_rates(_: ActionMap, command: RobotCommand) -> Array:
    if not isinstance(command, BodyRateCommand):
        raise SpecMismatchError(f"expected a BodyRateCommand, got a {type(command).__name__}")
    xp = array_namespace(command.rates_b)
    return xp.concat([command.rates_b, command.thrust], axis=-1)


def _read_joint(action_map: ActionMap, command: RobotCommand) -> Array:
    if not isinstance(command, JointCommand):
        raise SpecMismatchError(f"expected a JointCommand, got a {type(command).__name__}")
    if not action_map.gripper:
        return command.q
    if command.gripper is None:
        raise SpecMismatchError(
            "the action map has an entry for a gripper, but the command says nothing of one"
        )
    return array_namespace(command.q).concat([command.q, command.gripper], axis=-1)


_MAKERS = {
    CommandKind.rotors: _rotors,
    CommandKind.body_rates: _body_rates,
    CommandKind.joint: _joint,
}
_READERS = {
    CommandKind.rotors: _read_rotors,
    CommandKind.body_rates: _read_body_rates,
    CommandKind.joint: _read_joint,
}
