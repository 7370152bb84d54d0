"""From policy actions in [-1, 1] to robot commands and back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from typing import Any

from array_api_compat import array_namespace

from robot_rl.core.array import Array
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot import BodyRateCommand, CommandKind, RobotCommand, RobotSpec, RotorCommand


@dataclass(kw_only=True)
class ActionMap:
    """Affine map of each action entry from [-1, 1] to a range of the command.

    It has an inverse, so that human and demonstrated commands come back into [-1, 1].
    """

    kind: CommandKind = CommandKind.rotors
    """The command that is made."""
    low: list[float] = field(default_factory=list[float])
    """Command entry at action -1, (A), unit of the command."""
    high: list[float] = field(default_factory=list[float])
    """Command entry at action +1, (A), unit of the command."""

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
        entries = len(robot.rotors) if self.kind is CommandKind.rotors else 4
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
        return _MAKERS[self.kind](low + (xp.clip(action, -1.0, 1.0) + 1) * (0.5 * (high - low)))

    def from_command(self, command: RobotCommand) -> Array:
        """Action of a command, (N, A); outside [-1, 1] where the command is out of range."""
        values = _READERS[self.kind](command)
        low, high = self._range(values)
        return 2 * (values - low) / (high - low) - 1

    def out_of_range(self, action: Array) -> Array:
        """Worlds whose action leaves [-1, 1] or is not a number, (N,) bool."""
        xp = array_namespace(action)
        return ~xp.all(xp.abs(action) <= 1.0, axis=-1)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"kind": self.kind.value, "low": list(self.low), "high": list(self.high)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ActionMap":
        """Rebuild from `to_dict`."""
        return cls(
            kind=CommandKind(values["kind"]), low=list(values["low"]), high=list(values["high"])
        )

    def _range(self, like: Array) -> tuple[Array, Array]:
        xp = array_namespace(like)
        return _constants(xp, tuple(self.low), tuple(self.high), like.dtype, like.device)


@lru_cache(maxsize=32)
def _constants(
    xp: Any, low: tuple[float, ...], high: tuple[float, ...], dtype: Any, device: Any
) -> tuple[Array, Array]:
    """Made once per type and device: a step must not copy from the host to an accelerator."""
    make = {"dtype": dtype, "device": device}
    return xp.asarray(low, **make), xp.asarray(high, **make)


def _rotors(values: Array) -> RobotCommand:
    return RotorCommand(speed=values)


def _body_rates(values: Array) -> RobotCommand:
    return BodyRateCommand(rates_b=values[..., :3], thrust=values[..., 3:4])


def _read_rotors(command: RobotCommand) -> Array:
    if not isinstance(command, RotorCommand):
        raise SpecMismatchError(f"expected a RotorCommand, got a {type(command).__name__}")
    return command.speed


def _read_body_rates(command: RobotCommand) -> Array:
    if not isinstance(command, BodyRateCommand):
        raise SpecMismatchError(f"expected a BodyRateCommand, got a {type(command).__name__}")
    xp = array_namespace(command.rates_b)
    return xp.concat([command.rates_b, command.thrust], axis=-1)


_MAKERS = {CommandKind.rotors: _rotors, CommandKind.body_rates: _body_rates}
_READERS = {CommandKind.rotors: _read_rotors, CommandKind.body_rates: _read_body_rates}
