"""Requests to an unattended robot, and states that only a person may end."""

from types import SimpleNamespace
from typing import Any

import pytest

from hardware.control.safety import Condition, SafetyState
from hardware.learning.operation import request_towards_policy


def status(safety: SafetyState, *, withheld: int = 0) -> Any:
    return SimpleNamespace(safety=safety, withheld=withheld)


@pytest.mark.parametrize(
    ("safety", "request_"),
    [
        (SafetyState.PASSIVE, Condition.ARM),
        (SafetyState.HOLD, Condition.ARM),
        (SafetyState.READY, Condition.ENABLE_POLICY),
        (SafetyState.SAFE_STOP, Condition.RESET),
        (SafetyState.ESTOP, Condition.RESET),
        (SafetyState.ARMING, None),
        (SafetyState.POLICY, None),
        (SafetyState.HUMAN, None),
    ],
)
def test_each_state_leads_towards_the_policy_unless_a_person_withholds_it(
    safety: SafetyState, request_: Condition | None
) -> None:
    assert request_towards_policy(status(safety)) is request_
    assert request_towards_policy(status(safety, withheld=1)) is None
