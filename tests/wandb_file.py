"""Reader of the file that wandb leaves offline, which `wandb sync` uploads.

wandb itself reads it in its compiled part only. The file is a log of LevelDB (doc/log_format.md
there) behind a header of 7 bytes, and its records are wandb's own protobuf messages.
"""

# wandb's messages are generated when they are imported: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

_HEADER, _BLOCK, _LAST = 7, 32768, (1, 4)  # bytes, bytes, kinds of a record's last piece


def read_wandb_file(path: Path) -> Iterator[tuple[str, Any]]:
    """Kind and message of every record."""
    data = path.read_bytes()
    assert data.startswith(b":W&B")
    place, content = _HEADER, b""
    while place + 7 <= len(data):
        if (left := _BLOCK - place % _BLOCK) < 7:
            place += left  # too few bytes for a record are padding
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        content += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in _LAST:
            record = Record()
            record.ParseFromString(content)
            content = b""
            name = record.WhichOneof("record_type")
            yield name, getattr(record, name)


def items(message: Any) -> dict[str, Any]:
    """Values of a summary, a history row or a config, by name; parts of one are joined by /."""
    entries = getattr(message, "item", None) or message.update
    return {"/".join(e.nested_key) or e.key: json.loads(e.value_json) for e in entries}


class WandbFile:
    """One offline session, as it would be uploaded."""

    def __init__(self, path: Path) -> None:
        records = list(read_wandb_file(path))
        self.run = next(message for kind, message in records if kind == "run")
        self.config = items(self.run.config)
        self.rows = [items(message) for kind, message in records if kind == "history"]
        """Logged rows, by metric."""
        self.summary: dict[str, Any] = {}
        for kind, message in records:
            if kind == "summary":
                self.summary |= items(message)
        self.artifacts = [message for kind, message in records if kind == "artifact"]
        self.media = [f.path for kind, m in records if kind == "files" for f in m.files]
        """Files below `files/`."""
        self.is_whole = records[-1][0] == "exit"
