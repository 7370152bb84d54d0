"""A message of which only numbers and the stamp ever change: its bytes, with holes for them.

Names, lengths and frames of a robot's measurements stay the same from message to message, but ROS's
Python makes and reads every one of them anew, which takes several times as long as everything else
that a loop's neighbour does. A stencil is learnt from messages that were made the long way, and is
used where it gives the same bytes; whatever does not fit goes the long way.
"""

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from hardware.ros.compat import message, rclpy

_BODY = 4
"""Bytes before the body: CDR's encapsulation. Numbers are aligned from here on."""
_STAMP = struct.Struct("<iI")
_SECOND = 1_000_000_000
_LITTLE = 1
"""Second byte of a message in little-endian order."""
_LENGTH = struct.Struct("<I")
_SIZES = {"double": 8, "int32": 4, "uint32": 4}
_MANY = re.compile(r"(?P<each>.+)\[(?P<count>\d+)\]|sequence<(?P<some>.+)>")

Fields = Mapping[str, np.ndarray]
"""Name -> (1, width), float64."""


class Stencil:
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
    ) -> "Stencil | None":  # fmt: skip
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
        stencil = cls(raw, {name: np.concatenate(places) for name, places in found.items()})
        fields, stamp, raw = sample()
        return stencil if stencil.write(fields, stamp) == raw else None

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
