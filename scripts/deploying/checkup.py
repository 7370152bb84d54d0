"""What stands in the way of a deployment: findings, each with what to do about it."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from deploying.plan import Deployment
from hardware.control.mailbox import mailbox_path
from hardware.control.realtime import release_realtime, request_realtime
from hardware.control.status_mail import StatusReceiver
from hardware.ros.command_messages import CommandMessages
from hardware.ros.compat import judge, look_around, message
from hardware.ros.session import Newest, RosSession
from hardware.ros.state_messages import StateTopic, state_topics
from robot_rl.core.errors import RobotRLError, SpecMismatchError

LISTEN_SECONDS = 3.0
_SKEW_SECONDS = 0.1
_SHARE_OF_RATE = 0.7
"""Of the declared rate that a topic must have."""


class Level(Enum):
    """How bad a finding is."""

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
    """What was found."""
    remedy: str = ""
    """What to do about it."""

    @property
    def line(self) -> str:
        """For a terminal."""
        return f"{self.level.value:8} {self.what}" + (
            f"\n         -> {self.remedy}" if self.remedy else ""
        )


def examine(plan: Deployment, *, listen: float = LISTEN_SECONDS) -> Iterator[Finding]:
    """Look at everything, cheap things first; later ones are left out where they have no ground.

    Args:
        plan: The deployment; its bundle may be empty.
        listen: How long to listen to the robot's topics [s].
    """
    yield (ros := _tried("ROS 2", _ros))
    yield from _rights()
    if not plan.options.bundle:
        yield Finding(Level.warning, "no bundle was named: nothing is compared with one",
                      "add bundle=runs/<run>/bundle")  # fmt: skip
        return
    yield (bundle := _tried("bundle", lambda: _bundle(plan)))
    if bundle.level is Level.fault:
        return
    yield _process(plan)
    if ros.level is not Level.fault:
        yield from _graph(plan, listen)


def _ros() -> str:
    found = judge(look_around())
    rmw = found.rmw or (found.implementations or ["unknown"])[0]
    return f"ROS 2 {found.distro} from {found.origin.value} in {found.rclpy.parent}, {rmw}"


def _bundle(plan: Deployment) -> str:
    spec = plan.runner.spec
    return (
        f"the bundle is for '{spec.robot.name}' at {1 / spec.control_dt:g} Hz; its recorded "
        "sequences were replayed"
    )


def _tried(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(Level.good, look())
    except RobotRLError as error:
        return Finding(Level.fault, f"{what}: {error}")


def _rights() -> Iterator[Finding]:
    """Rights of this process; given back at once."""
    try:
        for right in request_realtime():
            if right.granted:
                yield Finding(Level.good, f"{right.name}: {right.detail}")
            else:
                yield Finding(Level.warning, f"{right.name} is refused", right.detail)
    finally:
        release_realtime()


def _process(plan: Deployment) -> Finding:
    """Whether another robot process has the robot."""
    receiver = StatusReceiver(plan.mailboxes.status)
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
    return Finding(
        Level.warning, f"a robot process died {age:.0f} s ago without tidying up",
        f"nothing needs to be done; the next one takes over {mailbox_path(plan.mailboxes.status)}",
    )  # fmt: skip


def _graph(plan: Deployment, listen: float) -> Iterator[Finding]:
    """Who else is on the robot's topics, and whether they fit the bundle."""
    session = RosSession("doctor", namespace=plan.namespace, domain=plan.domain)
    try:
        topics = state_topics(plan.robot)
        heard = [
            (topic, session.newest(topic.name, message(topic.package, topic.message)))
            for topic in topics
        ]
        tally = _listen(session, heard, plan, listen)
        command = CommandMessages(plan.robot, plan.gain_sets).topic
        others = session.node.count_publishers(command)
        if others:
            yield Finding(
                Level.fault, f"{others} publish on {plan.namespace}/{command} already",
                f"stop them: ros2 topic info -v {plan.namespace}/{command} names their nodes",
            )  # fmt: skip
        else:
            yield Finding(Level.good, f"nobody else sends commands on {plan.namespace}/{command}")
        yield from (found for topic, _ in heard for found in tally[topic.name].findings(plan))
    finally:
        session.close()


@dataclass
class _Tally:
    """What came on a topic."""

    topic: StateTopic
    count: int = 0
    seconds: float = 0.0
    skew: float = 0.0
    """Largest difference between stamps and our clock [s]."""
    misfit: str = ""
    """Why messages do not fit the robot."""

    def findings(self, plan: Deployment) -> Iterator[Finding]:
        name = f"{plan.namespace}/{self.topic.name}"
        if not self.count:
            yield Finding(
                Level.good, f"nothing comes on {name}: the twin will fill it"
            )  # of other drivers this is a fault
            return
        if self.misfit:
            yield Finding(Level.fault, f"{name}: {self.misfit}")
        wanted = min(plan.robot.sensors[field].rate_hz for field in self.topic.fields)
        rate = self.count / self.seconds
        if rate < _SHARE_OF_RATE * wanted:
            yield Finding(
                Level.warning, f"{name} comes at {rate:.0f} Hz, declared are {wanted:g} Hz",
                "look for a busy machine or network, or correct the sensor's rate in the YAML",
            )  # fmt: skip
        if self.skew > _SKEW_SECONDS:
            yield Finding(
                Level.fault, f"stamps on {name} differ from this clock by {self.skew:.3f} s",
                "synchronise the clocks (chrony, ptp4l): ages of measurements decide about stops",
            )  # fmt: skip
        elif not self.misfit:
            yield Finding(Level.good, f"{name}: {rate:.0f} Hz, stamps within {self.skew:.3f} s")


def _listen(
    session: RosSession, heard: list[tuple[StateTopic, Newest]], plan: Deployment, seconds: float
) -> dict[str, _Tally]:
    tallies = {topic.name: _Tally(topic) for topic, _ in heard}
    state = {name: np.zeros((1, width)) for name, width in plan.robot.state_widths.items()}
    begin = time.monotonic()
    while (elapsed := time.monotonic() - begin) < seconds:
        for topic, newest in heard:
            tally = tallies[topic.name]
            found = newest.take()
            tally.count, tally.seconds = newest.count, elapsed
            if found is None:
                continue
            try:
                stamp = topic.unpack(found, state)
            except SpecMismatchError as error:
                tally.misfit = str(error)
                continue
            tally.skew = max(tally.skew, abs(session.now() - stamp) * 1e-9)
        time.sleep(0.001)
    return tallies
