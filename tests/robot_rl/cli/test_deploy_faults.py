"""What goes wrong around a deployed robot, over real ROS 2 between processes: it is stopped."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hardware.control.ipc import StatusSubscriber
from hardware.control.monitors import SafetyLimits
from hardware.control.process import RobotChannels
from hardware.control.safety import SafetyState
from hardware.ros.compat import inspect_environment, message
from hardware.ros.message_parts import put_stamp
from hardware.ros.session import RosSession
from robot_rl.core.process import clean_environ
from robot_rl.core.robot import RobotSpec
from tests.robot_rl.cli.deployments import Witness, left_behind, within

pytestmark = [
    pytest.mark.skipif(inspect_environment().rclpy is None, reason="ROS 2 is not installed"),
    pytest.mark.slow,
    pytest.mark.timeout(400),
]
FACTOR = 10.0
"""Patience of these tests: time-outs are of 0.4 s and 1 s."""
MARGIN = 0.02
"""By how much a safe command may come later than the time-out [s]."""
STOPPED = (SafetyState.HOLD, SafetyState.SAFE_STOP)
HARMLESS = 1e-9
GARBLED = ("lengths", "nan", "names", "gains", "stale")


@pytest.fixture
def witnessed(deployed) -> Iterator[Callable[[], tuple[Any, Witness]]]:
    """A deployment whose policy is in charge, and who watches it."""
    made: list[Witness] = []

    def start() -> tuple[Any, Witness]:
        operator = deployed(patience=FACTOR)
        parts = operator.parts
        slack = parts.limits.range_tolerance
        made.append(Witness(parts.robot, parts.channels, parts.gain_names, slack))
        operator.arm()
        operator.hand_over()
        return operator, made[-1]

    yield start
    for witness in made:
        witness.close()


class Sender:
    """Somebody else who commands, as fast as is asked."""

    def __init__(self, domain: int, make: Callable[[Any], None], pause: float = 0.0) -> None:
        self.sent = 0
        self._session = RosSession("stranger", namespace="/go2", domain=domain)
        self._kind = message("sensor_msgs", "JointState")
        self._publisher = self._session.publisher("joint_command", self._kind)
        self._make, self._pause, self._over = make, pause, threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> "Sender":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()
        self._session.close()

    def _work(self) -> None:
        while not self._over.wait(self._pause) if self._pause else not self._over.is_set():
            packed = self._kind()
            put_stamp(packed.header, self._session.now())
            self._make(packed)
            self._publisher.publish(packed)
            self.sent += 1


def proper(spec: RobotSpec, gains: str) -> Callable[[Any], None]:
    """A command that would be followed: the default pose."""

    def make(packed: Any) -> None:
        packed.header.frame_id = gains
        packed.name = spec.joint_names
        packed.position = array("d", [joint.default_position for joint in spec.joints])

    return make


def spoilt(how: str, spec: RobotSpec, gains: str) -> Callable[[Any], None]:
    def make(packed: Any) -> None:
        proper(spec, gains)(packed)
        match how:
            case "lengths":
                packed.position = array("d", [0.0] * 5)
            case "nan":
                packed.position[3] = float("nan")
            case "names":
                packed.name = ["wheel", *spec.joint_names[1:]]
            case "gains":
                packed.header.frame_id = "stiffest"
            case _:
                packed.header.stamp.sec -= 3600

    return make


def age_at(trip: str) -> float:
    """How old the newest command was when the loop acted, by the loop's own clock [s]."""
    found = re.search(r"newest command is (\d+) ms old", trip)
    assert found, trip
    return int(found[1]) * 1e-3


def test_stopped_policy_is_stopped_for_and_does_not_take_over_again(witnessed):
    operator, witness = witnessed()
    late = FACTOR * SafetyLimits().command_late
    policy = operator.processes["policy"].pid
    os.kill(policy, signal.SIGSTOP)
    try:
        assert within(30, lambda: witness.entered(SafetyState.HOLD) is not None)
        held = witness.entered(SafetyState.HOLD)
        assert held.trip.startswith("policy -> hold: command_late")
        assert late <= age_at(held.trip) + 1e-3 <= late + MARGIN
        assert within(30, lambda: witness.entered(SafetyState.SAFE_STOP) is not None)
        lost = witness.entered(SafetyState.SAFE_STOP)
        lost_after = FACTOR * SafetyLimits().command_lost
        assert lost_after <= age_at(lost.trip) + 1e-3 <= lost_after + MARGIN
    finally:
        os.kill(policy, signal.SIGCONT)
    before = witness.newest_command
    assert within(30, lambda: witness.newest_command > before), "it sends commands again"
    ticks = operator.status.ticks
    assert within(30, lambda: operator.status.ticks > ticks + 200)
    assert operator.status.safety is SafetyState.SAFE_STOP
    assert max(witness.excess.values()) < HARMLESS, witness.excess


