"""The bridge between a loop's channels and topics: what is sent when."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hardware.control.clock import MonotonicClock
from hardware.control.ipc import ArrayPublisher, RequestSubscriber, StatusPublisher
from hardware.control.process import RobotChannels
from hardware.control.robot_loop import OperatorRequests, RobotStatus
from hardware.control.safety import Condition, SafetyState
from hardware.ros.compat import message
from hardware.ros.robot_bridge import RobotBridge
from hardware.ros.session import RosSession
from hardware.teleop.velocity_goal import VelocityGoal, VelocityGoalConfig
from tests.compositions import composed

GOAL, SENSED = "goal/velocity_b", "sensed/handle"
WORLD = {GOAL: 3, SENSED: 2}


@dataclass
class Loop:
    """The loop's ends of the channels, a bridge, and a node that listens."""

    bridge: RobotBridge
    world: ArrayPublisher
    status: StatusPublisher
    listener: RosSession

    def tell(self, safety: SafetyState, age: float = 0.0) -> None:
        self.status.send(
            RobotStatus(
                time=time.monotonic() - age, ticks=1, safety=safety, conditions=frozenset(),
                trip="", refused="", state_age=0.0, clamped=0, replaced=0, missed=0,
            )
        )  # fmt: skip

    def show(self, goal: float, sensed: float) -> None:
        values = {GOAL: np.full((1, 3), goal), SENSED: np.full((1, 2), sensed)}
        self.world.send(values, time.monotonic())
        self.bridge.poll()


@pytest.fixture
def loop(sessions) -> Iterator[Loop]:
    spec = composed(["task=velocity", "robot=go2"]).config.robot.spec
    name = f"test-bridge-{os.getpid()}"
    boxes = RobotChannels(name)
    with ExitStack() as stack:
        world = stack.enter_context(closing(ArrayPublisher(boxes.world, WORLD)))
        status = stack.enter_context(closing(StatusPublisher(boxes.status)))
        bridge = RobotBridge(
            sessions("loop"), spec, name=name, clock=MonotonicClock(), gain_sets={}, world=WORLD
        )
        yield Loop(stack.enter_context(closing(bridge)), world, status, sessions("listener"))


@pytest.mark.slow
def test_a_goal_is_sent_when_it_changes_and_what_is_sensed_always(loop):
    goal_kind = message("std_msgs", "Float64MultiArray")
    goals = loop.listener.every(GOAL, goal_kind, latched=True)
    sensed = loop.listener.newest(SENSED, message("sensor_msgs", "JointState"))
    loop.listener.wait_until(lambda: sensed.publishers == 1, "the bridge")
    time.sleep(0.3)  # nothing tells that the goals' topic has been found too
    seen: list[float] = []
    for goal, number in ((0.5, 1.0), (0.5, 2.0), (0.5, 3.0), (-0.25, 4.0), (-0.25, 5.0)):
        loop.show(goal, number)
        seen.append(sensed.wait(loop.listener, "what is sensed").position[0])
    assert seen == [1.0, 2.0, 3.0, 4.0, 5.0]
    time.sleep(0.2)
    assert len(list(goals.take())) == 2
    late = loop.listener.newest(GOAL, goal_kind, latched=True)
    assert list(late.wait(loop.listener, "the goal").data) == [-0.25] * 3, "who comes later, too"


@pytest.mark.slow
def test_a_new_state_of_safety_is_told_at_the_next_look(loop):
    kind = message("diagnostic_msgs", "DiagnosticStatus")
    heard = loop.listener.newest("safety/state", kind, latched=True)
    loop.listener.wait_until(lambda: heard.publishers == 1, "the bridge")
    for safety in (SafetyState.READY, SafetyState.POLICY, SafetyState.SAFE_STOP):
        loop.tell(safety)
        loop.bridge.poll()
        assert heard.wait(loop.listener, "the state").message == safety.value
    assert loop.bridge.status is not None
    assert loop.bridge.status.safety is SafetyState.SAFE_STOP


