"""One node: publishers, subscriptions, services; nothing here runs callbacks by itself.

Messages are taken by whoever wants them (`Newest.take`), not handed to callbacks of an executor: a
loop with a deadline decides when it looks. Services need an executor; a single-threaded one runs
when one is asked (`serve`). Multi-threaded and events executors are not used: the first loses ticks
by tens of milliseconds, the second hangs (rclpy 9.1.2).
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from hardware.ros.compat import RosError, message, rclpy
from hardware.ros.robot_inputs import ReadMeasurements
from hardware.ros.state_messages import StateTopic
from hardware.ros.streams import StateReader


class Newest:
    """A subscription of which only the newest message counts."""

    def __init__(self, subscription: Any) -> None:
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
        """Number of publishers on the topic now."""
        return int(self._subscription.get_publisher_count())


class Every:
    """A subscription of which every message counts, as the bytes that came."""

    def __init__(self, subscription: Any) -> None:
        self._subscription = subscription
        self._sent: dict[bytes, int] = {}
        self._came = 0
        self.count = 0
        """Messages that came so far."""
        self.lost = 0
        """Messages that were sent meanwhile and never came, by their publishers' counts: 0 where
        rclpy does not say whose a message is (before ROS 2 Kilted)."""

    def take(self) -> Iterator[tuple[bytes, int]]:
        """Messages since the last call, serialized, with the time at which each came [ns].

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
        sender, number = told.get("publisher_gid"), told["publication_sequence_number"]
        if sender is not None and number is not None:  # not every RMW counts
            sender = bytes(sender["data"])
            self.lost += max(0, number - self._sent.get(sender, number - 1) - 1)
            self._sent[sender] = number


_POLL_SECONDS = 0.01
_ASK_AGAIN_SECONDS = 1.0


class Caller:
    """A service of somebody else, found once."""

    def __init__(self, node: Any, executor: Any, kind: type, name: str, timeout: float) -> None:
        self._node, self._executor, self._timeout = node, executor, timeout
        self._name = node.resolve_service_name(name)
        self._client = node.create_client(kind, name)
        if not self._client.wait_for_service(timeout_sec=timeout):
            self.close()
            raise RosError(f"nobody offers the service {self._name} within {timeout:g} s")

    def __call__(self, request: Any) -> Any:
        """Ask and wait for the answer; asks again where none comes.

        An answer is lost while the other side has not found this one yet, which `wait_for_service`
        does not wait for. So a service may be asked more than once: those of this project bear it.

        Raises:
            RosError: Nobody answered in time.
        """
        end = time.monotonic() + self._timeout
        while (left := end - time.monotonic()) > 0:
            future = self._client.call_async(request)
            self._executor.spin_until_future_complete(
                future, timeout_sec=min(left, _ASK_AGAIN_SECONDS)
            )
            if future.done():
                return future.result()
            self._client.remove_pending_request(future)
        raise RosError(f"the service {self._name} did not answer in {self._timeout:g} s")

    def close(self) -> None:
        """Let go of it."""
        self._node.destroy_client(self._client)


