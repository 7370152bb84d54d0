"""A policy's commands on their way, as `state_streams` has measurements on theirs."""

from dataclasses import replace
from typing import Any

import numpy as np

from hardware.ros.compat import message
from hardware.ros.messages.command_messages import CommandMessages
from hardware.ros.messages.stencil import Stencil
from hardware.ros.state_streams import Raw, parsed
from robot_rl.core.robot_command import JointCommand, RobotCommand

_GAINS = ("kp", "kd")
"""What of a command travels as a name."""


class _Form:
    """Commands with the same fields and gains: they differ in numbers only."""

    def __init__(self, messages: CommandMessages, example: RobotCommand, gains: str) -> None:
        self.example, self.gains = example, gains
        numbers = numbers_of(example)
        self.shapes = {name: value.shape for name, value in numbers.items()}
        widths = {name: shape[1] for name, shape in self.shapes.items()}

        def pack(fields: Any, packed: Any, stamp: int) -> None:
            messages.pack(replace(example, **fields), packed, stamp=stamp, gains=gains)

        kind = message(messages.package, messages.message)
        self.stencil = Stencil.learn(kind, pack, widths, widths)


class CommandWriter:
    """Sends commands."""

    def __init__(self, publisher: Any, messages: CommandMessages, gains: str) -> None:
        """Learn what messages look like.

        Args:
            publisher: Of the topic.
            messages: How commands travel.
            gains: Name of the gain set that commands hold.
        """
        self._publisher, self._messages, self._gains = publisher, messages, gains
        self._kind = message(messages.package, messages.message)
        self._forms = [_Form(messages, one, gains) for one in messages.examples(gains)]

    def prepare(self, command: RobotCommand, stamp: int) -> Any:
        """What `publish` would send.

        Args:
            command: (1, ...) arrays.
            stamp: Time of the state that is answered [ns].

        Raises:
            SpecMismatchError: As of `CommandMessages.pack`.
        """
        self._messages.check(command, self._gains)
        numbers = numbers_of(command)
        shapes = {name: value.shape for name, value in numbers.items()}
        for form in self._forms:
            if form.stencil is not None and form.shapes == shapes:
                return form.stencil.write(numbers, stamp)
        packed = self._kind()
        self._messages.pack(command, packed, stamp=stamp, gains=self._gains)
        return packed

    def publish(self, command: RobotCommand, stamp: int) -> None:
        """Send a command; see `prepare`."""
        self._publisher.publish(self.prepare(command, stamp))


class CommandReader:
    """Hears commands, of policies of this project and of anybody."""

    def __init__(self, heard: Raw, messages: CommandMessages) -> None:
        """Learn what messages look like.

        Args:
            heard: The topic.
            messages: How commands travel, with all gain sets that are known.
        """
        self._heard, self._messages = heard, messages
        self._kind = message(messages.package, messages.message)
        self._forms = [
            _Form(messages, example, gains)
            for gains in messages.gain_names
            for example in messages.examples(gains)
        ]

    def read(self) -> tuple[RobotCommand, int, str] | None:
        """A command that came since the last call, the time that it answers [ns], its gain set.

        Bytes that are no message are as nothing. A gain set is named by commands for joints only.

        Raises:
            SpecMismatchError: As of `CommandMessages.unpack`.
        """
        raw = self._heard.take()
        if raw is None:
            return None
        for form in self._forms:
            if form.stencil is not None:
                numbers = {name: np.empty(shape) for name, shape in form.shapes.items()}
                if (stamp := form.stencil.read(raw, numbers)) is not None:
                    return replace(form.example, **numbers), stamp, form.gains
        packed = parsed(raw, self._kind)
        if packed is None:
            return None
        command, stamp = self._messages.unpack(packed)
        gains = packed.header.frame_id if isinstance(command, JointCommand) else ""
        return command, stamp, gains


def numbers_of(command: RobotCommand) -> dict[str, np.ndarray]:
    """Fields of a command that travel as numbers."""
    return {k: v for k, v in vars(command).items() if v is not None and k not in _GAINS}
