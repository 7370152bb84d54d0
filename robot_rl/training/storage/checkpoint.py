"""Checkpoints that survive a kill at any moment, name their damage, and know the best of a run.

    checkpoints/
      step_000000512000/       one checkpoint
        tensors.safetensors    every tensor of the state
        state.json             the tree around them (`state_tree.py`)
        checkpoint.json        step, score, segments, and the SHA-256 of each file and of itself
      best.json                step and score of the best one, and the highest score so far

A checkpoint is written under a temporary name and renamed when all of it is on the disk; older ones
are deleted only after that. Nothing is pickled, so reading a stranger's checkpoint runs no code.
"""

import json
import logging
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load, save

from robot_rl.core.errors import CheckpointError, StorageError
from robot_rl.training.storage.durable import (
    canonical_json,
    discard,
    make_folder,
    replace_file,
    sha256,
    storage_errors,
    sync_folder,
    write_synced,
)
from robot_rl.training.storage.segments import SegmentStore, find_entries
from robot_rl.training.storage.state_tree import flatten, restore

FORMAT = 1
"""Version of the layout above; a reader refuses a newer one."""

_TENSORS = "tensors.safetensors"
_TREE = "state.json"
_MANIFEST = "checkpoint.json"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint in memory."""

    step: int
    """Environment steps taken when it was saved."""
    score: float | None
    """Score that the best is chosen by, larger is better; None where none was measured."""
    state: dict[str, Any]
    """As it was given to `save`; tensors on the CPU."""
    path: Path
    """Its folder."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """Numbers that the best checkpoint of a run is chosen by."""

    value: float
    """Larger is better; NaN is none."""
    floor: float
    """Lowest value that is not clearly worse than this one, such as the end of an interval."""
    second: float
    """Larger is better among checkpoints that are not clearly worse than the best value."""
    settled: bool = True
    """False while a curriculum still moves the reward weights: such a checkpoint is the best only
    where none comes after it."""
    episodes: int = 0
    """Episodes that it was measured in; 0 where nobody says."""
    condition: str = ""
    """Condition that it was measured under, the worst of several; empty where there was one."""

    @classmethod
    def of(cls, score: "Score | float | None") -> "Score | None":
        """The score that a number is; None for None and NaN."""
        if not isinstance(score, Score) and score is not None:
            score = cls(value=float(score), floor=float(score), second=float(score))
        return None if score is None or math.isnan(score.value) else score


def encode_checkpoint(
    step: int, state: Mapping[str, Any], score: Score | float | None
) -> dict[str, bytes]:
    """Contents of a checkpoint's files by name. Arguments as in `CheckpointStore.save`."""
    tree, tensors = flatten(dict(state))
    content = {
        _TENSORS: save(tensors),
        _TREE: json.dumps(tree, allow_nan=False).encode(),
    }
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "step": step,
        **_scored(score),
        "segments": list(find_entries(state)),
        "files": {n: {"sha256": sha256(c), "bytes": len(c)} for n, c in content.items()},
    }
    manifest["sha256"] = sha256(canonical_json(manifest))
    content[_MANIFEST] = json.dumps(manifest, indent=1).encode()
    return content


def _scored(score: Score | float | None) -> dict[str, Any]:
    """A score as the manifest has it."""
    kept = Score.of(score)
    if kept is None:
        return {"score": None}
    return {
        "score": kept.value, "floor": kept.floor, "second": kept.second, "settled": kept.settled,
        "episodes": kept.episodes, **({"condition": kept.condition} if kept.condition else {}),
    }  # fmt: skip


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


_logger = logging.getLogger(__name__)
_BEST = "best.json"
_NAME = re.compile(r"step_(\d{12,})")


