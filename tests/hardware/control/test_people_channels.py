"""People and a robot process: their own kind of setpoint, their heartbeat, a stop button."""

import os
from typing import Any

import numpy as np
import pytest

from hardware.control.clock import LogicalClock
from hardware.control.ipc import (
    CommandLayout,
    CommandPublisher,
    EstopPublisher,
    HeartbeatPublisher,
    RequestPublisher,
)
from hardware.control.monitors import StampedCommand
from hardware.control.pipeline import ControllerSet
from hardware.control.process import RobotChannels, RobotProcess
from hardware.control.safety import Condition, SafetyState
from hardware.control.stopping import StopConfig, make_stopping
from hardware.drivers.fake_driver import FakeDriver
from robot_rl.core.robot_command import CommandKind, PoseCommand
from tests.hardware.control.loops import PERIOD, to
from tests.hardware.control.robots import flying, multirotor, two_joints

S, C = SafetyState, Condition


class PoseToJoints:
    """Joint targets that a pose's first two numbers are: a law of a person."""

    setpoint, command = CommandKind.pose, CommandKind.joint

    def start(self, state, last):
        pass

    def update(self, setpoint, state, dt):
        return to(*setpoint.position_w[0, :2])


@pytest.fixture
def robot():
    """A process whose policies send joints and whose people send poses."""
    spec, clock = two_joints(), LogicalClock(1.0)
    name = f"test.people.{os.getpid()}"
    process = RobotProcess(
        FakeDriver(spec, clock), name=name, clock=clock, period=PERIOD,
        human_setpoint=CommandKind.pose,
        controllers=ControllerSet(by_kind={CommandKind.pose: PoseToJoints()}),
        stop=StopConfig(ramp_time=0.1, stop_time=0.1),
    )  # fmt: skip
    yield process, RobotChannels(name), spec, clock
    process.close()


def run(process, clock, ticks, speak=lambda now: None):
    for _ in range(ticks):
        clock.advance(PERIOD)
        speak(clock.now())
        process.loop.tick()
        process.between_ticks()


def armed(process, clock, speak=lambda now: None):
    process.loop.requests.ask(C.ARM)
    run(process, clock, 100, speak)
    process.loop.requests.ask(C.ARM)
    run(process, clock, 2, speak)
    return process.loop.safety


def test_policy_and_person_send_their_own_kinds_and_both_are_followed(robot):
    process, channels, spec, clock = robot
    policy = CommandPublisher(channels.policy, CommandLayout(spec, CommandKind.joint))
    person = CommandPublisher(channels.human, CommandLayout(spec, CommandKind.pose))
    beat = HeartbeatPublisher(channels.heartbeat)

    def speak(now):
        policy.send(StampedCommand(command=to(0.25, -0.5), stamp=now))
        aim = PoseCommand(position_w=np.array([[0.4, -0.6, 0.0]]), orientation_w=np.eye(1, 4))
        person.send(StampedCommand(command=aim, stamp=now))
        beat.send(now)

    try:
        assert armed(process, clock, speak) is S.READY
        for request, safety, q in ((C.ENABLE_POLICY, S.POLICY, [0.25, -0.5]),
                                   (C.HAND_TO_HUMAN, S.HUMAN, [0.4, -0.6]),
                                   (C.ENABLE_POLICY, S.POLICY, [0.25, -0.5])):  # fmt: skip
            process.loop.requests.ask(request)
            run(process, clock, 400, speak)
            assert process.loop.safety is safety, process.loop.status.refused
            measured = process._driver.read().joint_position[0]
            np.testing.assert_allclose(measured, q, atol=0.02)
    finally:
        for one in (policy, person, beat):
            one.close()


def test_a_person_whose_heartbeat_stops_is_gone_although_their_commands_come(robot):
    process, channels, spec, clock = robot
    person = CommandPublisher(channels.human, CommandLayout(spec, CommandKind.pose))
    beat, bridge = HeartbeatPublisher(channels.heartbeat), RequestPublisher(channels.requests)
    alive = True

    def speak(now):
        aim = PoseCommand(position_w=np.array([[0.2, -0.5, 0.0]]), orientation_w=np.eye(1, 4))
        person.send(StampedCommand(command=aim, stamp=now))
        bridge.update(heartbeat=0.0, publishers=1, estop_down=False)  # which knows of no person
        if alive:
            beat.send(now)

    try:
        armed(process, clock, speak)
        process.loop.requests.ask(C.HAND_TO_HUMAN)
        run(process, clock, 10, speak)
        assert process.loop.safety is S.HUMAN
        alive = False
        run(process, clock, round(0.24 / PERIOD), speak)
        assert process.loop.safety is S.HUMAN
        run(process, clock, round(0.03 / PERIOD), speak)
        assert process.loop.safety is S.HOLD
    finally:
        for one in (person, beat, bridge):
            one.close()


def test_a_robot_with_a_stop_button_is_stopped_until_the_button_is_heard():
    spec, clock, name = two_joints(), LogicalClock(1.0), f"test.button.{os.getpid()}"
    process = RobotProcess(
        FakeDriver(spec, clock), name=name, clock=clock, period=PERIOD, estop=True,
        stop=StopConfig(ramp_time=0.1, stop_time=0.1),
    )  # fmt: skip
    button = EstopPublisher(RobotChannels(name).estop)
    try:
        run(process, clock, 3)
        assert process.loop.safety is S.ESTOP
        process.loop.requests.ask(C.RESET)
        run(process, clock, 3)
        assert process.loop.safety is S.ESTOP
        up = lambda now: button.send(False, now)  # noqa: E731
        run(process, clock, 3, up)
        process.loop.requests.ask(C.RESET)
        run(process, clock, 3, up)
        assert process.loop.safety is S.PASSIVE
        assert armed(process, clock, up) is S.READY
        run(process, clock, 2, lambda now: button.send(True, now))
        assert process.loop.safety is S.ESTOP
        process.loop.requests.ask(C.RESET)  # while it is down
        run(process, clock, 2, lambda now: button.send(True, now))
        assert process.loop.safety is S.ESTOP
        run(process, clock, 3, up)
        process.loop.requests.ask(C.RESET)
        run(process, clock, 3, up)
        assert armed(process, clock, up) is S.READY
        run(process, clock, round(0.25 / PERIOD) + 3)  # its process is gone
        assert process.loop.safety is S.ESTOP
    finally:
        button.close()
        process.close()


def test_a_drone_that_followed_a_pose_is_levelled_and_not_dropped():
    stopping: Any = make_stopping(multirotor())
    pose = PoseCommand(position_w=np.zeros((1, 3)), orientation_w=np.array([[1.0, 0, 0, 0]]))
    stopping.enter(S.HOLD, 0.0, flying(), pose)
    assert stopping.setpoint(S.HOLD, 0.0, flying()).thrust[0, 0] == pytest.approx(0.5)
    stopping.enter(S.SAFE_STOP, 0.0, flying(), pose)
    assert C.STOPPING in stopping.conditions(S.SAFE_STOP, 0.1)
