"""A person steers the goal of a walking policy."""

import contextlib
import os

import numpy as np
import pytest

from hardware.control.ipc import StatusPublisher
from hardware.control.process import RobotChannels
from hardware.control.request_socket import RequestSocket
from hardware.control.robot_loop import OperatorRequests, RobotStatus
from hardware.control.safety import Condition, SafetyState
from hardware.teleop.intent import StickConfig
from hardware.teleop.velocity_goal import GOAL, VelocityGoal, VelocityGoalConfig, VelocityGoalReader
from robot_rl.core.errors import ConfigError

LINEAR = StickConfig(deadband=[0.0] * 6, exponent=1.0)


@pytest.fixture
def channels():
    return RobotChannels(f"test.goal.{os.getpid()}")


def status_of(safety, now):
    return RobotStatus(
        time=now, ticks=1, safety=safety, conditions=frozenset(), trip="", refused="",
        state_age=0.0, clamped=0, replaced=0, missed=0,
    )  # fmt: skip


@pytest.fixture
def loop(channels):
    with contextlib.closing(StatusPublisher(channels.status)) as made:
        made.send(status_of(SafetyState.POLICY, 10.0))
        yield made


RANGES = [[-0.4, 1.0], [-0.5, 0.5], [-1.0, 1.0]]


@pytest.fixture
def person(channels, loop):
    """A person who steers from 10 s on."""
    made = VelocityGoal(channels, VelocityGoalConfig(ranges=RANGES, time=0.5, stick=LINEAR))
    made.set_intent({"axes": [0.0] * 6}, 10.0)
    made.take_over(10.0)
    assert made.leads
    yield made
    made.close()


def world():
    return {GOAL: np.array([[9.0, 9.0, 9.0]]), "goal/clock": np.array([[0.3, 0.1]])}


def led(person, seconds, axes, begin=10.0):
    now = begin
    for _ in range(round(seconds / 0.02)):
        now += 0.02
        person.set_intent({"axes": axes, "clutch": True}, now)
        person.tick(now)
    return now


def test_the_stick_is_the_goal_that_the_policy_sees(channels, person):
    reader = VelocityGoalReader(channels)
    now = led(person, 1.0, [1.0, -0.5, 1.0, 1.0, 1.0, 0.5])
    seen = reader.put_into(world(), now)
    np.testing.assert_allclose(seen[GOAL], [[1.0, -0.25, 0.5]])
    np.testing.assert_array_equal(seen["goal/clock"], world()["goal/clock"])
    now = led(person, 1.0, [-1.0, 0.0, 0.0, 0.0, 0.0, 0.0], begin=now)
    np.testing.assert_allclose(reader.put_into(world(), now)[GOAL], [[-0.4, 0.0, 0.0]])


def test_it_grows_and_falls_no_faster_than_it_may(person):
    now = led(person, 0.25, [1.0, 0, 0, 0, 0, 0])
    assert person.velocity[0] == pytest.approx(12 * 0.02 / 0.5)
    led(person, 0.1, [0.0] * 6, begin=now)
    assert person.velocity[0] == pytest.approx(7 * 0.02 / 0.5)


def test_a_person_who_is_not_heard_lets_it_stand(channels, person):
    reader = VelocityGoalReader(channels)
    now = led(person, 1.0, [1.0, 0, 0, 0, 0, 0])
    for _ in range(50):
        now += 0.02
        person.tick(now)
    np.testing.assert_array_equal(person.velocity, np.zeros(3))
    assert not person.status(now)["present"]
    np.testing.assert_array_equal(reader.put_into(world(), now)[GOAL], np.zeros((1, 3)))


def test_a_program_that_was_killed_lets_it_stand_and_who_gives_back_lets_other_goals_count(
    channels, person
):
    reader = VelocityGoalReader(channels)
    now = led(person, 1.0, [1.0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(reader.put_into(world(), now + 0.3)[GOAL], np.zeros((1, 3)))
    person.give_back(now)
    assert not person.leads
    np.testing.assert_array_equal(reader.put_into(world(), now + 0.4)[GOAL], world()[GOAL])


def test_a_program_that_ends_while_it_steers_lets_the_robot_hold(channels, person):
    requests = OperatorRequests()
    with contextlib.closing(RequestSocket(channels.operator, requests)) as socket:
        person.close()
        socket.poll()
    assert requests.take() == {Condition.HOLD}


def test_it_is_steered_only_while_its_policy_is_in_charge_and_by_a_person_who_is_heard(
    channels, loop
):
    person = VelocityGoal(channels)
    with contextlib.closing(person):
        person.take_over(10.0)
        assert "no device is heard" in person.status(10.0)["refusal"]
        person.set_intent({"axes": [0.0] * 6}, 10.0)
        loop.send(status_of(SafetyState.HOLD, 10.0))
        person.take_over(10.0)
        assert "in 'hold' follows no goal" in person.status(10.0)["refusal"]
        person.take_over(12.0)
        assert "has not answered" in person.status(12.0)["refusal"]
        assert not person.leads


def test_a_policy_without_such_a_goal_is_left_alone(channels, person):
    reader = VelocityGoalReader(channels)
    led(person, 0.2, [1.0, 0, 0, 0, 0, 0])
    assert reader.put_into({"goal/clock": np.zeros((1, 2))}, 10.2).keys() == {"goal/clock"}


def test_one_person_steers(channels, person):
    other = VelocityGoal(channels)
    other.set_intent({"axes": [0.0] * 6}, 10.0)
    other.take_over(10.0)
    assert other.status(10.0)["refusal"] == "another person steers this robot"
    assert (other.leads, person.leads) == (False, True)
    other.close()


@pytest.mark.parametrize(
    "config", [{"ranges": RANGES[:2]}, {"ranges": [[0.1, 1.0]] * 3}, {"time": -1.0}]
)
def test_settings_that_are_none_are_refused(config):
    with pytest.raises(ConfigError):
        VelocityGoalConfig(**config)
