"""Transition arrays in one .npz file, as D4RL and many scripts around Gymnasium keep them.

`observations`, `actions`, `rewards`, `next_observations`, `terminals` and, mostly, `timeouts`: N
rows of all episodes, one after another. An array per group is `observations.<group>`. A .npz file
is a zip archive with a file `<name>.npy` per array; it is read and written part by part, so that no
array is held whole. The archive keeps a CRC-32 of each, compared when its last row is read.
"""

import json
import math
import shutil
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.files.manifest import read_errors
from robot_rl.datasets.foreign.assembly import (
    Array,
    RawEpisode,
    Source,
    note_dropped,
    success_without_last,
    without_successor,
)
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.training.storage.durable import discard, storage_errors

_PART_BYTES = 4 << 20
"""Bytes of all arrays that are read at once."""
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_DAMAGE_ERRORS = (
    OSError, ValueError, EOFError, LookupError, RuntimeError, MemoryError, OverflowError, TypeError,
    SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error,
)  # fmt: skip
"""Errors of numpy and zipfile at damaged files; NotImplementedError is a RuntimeError."""
_OBS, _NEXT = "observations", "next_observations"
_OWN_ARRAYS = ("reward_terms", "success", "valid", "intervened", "policy_version")
_ROW_ARRAYS = (
    *("actions", "rewards", "terminals", "timeouts", "stamp_ns", "next_stamp_ns", "task_index"),
    *_OWN_ARRAYS,
)
_ALIASES = {
    "terminations": "terminals", "terminated": "terminals", "truncations": "timeouts",
    "truncated": "timeouts", "next_obs": _NEXT, "obs": _OBS,
}  # fmt: skip
"""Other names that are in use for the same."""
_Rows = dict[str, Array]