class CheckpointStore:
    """The checkpoints of one run. One process may write; any number may open it `read_only`."""

    def __init__(
        self,
        folder: Path | str,
        *,
        keep_last: int = 2,
        segments: SegmentStore | None = None,
        read_only: bool = False,
    ) -> None:
        """Open a folder of checkpoints, and clear away what a killed save has left.

        Args:
            folder: Made at the first save.
            keep_last: Newest checkpoints to keep, at least 1; the best is kept besides.
            segments: Where states that hold segment entries have them: `load` passes over
                checkpoints whose segments are gone, and each save sweeps what nobody names.
            read_only: Touch nothing: for readers of a run that may be training.
        """
        self.folder = Path(folder)
        self._keep_last = keep_last
        self._segments = segments
        self._read_only = read_only
        self._held: set[int] = set()
        if self.folder.is_dir() and not read_only:
            with storage_errors("open the checkpoints in", self.folder):
                self._clear_leftovers()
                self._mark_best()

    @property
    def segments(self) -> SegmentStore:
        """Segments that entries in states name."""
        if self._segments is None:
            raise ValueError(f"the checkpoints in {self.folder} were opened without segments")
        return self._segments

    def save(
        self, step: int, state: Mapping[str, Any], *, score: Score | float | None = None
    ) -> Path:
        """Write a checkpoint, mark it if it is the best, then prune; returns its folder.

        Blocks until it is on disk.

        Args:
            step: Environment steps taken; saving a step again replaces it.
            state: See `storage.state_tree.flatten`; must not change meanwhile.
            score: Larger is better, or as `Score` says; None and NaN never become the best.

        Raises:
            StorageError: The disk refused; every earlier checkpoint is intact.
        """
        if self._read_only:
            raise ValueError(f"the checkpoints in {self.folder} were opened read-only")
        content = encode_checkpoint(step, state, score)
        path = self.path_of(step)
        temporary = self.folder / f".tmp_{path.name}"
        with storage_errors("save the checkpoint", path):
            try:
                make_folder(self.folder)
                discard(temporary)
                temporary.mkdir()
                for name, data in content.items():
                    write_synced(temporary / name, data)
                sync_folder(temporary)
                self._put_in_place(temporary, path)
                self._mark_best()
            except OSError:
                discard(temporary)  # gives back what space it took
                raise
            self.prune()
        return path

    def hold(self, step: int) -> None:
        """Delete no checkpoint until that of a step, which is to be saved, has its score.

        What is compared then is what would be had it been saved with it.
        """
        self._held.add(step)

    def set_score(self, step: int, score: Score) -> None:
        """Give a checkpoint that was saved without one its score, mark the best, then prune.

        Raises:
            CheckpointError: It is missing or damaged.
            StorageError: The disk refused.
        """
        path = self.path_of(step)
        manifest = {**read_manifest(path), **_scored(score)}
        manifest["sha256"] = sha256(canonical_json(manifest))
        with storage_errors("score the checkpoint", path):
            replace_file(path / _MANIFEST, json.dumps(manifest, indent=1).encode())
            self._mark_best()
        self._held.discard(step)
        self.prune()

    def steps(self) -> list[int]:
        """Steps of all complete checkpoints, ascending; damage is found by reading, not here."""
        if not self.folder.is_dir():
            return []
        names = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in names if match)

    def latest(self) -> Path | None:
        """Folder of the newest checkpoint."""
        steps = self.steps()
        return self.path_of(steps[-1]) if steps else None

    def best(self) -> Path | None:
        """Folder of the best checkpoint, as `Score` chooses it; the newer one among equals."""
        path = self._marked()
        return path if path is not None and path.is_dir() else None

    def _marked(self) -> Path | None:
        """Folder that `best.json` names, whether or not it is there."""
        try:
            return self.path_of(int(json.loads((self.folder / _BEST).read_bytes())["step"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _why_no_best(self) -> str:
        if not (self.folder / _BEST).exists():
            return "none has been scored yet"
        path = self._marked()
        if path is None:
            return f"{_BEST} is damaged (a resumed run writes it anew)"
        return f"{_BEST} names {path.name}, which is missing"

    def load(self, which: Path | str = "latest") -> Checkpoint:
        """Read a checkpoint and verify every byte of it.

        Args:
            which: "latest" (passes over damaged ones, with a warning for each), "best", or the
                folder of one.

        Raises:
            CheckpointError: There is none, or it is damaged or of a newer format.
        """
        if which == "best":
            path = self.best()
            if path is None:
                raise CheckpointError(
                    f"no checkpoint in {self.folder} is marked as the best, as "
                    f"{self._why_no_best()}; ask for 'latest'"
                )
            return read_checkpoint(path)
        if which != "latest":
            return read_checkpoint(Path(which))
        steps = self.steps()
        if not steps:
            raise CheckpointError(f"there is no checkpoint in {self.folder}; train first")
        for step in reversed(steps):
            try:
                return self._read(self.path_of(step))
            except CheckpointError as error:
                _logger.warning("%s; falling back to the checkpoint before it", error)
        raise CheckpointError(
            f"all {len(steps)} checkpoints in {self.folder} are damaged: put back a copy of one, "
            "or train a new run; where it is the replay that is damaged, resume with "
            "training.save_replay=false, which begins with an empty one"
        )

    def discard_after(self, step: int) -> None:
        """Delete checkpoints newer than `step`: a run that goes on from `step` leaves that future.

        Call it when a run resumes; else an abandoned or damaged one would remain the latest.
        """
        with storage_errors("discard the checkpoints in", self.folder):
            for newer in [s for s in self.steps() if s > step]:
                self._remove(self.path_of(newer))
            if self.folder.is_dir():
                self._mark_best()

    def prune(self) -> None:
        """Delete all but the newest `keep_last` and the best, and segments no longer needed.

        Nothing is deleted while one waits for its score.
        """
        if self._held:
            return
        best = self.best()
        for step in self.steps()[: -self._keep_last]:
            if self.path_of(step) != best:
                self._remove(self.path_of(step))
        if self._segments is not None:
            self._segments.collect(self.live_segments())

    def keep_one_replay(self) -> int:
        """Delete segments that only older checkpoints name; returns the bytes set free."""
        return 0 if self._segments is None else self._segments.collect(self.live_segments(1))

    def live_segments(self, keep_last: int | None = None) -> list[dict[str, Any]]:
        """Segment entries of the newest checkpoints, of all kept for None; some appear twice.

        A best checkpoint that is older is kept to be played, not to be gone on from: its share of
        the replay, gigabytes perhaps, is let go.
        """
        entries = []
        for step in self.steps()[-(keep_last or self._keep_last) :]:
            try:
                entries += read_manifest(self.path_of(step))["segments"]
            except CheckpointError as error:
                _logger.warning("%s; its segments are not kept", error)
        return entries

    def path_of(self, step: int) -> Path:
        """Folder of the checkpoint of a step, whether or not it is there."""
        return self.folder / f"step_{step:012d}"

    def _read(self, path: Path) -> Checkpoint:
        if self._segments is not None:
            self._segments.check(read_manifest(path)["segments"])
        return read_checkpoint(path)

    def _put_in_place(self, temporary: Path, path: Path) -> None:
        """Rename to the real name. A non-empty folder of that name must step aside first."""
        aside = self.folder / f".old_{path.name}"
        if path.exists():
            discard(aside)
            os.rename(path, aside)
        os.rename(temporary, path)
        sync_folder(self.folder)
        discard(aside)

    def _remove(self, path: Path) -> None:
        """Delete in two steps, so that a kill in between leaves no half checkpoint to be read."""
        trash = self.folder / f".trash_{path.name}"
        discard(trash)
        os.rename(path, trash)
        discard(trash)

    def _mark_best(self) -> None:
        """Make `best.json` agree with the scores of the checkpoints that are there."""
        scored: dict[int, Score] = {}
        for step in self.steps():
            try:
                manifest = read_manifest(self.path_of(step))
            except CheckpointError:
                continue  # damaged: `load` says so when somebody asks for it
            if (value := manifest["score"]) is not None:  # those of before have nothing beside it
                scored[step] = Score(
                    value=value, floor=manifest.get("floor", value),
                    second=manifest.get("second", value), settled=manifest.get("settled", True),
                )  # fmt: skip
        mark = self.folder / _BEST
        if not scored:
            discard(mark)
            return
        earlier = self._earlier_top()
        settled = any(one.settled for one in (scored | earlier).values())
        scored = {step: one for step, one in scored.items() if one.settled == settled} or scored
        top, floor, top_step = max(
            (one.value, one.floor, step)
            for step, one in (scored | earlier).items()
            if one.settled == settled
        )
        close = {step: one.second for step, one in scored.items() if one.value >= floor}
        by = close or {step: one.value for step, one in scored.items()}
        step = max(by, key=lambda one: (by[one], one))
        content = json.dumps({
            "step": step, "score": scored[step].value,
            "top": {"step": top_step, "value": top, "floor": floor, "settled": settled},
        }).encode()  # fmt: skip
        if not mark.is_file() or mark.read_bytes() != content:
            replace_file(mark, content)

    def _earlier_top(self) -> dict[int, Score]:
        """Highest score of the run so far, whose checkpoint may be gone; nothing of a future."""
        try:
            top = json.loads((self.folder / _BEST).read_bytes())["top"]
            found = Score(
                value=top["value"], floor=top["floor"], second=-math.inf,
                settled=top.get("settled", True),
            )  # fmt: skip
            return {} if top["step"] > self.steps()[-1] else {int(top["step"]): found}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def _clear_leftovers(self) -> None:
        for aside in self.folder.glob(".old_*"):
            path = self.folder / aside.name.removeprefix(".old_")
            if path.exists():
                discard(aside)
            else:  # killed between the two renames of a replacement
                os.rename(aside, path)
        for leftover in [*self.folder.glob(".tmp_*"), *self.folder.glob(".trash_*")]:
            discard(leftover)
