"""A person takes a deployed robot from its policy, leads it, and gives it back, over real ROS 2."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hardware.control.clock import MonotonicClock
from hardware.control.ipc import ArraySubscriber, SharedMemoryWriter, channel_path
from hardware.control.process import RobotChannels
from hardware.control.safety import SafetyState
from hardware.drivers.fake_driver import FakeDriver, FaultInjection
from hardware.ros.robot_inputs import RobotInputs
from hardware.ros.session import RosSession
from hardware.teleop.intent import Intent, shaped
from hardware.teleop.velocity_goal import VelocityGoal
from robot_rl.cli.deployment.operator import Operator
from robot_rl.cli.deployment.person import make_hand, running_deployment
from robot_rl.cli.deployment.processes import DrivenRobot
from robot_rl.core.errors import ConfigError, StaleStateError
from scripts.bench.deployment.scripted import (
    write_constant_policy,
    write_rates_policy,
    write_reaching_policy,
    write_trotting_policy,
)
from tests.hardware.control.robots import two_joints
from tests.robot_rl.cli.deployments import WITHOUT_ROS, running, status_of, within

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(WITHOUT_ROS, reason="ROS 2 is not installed"),
    pytest.mark.timeout(400),
]
S = SafetyState
STILL = [0.0] * 6


class Hand:
    """A person at a stick, in a thread of their own, as beside the console's server."""

    def __init__(self, operator: Operator) -> None:
        found = self.plan = running_deployment(operator.plan.channels.robot)
        self.hand = make_hand(found)
        self._lock = threading.Lock()
        self.axes, self.present = STILL, True
        spec = found.robot
        self._states = ArraySubscriber(found.channels.state, spec.state_widths)
        self._fields: dict[str, np.ndarray] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def ask(self, do: str) -> None:
        with self._lock:
            getattr(self.hand, do)(time.monotonic())

    @property
    def status(self) -> Any:
        with self._lock:
            return self.hand.status(time.monotonic())

    def measured(self, name: str) -> np.ndarray:
        with self._lock:
            return self._fields[name][0].copy()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self.hand.close()
        self._states.close()

    def _work(self) -> None:
        while not self._over.wait(0.02):
            now = time.monotonic()
            with self._lock:
                if self.present:
                    self.hand.set_intent({"axes": self.axes, "clutch": True}, now)
                self.hand.tick(now)
                if (newer := self._states.newer()) is not None:
                    self._fields = {name: np.array(value) for name, value in newer[0].items()}


@contextmanager
def beside(operator: Operator) -> Iterator[Hand]:
    """A person beside a deployment whose policy is in charge."""
    operator.arm()
    operator.hand_over()
    hand = Hand(operator)
    try:
        assert within(5.0, lambda: bool(hand.status["present"]))
        yield hand
    finally:
        hand.close()


def test_a_hovering_drone_is_flown_by_a_person_and_hovers_again(domain, tmp_path):
    bundle = write_rates_policy(tmp_path / "rates")
    with running(domain, bundle=bundle) as operator, beside(operator) as person:
        operator.watch(2.0)
        before = person.measured("position_w")
        person.ask("take_over")
        assert within(10.0, lambda: status_of(operator).safety is S.HUMAN), (
            person.status,
            operator.status,
        )
        time.sleep(2.0)
        assert np.linalg.norm(person.measured("position_w") - before) < 0.15
        person.axes = [0.0, 0.0, 0.6, 0.0, 0.0, 0.0]
        time.sleep(1.5)
        person.axes = STILL
        time.sleep(2.5)
        flown = person.measured("position_w")
        assert 0.2 < flown[2] - before[2] < 1.2
        assert np.linalg.norm((flown - before)[:2]) < 0.2
        person.ask("give_back")
        assert within(10.0, lambda: status_of(operator).safety is S.POLICY), (
            person.status,
            operator.status,
        )
        operator.watch(4.0)
        back = person.measured("position_w")
        assert np.linalg.norm(back - before) < 0.2  # the policy's goal is where it was
        person.ask("take_over")
        assert within(10.0, lambda: status_of(operator).safety is S.HUMAN)
        person.present = False  # the page is gone: nobody has it, and it does not fall
        assert within(10.0, lambda: status_of(operator).safety is S.HOLD)
        time.sleep(1.0)
        assert person.measured("position_w")[2] > back[2] - 0.4


def test_an_arm_is_led_by_its_tip_and_given_back(domain, tmp_path):
    bundle = write_reaching_policy(tmp_path / "reach")
    with running(domain, bundle=bundle) as operator, beside(operator) as person:
        operator.watch(4.0)
        goal = person.measured("end_effector_position_b")
        person.ask("take_over")
        assert within(10.0, lambda: status_of(operator).safety is S.HUMAN), (
            person.status,
            operator.status,
        )
        time.sleep(1.0)
        start = person.measured("end_effector_position_b")
        assert np.linalg.norm(start - goal) < 0.01
        person.axes = [0.0, 0.0, 0.8, 0.0, 0.0, 0.0]
        time.sleep(1.5)
        person.axes = STILL
        time.sleep(1.0)
        led = person.measured("end_effector_position_b") - start
        assert led[2] > 0.03
        assert np.linalg.norm(led[:2]) < 0.02
        person.ask("give_back")
        assert within(10.0, lambda: status_of(operator).safety is S.POLICY), (
            person.status,
            operator.status,
        )
        operator.watch(4.0)
        assert np.linalg.norm(person.measured("end_effector_position_b") - goal) < 0.03