class RosSession:
    """A node with a context of its own, so that several live in one process and end apart."""

    def __init__(self, name: str, *, namespace: str = "", domain: int | None = None) -> None:
        """Start the node; signals stay the program's own business.

        Args:
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
        self._subscriptions: list[Any] = []
        self._wait_set: Any = None
        self._num_services = 0
        self._closed = False

    @property
    def frame_prefix(self) -> str:
        """Namespace before the names of frames in tf, such as `go2/`; empty at the root."""
        namespace = self.node.get_namespace().strip("/")
        return f"{namespace}/" if namespace else ""

    def publisher(
        self, topic: str, kind: type, *, latched: bool = False, reliable: bool = False,
        depth: int = 1,
    ) -> Any:  # fmt: skip
        """A publisher: newest sample wins, or kept for those who come late.

        A reliable one also reaches subscribers that insist on it; the newest `depth` of its samples
        are sent again to those who missed them. It never waits for anybody.
        """
        qos = _qos(latched=latched, reliable=reliable, depth=depth)
        return self.node.create_publisher(kind, topic, qos)

    def deliver(self, publisher: Any, seconds: float) -> bool:
        """Wait until everybody who asks for certainty has got what a reliable publisher sent.

        Returns:
            Whether they have, in time.
        """
        wait = rclpy("duration").Duration(seconds=seconds)
        return bool(publisher.wait_for_all_acked(wait))

    def newest(self, topic: str, kind: type, *, latched: bool = False, raw: bool = False) -> Newest:
        """A subscription of which only the newest message counts; `raw` leaves it as bytes."""
        return Newest(self._subscribe(topic, kind, _qos(latched=latched), raw=raw))

    def listen(self, topic: str, package: str, kind: str, *, latched: bool = False) -> Newest:
        """As `newest`, for a message type by its name."""
        return self.newest(topic, message(package, kind), latched=latched)

    def measured(self, topic: StateTopic, widths: Mapping[str, int]) -> ReadMeasurements:
        """A robot's measurements; `widths` are those of all fields of its state."""
        heard = self.newest(topic.name, message(topic.package, topic.message), raw=True)
        return StateReader(heard, replace(topic, frame_prefix=self.frame_prefix), widths).read

    def every(
        self, topic: str, kind: type, *, latched: bool = False, reliable: bool = False,
        depth: int = 512,
    ) -> Every:  # fmt: skip
        """A subscription of which every message counts; `depth` may wait to be taken.

        A reliable one, to which only reliable publishers speak, asks again for what it missed.
        """
        qos = _qos(latched=latched, reliable=reliable, depth=depth)
        return Every(self._subscribe(topic, kind, qos, raw=True))

    def _subscribe(self, topic: str, kind: type, qos: Any, *, raw: bool) -> Any:
        subscription = self.node.create_subscription(kind, topic, _never_called, qos, raw=raw)
        # Out of the executor's sight: it would take messages from under our hands.
        self.node._subscriptions.remove(subscription)  # pyright: ignore[reportPrivateUsage]
        self._subscriptions.append(subscription)
        self._wait_set = None
        return subscription

    def service(self, kind: type, name: str, answer: Callable[[Any, Any], Any]) -> None:
        """Offer a service; `answer` takes a request and an empty response, and returns it filled.

        Called by `serve`.
        """
        self.node.create_service(kind, name, answer)

    def trigger(self, name: str, act: Callable[[], tuple[bool, str]]) -> None:
        """Offer a `std_srvs/Trigger`; `act` returns whether it worked, and a sentence."""

        def answer(request: Any, response: Any) -> Any:
            del request
            response.success, response.message = act()
            return response

        self.service(message("std_srvs", "Trigger"), name, answer)

    def switch(self, name: str, act: Callable[[bool], tuple[bool, str]]) -> None:
        """Offer a `std_srvs/SetBool`."""

        def answer(request: Any, response: Any) -> Any:
            response.success, response.message = act(bool(request.data))
            return response

        self.service(message("std_srvs", "SetBool"), name, answer)

    def call(self, kind: type, name: str, request: Any, *, timeout: float = 10.0) -> Any:
        """Call a service once and wait for the answer.

        Raises:
            RosError: Nobody offers it, or nobody answered in time.
        """
        with closing(self.caller(kind, name, timeout=timeout)) as caller:
            return caller(request)

    def ask_each(
        self, kind: type, names: Callable[[], Iterable[str]], request: Any, *, timeout: float,
        settle: float,
    ) -> Iterator[tuple[str, Any]]:  # fmt: skip
        """Ask every service that is found, each at once, and again until it answers.

        Args:
            names: Services that are known now; more are found while this waits.
            timeout: Longest time that this takes [s].
            settle: Time after the first service was found for which others are looked for [s].

        Yields:
            Names with their answers, as they come; at the end those that did not answer, with None.
        """
        end, enough = time.monotonic() + timeout, math.inf
        clients: dict[str, Any] = {}
        asked: dict[str, tuple[Any, float]] = {}
        try:
            while (now := time.monotonic()) < end and (asked or len(clients) == 0 or now < enough):
                for name in names():
                    if name not in clients:
                        clients[name] = self.node.create_client(kind, name)
                        enough = min(enough, now + settle)
                        asked[name] = (None, -math.inf)
                for name, (future, since) in list(asked.items()):
                    if future is not None and future.done():
                        del asked[name]
                        yield name, future.result()
                    elif now > since + _ASK_AGAIN_SECONDS and clients[name].service_is_ready():
                        if future is not None:
                            clients[name].remove_pending_request(future)
                        asked[name] = clients[name].call_async(request), now
                self._executor.spin_once(timeout_sec=_POLL_SECONDS)
            for name in asked:
                yield name, None
        finally:
            for client in clients.values():
                self.node.destroy_client(client)

    def caller(self, kind: type, name: str, *, timeout: float = 10.0) -> "Caller":
        """Find a service that is to be called more than once.

        Raises:
            RosError: Nobody offers it in time.
        """
        return Caller(self.node, self._executor, kind, name, timeout)

    def wait(self, seconds: float) -> bool:
        """Wait for a message on anything that is heard, or for a call of a service.

        What came before and was not taken yet ends the wait at once.

        Returns:
            Whether a service was asked; `serve` answers.
        """
        services = [service.handle for service in self.node.services]
        if self._wait_set is None or self._num_services != len(services):
            self._num_services = len(services)
            self._wait_set = rclpy("impl.implementation_singleton").rclpy_implementation.WaitSet(
                len(self._subscriptions), 0, 0, 0, len(services), 0, self.context.handle
            )
        self._wait_set.clear_entities()
        for subscription in self._subscriptions:
            self._wait_set.add_subscription(subscription.handle)
        for handle in services:
            self._wait_set.add_service(handle)
        self._wait_set.wait(max(0, round(seconds * 1e9)))
        return bool(self._wait_set.get_ready_entities("service"))

    def serve(self) -> None:
        """Answer waiting service calls; returns at once where there is none."""
        if self.wait(0.0):  # a quarter of what asking the executor costs
            self._executor.spin_once(timeout_sec=0.0)

    def doubled(self, topics: Iterable[str]) -> str:
        """Topics that more than one node publishes now, in words; empty where there is none."""
        said: list[str] = []
        for topic in dict.fromkeys(topics):
            senders = self.node.count_publishers(topic)
            if senders > 1:
                name = self.node.resolve_topic_name(topic)
                said.append(f"{senders} publish {name}: ros2 topic info -v {name} names them")
        return "; ".join(said)

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
        # Into the node's sight again, to end with it: one alone keeps its place in shared memory.
        self.node._subscriptions.extend(self._subscriptions)  # pyright: ignore[reportPrivateUsage]
        self._wait_set = None
        self.node.destroy_node()
        rclpy().shutdown(context=self.context)


def _never_called(message: Any) -> None:
    raise AssertionError("messages are taken, not delivered")


def _qos(*, latched: bool, reliable: bool = False, depth: int = 1) -> Any:
    """Streams lose samples rather than wait for somebody; what is latched reaches late joiners."""
    qos = rclpy("qos")
    surely, kept = qos.ReliabilityPolicy.RELIABLE, qos.DurabilityPolicy.TRANSIENT_LOCAL
    return qos.QoSProfile(
        depth=depth,
        history=qos.HistoryPolicy.KEEP_LAST,
        reliability=surely if latched or reliable else qos.ReliabilityPolicy.BEST_EFFORT,
        durability=kept if latched else qos.DurabilityPolicy.VOLATILE,
    )