@pytest.mark.slow
def test_a_loop_that_does_not_answer_is_stale_with_its_age_and_is_not_set_in_motion(loop):
    status, array = (
        message("diagnostic_msgs", f"Diagnostic{what}") for what in ("Status", "Array")
    )
    safety = loop.listener.newest("safety/state", status, latched=True)
    diagnostics = loop.listener.newest("/diagnostics", array)
    loop.listener.wait_until(lambda: safety.publishers == 1 == diagnostics.publishers, "the bridge")
    loop.tell(SafetyState.POLICY)
    loop.bridge.poll()
    assert safety.wait(loop.listener, "the state").message == "policy"

    def heard(message: str) -> Any:
        """The first message that begins so, while the bridge goes on."""
        got: list[Any] = []

        def came() -> bool:
            loop.bridge.poll()
            got.extend(filter(None, [safety.take()]))
            return bool(got) and got[-1].message.startswith(message)

        loop.listener.wait_until(came, message)
        return got[-1]

    told = heard("the robot process has not answered for 0.")
    assert told.level == b"\x03"
    values = {one.key: one.value for one in told.values}
    assert values["last_state"] == "policy"
    assert 0.249 < float(values["age [s]"]) < 0.5, "it is said within half a second"
    (of_loop,) = diagnostics.wait(loop.listener, "diagnostics").status
    assert of_loop.level == b"\x03"
    assert "has not answered" in of_loop.message
    for request, passed in ((Condition.ENABLE_POLICY, False), (Condition.ESTOP_PRESSED, True)):
        done, why = loop.bridge._ask(request)
        assert not done
        assert ("it finds" in why) is passed
    loop.tell(SafetyState.HOLD)
    assert heard("hold").level == b"\x01"
    assert loop.bridge._lifecycle() == "inactive"
    loop.status.close()
    assert heard("the robot process has ended").level == b"\x03"
    assert loop.bridge._lifecycle() == "finalized"  # and not unconfigured, as before its begin


@pytest.mark.slow
def test_where_the_robot_process_tells_no_goals_the_bridge_sends_those_of_a_person(sessions):
    spec = composed(["task=velocity", "robot=go2"]).config.robot.spec
    name = f"test-steered-{os.getpid()}"
    boxes = RobotChannels(name)
    listener = sessions("listener")
    goals = listener.newest(GOAL, message("std_msgs", "Float64MultiArray"), latched=True)
    with ExitStack() as stack:
        status = stack.enter_context(closing(StatusPublisher(boxes.status)))
        bridge = RobotBridge(
            sessions("loop"), spec, name=name, clock=MonotonicClock(), gain_sets={}, steered=True
        )
        stack.enter_context(closing(bridge))
        person = stack.enter_context(
            closing(VelocityGoal(boxes, VelocityGoalConfig(ranges=[[-1.0, 1.0]] * 3, time=0.0)))
        )

        def heard(ahead: float) -> bool:
            """The goal came while the person holds the stick so."""
            end, stick = time.monotonic() + 10.0, {"axes": [ahead] + [0.0] * 5, "clutch": True}
            while time.monotonic() < end:
                now = time.monotonic()
                if ahead >= 0:
                    person.set_intent(stick, now)
                    person.tick(now)
                bridge.poll()
                listener.wait(0.02)
                found = goals.take()
                if found is not None and found.data[0] == max(ahead, 0.0):
                    return True
            return False

        bridge.poll()
        assert goals.publishers == 0, "nobody steers: others may send this goal"
        now = time.monotonic()
        status.send(
            RobotStatus(
                time=now, ticks=1, safety=SafetyState.POLICY, conditions=frozenset(), trip="",
                refused="", state_age=0.0, clamped=0, replaced=0, missed=0,
            )
        )  # fmt: skip
        person.set_intent({"axes": [0.0] * 6}, now)
        person.take_over(now)
        assert heard(0.0)
        assert heard(1.0)
        requests = OperatorRequests()
        told = stack.enter_context(closing(RequestSubscriber(boxes.requests, requests)))
        told.poll()
        alone = requests.publishers
        planner = sessions("planner").publisher(
            GOAL, message("std_msgs", "Float64MultiArray"), latched=True
        )
        end = time.monotonic() + 10.0
        while requests.publishers == alone and time.monotonic() < end:
            assert planner is not None
            heard(1.0)
            told.poll()
        assert requests.publishers == alone + 1, "a robot with two goals holds"
        person.give_back(time.monotonic())
        assert heard(-1.0), "given back: it stands until somebody sends another goal"
