"""Who is on the robot's topics, and whether they fit: senders, rates, names, clocks, cameras."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardware.ros.command_messages import CommandMessages
from hardware.ros.compat import message
from hardware.ros.foreign_commands import COMMAND
from hardware.ros.session import Newest, RosSession
from hardware.ros.state_messages import StateTopic, state_topics
from robot_rl.cli.deployment.plan import Deployment
from robot_rl.cli.diagnostics.description import compare_description
from robot_rl.cli.diagnostics.findings import Finding, Level
from robot_rl.core.errors import SpecMismatchError

_SKEW_SECONDS = 0.1
_SHARE_OF_RATE = 0.7
"""Of the declared rate that a topic must have."""
_SEARCH_SECONDS = 0.2
_DISCOVERY_SECONDS = 4.0
"""A participant whose first words were lost on a busy machine speaks again after 3 s (Fast DDS)."""
_IMAGES = ("Image", "CompressedImage")


def examine_graph(plan: Deployment, listen: float) -> Iterator[Finding]:
    """Listen for a while, then say what was found.

    Args:
        plan: The deployment.
        listen: How long [s], beside the time that nodes take to find each other.
    """
    foreign = plan.options.driver == "ros2"
    names = plan.wiring.topics if foreign else {}
    session = RosSession("doctor", namespace=plan.namespace, domain=plan.domain)
    try:
        topics = [
            Heard(session, topic, names.get(topic.name, f"{plan.namespace}/{topic.name}"))
            for topic in state_topics(plan.robot)
        ]
        cameras: dict[str, Camera] = {}
        places = dict.fromkeys((f"{plan.namespace}/robot_description", "/robot_description"))
        if foreign:
            places[plan.wiring.place("robot_description")] = None
        text = message("std_msgs", "String")
        described = {place: session.newest(place, text, latched=True) for place in places}
        urdf = _listen(session, plan, listen, topics, cameras, described)
        yield from _senders(session, plan, names)
        for topic in topics:
            yield from topic.findings(plan)
        for place, one in urdf.items():
            yield from compare_description(one, plan.robot, place)
        for camera in cameras.values():
            yield camera.finding()
    finally:
        session.close()


def _listen(
    session: RosSession, plan: Deployment, seconds: float, topics: "list[Heard]",
    cameras: "dict[str, Camera]", described: Mapping[str, Newest],
) -> dict[str, str]:  # fmt: skip
    """Take what comes; returns the URDFs, by topic."""
    state = {name: np.zeros((1, width)) for name, width in plan.robot.state_widths.items()}
    urdf: dict[str, str] = {}
    begin = search_at = time.monotonic()
    while (now := time.monotonic()) - begin < _DISCOVERY_SECONDS + seconds:
        if now >= search_at:
            search_at = now + _SEARCH_SECONDS
            _find_cameras(session, cameras)
        for topic in topics:
            topic.look(session, state)
        for camera in cameras.values():
            camera.look()
        for place, newest in described.items():
            if (found := newest.take()) is not None:
                urdf[place] = str(found.data)
        time.sleep(0.001)
    return urdf


def _senders(session: RosSession, plan: Deployment, names: Mapping[str, str]) -> Iterator[Finding]:
    """Who else commands, and whether their node listens."""
    messages = CommandMessages(plan.robot, plan.gain_sets, plan.setpoint)
    command = f"{plan.namespace}/{messages.topic}"
    for topic in filter(None, (command, names.get(COMMAND))):
        others = session.node.count_publishers(topic)
        if others:
            yield Finding(
                Level.fault, f"{others} publish on {topic} already",
                f"stop them: ros2 topic info -v {topic} names their nodes",
            )  # fmt: skip
        else:
            yield Finding(Level.good, f"nobody else sends commands on {topic}")
    taker = names.get(COMMAND)
    if taker and not session.node.count_subscribers(taker):
        yield Finding(
            Level.fault, f"nobody listens to commands on {taker}",
            "start the node or activate its controller, or name the topic: topics={command:...}",
        )  # fmt: skip


def _find_cameras(session: RosSession, cameras: "dict[str, Camera]") -> None:
    for topic, kinds in session.node.get_topic_names_and_types():
        for name in _IMAGES:
            if f"sensor_msgs/msg/{name}" in kinds and topic not in cameras:
                kind: Any = message("sensor_msgs", name)
                cameras[topic] = Camera(topic, session.newest(topic, kind))


class Arrivals:
    """When messages came."""

    def __init__(self) -> None:
        """None yet."""
        self._first, self._last, self._before, self._count = 0.0, 0.0, 0, 0

    def count(self, total: int) -> None:
        """Take note that so many have come by now."""
        if total == self._count:
            return
        self._last = time.monotonic()
        if not self._count:
            self._first, self._before = self._last, total
        self._count = total

    @property
    def any(self) -> bool:
        """Whether one has come."""
        return self._count > 0

    @property
    def rate(self) -> float:
        """Between the first and the last [Hz]."""
        seconds = self._last - self._first
        return (self._count - self._before) / seconds if seconds > 0 else 0.0


@dataclass
class Camera:
    """Images of one topic, heard as a stream is: what is lost is lost."""

    topic: str
    newest: Newest

    def __post_init__(self) -> None:
        """Nothing has come."""
        self._arrivals = Arrivals()

    def look(self) -> None:
        """Take what has come."""
        self.newest.take()
        self._arrivals.count(self.newest.count)

    def finding(self) -> Finding:
        """Its rate; robots do not declare cameras, so there is nothing to compare it with."""
        if self._arrivals.any:
            return Finding(Level.good, f"camera {self.topic}: {self._arrivals.rate:.0f} Hz")
        senders = self.newest.publishers
        return Finding(
            Level.warning, f"camera {self.topic}: no image came, {senders} publish it",
            "large images get lost on best effort: publish them compressed, or enlarge the "
            "shared memory of the RMW",
        )  # fmt: skip


class Heard:
    """What comes on a topic of measurements."""

    def __init__(self, session: RosSession, topic: StateTopic, name: str) -> None:
        """Subscribe under its full name."""
        self._topic, self._name = topic, name
        self._newest = session.newest(name, message(topic.package, topic.message))
        self._arrivals = Arrivals()
        self._skew = 0.0
        self._misfit = ""

    def look(self, session: RosSession, state: Mapping[str, np.ndarray]) -> None:
        """Take what has come."""
        found = self._newest.take()
        self._arrivals.count(self._newest.count)
        if found is None:
            return
        try:
            stamp = self._topic.unpack(found, state)
        except SpecMismatchError as error:
            self._misfit = str(error)
            return
        self._skew = max(self._skew, abs(session.now() - stamp) * 1e-9)

    def findings(self, plan: Deployment) -> Iterator[Finding]:
        """Names, rate and clock."""
        name, driver = self._name, plan.options.driver
        if not self._arrivals.any:
            if driver == "ros2":
                yield Finding(
                    Level.fault, f"nothing comes on {name}",
                    f"start the robot's node, or name its topic: topics={{{self._topic.name}:...}}",
                )  # fmt: skip
            else:
                yield Finding(Level.good, f"nothing comes on {name}: the {driver} will fill it")
            return
        if driver != "ros2":
            yield Finding(
                Level.warning, f"somebody publishes on {name}, which the {driver} will fill too",
                "stop them, choose another namespace=, or use them: driver=ros2",
            )  # fmt: skip
        if self._misfit:
            yield Finding(Level.fault, f"{name}: {self._misfit}")
        wanted = min(plan.robot.sensors[field].rate_hz for field in self._topic.fields)
        rate = self._arrivals.rate
        if rate < _SHARE_OF_RATE * wanted:
            yield Finding(
                Level.warning, f"{name} comes at {rate:.0f} Hz, declared are {wanted:g} Hz",
                "look for a busy machine or network, or correct the sensor's rate in the YAML",
            )  # fmt: skip
        if self._skew > _SKEW_SECONDS:
            yield Finding(
                Level.fault, f"stamps on {name} differ from this clock by {self._skew:.3f} s",
                "synchronise the clocks (chrony, ptp4l), and let the node fill header.stamp: ages "
                "of measurements decide about stops",
            )  # fmt: skip
        elif not self._misfit:
            yield Finding(Level.good, f"{name}: {rate:.0f} Hz, stamps within {self._skew:.3f} s")
