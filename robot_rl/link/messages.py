"""Messages of the link: a JSON header and parts of bytes, each with its checksum; never pickled.

    RRL1 | length of the header (u32) | header | number of parts (u32) | length, CRC-32, bytes | ...

All numbers are little-endian. A message that breaks a bound or a checksum is refused as a whole.
"""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from robot_rl.core.errors import RobotRLError

PROTOCOL = 2
"""Version of the calls; both sides must have the same."""
LARGEST_MESSAGE = 16 << 20
"""Bytes of a message; gRPC refuses larger ones on either side."""
_MAGIC = b"RRL1"
_LENGTH, _PART = struct.Struct("<I"), struct.Struct("<II")
_MOST_PARTS, _LONGEST_HEADER = 8192, 1 << 20


class MessageError(RobotRLError, ValueError):
    """A message is damaged or breaks a bound."""


def pack(header: Mapping[str, Any], parts: Sequence[bytes] = ()) -> bytes:
    """A message as bytes."""
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    found = [_MAGIC, _LENGTH.pack(len(text)), text, _LENGTH.pack(len(parts))]
    for part in parts:
        found += [_PART.pack(len(part), zlib.crc32(part)), part]
    return b"".join(found)


def unpack(content: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Header and parts of a message.

    Raises:
        MessageError: It is damaged, or breaks a bound.
    """
    try:
        if content[:4] != _MAGIC:
            raise MessageError("the message does not begin as one of this link")
        (length,) = _LENGTH.unpack_from(content, 4)
        if length > _LONGEST_HEADER:
            raise MessageError(f"the header has {length} bytes; expected at most {_LONGEST_HEADER}")
        header = json.loads(content[8 : 8 + length])
        (count,) = _LENGTH.unpack_from(content, 8 + length)
        place = 12 + length
        if count > _MOST_PARTS or not isinstance(header, dict):
            raise MessageError(f"{count} parts came; expected at most {_MOST_PARTS} and a header")
        parts = []
        for _ in range(count):
            size, checksum = _PART.unpack_from(content, place)
            part = content[place + 8 : place + 8 + size]
            if len(part) != size or zlib.crc32(part) != checksum:
                raise MessageError("a part is shorter than it says, or was damaged on its way")
            parts.append(part)
            place += 8 + size
    except (struct.error, ValueError, RecursionError) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError(f"the message is damaged: {error}") from None
    if place != len(content):
        raise MessageError(f"{len(content) - place} bytes follow the message")
    return header, parts


def field_of(header: Mapping[str, Any], name: str, kind: type) -> Any:
    """A field of a header.

    Raises:
        MessageError: It is not there, or of another type.
    """
    value = header.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise MessageError(f"the header's '{name}' is {value!r}; expected {kind.__name__}")
    return value
