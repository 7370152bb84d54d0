"""What a node hears: the newest message of a topic, every message of it, and waiting for them.

Messages are taken by whoever wants them, not handed to callbacks of an executor.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from hardware.ros.compat import rclpy


class Waits(Protocol):
    """A session, as far as a subscription needs it."""

    def wait_until(self, ready: Callable[[], bool], what: str, *, timeout: float) -> None:
        """Wait for other nodes; raises where it does not come true in time."""
        ...


class Newest:
    """A subscription of which only the newest message counts."""

    def __init__(self, subscription: Any) -> None:
        """Wrap what `create_subscription` made; it keeps one message, so that none is older."""
        self._subscription = subscription
        self.count = 0
        """Messages that came so far."""

    def take(self) -> Any | None:
        """The newest message that came since the last call; None if none did.

        Its bytes, where the subscription was made with `raw`.
        """
        subscription = self._subscription
        with subscription.handle:
            taken = subscription.handle.take_message(subscription.msg_type, subscription.raw)
        if taken is None:
            return None
        self.count += 1
        return taken[0]

    def wait(self, session: Waits, what: str, *, timeout: float = 10.0) -> Any:
        """The next message, whenever it comes.

        Raises:
            RosError: None came in time.
        """
        found: list[Any] = []

        def came() -> bool:
            found.append(self.take())
            return found[-1] is not None

        session.wait_until(came, what, timeout=timeout)
        return found[-1]

    @property
    def publishers(self) -> int:
        """How many publishers are on the topic now."""
        return int(self._subscription.get_publisher_count())


class Every:
    """A subscription of which every message counts, as the bytes that came."""

    def __init__(self, subscription: Any) -> None:
        """Wrap what `create_subscription` made with `raw`."""
        self._subscription = subscription
        self._sent: dict[bytes, int] = {}
        self._came = 0
        self.count = 0
        """Messages that came so far."""
        self.lost = 0
        """Messages that were sent meanwhile and never came, by their publishers' counts."""

    def take(self) -> Iterator[tuple[bytes, int]]:
        """What came since the last call: serialized message, and when it came [ns].

        In the order in which they were sent, and so are the times: of reliable messages one that
        had to be sent again comes after those that wait for it.
        """
        subscription = self._subscription
        while True:
            with subscription.handle:
                taken = subscription.handle.take_message(subscription.msg_type, subscription.raw)
            if taken is None:
                return
            self._count(taken[1])
            self._came = max(self._came + 1, int(taken[1]["received_timestamp"]))
            yield taken[0], self._came

    def _count(self, told: Mapping[str, Any]) -> None:
        self.count += 1
        sender, number = bytes(told["publisher_gid"]["data"]), told["publication_sequence_number"]
        if number is not None:  # not every RMW counts
            self.lost += max(0, number - self._sent.get(sender, number - 1) - 1)
            self._sent[sender] = number


class Waiter:
    """Waits for messages of a node's subscriptions, and for calls of its services."""

    def __init__(self, node: Any) -> None:
        """Wait for nothing yet but services."""
        self._node, self._handles = node, []
        self._set: Any = None
        self._size = 0

    def add(self, subscription: Any) -> None:
        """Wait for its messages too."""
        self._handles.append(subscription.handle)
        self._set = None

    def wait(self, seconds: float) -> bool:
        """Return when something came, or time is over; returns whether a service was asked."""
        services = [service.handle for service in self._node.services]
        if self._set is None or self._size != len(services):
            self._size = len(services)
            self._set = rclpy("impl.implementation_singleton").rclpy_implementation.WaitSet(
                len(self._handles), 0, 0, 0, self._size, 0, self._node.context.handle
            )
        self._set.clear_entities()
        for handle in self._handles:
            self._set.add_subscription(handle)
        for handle in services:
            self._set.add_service(handle)
        self._set.wait(max(0, round(seconds * 1e9)))
        return bool(self._set.get_ready_entities("service"))
