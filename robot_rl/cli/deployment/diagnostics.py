"""Checks before a deployment: findings about machine, bundle, topics and URDF, with remedies."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from xml.etree import ElementTree

import numpy as np

from hardware.control.ipc import StatusSubscriber, channel_path
from hardware.control.monitors import ANSWER_PERIODS
from hardware.control.realtime import real_time_kernel, release_realtime, request_realtime
from hardware.control.request_socket import is_listening
from hardware.ros.camera_inputs import CameraInputs
from hardware.ros.command_messages import CommandMessages
from hardware.ros.compat import choose_installation, inspect_environment, message
from hardware.ros.foreign_commands import COMMAND
from hardware.ros.session import Newest, RosSession
from hardware.ros.state_messages import StateTopic, state_topics
from robot_rl.cli.deployment.plan import Deployment, RobotAlone
from robot_rl.core.errors import RobotRLError, SpecMismatchError, StaleStateError
from robot_rl.core.robot import JointSpec, RobotSpec


class Level(Enum):
    """Severity of a finding."""

    good = "ok"
    warning = "warning"
    """Deployment may go on."""
    fault = "FAULT"
    """It may not."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    what: str
    """The finding."""
    remedy: str = ""
    """The remedy."""

    @property
    def line(self) -> str:
        """For a terminal."""
        return f"{self.level.value:8} {self.what}" + (
            f"\n         -> {self.remedy}" if self.remedy else ""
        )


_ROUNDING = 1e-3
"""By how much limits of both may differ, in their units."""


def compare_description(text: str, robot: RobotSpec, topic: str) -> Iterator[Finding]:
    """Differences between a URDF and a robot's YAML."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        yield Finding(Level.warning, f"{topic} is no XML: {error}", "look at what publishes it")
        return
    # Only the robot's own: ros2_control and transmissions name the same joints without limits.
    joints = {joint.get("name", ""): joint for joint in root.findall("joint")}
    missing = [name for name in robot.joint_names if name not in joints]
    if missing:
        yield Finding(
            Level.fault, f"{topic} lacks {missing}; it has {sorted(joints)}",
            "compare the names in the robot's YAML with those of the URDF",
        )  # fmt: skip
    wider = [
        words
        for joint in robot.joints if joint.name in joints
        for words in _wider(joints[joint.name], joint)
    ]  # fmt: skip
    if wider:
        yield Finding(
            Level.fault, f"the YAML allows more than {topic}: {'; '.join(wider)}",
            "correct the limits in the robot's YAML, train again if they have changed much",
        )  # fmt: skip
    elif not missing:
        yield Finding(Level.good, f"joints and limits of the YAML lie within {topic}")


def _wider(theirs: ElementTree.Element, joint: JointSpec) -> Iterator[str]:
    """Limits of ours beyond theirs."""
    limit, name = theirs.find("limit"), theirs.get("name")
    if limit is None:
        return
    low, high = joint.position_limit
    if theirs.get("type") != "continuous":
        bounds = (_number(limit, "lower", 0.0), _number(limit, "upper", 0.0))
        if low < bounds[0] - _ROUNDING or high > bounds[1] + _ROUNDING:
            yield f"{name} position [{low:g}, {high:g}] beyond [{bounds[0]:g}, {bounds[1]:g}]"
    for attribute, wanted in (("velocity", joint.velocity_limit), ("effort", joint.effort_limit)):
        allowed = _number(limit, attribute, math.inf)
        if wanted > allowed + _ROUNDING:
            yield f"{name} {attribute} {wanted:g} beyond {allowed:g}"


def _number(limit: ElementTree.Element, attribute: str, absent: float) -> float:
    try:
        return float(limit.get(attribute, absent))
    except ValueError:
        return absent


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
            TopicCheck(session, topic, names.get(topic.name, f"{plan.namespace}/{topic.name}"))
            for topic in state_topics(plan.robot)
        ]
        cameras: dict[str, CameraCheck] = {}
        seen = PolicyCameras(session, plan) if plan.options.bundle else None
        places = dict.fromkeys((f"{plan.namespace}/robot_description", "/robot_description"))
        if foreign:
            places[plan.wiring.place("robot_description")] = None
        text = message("std_msgs", "String")
        described = {place: session.newest(place, text, latched=True) for place in places}
        urdf = _listen(session, plan, listen, topics, cameras, seen, described)
        yield from _senders(session, plan, names)
        for topic in topics:
            yield from topic.findings(plan)
        for place, one in urdf.items():
            yield from compare_description(one, plan.robot, place)
        for camera in cameras.values():
            yield camera.finding()
        if seen is not None:
            yield from seen.findings()
    finally:
        session.close()


def _listen(
    session: RosSession, plan: Deployment, seconds: float, topics: "list[TopicCheck]",
    cameras: "dict[str, CameraCheck]", seen: "PolicyCameras | None",
    described: Mapping[str, Newest],
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
            topic.poll(session, state)
        for camera in cameras.values():
            camera.poll()
        if seen is not None:
            seen.poll(state)
        for place, newest in described.items():
            if (found := newest.take()) is not None:
                urdf[place] = str(found.data)
        time.sleep(0.001)
    return urdf


def _senders(session: RosSession, plan: Deployment, names: Mapping[str, str]) -> Iterator[Finding]:
    """Other senders of commands, and their node's ear for ours."""
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
    measured = [topic for name, topic in names.items() if name != COMMAND]
    if doubled := session.doubled(measured):
        yield Finding(
            Level.fault, f"measurements come from more than one sender: {doubled}",
            "stop all but one: the robot holds while there are two",
        )  # fmt: skip
    taker = names.get(COMMAND)
    if taker and not session.node.count_subscribers(taker):
        yield Finding(
            Level.fault, f"nobody listens to commands on {taker}",
            "start the node or activate its controller, or name the topic: topics={command:...}",
        )  # fmt: skip


