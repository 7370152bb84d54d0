"""One node: publishers, newest messages, services; nothing here waits or runs callbacks by itself.

Messages are taken by whoever wants them (`Newest.take`), not handed to callbacks of an executor: a
loop with a deadline decides when it looks. Services need an executor; a single-threaded one is
asked once per `serve`. Multi-threaded and events executors are not used: the first loses ticks by
tens of milliseconds, the second hangs (rclpy 9.1.2).
"""

import time
from collections.abc import Callable
from typing import Any

from hardware.ros.compat import RosError, message, rclpy

_POLL_SECONDS = 0.01


class Newest:
    """A subscription of which only the newest message counts."""

    def __init__(self, subscription: Any) -> None:
        """Wrap what `create_subscription` made."""
        self._subscription = subscription
        self.count = 0
        """Messages that came so far."""

    def take(self) -> Any | None:
        """The newest message that came since the last call; None if none did."""
        newest = None
        while (one := self._take_one()) is not None:
            newest, self.count = one, self.count + 1
        return newest

    def wait(self, session: "RosSession", what: str, *, timeout: float = 10.0) -> Any:
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

    def _take_one(self) -> Any | None:
        subscription = self._subscription
        with subscription.handle:
            taken = subscription.handle.take_message(subscription.msg_type, subscription.raw)
        return None if taken is None else taken[0]


class RosSession:
    """A node with a context of its own, so that several live in one process and end apart."""

    def __init__(self, name: str, *, namespace: str = "", domain: int | None = None) -> None:
        """Start the node; signals stay the program's own business.

        Args:
            name: Of the node.
            namespace: Such as `/go2`; relative topics lie below it.
            domain: ROS_DOMAIN_ID; None takes the environment's.

        Raises:
            RosError: ROS 2 cannot be used, or the domain is not one.
        """
        ros = rclpy()
        if domain is not None and not 0 <= domain <= 232:
            raise RosError(f"ROS_DOMAIN_ID must lie in 0 to 232, got {domain}")
        self.context = ros.Context()
        ros.init(
            context=self.context, domain_id=domain,
            signal_handler_options=rclpy("signals").SignalHandlerOptions.NO,
        )  # fmt: skip
        self.node = ros.create_node(
            name, namespace=namespace, context=self.context, start_parameter_services=False
        )
        self._executor = rclpy("executors").SingleThreadedExecutor(context=self.context)
        self._executor.add_node(self.node)
        self._closed = False

    def publisher(self, topic: str, kind: type, *, latched: bool = False) -> Any:
        """A publisher: newest sample wins, or kept for those who come late."""
        return self.node.create_publisher(kind, topic, _qos(latched=latched))

    def newest(self, topic: str, kind: type, *, latched: bool = False) -> Newest:
        """A subscription of which only the newest message counts."""
        subscription = self.node.create_subscription(
            kind, topic, _never_called, _qos(latched=latched)
        )
        # Out of the executor's sight: it would take messages from under our hands.
        self.node._subscriptions.remove(subscription)  # pyright: ignore[reportPrivateUsage]
        return Newest(subscription)

    def trigger(self, name: str, act: Callable[[], tuple[bool, str]]) -> None:
        """Offer a `std_srvs/Trigger`; `act` returns whether it worked, and a sentence."""

        def answer(request: Any, response: Any) -> Any:
            del request
            response.success, response.message = act()
            return response

        self.node.create_service(message("std_srvs", "Trigger"), name, answer)

    def switch(self, name: str, act: Callable[[bool], tuple[bool, str]]) -> None:
        """Offer a `std_srvs/SetBool`."""

        def answer(request: Any, response: Any) -> Any:
            response.success, response.message = act(bool(request.data))
            return response

        self.node.create_service(message("std_srvs", "SetBool"), name, answer)

    def call(self, kind: type, name: str, request: Any, *, timeout: float = 10.0) -> Any:
        """Call a service and wait for the answer.

        Raises:
            RosError: Nobody offers it, or nobody answered in time.
        """
        client = self.node.create_client(kind, name)
        full = self.node.resolve_service_name(name)
        try:
            if not client.wait_for_service(timeout_sec=timeout):
                raise RosError(f"nobody offers the service {full} within {timeout:g} s")
            future = client.call_async(request)
            self._executor.spin_until_future_complete(future, timeout_sec=timeout)
            if not future.done():
                raise RosError(f"the service {full} did not answer in {timeout:g} s")
            return future.result()
        finally:
            self.node.destroy_client(client)

    def serve(self) -> None:
        """Answer waiting service calls; returns at once where there is none."""
        self._executor.spin_once(timeout_sec=0.0)

    def now(self) -> int:
        """Time of the ROS clock [ns]."""
        return int(self.node.get_clock().now().nanoseconds)

    def wait_until(self, ready: Callable[[], bool], what: str, *, timeout: float = 10.0) -> None:
        """Wait for other nodes: discovery takes from 10 ms to some seconds.

        Raises:
            RosError: It did not come true in time.
        """
        end = time.monotonic() + timeout
        while not ready():
            if time.monotonic() > end:
                domain = self.context.get_domain_id()
                raise RosError(
                    f"waited {timeout:g} s for {what}; is the other side running, with the same "
                    f"ROS_DOMAIN_ID (here {domain}) and namespace (here "
                    f"{self.node.get_namespace()})?"
                )
            self.serve()
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """End the node; allowed more than once."""
        if self._closed:
            return
        self._closed = True
        self._executor.shutdown()
        self.node.destroy_node()
        rclpy().shutdown(context=self.context)


def _never_called(message: Any) -> None:
    raise AssertionError("messages are taken, not delivered")


def _qos(*, latched: bool) -> Any:
    """Streams lose samples rather than wait for somebody; what is latched reaches late joiners."""
    qos = rclpy("qos")
    reliable, kept = qos.ReliabilityPolicy.RELIABLE, qos.DurabilityPolicy.TRANSIENT_LOCAL
    return qos.QoSProfile(
        depth=1,
        history=qos.HistoryPolicy.KEEP_LAST,
        reliability=reliable if latched else qos.ReliabilityPolicy.BEST_EFFORT,
        durability=kept if latched else qos.DurabilityPolicy.VOLATILE,
    )
