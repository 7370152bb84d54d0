"""Makes a whole bag of one whose writer was killed: every message that reached the disk whole.

Reads MCAP records (https://mcap.dev/spec) one after another, without index or footer, up to the
first that is torn: also within a torn chunk, as our chunks are not compressed.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ruamel.yaml import YAML  # comes with rosbags
from ruamel.yaml.error import YAMLError

from hardware.recording.bag import METADATA, UNFINISHED, BagTopic, BagWriter, RecordingError

_MAGIC = b"\x89MCAP0\r\n"
_SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _DATA_END = 0x03, 0x04, 0x05, 0x06, 0x0F
_LARGEST = 1 << 30
"""A record that says it is larger is torn [bytes]."""


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """A repaired recording."""

    folder: Path
    messages: int
    seconds: float
    """From the first to the last message."""
    torn: bool
    """The file ended within a record."""


@dataclass
class _Scan:
    """Content of a file, as far as it was read."""

    kinds: dict[int, str] = field(default_factory=dict)
    channels: dict[int, BagTopic] = field(default_factory=dict)
    torn: bool = False


def repair(folder: Path) -> Repaired:
    """Write what a bag holds into a whole one beside it, `<folder>_repaired`.

    Raises:
        RecordingError: There is nothing to repair, nothing to save, or no place for it.
    """
    found = sorted(folder.glob("*.mcap")) if folder.is_dir() else []
    if len(found) != 1:
        what = f"has {len(found)} files *.mcap" if folder.is_dir() else "is not a folder"
        raise RecordingError(
            f"{folder} {what}; expected the folder of one recording, which has one file *.mcap"
        )
    about = _read_about(folder)
    named = folder if folder.name.strip(".") else folder.resolve()
    scan, writer = _Scan(), BagWriter(named.with_name(f"{named.name}_repaired"), about)
    try:
        return _copy(found[0], scan, writer)
    except BaseException as error:  # Ctrl-C, too: half a bag would stand in the way of the next try
        writer.discard()
        if isinstance(error, OSError):
            raise RecordingError(f"{found[0]} cannot be read: {error.strerror}") from None
        raise


def _copy(path: Path, scan: _Scan, writer: BagWriter) -> Repaired:
    first = last = count = 0
    with path.open("rb") as file:
        for channel, received, raw in _messages(file, path, scan):
            topic = scan.channels[channel]
            writer.add(topic)
            writer.write(topic.name, received, raw)
            first, last, count = min(first or received, received), max(last, received), count + 1
    if not count:
        raise RecordingError(f"{path} holds no whole message: nothing can be saved")
    writer.close()
    return Repaired(
        folder=writer.folder, messages=count, seconds=(last - first) * 1e-9, torn=scan.torn
    )


def _read_about(folder: Path) -> dict[str, str]:
    """Robot and bundle that a bag is of: as its beginning says, or its end where it was closed."""
    for name, read in ((UNFINISHED, json.loads), (METADATA, _custom_data)):
        try:
            found = read((folder / name).read_text())
            return {str(key): str(value) for key, value in found.items()}
        except (OSError, ValueError, AttributeError, KeyError, TypeError, YAMLError):
            continue  # torn, too: the messages are worth more than their label
    return {}


def _custom_data(text: str) -> Any:
    found = YAML(typ="safe").load(text)
    return found["rosbag2_bagfile_information"]["custom_data"] if isinstance(found, dict) else None


def _messages(file: BinaryIO, path: Path, scan: _Scan) -> Iterator[tuple[int, int, bytes]]:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise RecordingError(f"{path} is no MCAP file")
    for code, content in _records(file, scan):
        if code == _DATA_END:
            return
        if code != _CHUNK:
            yield from _message(code, content, scan)
            continue
        for inner, part in _chunk(content, path, scan):
            yield from _message(inner, part, scan)


def _records(file: BinaryIO, scan: _Scan) -> Iterator[tuple[int, bytes]]:
    while head := file.read(9):
        code, size = struct.unpack("<BQ", head) if len(head) == 9 else (0, 0)
        content = file.read(size) if code and size <= _LARGEST else b""
        scan.torn |= not code or len(content) < size
        if not scan.torn or code == _CHUNK:
            yield code, content
        if scan.torn:
            return


def _chunk(content: bytes, path: Path, scan: _Scan) -> Iterator[tuple[int, bytes]]:
    """Records of a chunk: times, size and checksum (28 bytes), compression, length, records."""
    if len(content) < 32:
        return
    name = content[32 : 32 + struct.unpack_from("<I", content, 28)[0]]
    if name:
        raise RecordingError(
            f"{path} is compressed ({name.decode(errors='replace')}), which this cannot repair; "
            "try: mcap recover"
        )
    start = 40
    while start + 9 <= len(content):
        code, size = struct.unpack_from("<BQ", content, start)
        part = content[start + 9 : start + 9 + size]
        start += 9 + size
        if len(part) < size:
            break
        yield code, part
    scan.torn |= start != len(content)


def _message(code: int, content: bytes, scan: _Scan) -> Iterator[tuple[int, int, bytes]]:
    """Remember a schema or a channel, or give a message: channel, time, and what it holds."""
    try:
        if code == _SCHEMA:
            scan.kinds[struct.unpack_from("<H", content)[0]] = _string(content, 2)[0]
        elif code == _CHANNEL:
            _remember(content, scan)
        elif code == _MESSAGE:
            channel, _, received, _ = struct.unpack_from("<HIQQ", content)
            if channel in scan.channels:
                yield channel, received, content[22:]
    except (struct.error, KeyError, UnicodeDecodeError):
        scan.torn = True


def _remember(content: bytes, scan: _Scan) -> None:
    number, kind = struct.unpack_from("<HH", content)
    name, end = _string(content, 4)
    _, end = _string(content, end)  # encoding; what follows is the quality of service
    quality = content[end:]
    scan.channels[number] = BagTopic(
        name=name, kind=scan.kinds[kind], latched=b"transient_local" in quality,
        reliable=b"reliability: reliable" in quality,
    )  # fmt: skip


def _string(content: bytes, start: int) -> tuple[str, int]:
    end = start + 4 + struct.unpack_from("<I", content, start)[0]
    return content[start + 4 : end].decode(), end
