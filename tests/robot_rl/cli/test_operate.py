"""A second terminal: commands to robot processes on this computer, without ROS 2."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from hardware.control.ipc import StatusSubscriber
from hardware.control.process import RobotChannels
from hardware.control.robot_loop import RobotStatus
from hardware.control.safety import SafetyState
from robot_rl.core.process import clean_environ
from tests.robot_rl.cli.deployments import within

pytestmark = pytest.mark.slow

ROBOT = """
import os, sys
sys.path.insert(0, ".")
from hardware.control.clock import MonotonicClock
from hardware.control.process import RobotProcess
from hardware.drivers.fake_driver import FakeDriver
from tests.hardware.control.robots import two_joints

clock = MonotonicClock()
process = RobotProcess(FakeDriver(two_joints(), clock), name=sys.argv[1], clock=clock, period=0.01)
parent = os.getppid()
process.run(lambda: os.getppid() != parent)
"""


class Robot:
    """A fake robot in a process of its own."""

    def __init__(self, last: object) -> None:
        self.namespace = f"test_{uuid.uuid4().hex[:8]}"
        name = f"{self.namespace}.{last}"
        self.process = subprocess.Popen([sys.executable, "-c", ROBOT, name], env=clean_environ())
        self.channels = RobotChannels(name)
        self._status = StatusSubscriber(self.channels.status)
        assert within(30, lambda: self.status is not None)

    @property
    def status(self) -> RobotStatus | None:
        return self._status.newest()

    def end(self) -> None:
        """Kill it, and remove what it leaves."""
        self.process.kill()
        self.process.wait()
        self.channels.remove_dead()

    def is_in(self, state: SafetyState, seconds: float = 10.0) -> bool:
        return within(seconds, lambda: self.status is not None and self.status.safety is state)


@pytest.fixture
def robot(domain: int) -> Iterator[Robot]:
    robot = Robot(domain)
    yield robot
    robot.end()


def robot_rl(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "robot_rl.cli", *words], capture_output=True, text=True,
        timeout=100, env=clean_environ(),
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def state(robot: Robot) -> SafetyState | None:
    return robot.status.safety if robot.status else None


def test_a_robot_is_armed_held_stopped_and_reset(robot, domain):
    which = f"namespace={robot.namespace}"
    code, said = robot_rl("arm", which)
    assert (code, state(robot)) == (0, SafetyState.READY), said
    assert f"/{robot.namespace} (domain {domain}): passive -> ready" in said
    code, said = robot_rl("policy", which)
    assert (code, state(robot)) == (1, SafetyState.READY)
    assert "'policy' was not done; it is in 'ready': 'enable_policy' is refused" in said
    assert robot_rl("hold", which)[0] == 0
    assert state(robot) is SafetyState.HOLD
    code, said = robot_rl("status", which)
    assert code == 0
    assert re.search(rf"/{robot.namespace} \(domain {domain}\): hold ", said), said
    assert robot_rl("estop", which)[0] == 0
    assert state(robot) is SafetyState.ESTOP
    code, said = robot_rl("arm", which)
    assert (code, state(robot)) == (1, SafetyState.ESTOP), said
    assert "'arm' was not done; it is in 'estop': 'robot-rl reset' comes first" in said
    assert robot_rl("reset", which)[0] == 0
    assert state(robot) is SafetyState.PASSIVE


def test_a_suspended_robot_is_not_said_to_have_stopped_and_stops_when_it_goes_on(robot):
    assert robot_rl("arm", f"namespace={robot.namespace}")[0] == 0
    robot.process.send_signal(signal.SIGSTOP)
    code, said = robot_rl("estop", f"namespace={robot.namespace}")
    assert code == 1
    assert "the robot process has not answered for" in said
    robot.process.send_signal(signal.SIGCONT)
    assert robot.is_in(SafetyState.ESTOP)


def test_a_killed_robot_is_shown_as_what_it_is(robot):
    robot.process.kill()
    robot.process.wait()
    code, said = robot_rl("status", f"namespace={robot.namespace}")
    assert code == 1
    assert "its process died without tidying up" in said


def test_where_no_robot_runs_it_is_said(robot):
    code, said = robot_rl("status", "namespace=nobody")
    assert code == 2
    assert "no robot process runs on this computer" in said
    code, said = robot_rl("estop", "namespace=nobody", "domain=231")
    assert code == 2
    assert "no robot process runs on this computer" in said
    assert state(robot) is SafetyState.PASSIVE


def test_two_robots_are_told_apart_and_one_stop_stops_both(robot, domain):
    other = Robot(domain)
    try:
        code, said = robot_rl("hold", f"domain={domain}")
        assert code == 2
        assert "2 robots run here" in said
        assert f"namespace=/{min(robot.namespace, other.namespace)}" in said
        assert robot_rl("estop", f"domain={domain}")[0] == 0
        assert robot.is_in(SafetyState.ESTOP)
        assert other.is_in(SafetyState.ESTOP)
    finally:
        other.end()


def test_a_robot_that_learns_is_stopped_as_one_that_is_deployed():
    learner = Robot("learn")
    try:
        code, said = robot_rl("status", f"namespace={learner.namespace}")
        assert code == 0
        assert f"/{learner.namespace} (learn): passive" in said
        assert robot_rl("estop", f"namespace={learner.namespace}")[0] == 0
        assert state(learner) is SafetyState.ESTOP
    finally:
        learner.end()


def test_keys_of_a_terminal_command_the_robot(robot):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "robot_rl.cli", "operate", f"namespace={robot.namespace}"]
    terminal = subprocess.Popen(command, stdin=theirs, stdout=theirs, env=clean_environ())
    said = b""

    def read_until(text: bytes) -> bool:
        nonlocal said
        if select.select([ours], [], [], 0.1)[0]:
            said += os.read(ours, 4096)
        return text in said

    assert within(20, lambda: read_until(b"q leave")), said
    os.write(ours, b"a")
    assert robot.is_in(SafetyState.HOLD)
    os.write(ours, b"a")
    assert robot.is_in(SafetyState.READY)
    os.write(ours, b"x ")
    assert robot.is_in(SafetyState.ESTOP)
    assert within(20, lambda: read_until(b"estop")), said
    os.write(ours, b"q")
    assert terminal.wait(10) == 0
    assert robot.process.poll() is None
    os.close(ours)
    os.close(theirs)


def test_keys_need_a_terminal():
    code, said = robot_rl("operate")
    assert code == 2
    assert "needs a terminal" in said
