"""Interventions and rewinds, step by step on a clock of numbers."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.control.safety import SafetyState
from hardware.teleop.intervention import InterventionTracker, SegmentKind
from hardware.teleop.rewind import Rewind
from hardware.teleop.targets import PoseTarget, TargetConfig
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState

S, K = SafetyState, SegmentKind
LEVEL = (1.0, 0.0, 0.0, 0.0)


def test_request_and_grant_have_times_of_their_own():
    made = InterventionTracker()
    made.observe(S.POLICY, 0.0)
    made.request(1.0)
    made.request(1.1)  # pressed again
    made.observe(S.POLICY, 1.2)
    made.observe(S.HUMAN, 1.3)
    assert (made.newest.requested, made.newest.granted) == (1.0, 1.3)
    assert made.leads
    made.observe(S.POLICY, 2.0)
    assert not made.leads
    assert (made.newest.ended, made.newest.interrupted) == (2.0, False)


def test_a_request_that_is_not_granted_is_no_intervention():
    made = InterventionTracker()
    made.request(1.0)
    made.observe(S.POLICY, 2.1)
    made.observe(S.HUMAN, 3.0)  # asked for by somebody else
    assert made.newest.requested == 3.0


@pytest.mark.parametrize("safety", [S.HOLD, S.SAFE_STOP, S.ESTOP, S.PASSIVE])
def test_what_else_ends_it_interrupts_it(safety):
    made = InterventionTracker()
    made.observe(S.HUMAN, 1.0)
    made.observe(safety, 2.0)
    assert made.newest.interrupted


def test_recovery_and_correction_are_marked_within_an_intervention_only():
    made = InterventionTracker()
    made.mark(K.recovery)
    assert made.kind is K.policy  # nobody leads: nothing to mark
    made.observe(S.HUMAN, 1.0)
    assert made.kind is K.human
    for kind in (K.recovery, K.correction):
        made.mark(kind)
        made.observe(S.HUMAN, 2.0)
        assert made.kind is kind
    made.observe(S.POLICY, 3.0)
    assert made.kind is K.policy


@given(st.lists(st.tuples(st.sampled_from([S.POLICY, S.HUMAN, S.HOLD, "request", "mark"]),
                          st.floats(0.01, 1.0)), max_size=40))  # fmt: skip
def test_interventions_never_overlap_and_a_step_is_human_exactly_where_a_person_led(acts):
    made, now, found = InterventionTracker(), 0.0, []
    for act, wait in acts:
        now += wait
        if act == "request":
            made.request(now)
        elif act == "mark":
            made.mark(K.recovery)
        else:
            made.observe(act, now)
            assert made.leads is (act is S.HUMAN)
        assert (made.kind is not K.policy) is made.leads
        if math.isfinite(made.newest.granted) and not any(one is made.newest for one in found):
            found.append(made.newest)
    for one, after in itertools.pairwise(found):
        assert one.requested <= one.granted <= one.ended <= after.granted


def state(place):
    return RobotState({"end_effector_position_b": np.array([place], float),
                       "end_effector_orientation_b": np.array([LEVEL])})  # fmt: skip


def followed(rewind, target, place, seconds):
    """Poses of a robot that is exactly where its target is."""
    path = []
    for _ in range(round(seconds / 0.02)):
        rewind.advance(target, state(place), 0.02)
        place = target.position.copy()
        path.append(place)
    return np.array(path)


def walked():
    """A path of two seconds: 10 cm along x, 1 s of rest, 10 cm along y."""
    rewind, target = Rewind(10.0, 0.02), PoseTarget(TargetConfig(linear_speed=0.2))
    points = [(0.1 * i / 25, 0.0) for i in range(26)] + [(0.1, 0.0)] * 50
    points += [(0.1, 0.1 * i / 25) for i in range(1, 26)]
    for i, (x, y) in enumerate(points):
        rewind.remember(0.02 * i, np.array([x, y, 0.0]), LEVEL)
    target.position = np.array([0.1, 0.1, 0.0])
    return rewind, target


def test_the_way_back_is_the_way_there_at_no_more_than_the_speed():
    rewind, target = walked()
    assert rewind.seconds == pytest.approx(2.0)
    assert rewind.begin(2.0) == ""
    path = followed(rewind, target, [0.1, 0.1, 0.0], 1.1)
    steps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    assert steps.max() <= 0.2 * 0.02 + 1e-9
    np.testing.assert_allclose(path[-1], [0, 0, 0], atol=1e-9)
    corner = path[np.abs(path[:, 1]) > 1e-6]
    np.testing.assert_allclose(corner[:, 0], 0.1)  # around the corner; the rest took no time
    assert not rewind.active


def test_a_path_that_left_the_workspace_is_gone_back_along_its_edge():
    """It never ended: a target does not get to a place outside its box."""
    rewind, target = walked()
    target.config.upper = [0.09, math.inf, math.inf]
    rewind.begin(2.0)
    path = followed(rewind, target, [0.09, 0.1, 0.0], 1.1)
    assert path[:, 0].max() <= 0.09
    np.testing.assert_allclose(path[-1], [0, 0, 0], atol=1e-9)
    assert not rewind.active


def test_it_goes_back_by_the_time_that_was_asked_for():
    rewind, target = walked()
    rewind.begin(0.25)  # half of the last leg
    path = followed(rewind, target, [0.1, 0.1, 0.0], 1.0)
    np.testing.assert_allclose(path[-1], [0.1, 0.05, 0.0], atol=2.1e-3)  # half a point


def test_a_second_rewind_goes_on_where_the_first_ended():
    rewind, target = walked()
    rewind.begin(0.5)
    place = followed(rewind, target, [0.1, 0.1, 0.0], 0.6)[-1]
    for i in range(10):  # it stands there for a while, later
        rewind.remember(50.0 + 0.02 * i, place, LEVEL)
    rewind.begin(2.0)
    np.testing.assert_allclose(followed(rewind, target, place, 1.2)[-1], 0.0, atol=1e-9)


def test_a_robot_that_is_held_up_is_waited_for():
    rewind, target = walked()
    rewind.begin(2.0)
    for _ in range(200):
        rewind.advance(target, state([0.1, 0.1, 0.0]), 0.02)
    assert rewind.active
    assert np.linalg.norm(target.position - [0.1, 0.1, 0.0]) <= 0.05 + 1e-9


def test_without_a_path_or_a_time_it_says_so():
    assert "no path" in Rewind().begin(1.0)
    assert "time > 0" in walked()[0].begin(0.0)
    assert "time > 0" in walked()[0].begin(math.nan)
    rewind, _ = walked()
    rewind.forget()
    assert "no path" in rewind.begin(1.0)
    with pytest.raises(ConfigError):
        Rewind(0.01, 0.02)
