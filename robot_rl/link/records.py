"""Frames and corrections, and their encoding in Arrow: the same bytes on the wire and on disk.

A frame is a control period: what was observed, what was done, what came of it. An episode of T
steps has T + 1 frames; the last has an observation and no action. A correction is a person's
judgement that comes later than its frames, or before them. A record is one Arrow IPC stream with
one row, readable by itself; nothing is ever unpickled. Fields and rules: docs/link.md.

Of a camera a frame holds the newest picture alone, compressed without loss: the stacks that a
policy sees are put together again from the frames before (`transitions.py`).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import MissingExtraError, RobotRLError
from robot_rl.core.meaning import first_difference
from robot_rl.link.corrections import KINDS, Correction

try:
    import pyarrow as pa
except ImportError:
    raise MissingExtraError("pyarrow", "link", "the link of robots and learner") from None

FORMAT = 2
"""Version of the columns; a reader refuses a newer one. Records without pictures are of the first,
which has none."""
SEGMENTS = ("policy", "human", "recovery", "correction", "demo")
"""Parts of an episode, by who acted and why."""
_CODEC = "zstd"
"""Of the differences between the columns of a picture: half of what the pixels themselves take."""
_LATEST = 1e10
"""Latest time that a record may tell [unix s]: in the year 2286."""
MOST_PICTURE_BYTES = 4 << 20
"""Of a frame's pictures before they are compressed: a message of the link has room for them."""


class RecordError(RobotRLError, ValueError):
    """A record is damaged, or none of ours."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One control period of a robot; outcome and flags belong to the step that begins here."""

    session: str = ""
    """Start of an actor, 32 hexadecimal digits; the spool fills it in."""
    episode: int
    """Number in its session."""
    index: int
    """Place in its episode, from 0."""
    seq: int = 0
    """Place among all records of its session, from 0, without gaps; the spool fills it in."""
    obs: Mapping[str, NDArray[Any]]
    """Groups as they were observed: float32 vectors, newest uint8 pictures (H, W, C)."""
    picture_stamps: Mapping[str, float] = field(default_factory=dict[str, float])
    """Time at which each picture was taken [unix s]; that of the measurement where it is left out.
    """
    action: NDArray[np.float32] | None = None
    """Executed action, (A,), in [-1, 1]; None in the last frame of an episode."""
    reward: float = 0.0
    terminated: bool = False
    """The task ended the episode in this step."""
    truncated: bool = False
    """A time limit, or a person, ended it; the future counts."""
    valid: bool = True
    """False for a step that must not be learned from."""
    intervened: bool = False
    """A person chose the action, or a part of it."""
    success: bool = False
    """The episode ended here and met the task's rule."""
    policy_version: int = 0
    """Version of the weights that acted."""
    stamp: float = 0.0
    """Time of the measurement [unix s]."""
    segment: str = "policy"
    """One of `SEGMENTS`."""


Record = Frame | Correction
_FRAME = {
    "session": pa.string(), "episode": pa.int64(), "index": pa.int64(), "seq": pa.int64(),
    "action": pa.list_(pa.float32()), "reward": pa.float32(), "terminated": pa.bool_(),
    "truncated": pa.bool_(), "valid": pa.bool_(), "intervened": pa.bool_(),
    "success": pa.bool_(), "policy_version": pa.int64(), "stamp": pa.float64(),
    "segment": pa.string(),
}  # fmt: skip
_CORRECTION = {
    "id": pa.string(), "session": pa.string(), "episode": pa.int64(), "kind": pa.string(),
    "index": pa.int64(), "until": pa.int64(), "value": pa.float32(), "text": pa.string(),
    "operator": pa.string(), "time": pa.float64(),
}  # fmt: skip
_OBS, _TAKEN = "obs/", "taken/"


def encode(record: Record) -> bytes:
    """A record as bytes.

    Raises:
        RecordError: A value has a type that records do not have, or a time is none.
    """
    check_numbers(record)
    if isinstance(record, Correction):
        schema = _correction_schema()
        arrays = [pa.array([getattr(record, name)], kind) for name, kind in _CORRECTION.items()]
    else:
        groups = {name: np.ascontiguousarray(value) for name, value in record.obs.items()}
        schema = _frame_schema(
            tuple((name, str(g.dtype), g.shape) for name, g in sorted(groups.items()))
        )
        arrays = [pa.array([_plain(getattr(record, name))], kind) for name, kind in _FRAME.items()]
        for name, group in sorted(groups.items()):
            if group.dtype == np.uint8:
                arrays.append(pa.array([_compressed(group)], pa.binary()))
                taken = record.picture_stamps.get(name, record.stamp)
                arrays.append(pa.array([taken], pa.float64()))
            else:
                flat = pa.array(group.reshape(-1))
                arrays.append(pa.FixedSizeListArray.from_arrays(flat, group.size))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return sink.getvalue().to_pybytes()


