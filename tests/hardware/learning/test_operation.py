"""Requests to an unattended robot, and states that only a person may end."""

from types import SimpleNamespace
from typing import Any

import pytest

from hardware.control.safety import Condition, SafetyState
from hardware.learning.operation import UnattendedOperation

SILENT = "policy -> hold: policy_stale (no command for 0.3 s)"


def status(safety: SafetyState, ticks: int, *, trip: str = "", trips: int = 0) -> Any:
    return SimpleNamespace(safety=safety, ticks=ticks, trip=trip, trips=trips)


def test_it_leads_a_new_robot_to_the_policy() -> None:
    operation = UnattendedOperation()
    asked = [
        operation.request(status(safety, tick))
        for tick, safety in enumerate((SafetyState.PASSIVE, SafetyState.READY, SafetyState.POLICY))
    ]
    assert asked == [Condition.ARM, Condition.ENABLE_POLICY, None]


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("held", [SafetyState.HOLD, SafetyState.SAFE_STOP])
def test_a_person_who_holds_or_stops_is_obeyed_by_a_restarted_actor_too(
    held: SafetyState, new: bool
) -> None:
    operation = UnattendedOperation()
    if not new:
        assert operation.request(status(SafetyState.POLICY, 1)) is None
    assert operation.request(status(held, 2)) is None
    assert operation.request(status(held, 3)) is None


def test_what_trouble_held_goes_on_after_a_restart() -> None:
    operation = UnattendedOperation()
    held = status(SafetyState.HOLD, 9, trip=SILENT, trips=1)
    assert operation.request(held) is Condition.ARM


def test_a_hold_of_a_person_after_earlier_trouble_stays() -> None:
    operation = UnattendedOperation()
    trouble = "policy -> safe_stop: overspeed (joint4 2.7)"
    assert operation.request(status(SafetyState.HOLD, 9, trip=trouble, trips=1)) is None
    assert operation.request(status(SafetyState.HOLD, 10, trip=trouble, trips=1)) is None
