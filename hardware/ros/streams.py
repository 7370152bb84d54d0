"""Measurements and commands on their way: templates of messages, their readers and writers.

Names, lengths and frames stay the same from message to message, but ROS's Python makes and reads
every one of them anew, which takes several times as long as everything else that a process beside
the loop does. A `MessageTemplate` is learnt from messages that were made the long way, and is used
where it gives the same bytes; whatever does not fit goes the long way.
"""

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hardware.ros.command_messages import CommandMessages
from hardware.ros.compat import message, rclpy
from hardware.ros.message_parts import Fields
from hardware.ros.state_messages import StateTopic
from robot_rl.core.robot_command import JointCommand, RobotCommand

_BODY = 4
"""Bytes before the body: CDR's encapsulation. Numbers are aligned from here on."""
_STAMP = struct.Struct("<iI")
_SECOND = 1_000_000_000
_LITTLE = 1
"""Second byte of a message in little-endian order."""
_LENGTH = struct.Struct("<I")
_SIZES = {"double": 8, "int32": 4, "uint32": 4}
_MANY = re.compile(r"(?P<each>.+)\[(?P<count>\d+)\]|sequence<(?P<some>.+)>")


class MessageTemplate:
    """The bytes of one kind of message from one sender: a header, names, and numbers."""

    def __init__(self, raw: bytes, places: Mapping[str, np.ndarray]) -> None:
        """Remember what stays.

        Args:
            raw: A whole message, with zeros between its parts.
            places: Of each field's numbers, in doubles from the body's begin, (width,).
        """
        self._places = dict(places)
        self._bytes = bytearray(raw)
        self._numbers = np.frombuffer(self._bytes, "<f8", (len(raw) - _BODY) // 8, _BODY)
        changing = np.zeros(len(raw), dtype=bool)
        changing[_BODY : _BODY + _STAMP.size] = True
        for place in self._places.values():
            starts = _BODY + 8 * place
            changing[(starts[:, None] + np.arange(8)).ravel()] = True
        self._still = np.flatnonzero(~changing)
        self._stays = np.frombuffer(raw, np.uint8)[self._still]

    @classmethod
    def learn(
        cls, kind: type, pack: Callable[[Fields, Any, int], None], widths: Mapping[str, int],
        carried: Iterable[str],
    ) -> "MessageTemplate | None":  # fmt: skip
        """Find out where a message carries which number.

        Args:
            kind: Of the message; it begins with a header.
            pack: Writes fields, measured at a time [ns], into an empty message.
            widths: Of all fields that `pack` may read.
            carried: Those that the message is for.

        Returns:
            None where a message does not carry the numbers as they are, each once.
        """
        serialize = rclpy("serialization").serialize_message
        rng = np.random.default_rng(0)

        def sample() -> tuple[dict[str, np.ndarray], int, bytes]:
            fields = {name: rng.normal(size=(1, width)) for name, width in widths.items()}
            stamp = int(rng.integers(2**30)) * _SECOND + int(rng.integers(_SECOND))
            packed = kind()
            pack(fields, packed, stamp)
            return fields, stamp, _cleared(kind, serialize(packed))

        fields, _, raw = sample()
        if not raw:
            return None
        numbers = np.frombuffer(raw, "<f8", (len(raw) - _BODY) // 8, _BODY)
        found = {n: [np.flatnonzero(numbers == one) for one in fields[n][0]] for n in carried}
        if any(len(place) != 1 for places in found.values() for place in places):
            return None
        template = cls(raw, {name: np.concatenate(places) for name, places in found.items()})
        fields, stamp, raw = sample()
        return template if template.write(fields, stamp) == raw else None

    def write(self, fields: Fields, stamp: int) -> bytes:
        """A message with these numbers, measured at a time [ns]."""
        _STAMP.pack_into(self._bytes, _BODY, *divmod(stamp, _SECOND))
        for name, place in self._places.items():
            self._numbers[place] = fields[name][0]
        return bytes(self._bytes)

    def read(self, raw: bytes, fields: Fields) -> int | None:
        """Put a message's numbers into fields.

        Returns:
            When they were measured [ns]; None where anything else than numbers and stamp differs
            from the message that was learnt, and nothing was read.
        """
        if len(raw) != len(self._bytes):
            return None
        if not np.array_equal(np.frombuffer(raw, np.uint8)[self._still], self._stays):
            return None
        numbers = np.frombuffer(raw, "<f8", len(self._numbers), _BODY)
        for name, place in self._places.items():
            fields[name][0] = numbers[place]
        seconds, nanoseconds = _STAMP.unpack_from(raw, _BODY)
        return seconds * _SECOND + nanoseconds


def _cleared(kind: type, raw: bytes) -> bytes:
    """A message with zeros in the gaps between its parts, where CDR leaves what was there before.

    It ends with its last part: what `serialize_message` leaves behind that, DDS does not send.

    Returns:
        Nothing where it is not little-endian or has parts that are not known here.
    """
    parts = bytearray(len(raw))
    at = 0

    def copy(size: int, multiple: int) -> int:
        nonlocal at
        start = at = at + -(at - _BODY) % multiple
        at += size
        parts[start:at] = raw[start:at]
        return start

    def walk(name: str) -> bool:
        if (many := _MANY.fullmatch(name)) is not None:
            count = many["count"] or _LENGTH.unpack_from(raw, copy(_LENGTH.size, _LENGTH.size))[0]
            return all(walk(many["each"] or many["some"]) for _ in range(int(count)))
        if name == "string":
            copy(_LENGTH.unpack_from(raw, copy(_LENGTH.size, _LENGTH.size))[0], 1)
        elif name in _SIZES:
            copy(_SIZES[name], _SIZES[name])
        else:
            package, _, inner = name.partition("/")
            return bool(inner) and walk_all(message(package, inner))
        return True

    def walk_all(kind: Any) -> bool:
        return all(walk(name) for name in kind.get_fields_and_field_types().values())

    copy(_BODY, 1)
    known = raw[1] == _LITTLE and walk_all(kind)
    return bytes(parts[:at]) if known else b""


class _StateStream:
    """One topic of measurements and the template of its messages."""

    def __init__(self, end: Any, topic: StateTopic, widths: Mapping[str, int]) -> None:
        """Learn what messages of this project look like; `widths`: of all fields of the state."""
        self._end, self._topic = end, topic
        self._kind = message(topic.package, topic.message)
        self._template = MessageTemplate.learn(self._kind, topic.pack, widths, topic.fields)


class StateReader(_StateStream):
    """Hears one topic of measurements, those of other senders too."""

    def read(self, fields: Fields) -> int | None:
        """Put what came since the last call into fields; see `ReadMeasurements`.

        Bytes that are no message are as nothing.
        """
        raw = self._end.take()
        if raw is None:
            return None
        stamp = self._template.read(raw, fields) if self._template is not None else None
        if stamp is not None:
            return stamp
        packed = parsed(raw, self._kind)
        return None if packed is None else self._topic.unpack(packed, fields)


class StateWriter(_StateStream):
    """Sends one topic of measurements."""

    def publish(self, fields: Fields, stamp: int) -> None:
        """Send fields that were measured at a time [ns]."""
        if self._template is not None:
            self._end.publish(self._template.write(fields, stamp))
            return
        packed = self._kind()
        self._topic.pack(fields, packed, stamp)
        self._end.publish(packed)


def parsed(raw: bytes, kind: type) -> Any | None:
    """The message that the bytes hold; None where they hold none."""
    try:
        return rclpy("serialization").deserialize_message(raw, kind)
    except RuntimeError:  # of rclpy
        return None


_GAINS = ("kp", "kd")
"""Fields of a command that travel as a name."""


class _CommandTemplate:
    """Commands with the same fields and gains: they differ in numbers only."""

    def __init__(self, messages: CommandMessages, example: RobotCommand, gains: str) -> None:
        self.example, self.gains = example, gains
        numbers = numbers_of(example)
        self.shapes = {name: value.shape for name, value in numbers.items()}
        widths = {name: shape[1] for name, shape in self.shapes.items()}

        def pack(fields: Any, packed: Any, stamp: int) -> None:
            messages.pack(replace(example, **fields), packed, stamp=stamp, gains=gains)

        kind = message(messages.package, messages.message)
        self.template = MessageTemplate.learn(kind, pack, widths, widths)


class CommandWriter:
    """Sends commands."""

    def __init__(self, publisher: Any, messages: CommandMessages, gains: str) -> None:
        self._publisher, self._messages, self._gains = publisher, messages, gains
        self._kind = message(messages.package, messages.message)
        self._templates = [
            _CommandTemplate(messages, one, gains) for one in messages.examples(gains)
        ]

    def prepare(self, command: RobotCommand, stamp: int) -> Any:
        """The message that `publish` would send.

        Args:
            stamp: Time of the state that is answered [ns].

        Raises:
            SpecMismatchError: As of `CommandMessages.pack`.
        """
        self._messages.check(command, self._gains)
        numbers = numbers_of(command)
        shapes = {name: value.shape for name, value in numbers.items()}
        for one in self._templates:
            if one.template is not None and one.shapes == shapes:
                return one.template.write(numbers, stamp)
        packed = self._kind()
        self._messages.pack(command, packed, stamp=stamp, gains=self._gains)
        return packed

    def publish(self, command: RobotCommand, stamp: int) -> None:
        """Send a command; see `prepare`."""
        self._publisher.publish(self.prepare(command, stamp))


class CommandReader:
    """Hears commands, of policies of this project and of anybody."""

    def __init__(self, heard: Any, messages: CommandMessages) -> None:
        self._heard, self._messages = heard, messages
        self._kind = message(messages.package, messages.message)
        self._templates = [
            _CommandTemplate(messages, example, gains)
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
        for one in self._templates:
            if one.template is not None:
                numbers = {name: np.empty(shape) for name, shape in one.shapes.items()}
                if (stamp := one.template.read(raw, numbers)) is not None:
                    return replace(one.example, **numbers), stamp, one.gains
        packed = parsed(raw, self._kind)
        if packed is None:
            return None
        command, stamp = self._messages.unpack(packed)
        gains = packed.header.frame_id if isinstance(command, JointCommand) else ""
        return command, stamp, gains


def numbers_of(command: RobotCommand) -> dict[str, np.ndarray]:
    """Fields of a command that travel as numbers."""
    return {k: v for k, v in vars(command).items() if v is not None and k not in _GAINS}
