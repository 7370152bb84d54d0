"""Stamped commands through a mailbox: every kind of command as a row of numbers and back."""

from collections.abc import Sequence

import numpy as np

from hardware.control.mail.mailbox import MailboxReader, MailboxWriter, Message
from hardware.control.watch.commanded import StampedCommand
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import (
    BodyRateCommand,
    CommandKind,
    JointCommand,
    PoseCommand,
    RobotCommand,
    RotorCommand,
    TwistCommand,
)

_Entries = tuple[tuple[str, int], ...]


class CommandLayout:
    """Which number of a row is which entry of a command of one kind.

    The first number is the set of gains, the second the gripper's opening (NaN without one), the
    rest the entries in the order of the class.
    """

    def __init__(
        self, spec: RobotSpec, kind: CommandKind, gain_sets: Sequence[str] = ("",)
    ) -> None:
        """Lay out commands of a kind for a robot.

        Args:
            spec: The robot.
            kind: Of the commands.
            gain_sets: Names of the sets of gains, the same and in the same order on both sides.
        """
        joints = spec.num_joints
        layouts: dict[CommandKind, tuple[type, _Entries]] = {
            CommandKind.rotors: (RotorCommand, (("speed", len(spec.rotors)),)),
            CommandKind.body_rates: (BodyRateCommand, (("rates_b", 3), ("thrust", 1))),
            CommandKind.joint: (
                JointCommand,
                tuple((name, joints) for name in ("q", "dq", "tau", "kp", "kd")),
            ),
            CommandKind.pose: (PoseCommand, (("position_w", 3), ("orientation_w", 4))),
            CommandKind.twist: (TwistCommand, (("linear_b", 3), ("angular_b", 3))),
        }
        self._make, self._entries = layouts[kind]
        self._grips = kind in (CommandKind.joint, CommandKind.pose, CommandKind.twist)
        self._gain_sets = tuple(gain_sets)
        self.width = 2 + sum(width for _, width in self._entries)
        """Numbers per command."""

    def to_row(self, stamped: StampedCommand) -> np.ndarray:
        """A command as numbers, (width,)."""
        command = stamped.command
        if not isinstance(command, self._make):
            raise SpecMismatchError(
                f"this mailbox takes {self._make.__name__}, got {type(command).__name__}"
            )
        if stamped.gains not in self._gain_sets:
            raise ConfigError(f"gain set '{stamped.gains}' is unknown; known: {self._gain_sets}")
        gripper = getattr(command, "gripper", None)
        opening = np.nan if gripper is None else np.asarray(gripper).reshape(-1)[0]
        rows = [np.reshape(getattr(command, name), -1) for name, _ in self._entries]
        return np.concatenate([[self._gain_sets.index(stamped.gains), opening], *rows])

    def from_row(self, message: Message) -> StampedCommand:
        """The command of a message; a number of gains that nobody knows becomes a name like it."""
        row, values, start = message.values, {}, 2
        for name, width in self._entries:
            values[name] = row[None, start : start + width]
            start += width
        if self._grips and not np.isnan(row[1]):
            values["gripper"] = row[None, 1:2]
        number = int(row[0]) if np.isfinite(row[0]) else -1
        known = 0 <= number < len(self._gain_sets)
        gains = self._gain_sets[number] if known else f"number {row[0]}"
        command: RobotCommand = self._make(**values)
        return StampedCommand(command=command, stamp=message.stamp, gains=gains)


class CommandSender:
    """The end of a policy or a person: leaves commands in a mailbox."""

    def __init__(self, name: str, layout: CommandLayout) -> None:
        """Write to the mailbox `name`."""
        self._layout = layout
        self._writer = MailboxWriter(name, layout.width)

    def send(self, stamped: StampedCommand) -> None:
        """Leave a command. Real-time: never blocks."""
        self._writer.write(self._layout.to_row(stamped), stamped.stamp)

    def refuse(self, stamp: float) -> None:
        """Say that a command came which could not be read; the loop judges that as invalid.

        Args:
            stamp: When, clock of the loop [s].
        """
        self._writer.write(np.full(self._layout.width, np.nan), stamp)

    def close(self) -> None:
        """Remove the mailbox; allowed more than once."""
        self._writer.close()


class CommandReceiver:
    """The end of the robot process: a `CommandSource`."""

    def __init__(self, name: str, layout: CommandLayout) -> None:
        """Read the mailbox `name`."""
        self._layout = layout
        self._reader = MailboxReader(name, layout.width)
        self._message: Message | None = None
        self._command: StampedCommand | None = None

    def newest(self) -> StampedCommand | None:
        """The newest command, the same object while there is no newer one."""
        message = self._reader.newest()
        if message is not self._message:
            self._message = message
            self._command = None if message is None else self._layout.from_row(message)
        return self._command

    def close(self) -> None:
        """Let go; allowed more than once."""
        self._reader.close()
