"""State, acts and status between the loop and its neighbours."""

import os
from itertools import count

import numpy as np
import pytest

from hardware.control.clock import Latency
from hardware.control.ipc import (
    ArrayPublisher,
    ArraySubscriber,
    RequestPublisher,
    RequestSubscriber,
    StatusPublisher,
    StatusSubscriber,
)
from hardware.control.robot_loop import OperatorRequests, RobotStatus
from hardware.control.safety import Condition, SafetyState

_numbers = count()
WIDTHS = {"joint_position": 2, "orientation_w": 4}


@pytest.fixture
def name() -> str:
    return f"test.{os.getpid()}.{next(_numbers)}"


def test_state_comes_once_and_whole(name):
    sender, receiver = ArrayPublisher(name, WIDTHS), ArraySubscriber(name, WIDTHS)
    assert receiver.newer() is None
    state = {"joint_position": np.array([[1.0, 2.0]]), "orientation_w": np.array([[1.0, 0, 0, 0]])}
    sender.send(state, 3.5)
    found = receiver.newer()
    assert found is not None
    fields, stamp = found
    assert stamp == 3.5
    for field, value in state.items():
        np.testing.assert_array_equal(fields[field], value)
    assert receiver.newer() is None
    sender.close()
    receiver.close()


def test_acts_are_done_once_each(name):
    requests = OperatorRequests()
    receiver, sender = RequestSubscriber(name, requests), RequestPublisher(name)
    sender.ask(Condition.ARM)  # before the loop ever looked: past
    receiver.poll()
    assert requests.take() == set()
    sender.ask(Condition.ARM)
    sender.ask(Condition.HOLD)
    receiver.poll()
    assert requests.take() == {Condition.ARM, Condition.HOLD}
    receiver.poll()
    assert requests.take() == set()
    sender.update(heartbeat=7.0, publishers=2, estop_down=True)
    receiver.poll()
    assert (requests.heartbeat, requests.publishers) == (7.0, 2)
    assert requests.take() == {Condition.ESTOP_PRESSED}
    sender.close()
    receiver.close()


def test_new_sender_asks_for_nothing_old_but_its_emergency_stop_counts(name):
    requests = OperatorRequests()
    receiver, sender = RequestSubscriber(name, requests), RequestPublisher(name)
    receiver.poll()
    for _ in range(3):
        sender.ask(Condition.ARM)
    receiver.poll()
    requests.take()
    sender.close()
    receiver.poll()
    sender = RequestPublisher(name)
    sender.ask(Condition.ARM)
    receiver.poll()
    assert requests.take() == set()
    sender.close()
    receiver.poll()
    sender = RequestPublisher(name)
    sender.ask(Condition.ESTOP_PRESSED)
    receiver.poll()
    assert requests.take() == {Condition.ESTOP_PRESSED}
    sender.close()
    receiver.close()


def test_status_comes_with_its_words(name):
    sender, receiver = StatusPublisher(name), StatusSubscriber(name)
    assert receiver.newest() is None
    causes = frozenset({Condition.TILT})
    words = "policy -> safe_stop: tilt (fällt um " + "x" * 500
    status = RobotStatus(
        time=2.0, ticks=100, safety=SafetyState.SAFE_STOP, conditions=causes,
        trip=words, refused="no",
        state_age=0.002, clamped=3, replaced=1, missed=2,
    )  # fmt: skip
    sender.set_latencies({"lateness": Latency(100, 1e-4, 2e-4, 3e-4)})
    sender.send(status)
    told = receiver.newest()
    assert told is not None
    assert (told.safety, told.conditions, told.ticks) == (SafetyState.SAFE_STOP, causes, 100)
    assert (told.clamped, told.replaced, told.missed, told.state_age) == (3, 1, 2, 0.002)
    assert told.latencies == {"lateness": Latency(100, 1e-4, 2e-4, 3e-4)}
    assert told.refused == "no"
    assert words.startswith(told.trip)
    assert len(told.trip) > 300
    sender.close()
    receiver.close()
