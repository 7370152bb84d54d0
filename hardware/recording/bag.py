"""Rosbag2 folders with MCAP files, as `ros2 bag` and Foxglove read them; wraps rosbags.

rosbags keeps up to a megabyte of messages in memory and writes index, footer and `metadata.yaml` at
the end only. `BagWriter.flush` hands over what there is, so that a writer that is killed loses no
more than what came since. Until the end the folder holds `unfinished.json`, which says what the
metadata would have said; `repair` makes a whole bag of both.
"""

import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rosbags.interfaces import (
    Connection,
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import Reader, StoragePlugin, Writer
from rosbags.rosbag2.storage_mcap import McapWriter
from rosbags.typesys import Stores, get_typestore

from robot_rl.core.errors import RobotRLError

UNFINISHED = "unfinished.json"
"""File in the folder of a recording that has not ended in order."""
METADATA = "metadata.yaml"


class RecordingError(RobotRLError):
    """A recording cannot be written, read, or replayed."""


@dataclass(frozen=True, kw_only=True)
class BagTopic:
    """A topic of a bag."""

    name: str
    """With its namespace."""
    kind: str
    """Such as `sensor_msgs/msg/JointState`."""
    latched: bool = False
    """Reliable, and kept for those who come late."""
    reliable: bool = False
    """Sent again to those who missed it; neither this nor latched is best effort."""


class BagWriter:
    """A recording that is being made."""

    def __init__(self, folder: Path, about: Mapping[str, str]) -> None:
        """Make the folder.

        Args:
            folder: Of the bag; must not exist.
            about: What the recording is of; read back as `Bag.about`.

        Raises:
            RecordingError: The folder exists already, or cannot be made.
        """
        if folder.exists():
            raise RecordingError(f"{folder} exists already; choose another folder to record into")
        self.folder = folder
        self._writer = Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP)
        for key, value in about.items():
            self._writer.set_custom_data(key, value)
        self._types = get_typestore(Stores.ROS2_KILTED)
        self._topics: dict[str, Connection] = {}
        try:
            with self._sentence():
                self._writer.open()
                with (folder / UNFINISHED).open("w") as file:
                    file.write(json.dumps(dict(about), indent=2))
                    file.flush()
                    os.fsync(file.fileno())  # a label outlives a power cut, as its messages do
        except RecordingError:
            self.discard()
            raise

    def add(self, topic: BagTopic) -> None:
        """Announce a topic, before messages of it are written; allowed more than once.

        Raises:
            RecordingError: Its type is unknown.
        """
        if topic.name in self._topics:
            return
        if topic.kind not in self._types.types:
            raise RecordingError(f"{topic.name} has the type {topic.kind}, which rosbags lacks")
        self._topics[topic.name] = self._writer.add_connection(
            topic.name, topic.kind, typestore=self._types, offered_qos_profiles=[_qos(topic)]
        )

    def write(self, topic: str, received: int, raw: bytes) -> None:
        """Keep a serialized message with the time at which it came [ns].

        Raises:
            RecordingError: The disk is full, or went away.
        """
        with self._sentence():
            self._writer.write(self._topics[topic], received, raw)

    def flush(self) -> None:
        """Hand everything to the operating system: what came until now outlives this process.

        Raises:
            RecordingError: The disk is full, or went away.
        """
        storage = self._writer.storage
        if isinstance(storage, McapWriter) and storage.chunk.msgs:
            with self._sentence():
                storage.close_chunk()
                storage.bio.flush()

    def close(self) -> None:
        """Write index and metadata.

        Raises:
            RecordingError: The disk is full, or went away.
        """
        with self._sentence():
            self._writer.close()
            (self.folder / UNFINISHED).unlink()

    def discard(self) -> None:
        """Remove the recording with all that it holds; may still be open, and not written whole."""
        with suppress(OSError):  # a full disk: what is buffered cannot be written
            self._writer.abort()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def _sentence(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RecordingError(f"cannot write {self.folder}: {error.strerror}") from None


class Bag:
    """A recording that is read; use it in a `with`."""

    def __init__(self, folder: Path) -> None:
        """Open a bag.

        Raises:
            RecordingError: The folder does not exist, is no bag, is damaged, or was not finished.
        """
        self.folder = folder
        _check_folder(folder)
        self._reader = Reader(folder)
        self._types = get_typestore(Stores.ROS2_KILTED)
        with self._sentence():
            self._reader.open()
        self.about = dict(self._reader.storage.metadata.custom or {})
        """Robot and policy that it is of."""

    @property
    def topics(self) -> dict[str, int]:
        """Topics with the number of their messages."""
        return {one.topic: one.msgcount for one in self._reader.connections}

    def messages(self, topics: Collection[str]) -> Iterator[tuple[str, int, bytes]]:
        """Topic, time of coming [ns] and serialized message, in the order of coming.

        Raises:
            RecordingError: The file is damaged.
        """
        wanted = [one for one in self._reader.connections if one.topic in topics]
        if not wanted:  # rosbags would give all of them
            return
        with self._sentence():
            for connection, received, raw in self._reader.messages(wanted):
                yield connection.topic, received, raw

    def decode(self, topic: str, raw: bytes) -> Any:
        """The message that the bytes hold; fields have the names that they have in ROS.

        Raises:
            RecordingError: They hold none.
        """
        kind = next(one.msgtype for one in self._reader.connections if one.topic == topic)
        try:
            return self._types.deserialize_cdr(raw, kind)
        except Exception as error:  # noqa: BLE001 - rosbags raises whatever its readers stumble over
            raise RecordingError(
                f"a message on {topic} in {self.folder} is no {kind}: {error}"
            ) from None

    def __enter__(self) -> "Bag":
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    @contextmanager
    def _sentence(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - see `decode`
            raise RecordingError(
                f"the bag {self.folder} is damaged: {error}; what is whole can be saved: "
                f"robot-rl record repair {self.folder}"
            ) from None


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise RecordingError(
            f"{folder} {what}; give the folder of a bag, which robot-rl record wrote"
        )
    if (folder / UNFINISHED).exists() or (
        any(folder.glob("*.mcap")) and not (folder / METADATA).exists()
    ):
        raise RecordingError(
            f"the recording {folder} did not end in order, or goes on; if it has ended: "
            f"robot-rl record repair {folder}"
        )
    if not (folder / METADATA).exists():
        raise RecordingError(f"{folder} is not a bag: it has no {METADATA}")


def _qos(topic: BagTopic) -> Qos:
    never, surely = QosTime(0, 0), topic.latched or topic.reliable
    return Qos(
        history=QosHistory.KEEP_LAST, depth=1,
        reliability=QosReliability.RELIABLE if surely else QosReliability.BEST_EFFORT,
        durability=QosDurability.TRANSIENT_LOCAL if topic.latched else QosDurability.VOLATILE,
        deadline=never, lifespan=never, liveliness=QosLiveliness.AUTOMATIC,
        liveliness_lease_duration=never, avoid_ros_namespace_conventions=False,
    )  # fmt: skip