@dataclass(frozen=True)
class Stored:
    """Header of one of a file's arrays."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    """True if columns lie behind one another instead of rows."""


class NpzFile:
    """A file that is read; use it in a `with`. Damage, and Python objects, are a DatasetError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._errors():
            with path.open("rb") as file:
                if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                    raise DatasetError(
                        f"{path} holds a single array; expected a .npz file of several"
                    )
            self._zip = zipfile.ZipFile(path)
            self.arrays: dict[str, Stored] = {}
            """Arrays of the file, by name."""
            for entry in self._zip.namelist():
                name, ending, rest = entry.partition(".npy")
                if not ending or rest:
                    raise ValueError(f"it holds '{entry}', which is no array")
                with self._zip.open(entry) as member:
                    self.arrays[name] = _header(member)

    def whole(self, name: str) -> Array:
        """One array; for small ones."""
        about = self.arrays[name]
        with self._errors(), self._member(name) as member:
            flat = self._taken(member, name, math.prod(about.shape))
            self._check_end(member, name)
            return flat.reshape(about.shape, order="F" if about.fortran else "C")

    def parts(self, names: Sequence[str]) -> Iterator[dict[str, Array]]:
        """Rows of arrays of equal length, side by side, some at a time."""
        rows = self.arrays[names[0]].shape[0]
        told = {name: self.arrays[name] for name in names}
        held = {n: self.whole(n) for n, one in told.items() if one.fortran and len(one.shape) > 1}
        widths = {name: math.prod(one.shape[1:]) for name, one in told.items()}
        each = sum(widths[name] * one.dtype.itemsize for name, one in told.items())
        step = max(1, _PART_BYTES // max(1, each))
        with ExitStack() as stack:
            with self._errors():
                members = {n: stack.enter_context(self._member(n)) for n in names if n not in held}
            for start in range(0, rows, step):
                count = min(step, rows - start)
                part = {name: value[start : start + count] for name, value in held.items()}
                with self._errors():
                    for name, member in members.items():
                        flat = self._taken(member, name, count * widths[name])
                        part[name] = flat.reshape(count, *told[name].shape[1:])
                        if start + count == rows:
                            self._check_end(member, name)
                yield part

    def __enter__(self) -> "NpzFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    @contextmanager
    def _member(self, name: str) -> Iterator[IO[bytes]]:
        """An array in the file, from its first number on."""
        with self._zip.open(f"{name}.npy") as member:
            _header(member)
            yield member

    def _taken(self, member: IO[bytes], name: str, count: int) -> Array:
        """The next numbers of an array."""
        dtype = self.arrays[name].dtype
        content = member.read(count * dtype.itemsize)
        if len(content) < count * dtype.itemsize:
            raise EOFError(f"'{name}' ends too early")
        return np.frombuffer(content, dtype, count).copy() if count else np.zeros(0, dtype)

    def _check_end(self, member: IO[bytes], name: str) -> None:
        if member.read(1):  # also compares the CRC
            raise ValueError(f"'{name}' has more numbers than rows of its width")

    def _errors(self) -> AbstractContextManager[None]:
        return read_errors(self.path, ".npz", *_DAMAGE_ERRORS)


class NpzWriter:
    """A file that is being made; it has its name once it is whole. Use it in a `with`.

    How many rows there are is known at the end: until then each array waits in a file of its own.
    """

    def __init__(self, path: Path) -> None:
        """Begin a file.

        Raises:
            StorageError: The folder cannot be written.
        """
        self.path = path
        self._waiting = path.with_name(f".rows_{path.name}")
        self._unfinished = path.with_name(f".new_{path.name}")
        self._files: dict[str, IO[bytes]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._dtypes: dict[str, np.dtype[Any]] = {}
        with storage_errors("write", path):
            discard(self._waiting)  # of a process that was killed
            self._waiting.mkdir(parents=True)

    def add(self, rows: Mapping[str, Array]) -> None:
        """Put rows behind those that came before, array by array."""
        with storage_errors("write", self.path):
            for name, value in rows.items():
                if name not in self._files:
                    place = self._waiting / str(len(self._files))
                    self._files[name] = place.open("w+b")
                    self._dtypes[name] = value.dtype
                count = self._shapes.get(name, (0,))[0]
                self._shapes[name] = (count + len(value), *value.shape[1:])
                self._files[name].write(np.ascontiguousarray(value).data)

    def finish(self, notes: Mapping[str, Array]) -> None:
        """Write the file, with further small arrays."""
        with (
            storage_errors("write", self.path),
            zipfile.ZipFile(self._unfinished, "w", allowZip64=True) as archive,
        ):
            for name, rows in self._files.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    descr = npy.dtype_to_descr(self._dtypes[name])
                    about = {"descr": descr, "fortran_order": False, "shape": self._shapes[name]}
                    npy.write_array_header_1_0(member, about)
                    rows.seek(0)
                    shutil.copyfileobj(rows, member, 1 << 20)
                rows.truncate(0)  # the disk need not hold it twice for longer
            for name, value in notes.items():
                with archive.open(f"{name}.npy", "w") as member:
                    npy.write_array(member, value, allow_pickle=False)
        with storage_errors("write", self.path):
            self._unfinished.replace(self.path)

    def __enter__(self) -> "NpzWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            with suppress(OSError):  # of what is thrown away now: the disk has refused before
                file.close()
        discard(self._waiting)
        discard(self._unfinished)


def _header(member: IO[bytes]) -> Stored:
    version = npy.read_magic(member)
    if version not in _HEADERS:
        raise ValueError(f"an array has the header version {version}; expected 1.0 or 2.0")
    shape, fortran, dtype = _HEADERS[version](member)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which would be executed; save plain arrays")
    if min(shape, default=0) < 0:
        raise ValueError(f"an array has the shape {shape}")
    return Stored(shape, dtype, fortran)


def read_arrays(path: Path) -> Source:
    """Read a file, of which one episode is in memory at a time.

    Raises:
        DatasetError: It is missing, damaged, holds Python objects, or an array is missing.
    """
    file = NpzFile(path)
    named = _by_our_names(file)
    note = str(file.whole("robot_rl")) if "robot_rl" in named else None
    own = DatasetSpec.from_note(note, path)
    rows = {
        name: theirs
        for name, theirs in named.items()
        if _is(name, _OBS) or _is(name, _NEXT) or name in _ROW_ARRAYS
    }
    for needed in (_OBS, "actions", "rewards", "terminals"):
        if not any(_is(name, needed) for name in rows):
            raise DatasetError(f"{path} has no '{needed}'; it has {', '.join(sorted(named))}")
    _check_rows(file, rows)
    _check_ends(file, rows)
    tasks = [str(one) for one in file.whole("tasks")] if "tasks" in named else []
    single = next(iter(own.groups)) if own else "actor"
    left = sorted(set(named) - set(rows) - {"robot_rl", "tasks"})
    notes = [f"'{name}' is left out" for name in left]
    return Source(path, _episodes(file, rows, tasks, single, notes), own=own, notes=notes)


def _by_our_names(file: NpzFile) -> dict[str, str]:
    """Our name of each array -> its name in the file."""
    named: dict[str, str] = {}
    for name in file.arrays:
        ours = _ALIASES.get(name, name)
        if ours in named:
            raise DatasetError(
                f"{file.path} has '{named[ours]}' and '{name}', which are two names of one thing; "
                "expected one of them"
            )
        named[ours] = name
    return named


def _check_ends(file: NpzFile, rows: Mapping[str, str]) -> None:
    """Refuse a file of which nobody knows where its episodes end: they would be one."""
    followed = any(_is(name, _NEXT) for name in rows)
    if followed or "timeouts" in rows:
        return
    if not file.whole(rows["terminals"]).any():
        raise DatasetError(
            f"{file.path} does not tell where its episodes end: '{rows['terminals']}' is set in "
            f"none of {file.arrays[rows['actions']].shape[0]} rows, and there is neither "
            f"'timeouts' (or 'truncated') nor '{_NEXT}'; add one of these arrays"
        )


def _is(name: str, kind: str) -> bool:
    return name == kind or name.startswith(f"{kind}.")


def _check_rows(file: NpzFile, rows: Mapping[str, str]) -> None:
    """Refuse arrays that are not of one number of rows, and successors of another width."""
    count = file.arrays[rows["actions"]].shape[:1]
    for name, theirs in rows.items():
        shape, successor = file.arrays[theirs].shape, name.replace(_OBS, _NEXT, 1)
        if _is(name, _OBS) and successor in rows and file.arrays[rows[successor]].shape != shape:
            raise DatasetError(
                f"{file.path}: '{successor}' has the shape {file.arrays[rows[successor]].shape}; "
                f"expected {shape}, as '{name}'"
            )
        if not count or shape[:1] != count:
            expected = count[0] if count else "some"
            raise DatasetError(
                f"{file.path}: '{name}' has the shape {shape}; expected {expected} rows, as "
                "'actions'"
            )
        dtype = file.arrays[theirs].dtype
        if dtype.kind not in "biuf":
            raise DatasetError(f"{file.path}: '{name}' is of type {dtype}; expected numbers")


def _episodes(
    file: NpzFile, rows: Mapping[str, str], tasks: Sequence[str], single: str, notes: list[str]
) -> Iterator[RawEpisode]:
    """Cut where episodes end: a part of the file may hold many of them, or a piece of one."""
    waiting: list[_Rows] = []
    start = number = unmarked = 0

    def cut() -> RawEpisode:
        nonlocal waiting, start, number
        whole = {name: np.concatenate([piece[name] for piece in waiting]) for name in rows}
        where = f"{file.path}, episode {number} (row {start})"
        waiting, start, number = [], start + len(whole["actions"]), number + 1
        return _episode(where, whole, tasks, single, notes)

    with file:
        for found in file.parts([*rows.values()]):
            part = {name: found[theirs] for name, theirs in rows.items()}
            if waiting and _parted(_some(waiting[-1], -1, None), _some(part, 0, 1)).any():
                unmarked += 1
                yield cut()
            ends = _flag(part, "terminals") | _flag(part, "timeouts")
            parted = _parted(_some(part, 0, -1), _some(part, 1, None))
            unmarked += int((parted & ~ends[:-1]).sum())
            ends[:-1] |= parted
            begin = 0
            for last in np.flatnonzero(ends).tolist():
                waiting.append(_some(part, begin, last + 1))
                begin = last + 1
                yield cut()
            if begin < len(ends):
                waiting.append(_some(part, begin, None))
        if waiting:
            yield cut()
    if unmarked:
        notes.append(
            "rows that do not begin where the one before ended, where nothing marks an end: "
            f"{unmarked}; each begins an episode, and the one before it counts as ended by time"
        )


def _some(rows: _Rows, start: int, stop: int | None) -> _Rows:
    return {name: value[start:stop] for name, value in rows.items()}


def _flag(rows: _Rows, name: str) -> Array:
    count = len(rows["actions"])
    return np.asarray(rows.get(name, np.zeros(count)).reshape(count, -1).any(axis=1))


def _parted(before: _Rows, after: _Rows) -> Array:
    """Rows that do not follow those before them: there an episode ends, whatever the file says."""
    parted = np.zeros(len(after["actions"]), bool)
    for name, value in after.items():
        successor = name.replace(_OBS, _NEXT, 1)
        if _is(name, _OBS) and successor in before and len(value):
            # As they will be stored: the two may be kept in different precision.
            now, then = value.astype(np.float32), before[successor].astype(np.float32)
            parted |= (now != then).reshape(len(value), -1).any(axis=1)
    return parted


def _episode(
    where: str, rows: _Rows, tasks: Sequence[str], single: str, notes: list[str]
) -> RawEpisode:
    obs, after = _grouped(rows, _OBS, single), _grouped(rows, _NEXT, single)
    terminated = bool(_flag(rows, "terminals")[-1])
    frames = dict(obs)
    if set(obs) <= set(after):
        frames = {k: np.concatenate([value, after[k][-1:]]) for k, value in obs.items()}
    else:
        frames = without_successor(frames, terminated)
    steps = len(next(iter(frames.values()))) - 1
    last = np.arange(steps) == steps - 1
    note_dropped(notes, rows["rewards"][steps:])
    more = {name: rows[name][:steps] for name in _OWN_ARRAYS if name in rows}
    if "success" in more:
        more["success"] = success_without_last(rows["success"], steps)
    if "stamp_ns" in rows and "next_stamp_ns" in rows and steps:
        more["stamp_ns"] = np.append(rows["stamp_ns"][:steps], rows["next_stamp_ns"][steps - 1])
    return RawEpisode(
        where=where, frames=frames, action=rows["actions"][:steps], reward=rows["rewards"][:steps],
        terminated=last & terminated, truncated=last & (not terminated), more=more,
        task=_task(rows, tasks, where),
    )  # fmt: skip


def _task(rows: _Rows, tasks: Sequence[str], where: str) -> str:
    if not tasks or "task_index" not in rows:
        return ""
    index = int(rows["task_index"].reshape(-1)[0])
    if not 0 <= index < len(tasks):
        raise DatasetError(
            f"{where}: 'task_index' is {index}; expected one of {len(tasks)} 'tasks', from 0"
        )
    return tasks[index]


def write_arrays(path: Path, spec: DatasetSpec, episodes: Iterable[Episode]) -> int:
    """Write a file, with one episode in memory at a time; returns the number of episodes.

    Until it is whole, all of it lies on the disk twice. A single group is `observations`.
    """
    if path.exists():
        raise DatasetError(f"{path} exists already; choose another name")
    tasks: dict[str, int] = {}
    count = 0
    with NpzWriter(path) as file:
        for count, one in enumerate(episodes, 1):  # noqa: B007 - the last number is what counts
            task = tasks.setdefault(one.task, len(tasks))
            file.add(_columns(one, task, len(spec.groups) == 1))
        about = {"tasks": np.array([*tasks]), "robot_rl": np.array(json.dumps(spec.to_dict()))}
        file.finish(about)
    return count


def _columns(one: Episode, task: int, single: bool) -> dict[str, Array]:
    named = {"" if single else f".{name}": value for name, value in one.obs.items()}
    more = {name: getattr(one, name) for name in _OWN_ARRAYS if getattr(one, name) is not None}
    return {
        **{_OBS + name: value[:-1] for name, value in named.items()},
        **{_NEXT + name: value[1:] for name, value in named.items()},
        "actions": one.action,
        "rewards": one.reward,
        "terminals": one.terminated,
        "timeouts": one.truncated,
        **more,
        "stamp_ns": one.stamp_ns[:-1],
        "next_stamp_ns": one.stamp_ns[1:],
        "task_index": np.full(one.num_steps, task),
    }


def _grouped(rows: _Rows, prefix: str, single: str) -> dict[str, Array]:
    """Arrays by group: `observations` is the only group, `observations.x` the group `x`."""
    return {
        name.removeprefix(prefix).removeprefix(".") or single: value
        for name, value in rows.items()
        if _is(name, prefix)
    }
