"""The files of one checkpoint: made in memory, read back with every byte verified.

    tensors.safetensors   every tensor of the state
    state.json            the tree around them (`state_tree.py`)
    checkpoint.json       step, score, segments, and the SHA-256 of each file and of itself

Nothing is pickled, so reading a stranger's checkpoint runs no code.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load, save

from robot_rl.core.errors import CheckpointError, StorageError
from robot_rl.training.storage.durable import canonical_json, sha256
from robot_rl.training.storage.segments import find_entries
from robot_rl.training.storage.state_tree import flatten, restore

FORMAT = 1
"""Version of the layout above; a reader refuses a newer one."""

_TENSORS = "tensors.safetensors"
_TREE = "state.json"
_MANIFEST = "checkpoint.json"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What `CheckpointStore.load` returns."""

    step: int
    """Environment steps taken when it was saved."""
    score: float | None
    """What the best is chosen by, larger is better; None where none was measured."""
    state: dict[str, Any]
    """As it was given to `save`; tensors on the CPU."""
    path: Path
    """Its folder."""


def encode_checkpoint(step: int, state: Mapping[str, Any], score: float | None) -> dict[str, bytes]:
    """Contents of a checkpoint's files by name. Arguments as in `CheckpointStore.save`."""
    tree, tensors = flatten(dict(state))
    content = {
        _TENSORS: save(tensors),
        _TREE: json.dumps(tree, allow_nan=False).encode(),
    }
    manifest = {
        "format": FORMAT,
        "step": step,
        "score": None if score is None or math.isnan(score) else float(score),
        "segments": list(find_entries(state)),
        "files": {n: {"sha256": sha256(c), "bytes": len(c)} for n, c in content.items()},
    }
    manifest["sha256"] = sha256(canonical_json(manifest))
    content[_MANIFEST] = json.dumps(manifest, indent=1).encode()
    return content


def read_checkpoint(path: Path) -> Checkpoint:
    """Read and verify the checkpoint in the folder `path`.

    Raises:
        CheckpointError: It is missing, damaged or of a newer format; the message says which.
    """
    manifest = read_manifest(path)
    content = {}
    for name, recorded in manifest["files"].items():
        content[name] = _read_bytes(path / name)
        if sha256(content[name]) != recorded["sha256"]:
            raise CheckpointError(
                f"the checkpoint {path} is damaged: {name} has {len(content[name])} bytes of "
                f"{recorded['bytes']} and not the recorded SHA-256"
            )
    state = restore(json.loads(content[_TREE]), load(content[_TENSORS]))
    return Checkpoint(step=manifest["step"], score=manifest["score"], state=state, path=path)


def read_manifest(path: Path) -> dict[str, Any]:
    """Step, score, segments and digests of the checkpoint in the folder `path`; cheap.

    Raises:
        CheckpointError: The manifest is missing, damaged or of a newer format.
    """
    content = _read_bytes(path / _MANIFEST)
    damaged = CheckpointError(f"the checkpoint {path} is damaged: {_MANIFEST} is not as written")
    try:
        manifest = json.loads(content)
        recorded = manifest.pop("sha256")
        version = int(manifest["format"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise damaged from None
    if version > FORMAT:
        raise CheckpointError(
            f"the checkpoint {path} has format {version}, this program reads up to {FORMAT}; "
            "use the version of robot_rl that wrote it (provenance.json names it)"
        )
    if sha256(canonical_json(manifest)) != recorded:
        raise damaged
    return manifest


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(
            f"the checkpoint {path.parent} is damaged or not one: {path.name} is missing"
        ) from None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
