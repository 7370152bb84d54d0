"""Interventions and rewinds, step by step on a clock of numbers."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.control.safety import SafetyState
from hardware.teleop.intervention import InterventionConfig, InterventionTracker, SegmentKind
from hardware.teleop.rewind import Rewind
from hardware.teleop.targets import PoseTarget, TargetConfig
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState

S, K = SafetyState, SegmentKind
LEVEL = (1.0, 0.0, 0.0, 0.0)


def tracker(**config) -> Any:
    return InterventionTracker(InterventionConfig(**config))


def test_request_and_grant_have_times_of_their_own():
    made = tracker()
    made.observe(S.POLICY, 0.0)
    made.request(1.0)
    made.request(1.1)  # pressed again
    made.observe(S.POLICY, 1.2)
    made.observe(S.HUMAN, 1.3)
    assert (made.current.requested, made.current.granted) == (1.0, 1.3)
    made.observe(S.POLICY, 2.0)
    assert made.current is None
    assert (made.history[0].ended, made.history[0].interrupted) == (2.0, False)


def test_a_request_that_is_not_granted_is_no_intervention():
    made = tracker(patience=0.5)
    made.request(1.0)
    made.observe(S.POLICY, 1.6)
    assert made.pending is None
    assert made.history == []


@pytest.mark.parametrize("safety", [S.HOLD, S.SAFE_STOP, S.ESTOP, S.PASSIVE])
def test_what_else_ends_it_interrupts_it(safety):
    made = tracker()
    made.observe(S.HUMAN, 1.0)  # asked for by somebody else
    made.observe(safety, 2.0)
    assert made.history[0].interrupted


def test_one_key_marks_where_recovery_ends_and_correction_begins():
    made = tracker(first=K.recovery)
    assert made.mark(0.5) is K.policy  # nobody leads: nothing to mark
    made.observe(S.HUMAN, 1.0)
    assert made.kind is K.recovery
    assert made.mark(2.0) is K.correction
    made.observe(S.POLICY, 3.0)
    kinds = [made.kind_at(t).value for t in (0.9, 1.0, 1.99, 2.0, 2.9, 3.0)]
    assert kinds == ["policy", "recovery", "recovery", "correction", "correction", "policy"]


def test_an_episode_ends_with_its_intervention_where_that_is_wanted_and_once():
    made, goes_on = tracker(ends_episode=True), tracker()
    for one in (made, goes_on):
        one.observe(S.HUMAN, 1.0)
        assert not one.take_episode_end()
        one.observe(S.POLICY, 2.0)
    assert made.take_episode_end()
    assert not made.take_episode_end()
    assert not goes_on.take_episode_end()


def test_one_of_several_is_discarded():
    made = tracker()
    for t in (1.0, 3.0, 5.0):
        made.observe(S.HUMAN, t)
        made.observe(S.POLICY, t + 1)
    assert made.discard(2).granted == 3.0
    assert made.discard(2) is None
    assert made.discard().number == 3
    assert [one.discarded for one in made.history] == [False, True, True]


@given(st.lists(st.tuples(st.sampled_from([S.POLICY, S.HUMAN, S.HOLD, "request", "mark"]),
                          st.floats(0.01, 1.0)), max_size=40))  # fmt: skip
def test_interventions_never_overlap_and_a_step_is_human_exactly_where_a_person_led(acts):
    made, now, led = tracker(), 0.0, []
    for act, wait in acts:
        now += wait
        if act == "request":
            made.request(now)
        elif act == "mark":
            made.mark(now)
        else:
            made.observe(act, now)
            led.append((now, act is S.HUMAN))
    for one, after in zip(made.history, made.history[1:], strict=False):
        assert one.requested <= one.granted <= one.ended <= after.granted
    for time, human in led:
        assert (made.kind_at(time) is not K.policy) is human


@pytest.mark.parametrize("config", [{"first": K.policy}, {"first": K.demo}, {"patience": 0.0}])
def test_settings_that_are_none_are_refused(config):
    with pytest.raises(ConfigError):
        InterventionConfig(**config)


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