def check_numbers(record: Record) -> None:
    """Refuse a record whose time or judgement is no number: each restart would stop at it.

    What was measured may be none; such steps are not learned from. A picture may have no time: its
    camera has failed.

    Raises:
        RecordError: Says which.
    """
    if isinstance(record, Correction):
        name, at = "time", record.time
        if not abs(record.value) <= float(np.finfo(np.float32).max):
            raise RecordError(f"a correction has the value {record.value}; expected a number")
    else:
        name, at = "stamp", record.stamp
    if not 0 <= at <= _LATEST:
        raise RecordError(f"a record has {name} {at}; expected a time from 0 to {_LATEST:.0e} s")


def decode(content: bytes) -> Record:
    """The record that bytes hold.

    Raises:
        RecordError: They hold none.
    """
    try:
        with pa.ipc.open_stream(pa.py_buffer(content)) as stream:
            batch = stream.read_next_batch()
        batch.validate(full=True)
        return _record_of(batch)
    except (pa.ArrowException, StopIteration, KeyError, TypeError, ValueError, OSError) as error:
        raise RecordError(f"{len(content)} bytes hold no record: {error}") from None


def _record_of(batch: Any) -> Record:
    about = batch.schema.metadata or {}
    version = int(about.get(b"format", b"0"))
    if not 1 <= version <= FORMAT:
        raise RecordError(f"a record of format {version} came; expected one up to {FORMAT}")
    if batch.num_rows != 1:
        raise RecordError(f"{batch.num_rows} rows came in a record; expected 1")
    if about.get(b"kind") == b"correction":
        record = Correction(**_values(batch, _CORRECTION, ()))
        if record.kind not in KINDS:
            raise RecordError(f"correction of kind '{record.kind}'; known: {', '.join(KINDS)}")
        return record
    groups = [name for name in batch.schema.names if name.startswith(_OBS)]
    obs = {name.removeprefix(_OBS): _group(batch, name) for name in groups}
    taken = {name: _TAKEN + name for name, group in obs.items() if group.dtype == np.uint8}
    values = _values(batch, _FRAME | dict.fromkeys(taken.values(), pa.float64()), groups)
    stamps = {name: values.pop(column) for name, column in taken.items()}
    action = values.pop("action")
    frame = Frame(
        obs=obs, action=None if action is None else np.array(action, np.float32),
        picture_stamps=stamps, **values,
    )  # fmt: skip
    if not obs or frame.episode < 0 or frame.index < 0 or frame.segment not in SEGMENTS:
        raise RecordError(
            f"a frame has groups {sorted(obs)}, episode {frame.episode}, index {frame.index} and "
            f"segment '{frame.segment}'; expected at least one group, numbers from 0 and one of "
            f"{', '.join(SEGMENTS)}"
        )
    return frame


def _values(batch: Any, columns: Mapping[str, Any], others: Any) -> dict[str, Any]:
    known = {*columns, *others}
    if set(batch.schema.names) != known or len(batch.schema.names) != len(known):
        raise RecordError(f"columns {batch.schema.names} came; expected {sorted(columns)}")
    found = {}
    for name, kind in columns.items():
        column = batch.column(name)
        if column.type != kind:
            raise RecordError(f"column '{name}' is {column.type}; expected {kind}")
        found[name] = column[0].as_py()
        if found[name] is None and name != "action":
            raise RecordError(f"column '{name}' is empty")
    return found


def _group(batch: Any, name: str) -> NDArray[Any]:
    """A group as an array; the field says its shape."""
    column, about = batch.column(name), batch.schema.field(name).metadata or {}
    shape = tuple(int(size) for size in json.loads(about[b"shape"]))
    if column.type == pa.binary() and not column.null_count:
        return _picture(column[0].as_buffer(), shape, name)
    if column.type != pa.list_(pa.float32(), int(np.prod(shape))) or column.null_count:
        raise RecordError(f"'{name}' is {column.type}; expected {shape} float32, or a picture")
    if column.values.null_count:
        raise RecordError(f"'{name}' has empty entries")
    return column.flatten().to_numpy(zero_copy_only=False).reshape(shape)