def test_flooded_commands_hold_the_robot_and_it_can_still_be_stopped(witnessed, domain):
    operator, witness = witnessed()
    parts = operator.parts
    with Sender(domain, proper(parts.robot, parts.gain_names[0])) as sender:
        begin = time.monotonic()
        assert within(30, lambda: operator.status.safety in STOPPED)
        assert "second_publisher" in operator.status.trip or "command_" in operator.status.trip
        trigger = message("std_srvs", "Trigger")
        somebody = RosSession("somebody", namespace="/go2", domain=domain)
        try:
            somebody.call(trigger, "loop/estop", trigger.Request(), timeout=60)
        finally:
            somebody.close()
        assert within(30, lambda: operator.status.safety is SafetyState.ESTOP)
        rate = sender.sent / (time.monotonic() - begin)
    assert rate > 200, "this was no flood: a policy of this robot sends 50 a second"
    assert max(witness.excess.values()) < HARMLESS, witness.excess


def test_garbled_commands_stop_the_robot(witnessed, domain):
    operator, witness = witnessed()
    parts = operator.parts
    for how in GARBLED:
        with Sender(domain, spoilt(how, parts.robot, parts.gain_names[0]), pause=0.002):
            assert within(30, lambda: operator.status.safety in STOPPED), how
        assert operator.status.safety in STOPPED, how
        assert max(witness.excess.values()) < HARMLESS, (how, witness.excess)
        if how is not GARBLED[-1]:
            operator.reset()
            operator.arm()
            operator.hand_over()


def test_nobody_takes_over_with_garbled_commands(deployed, domain):
    """They are the only ones there, so nothing but the commands themselves is wrong."""
    operator = deployed(patience=FACTOR, mode="shadow")
    operator.arm()
    parts = operator.parts
    trigger = message("std_srvs", "Trigger")
    somebody = RosSession("somebody", namespace="/go2", domain=domain)
    try:
        for how in GARBLED:
            make = spoilt(how, parts.robot, parts.gain_names[0])
            with Sender(domain, make, pause=0.002) as sender:
                assert within(30, lambda of=sender: of.sent > 500)
                begin = operator.status.ticks
                somebody.call(trigger, "loop/policy", trigger.Request(), timeout=60)
                assert within(30, lambda: "policy_silent" in operator.status.refused)
                assert within(30, lambda first=begin: operator.status.ticks > first + 100)
                assert operator.status.safety is SafetyState.READY, how
    finally:
        somebody.close()


def test_operator_who_is_killed_leaves_a_robot_that_stops_softly(deploying, go2_bundle, domain):
    """As when somebody closes the lid of a laptop, or its memory is used up."""
    options = deploying.plan.DeployOptions(bundle=str(go2_bundle), domain=domain)
    boxes: RobotChannels = deploying.plan.Deployment(options).channels
    status = StatusSubscriber(boxes.status)
    process = subprocess.Popen(
        [sys.executable, "-m", "robot_rl.cli", "deploy", f"bundle={go2_bundle}",
         f"patience={FACTOR}", f"domain={domain}"],
        env=clean_environ(), start_new_session=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    group = process.pid
    seen: list[Any] = []
    try:
        assert within(200, lambda: (one := status.newest()) is not None
                      and one.safety is SafetyState.POLICY)  # fmt: skip
        process.kill()
        process.wait()

        def gone() -> bool:
            end = time.monotonic() + 0.2
            while time.monotonic() < end:  # finer than processes can be looked for
                seen.extend([one] if (one := status.newest()) is not None else [])
                time.sleep(0.002)
            return not alive(group)

        assert within(60, gone), f"still alive: {alive(group)}"
    finally:
        status.close()
        for number in alive(group):
            os.kill(number, signal.SIGKILL)
    fading = [one.time for one in seen if one.safety is SafetyState.SAFE_STOP]
    assert fading, "the stop was hard"
    assert fading[-1] - fading[0] > 0.9, "stiffness fades for a second"
    assert left_behind(domain) == []


def alive(session: int) -> list[int]:
    """Processes of a session that have not ended."""
    found: list[int] = []
    for entry in os.listdir("/proc"):
        try:
            fields = open(f"/proc/{entry}/stat").read().rpartition(")")[2].split()  # noqa: SIM115
        except (OSError, IndexError):
            continue
        if entry.isdigit() and int(fields[3]) == session and fields[0] != "Z":
            found.append(int(entry))
    return found


@pytest.mark.timeout(1200)
def test_ten_starts_and_stops_leave_nothing(deployed, domain):
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    def leftovers() -> set[int]:
        """Ports of this domain in shared memory; other segments do not say whose they are."""
        lowest = 7400 + 250 * domain
        found = [re.search(r"fastdds_port(\d+)", name) for name in os.listdir("/dev/shm")]
        return {int(port[1]) for port in found if port and 0 <= int(port[1]) - lowest < 250}

    first = deployed(driver="fake")
    first.arm()
    first.stop()
    files, memory, threads = open_files(), leftovers(), threading.active_count()
    started = [first]
    for _ in range(9):
        operator = deployed(driver="fake")
        started.append(operator)
        operator.arm()
        operator.stop()
    assert all([*one.exit_codes.values()] == [0, 0, 0] for one in started)
    assert open_files() <= files
    # The lock of a port stays, for whoever has the port next: those of one cycle serve all.
    assert len(leftovers() - memory) <= len(first.exit_codes), (memory, leftovers())
    assert threading.active_count() <= threads
    assert left_behind(domain) == []