def _find_cameras(session: RosSession, cameras: "dict[str, CameraCheck]") -> None:
    for topic, kinds in session.node.get_topic_names_and_types():
        for name in _IMAGES:
            if f"sensor_msgs/msg/{name}" in kinds and topic not in cameras:
                kind: Any = message("sensor_msgs", name)
                cameras[topic] = CameraCheck(topic, session.newest(topic, kind))


class Arrivals:
    """Arrival times of messages."""

    def __init__(self) -> None:
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
        """True once one has come."""
        return self._count > 0

    @property
    def rate(self) -> float:
        """Between the first and the last [Hz]."""
        seconds = self._last - self._first
        return (self._count - self._before) / seconds if seconds > 0 else 0.0


@dataclass
class CameraCheck:
    """Images of one topic, heard as a stream is: what is lost is lost."""

    topic: str
    newest: Newest

    def __post_init__(self) -> None:
        self._arrivals = Arrivals()

    def poll(self) -> None:
        """Take what has come."""
        self.newest.take()
        self._arrivals.count(self.newest.count)

    def finding(self) -> Finding:
        """Its rate; what a policy sees is judged by `PolicyCameras`."""
        if self._arrivals.any:
            return Finding(Level.good, f"camera {self.topic}: {self._arrivals.rate:.0f} Hz")
        senders = self.newest.publishers
        return Finding(
            Level.warning, f"camera {self.topic}: no image came, {senders} publish it",
            "large images get lost on best effort: publish them compressed, or enlarge the "
            "shared memory of the RMW",
        )  # fmt: skip


class PolicyCameras:
    """Check of the pictures that the policy sees, as a deployment judges them."""

    def __init__(self, session: RosSession, plan: Deployment) -> None:
        spec = plan.runner.spec
        topics = {n: t for n, t in plan.camera_topics.items() if n not in plan.drawn_cameras}
        self._drawn = plan.drawn_cameras
        self._inputs = CameraInputs(
            session, {name: spec.cameras[name] for name in topics}, topics,
            control_dt=spec.control_dt,
        )  # fmt: skip
        self._topics = dict(zip(topics, self._inputs.topics, strict=True))

    def poll(self, state: Mapping[str, np.ndarray]) -> None:
        """Take what has come, and judge it."""
        self._inputs.poll()
        with contextlib.suppress(StaleStateError):  # `faults` has it by camera
            self._inputs.pictures(state)

    def findings(self) -> Iterator[Finding]:
        """One of each camera: the policy can see by it now, or why not."""
        for name in self._drawn:
            yield Finding(Level.good, f"camera '{name}' of the policy is drawn by the twin")
        for name, topic in self._topics.items():
            if why := self._inputs.faults.get(name):
                yield Finding(
                    Level.fault, f"camera '{name}' of the policy {why}",
                    f"without it the policy decides nothing: start its node, name its topic "
                    f"(camera.{name}.topic=) or set it up as it was in training",
                )  # fmt: skip
            else:
                told = f"camera '{name}' of the policy: {topic} is as in training"
                yield Finding(Level.good, told)


class TopicCheck:
    """Check of a topic of measurements."""

    def __init__(self, session: RosSession, topic: StateTopic, name: str) -> None:
        self._topic, self._name = topic, name
        self._newest = session.newest(name, message(topic.package, topic.message))
        self._arrivals = Arrivals()
        self._skew = 0.0
        self._misfit = ""

    def poll(self, session: RosSession, state: Mapping[str, np.ndarray]) -> None:
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