def _compressed(picture: NDArray[np.uint8]) -> bytes:
    """A picture (H, W, C) without loss."""
    if picture.ndim != 3 or picture.nbytes > MOST_PICTURE_BYTES:
        raise RecordError(
            f"a picture of shape {picture.shape} was to be recorded; expected (height, width, "
            f"channels) of {MOST_PICTURE_BYTES} bytes at most"
        )
    differences = picture.copy()
    differences[:, 1:] -= picture[:, :-1]
    return pa.compress(differences.tobytes(), codec=_CODEC, asbytes=True)


def _picture(content: Any, shape: tuple[int, ...], name: str) -> NDArray[np.uint8]:
    """The picture (H, W, C) that `_compressed` was given; takes no more memory than it."""
    if len(shape) != 3 or min(shape) < 1 or math.prod(shape) > MOST_PICTURE_BYTES:
        raise RecordError(
            f"'{name}' has the shape {shape}; expected (height, width, channels) of "
            f"{MOST_PICTURE_BYTES} bytes at most"
        )
    raw = pa.decompress(content, decompressed_size=math.prod(shape), codec=_CODEC)
    differences = np.frombuffer(raw, np.uint8).reshape(shape)
    return np.cumsum(differences, axis=1, dtype=np.uint8)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


@lru_cache(maxsize=64)
def _frame_schema(groups: tuple[tuple[str, str, tuple[int, ...]], ...]) -> Any:
    fields = [pa.field(name, kind) for name, kind in _FRAME.items()]
    version = 1
    for name, dtype, shape in groups:
        if dtype not in ("float32", "uint8"):
            raise RecordError(f"group '{name}' is {dtype}; expected float32 or uint8")
        about = {"shape": json.dumps(shape)}
        if dtype == "uint8":
            version = FORMAT
            fields.append(pa.field(_OBS + name, pa.binary(), metadata=about))
            fields.append(pa.field(_TAKEN + name, pa.float64()))
        else:
            kind = pa.list_(pa.float32(), int(np.prod(shape)))
            fields.append(pa.field(_OBS + name, kind, metadata=about))
    return pa.schema(fields, metadata={"kind": "frame", "format": str(version)})


@lru_cache(maxsize=1)
def _correction_schema() -> Any:
    fields = [pa.field(name, kind) for name, kind in _CORRECTION.items()]
    return pa.schema(fields, metadata={"kind": "correction", "format": "1"})


@dataclass(frozen=True, kw_only=True)
class FrameSpec:
    """Observation groups and actions that a learner takes, and robots tell."""

    groups: Mapping[str, tuple[int, ...]]
    """Shapes by name; (S, H, W, C) of a camera, of which a frame holds the newest picture."""
    action_size: int
    """A."""
    control_dt: float
    """Time of a frame [s]."""
    robot: Mapping[str, Any] | None = field(default=None)
    """Identity of the robot's description (`RobotSpec.identity`), where there is one."""
    meaning: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Plain values that say what an action moves, and how observations are scaled."""

    @property
    def stacks(self) -> dict[str, int]:
        """Frames S in an observation of each camera."""
        return {name: shape[0] for name, shape in self.groups.items() if len(shape) == 4}

    def plain(self) -> dict[str, Any]:
        """Plain values for a message."""
        return {
            "groups": {name: list(shape) for name, shape in sorted(self.groups.items())},
            "action_size": self.action_size,
            "control_dt": self.control_dt,
            "robot": json.loads(json.dumps(self.robot)),
            "meaning": json.loads(json.dumps(self.meaning)),
        }

    def check(self, theirs: Mapping[str, Any]) -> None:
        """Refuse a robot that tells something else.

        Raises:
            RecordError: Its groups, actions, period or description differ; names both.
        """
        for key, value in self.plain().items():
            found = first_difference(key, theirs.get(key), value)
            if found is not None:
                where, theirs_there, own = found
                raise RecordError(
                    f"the robot has {where} {theirs_there}, and this learner has {own}; start both "
                    "with the same task, robot and action settings, and the same driver= with its "
                    "options"
                )

    def check_frame(self, frame: Frame) -> None:
        """Refuse a frame of other shapes.

        Raises:
            RecordError: Says which.
        """
        shapes = {name: group.shape for name, group in frame.obs.items()}
        size = self.action_size if frame.action is None else len(frame.action)
        expected = {name: tuple(shape)[-3:] for name, shape in self.groups.items()}
        if shapes != expected or size != self.action_size:
            raise RecordError(
                f"a frame has groups {shapes} and {size} actions; expected {expected} and "
                f"{self.action_size}"
            )
