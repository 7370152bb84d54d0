"""A robot's measurements on their way: what a bridge sends, and what a policy or a link hears."""

from collections.abc import Mapping
from typing import Any, Protocol

from hardware.ros.compat import message, rclpy
from hardware.ros.messages.state_messages import StateTopic
from hardware.ros.messages.stencil import Fields, Stencil


class Raw(Protocol):
    """A topic of which only the newest message counts, as the bytes that came."""

    def take(self) -> bytes | None:
        """The newest message that came since the last call; None if none did."""
        ...


class StateReader:
    """Hears one topic of measurements."""

    def __init__(self, heard: Raw, topic: StateTopic, widths: Mapping[str, int]) -> None:
        """Learn what messages of this project look like; others are read, too.

        Args:
            heard: The topic.
            topic: What it carries.
            widths: Of all fields of the robot's state.
        """
        self._heard, self._topic = heard, topic
        self._kind = message(topic.package, topic.message)
        self._stencil = Stencil.learn(self._kind, topic.pack, widths, topic.fields)

    def read(self, fields: Fields) -> int | None:
        """Put what came since the last call into fields; see `Measurements`.

        Bytes that are no message are as nothing.
        """
        raw = self._heard.take()
        if raw is None:
            return None
        stamp = self._stencil.read(raw, fields) if self._stencil is not None else None
        if stamp is not None:
            return stamp
        packed = parsed(raw, self._kind)
        return None if packed is None else self._topic.unpack(packed, fields)


class StateWriter:
    """Sends one topic of measurements."""

    def __init__(self, publisher: Any, topic: StateTopic, widths: Mapping[str, int]) -> None:
        """Learn what its messages look like.

        Args:
            publisher: Of the topic.
            topic: What it carries.
            widths: Of all fields of the robot's state.
        """
        self._publisher, self._topic = publisher, topic
        self._kind = message(topic.package, topic.message)
        self._stencil = Stencil.learn(self._kind, topic.pack, widths, topic.fields)

    def publish(self, fields: Fields, stamp: int) -> None:
        """Send fields that were measured at a time [ns]."""
        if self._stencil is not None:
            self._publisher.publish(self._stencil.write(fields, stamp))
            return
        packed = self._kind()
        self._topic.pack(fields, packed, stamp)
        self._publisher.publish(packed)


def parsed(raw: bytes, kind: type) -> Any | None:
    """The message that the bytes hold; None where they hold none."""
    try:
        return rclpy("serialization").deserialize_message(raw, kind)
    except RuntimeError:  # of rclpy
        return None