def examine(plan: Deployment, *, listen: float) -> Iterator[Finding]:
    """Look at everything, cheap things first; later ones are left out where they have no ground.

    Args:
        plan: The deployment; its bundle may be empty.
        listen: How long to listen to the robot's topics [s], beside 4 s for finding them.
    """
    yield (ros := _tried("ROS 2", _ros))
    yield from _rights()
    if not plan.options.bundle:
        yield Finding(Level.warning, "no bundle was named: nothing is compared with one",
                      "add bundle=runs/<run>/bundle")  # fmt: skip
        if plan.options.driver == "ros2":
            yield from _robot_alone(RobotAlone(plan.options), ros, listen)
        return
    yield (bundle := _tried("bundle", lambda: _bundle(plan)))
    if bundle.level is Level.fault:
        return
    yield (robot := _tried("robot", lambda: _robot(plan)))
    if robot.level is Level.fault:
        return
    yield from (Finding(Level.good, remark) for remark in plan.remarks)
    if plan.runner.spec.cameras:
        yield (cameras := _tried("cameras", lambda: _cameras(plan)))
        if cameras.level is Level.fault:
            return
    yield _margin(plan)
    yield _process(plan)
    if plan.options.driver == "ros2":
        yield (wiring := _tried("topics", lambda: _wiring(plan)))
        if wiring.level is Level.fault:
            return
    if ros.level is not Level.fault:
        yield from examine_graph(plan, listen)


def _robot_alone(plan: RobotAlone, ros: "Finding", listen: float) -> Iterator["Finding"]:
    """Topics of somebody's node before there is a policy, as before learning on a robot."""
    yield (wiring := _tried("topics", lambda: _wiring(plan)))
    if wiring.level is Level.fault:
        return
    yield _process(plan)
    if ros.level is not Level.fault:
        yield from examine_graph(plan, listen)


def _ros() -> str:
    found = choose_installation(inspect_environment())
    rmw = found.rmw or (found.implementations or ["unknown"])[0]
    return f"ROS 2 {found.distro} from {found.origin} in {found.rclpy.parent}, {rmw}"


def _bundle(plan: Deployment) -> str:
    spec = plan.runner.spec
    return (
        f"the bundle is for '{spec.robot.name}' at {1 / spec.control_dt:g} Hz; its recorded "
        "sequences were replayed"
    )


def _margin(plan: Deployment) -> Finding:
    """Age that a healthy command reaches before the next one replaces it, beside its limit."""
    late = plan.limits().command_late
    period = plan.runner.spec.control_dt
    delay = max((sensor.latency for sensor in plan.robot.sensors.values()), default=0.0)
    age = period + ANSWER_PERIODS * plan.period + delay
    what = (
        f"commands get {1e3 * age:.0f} ms old (a control period of {1e3 * period:.0f} ms and the "
        f"answer to a measurement); the robot pauses at {1e3 * late:.0f} ms"
    )
    if age < late:
        return Finding(Level.good, what)
    return Finding(
        Level.fault, what, "raise limits.command_late in the robot file, or leave it out"
    )


def _robot(plan: Deployment) -> str:
    _ = plan.remarks  # refuses what the robot does not allow
    return f"'{plan.robot.name}' allows what the policy needs"


def _cameras(plan: Deployment) -> str:
    told = ", ".join(f"{name} on {topic}" for name, topic in plan.camera_topics.items())
    return f"the policy sees {told}"


def _wiring(plan: Deployment) -> str:
    wiring = plan.wiring
    return f"commands go to {wiring.topics['command']} as {wiring.form}"


def _tried(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(Level.good, look())
    except RobotRLError as error:
        return Finding(Level.fault, f"{what}: {error}")


def _rights() -> Iterator[Finding]:
    """The kernel, and rights of this process; these are given back at once."""
    kernel = real_time_kernel()
    if kernel.granted:
        yield Finding(Level.good, f"the kernel is a real-time one: {kernel.detail}")
    else:
        yield Finding(Level.warning, "the kernel is not a real-time one", kernel.detail)
    try:
        for right in request_realtime():
            if right.granted:
                yield Finding(Level.good, f"{right.name}: {right.detail}")
            else:
                yield Finding(Level.warning, f"{right.name} is refused", right.detail)
    finally:
        release_realtime()


def _process(plan: Deployment) -> Finding:
    """Another robot process of this robot."""
    receiver = StatusSubscriber(plan.channels.status)
    try:
        status = receiver.newest()
    finally:
        receiver.close()
    if status is None:
        return Finding(Level.good, "no other robot process runs this robot")
    age = time.monotonic() - status.time
    if age < 1.0:
        return Finding(
            Level.fault, f"a robot process runs this robot already, in '{status.safety.value}'",
            "stop it, or choose another namespace= or domain=",
        )  # fmt: skip
    if is_listening(plan.channels.operator):
        return Finding(
            Level.fault, f"a robot process runs this robot, but has not answered for {age:.0f} s",
            "is it stopped (kill -CONT) or stuck? End it, or choose another namespace= or domain=",
        )  # fmt: skip
    return Finding(
        Level.warning, f"a robot process died {age:.0f} s ago without tidying up",
        f"nothing needs to be done; the next one takes over {channel_path(plan.channels.status)}",
    )  # fmt: skip
