"""The state machine: its whole table by hand, and its laws over random histories."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.control.safety import (
    DRIVEN,
    EMERGENCIES,
    FAULTS,
    OPERATOR_REQUESTS,
    PAUSES,
    Condition,
    SafetyState,
    deciding_rule,
    next_state,
    refusals,
)

C, S = Condition, SafetyState

STATES = [S.PASSIVE, S.ARMING, S.HOLD, S.READY, S.POLICY, S.HUMAN, S.SAFE_STOP, S.ESTOP]
_PAGE = (Path(__file__).parents[3] / "hardware/README.md").read_text()
_LINES = [re.split(r" *\| *", row)[1:-1] for row in _PAGE.splitlines() if row.startswith("| `")]
ROWS = {row[0].strip("`"): row[1:] for row in _LINES if len(row) == 1 + len(STATES)}
"""Where one condition alone leads, for every state, in the words of the README, written by hand:
a dot stays where it is, and so does every state under a condition that has no row."""

one_tick = st.frozensets(st.sampled_from(list(C)), max_size=4)
histories = st.lists(one_tick, max_size=40)
# Histories in which the robot does come to move: acts are far more frequent than troubles.
busy_histories = st.lists(
    st.one_of(
        st.sampled_from([frozenset({act}) for act in (*OPERATOR_REQUESTS, C.RAMPED)]),
        st.sampled_from([frozenset({c}) for c in C]),
        one_tick,
    ),
    max_size=60,
)

SEVERITY = {
    state: severity
    for severity, states in enumerate((
        (SafetyState.ARMING, SafetyState.READY, SafetyState.POLICY, SafetyState.HUMAN),
        (SafetyState.HOLD,), (SafetyState.SAFE_STOP, SafetyState.PASSIVE), (SafetyState.ESTOP,),
    ))
    for state in states
}  # fmt: skip
"""Rises by itself, falls by a person's request only."""


def visited(state, history):
    states = [state]
    for conditions in history:
        states.append(next_state(states[-1], conditions))
    return states


def test_the_table_by_hand_names_every_condition_that_moves_and_a_quiet_tick_changes_nothing():
    moving = [c for c in C if any(next_state(state, {c}) is not state for state in S)]
    assert list(ROWS) == [condition.value for condition in moving]
    assert len(ROWS) == 27
    assert [next_state(state, frozenset()) for state in S] == list(S)


@pytest.mark.parametrize("condition", C, ids=lambda c: c.value)
def test_each_condition_alone_leads_where_the_table_says(condition):
    row = ROWS.get(condition.value, ["."] * len(STATES))
    for state, expected in zip(STATES, row, strict=True):
        name = state.name if expected == "." else expected
        assert next_state(state, {condition}) is S[name], (state, condition)


@pytest.mark.slow
@given(st.sampled_from(S), one_tick)
def test_every_state_and_set_of_conditions_has_one_successor_never_milder_by_itself(
    state, conditions
):
    assert next_state(state, conditions) in S
    assert next_state(state, conditions) is next_state(state, set(conditions))
    then = next_state(state, conditions - OPERATOR_REQUESTS)
    assert then is state or SEVERITY[then] > SEVERITY[state]


@given(st.sampled_from(S), one_tick, one_tick)
def test_one_more_trouble_never_makes_the_outcome_milder(state, conditions, more):
    trouble = more & (EMERGENCIES | FAULTS | PAUSES)
    alone, together = next_state(state, conditions), next_state(state, conditions | trouble)
    assert SEVERITY[together] >= SEVERITY[alone]


@pytest.mark.slow
@given(busy_histories)
def test_no_path_leads_from_estop_to_motion_without_reset_and_then_arm(history):
    asked = []  # acts since the emergency stop, in order
    for state, conditions in zip(visited(S.ESTOP, history)[1:], history, strict=True):
        if state is S.ESTOP:
            asked.clear()
        asked += [act for act in (C.RESET, C.ARM) if act in conditions]
        if state in DRIVEN:
            assert C.RESET in asked
            assert C.ARM in asked[asked.index(C.RESET) + 1 :]


@pytest.mark.slow
@given(busy_histories)
def test_no_path_leads_to_policy_or_human_without_being_handed_over(history):
    before = S.PASSIVE
    for state, conditions in zip(visited(before, history)[1:], history, strict=True):
        if state is not before:
            assert state is not S.POLICY or C.ENABLE_POLICY in conditions
            assert state is not S.HUMAN or C.HAND_TO_HUMAN in conditions
            assert state is not S.ARMING or (before is S.PASSIVE and C.ARM in conditions)
            assert state is not S.READY or (before is S.HOLD and C.ARM in conditions)
        before = state


@given(one_tick, st.sampled_from(sorted(EMERGENCIES | FAULTS, key=lambda c: c.value)))
def test_reset_is_refused_while_the_cause_is_still_there(conditions, cause):
    now = conditions | {C.RESET, cause}
    assert next_state(S.ESTOP, now) is S.ESTOP
    assert next_state(S.SAFE_STOP, now) in (S.SAFE_STOP, S.ESTOP)


@pytest.mark.slow
@given(one_tick)
def test_reset_and_arm_in_one_tick_do_not_arm(conditions):
    assert next_state(S.ESTOP, conditions | {C.RESET, C.ARM}) in (S.ESTOP, S.PASSIVE)


def test_buttons_that_are_down_and_stops_under_way_are_not_cut_short():
    assert next_state(S.ESTOP, {C.RESET, C.ESTOP_PRESSED}) is S.ESTOP
    assert next_state(S.SAFE_STOP, {C.DISARM, C.STOPPING}) is S.SAFE_STOP


def test_the_way_from_passive_to_policy_takes_three_acts_and_a_ramp():
    history = [{C.ARM}, set(), {C.RAMPED}, set(), {C.ARM}, {C.ENABLE_POLICY}, {C.HAND_TO_HUMAN}]
    assert visited(S.PASSIVE, history)[1:] == [
        S.ARMING, S.ARMING, S.HOLD, S.HOLD, S.READY, S.POLICY, S.HUMAN,
    ]  # fmt: skip


@pytest.mark.parametrize("trouble", [c for c in C if c in EMERGENCIES | FAULTS | PAUSES])
def test_any_trouble_refuses_to_arm_and_to_hand_over(trouble):
    for state, act in [(S.PASSIVE, C.ARM), (S.HOLD, C.ARM), (S.READY, C.ENABLE_POLICY),
                       (S.READY, C.HAND_TO_HUMAN)]:  # fmt: skip
        then = next_state(state, {act, trouble})
        assert then is state or SEVERITY[then] > SEVERITY[state]


def test_a_refused_act_says_why_and_a_stop_is_no_refusal_of_its_button():
    assert refusals(S.READY, {C.ENABLE_POLICY, C.POLICY_JUMP, C.LEASE_LOST}) == {
        C.ENABLE_POLICY: {C.POLICY_JUMP}
    }
    assert refusals(S.READY, {C.ENABLE_POLICY}) == {}
    assert refusals(S.POLICY, {C.RESET}) == {C.RESET: frozenset()}
    assert refusals(S.POLICY, {C.ESTOP_PRESSED, C.STATE_LOST}) == {}
    assert refusals(S.ESTOP, {C.ESTOP_PRESSED}) == {}


def test_the_deciding_row_names_the_cause():
    rule = deciding_rule(S.POLICY, {C.STATE_LATE, C.TILT})
    assert rule is not None
    assert C.TILT in rule.when
