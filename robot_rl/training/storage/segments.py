"""Large tensors in files of their own, written once and shared by several checkpoints.

A replay buffer of gigabytes is saved as segments: each checkpoint adds the rows that are new and
names the segments that it needs in its state. Names carry a part of the content's digest, so a
segment never changes under a checkpoint that refers to it, even when a run goes on from an older
one and writes other rows under the same name.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from robot_rl.core.errors import CheckpointError, StorageError
from robot_rl.training.storage.durable import (
    discard,
    make_folder,
    replace_file,
    sha256,
    storage_errors,
)
from robot_rl.training.storage.state_tree import flatten

_ENTRY_KEYS = ("segment", "sha256", "bytes")
_WITHOUT = "resume with training.save_replay=false, which begins with an empty replay"
"""Remedy where a segment is lost."""


class SegmentStore:
    """A folder of segments; keeps nothing in memory, so that any number may be open."""

    def __init__(self, folder: Path | str, *, prefix: str = "") -> None:
        """Point to a folder, made at the first write; the prefix tells which process writes."""
        self.folder = Path(folder)
        self._prefix = prefix

    def write(self, name: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Write one segment; it is on the disk when this returns.

        Args:
            name: Letters, digits, `_`, `-` and `.`; what it is, such as `steps_000000010240`.
            tensors: Any shapes, dtypes and devices; about 100 MB together is a good size, as
                twice that is held in memory meanwhile.

        Returns:
            The entry to keep in the checkpoint's state: `segment` (file name), `sha256`, `bytes`.

        Raises:
            StorageError: The disk refused; segments written earlier are intact.
        """
        _, owned = flatten(dict(tensors))
        content = save({key.removeprefix("/"): tensor for key, tensor in owned.items()})
        digest = sha256(content)
        file_name = f"{self._prefix}{name}-{digest[:12]}.safetensors"
        with storage_errors("write the segment", self.folder / file_name):
            make_folder(self.folder)
            replace_file(self.folder / file_name, content)
        return {"segment": file_name, "sha256": digest, "bytes": len(content)}

    def read(self, entry: Mapping[str, Any]) -> dict[str, Tensor]:
        """Tensors of a segment, on the CPU.

        Raises:
            CheckpointError: The file is missing or damaged.
        """
        return load(self._checked(entry))

    def _checked(self, entry: Mapping[str, Any]) -> bytes:
        """Content of a segment."""
        path = self._path(entry)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise CheckpointError(self._missing(path)) from None
        except OSError as error:
            raise StorageError(f"cannot read the segment {path}: {error.strerror}") from error
        if sha256(content) != entry["sha256"]:
            raise CheckpointError(
                f"the segment {path} is damaged: its SHA-256 is not the one that the checkpoint "
                f"recorded; {_WITHOUT}"
            )
        return content

    def check(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Check that segments are there and what the checkpoint recorded; all bytes are read.

        Raises:
            CheckpointError: One is missing or damaged.
        """
        for entry in entries:
            path = self._path(entry)
            if not path.is_file():
                raise CheckpointError(self._missing(path))
            size = path.stat().st_size
            if size != entry["bytes"]:
                raise CheckpointError(
                    f"the segment {path} is damaged: {size} bytes instead of {entry['bytes']}; "
                    f"{_WITHOUT}"
                )
            self._checked(entry)

    def collect(self, live_entries: Iterable[Mapping[str, Any]]) -> int:
        """Delete every segment that is not among `live_entries`, and leftovers of killed writes.

        Call it with the entries of all kept checkpoints, and never between writing a segment and
        saving the checkpoint that names it. Returns the bytes set free.
        """
        live = {entry["segment"] for entry in live_entries}
        freed = 0
        for path in self.folder.glob("*.safetensors"):  # temporary names match too
            if path.name not in live:
                freed += path.stat().st_size
                discard(path)
        return freed

    def _path(self, entry: Mapping[str, Any]) -> Path:
        name = str(entry["segment"])
        if Path(name).name != name:
            raise CheckpointError(f"a segment is named '{name}'; expected a file name, not a path")
        return self.folder / name

    def _missing(self, path: Path) -> str:
        return f"the segment {path.name} is missing from {self.folder}; {_WITHOUT}"


def find_entries(state: Any) -> Iterator[dict[str, Any]]:
    """Every segment entry anywhere inside a state."""
    if isinstance(state, Mapping):
        if all(key in state for key in _ENTRY_KEYS):  # the owner may have added more
            yield {key: state[key] for key in _ENTRY_KEYS}
        else:
            for value in state.values():
                yield from find_entries(value)
    elif isinstance(state, (list, tuple)):
        for value in state:
            yield from find_entries(value)