def test_a_walking_robot_is_steered_and_goes_back_to_its_goal(domain, tmp_path):
    one_goal = "task.goal_time=1000"  # or the world asks for another in the midst of the test
    bundle = write_trotting_policy(tmp_path / "trot", one_goal)
    with (
        running(domain, bundle=bundle) as operator,
        beside(operator) as person,
    ):
        session = RosSession("witness", namespace="/go2", domain=domain)
        spec = person.plan.runner.spec
        heard = RobotInputs(session, spec.robot, goal_widths=spec.goal_widths, sensed_widths={})

        def goal() -> np.ndarray:
            session.wait(0.05)
            heard.poll()
            return heard.goal["velocity_b"][0]

        def swing() -> float:
            """Largest motion of a thigh within a second [rad]."""
            end, seen = time.monotonic() + 1.0, []
            while time.monotonic() < end:
                seen.append(person.measured("joint_position"))
                time.sleep(0.02)
            return float(np.ptp(np.array(seen), axis=0)[1::3].max())

        try:
            assert within(10.0, lambda: bool(np.isfinite(goal()).all()))
            task = goal().copy()
            person.ask("take_over")
            assert within(10.0, lambda: bool(person.status["leads"])), person.status
            assert within(10.0, lambda: np.allclose(goal(), 0.0))
            time.sleep(1.0)
            assert within(8.0, lambda: swing() < 0.1)
            person.axes = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
            assert within(10.0, lambda: goal()[0] > 0.5)
            time.sleep(1.0)
            assert within(8.0, lambda: swing() > 0.25)
            assert status_of(operator).safety is S.POLICY
            assert person.status["leads"]
            person.present = False  # the page is gone: it stands
            assert within(10.0, lambda: np.allclose(goal(), 0.0))
            time.sleep(1.0)
            assert within(8.0, lambda: swing() < 0.1)
            person.present, person.axes = True, STILL
            person.ask("give_back")
            assert within(10.0, lambda: np.allclose(goal(), task))
        finally:
            session.close()


def test_a_goal_counts_however_old_the_samples_are():
    """It was dropped where it was younger than the newest sample by more than 10 ms."""
    goal, clock = "goal/velocity_b", MonotonicClock()
    channels = RobotChannels(f"goal.{os.getpid()}")
    parts: Any = SimpleNamespace(
        world_widths={goal: 3}, channels=channels, drawn_cameras=[], goals={}, robot=two_joints()
    )
    robot = FakeDriver(parts.robot, clock, faults=FaultInjection(delay=0.05))
    robot.connect()
    loop: Any = SimpleNamespace(requests=None)
    with (
        closing(DrivenRobot(parts, robot)) as driven,
        closing(SharedMemoryWriter(channels.goals, 3)) as person,
        closing(ArraySubscriber(channels.world, parts.world_widths)) as world,
    ):
        assert within(5.0, lambda: _is_read(robot))
        person.write(np.array([0.5, 0.0, 0.0]), clock.now())
        driven.between_ticks(loop, clock)
        newest = world.newer()
        assert newest is not None
        np.testing.assert_array_equal(newest[0][goal], [[0.5, 0.0, 0.0]])


@pytest.mark.parametrize("task", [{}, {"forward": [-0.5, 1], "lateral": [0, 0], "turn": [-1, 1]}])
def test_a_small_deflection_that_the_console_lets_through_steers_a_walking_robot(task):
    """Its deadband was taken from the stick twice, so that the slowest walks were out of reach."""
    plan: Any = SimpleNamespace(
        robot=SimpleNamespace(name="dog", feet=["foot"], rotors=[]), setpoint=None,
        channels=RobotChannels(f"stick.{os.getpid()}"), config=SimpleNamespace(),
        runner=SimpleNamespace(spec=SimpleNamespace(goal_widths={"velocity_b": 3})),
    )  # fmt: skip
    plan.config.task = SimpleNamespace(**task)
    with closing(make_hand(plan)) as hand:
        assert isinstance(hand, VelocityGoal)
        intent = Intent.from_dict({"axes": [0.05, 0.0, 0.0, 0.0, 0.0, 0.0], "clutch": True})
        assert shaped(intent, hand.config.stick)[0] > 0


def _is_read(robot: FakeDriver) -> bool:
    with suppress(StaleStateError):
        robot.read()
    return np.isfinite(robot.stamp)


def test_what_cannot_be_led_is_said_and_nothing_is_left_behind(domain, tmp_path):
    bundle = write_constant_policy(tmp_path / "hover", 0.0, "task=hover", "robot=crazyflie")
    with running(domain, bundle=bundle) as operator:
        path = channel_path(operator.plan.channels.deployment)
        assert within(60.0, path.exists)
        found = running_deployment(operator.plan.channels.robot)
        assert found.options.bundle == str(bundle)
        spec = found.robot
        del spec.sensors["position_w"]
        with pytest.raises(ConfigError, match="measures no"):
            make_hand(found)
    assert not path.exists()
