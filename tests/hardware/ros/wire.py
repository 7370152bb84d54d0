"""A publisher and a subscription without a middleware in between."""

from typing import Any

from hardware.ros.compat import rclpy


class Wire:
    """What was sent last is heard as bytes."""

    def __init__(self) -> None:
        """Nothing was sent yet."""
        self.sent: list[Any] = []

    def publish(self, sent: Any) -> None:
        """Send a message, or its bytes."""
        self.sent.append(sent)

    def take(self) -> bytes | None:
        """As the subscription of a topic of which only the newest message counts."""
        if not self.sent:
            return None
        sent = self.sent.pop()
        return sent if isinstance(sent, bytes) else rclpy("serialization").serialize_message(sent)
