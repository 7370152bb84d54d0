"""No bump between any two controllers, none from a held command, and no torque of nobody's."""

import numpy as np
import pytest

from hardware.controllers.handover import Handover, Passage, blend, min_jerk
from hardware.controllers.joint_pd import torque
from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot_command import BodyRateCommand, JointCommand, PoseCommand, RotorCommand
from tests.hardware.controllers import flying, joints
from tests.hardware.controllers.arms import READY
from tests.hardware.controllers.every_controller import CASES, effect, pairs, state_for
from tests.hardware.controllers.joint_law import JointLaw

DT, T = 0.002, 0.1
LIMIT = [100.0, 100.0]
NOW = joints.state([0.1, 0.2], [0.5, -0.5])


def positions(command):
    assert isinstance(command, JointCommand)
    return command.q


@pytest.mark.parametrize(("old", "new"), pairs())
def test_between_any_two_the_effect_goes_from_one_to_the_other_without_a_bump(old, new):
    """State and setpoints stand still: the effect is the weighted mean of what both do alone."""
    before, after = CASES[old], CASES[new]
    alone, next_alone = before.make(), after.make()
    state = state_for(alone.command)
    handover = Handover(before.make(), T)
    handover.start(state, None)
    alone.start(state, None)
    for _ in range(49):
        handover.update(before.setpoint, state, DT)
        alone.update(before.setpoint, state, DT)
    first = handover.update(before.setpoint, state, DT)
    reference = alone.update(before.setpoint, state, DT)
    np.testing.assert_allclose(effect(first, state), effect(reference, state), atol=1e-12)

    taking_over = after.make()
    handover.switch(taking_over, state)
    next_alone.start(state, first)
    assert handover.setpoint is taking_over.setpoint
    got = b = np.zeros(0)
    for tick in range(60):
        got = effect(handover.update(after.setpoint, state, DT), state)
        a = effect(alone.update(before.setpoint, state, DT), state)
        b = effect(next_alone.update(after.setpoint, state, DT), state)
        weight = min_jerk(min(tick * DT / T, 1.0))
        np.testing.assert_allclose(got, (1 - weight) * a + weight * b, atol=1e-9)
        if tick == 0:
            np.testing.assert_allclose(got, a, atol=1e-9)
    np.testing.assert_allclose(got, b, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_from_a_held_command_it_begins_with_that_command(name):
    case = CASES[name]
    state = state_for(case.make().command)
    held = {
        "joint": joints.command(READY, tau=1.0, kp=20.0, kd=1.0),
        "rotors": RotorCommand(speed=np.array([[0.5, 0.6, 0.4, 0.3]])),
        "body_rates": BodyRateCommand(rates_b=np.array([[1.0, 0, 0]]), thrust=np.array([[0.2]])),
    }[case.make().command.value]
    handover = Handover(case.make(), T)
    handover.start(state, held)
    first = handover.update(case.setpoint, state, DT)
    np.testing.assert_allclose(effect(first, state), effect(held, state), atol=1e-12)
    for _ in range(60):
        assert 0 <= handover.weight <= 1
        handover.update(case.setpoint, state, DT)
    assert handover.weight == 1.0


def test_a_passage_of_minimum_jerk_begins_and_ends_without_speed_and_acceleration():
    at = np.linspace(0, 1, 2001)
    way = np.array([min_jerk(s) for s in at])
    assert (way[0], way[1000], way[-1]) == (0.0, 0.5, 1.0)
    speed = np.diff(way) * 2000
    assert speed.min() >= 0
    assert speed.max() == pytest.approx(1.875, rel=1e-4)
    assert abs(speed[[0, -1]]).max() < 1e-4
    assert abs(np.diff(speed)[[0, -1]] * 2000).max() < 0.1


@pytest.mark.parametrize("dt", [0.001, 0.004, 0.02])
def test_the_weight_at_a_time_does_not_know_the_rate_of_ticks(dt):
    passage = Passage(0.1)
    passage.begin()
    weights = [passage.tick(dt) for _ in range(round(0.12 / dt) + 1)]
    assert weights[0] == 0.0
    assert weights[round(0.04 / dt)] == pytest.approx(min_jerk(0.4))
    assert weights[-1] == 1.0


def test_mixed_joint_commands_ask_for_torques_between_the_two_in_every_state():
    """Zero gains with a far setpoint ask for nothing; entry by entry the middle would pull."""
    pull = joints.command([0.1, 0.2], kp=100.0, kd=2.0)
    torques = joints.command([10.0, -10.0], tau=[3.0, -3.0])
    rng = np.random.default_rng(0)
    for weight in (0.0, 0.1, 0.5, 0.9, 1.0):
        middle = blend(pull, torques, weight)
        for _ in range(10):
            q, dq = rng.standard_normal((2, 1, 2))
            ends = torque(pull, q, dq), torque(torques, q, dq)
            expected = (1 - weight) * ends[0] + weight * ends[1]
            np.testing.assert_allclose(torque(middle, q, dq), expected, atol=1e-9)


def test_with_equal_gains_positions_move_straight_and_a_duration_of_zero_leaps():
    one, other = joints.command([0.0, 1.0], kp=40.0), joints.command([1.0, 0.0], kp=40.0)
    np.testing.assert_allclose(blend(one, other, 0.25).q, [[0.25, 0.75]])
    handover = Handover(JointLaw(LIMIT), 0.0)
    handover.start(NOW, joints.command([0.0, 0.0], kp=1.0))
    new = joints.command([1.0, 1.0], kp=1.0)
    np.testing.assert_array_equal(positions(handover.update(new, NOW, DT)), new.q)


def test_poses_between_two_turn_the_short_way_whatever_their_signs():
    start = flying.pose([0.0, 0.0, 0.0], yaw=0.0)
    end = flying.pose([1.0, 0.0, 0.0], yaw=1.0)
    opposite = PoseCommand(position_w=end.position_w, orientation_w=-end.orientation_w)
    for goal in (end, opposite):
        middle = blend(start, goal, 0.5)
        assert isinstance(middle, PoseCommand)
        np.testing.assert_allclose(middle.position_w, [[0.5, 0, 0]])
        half = quaternion.from_yaw(np.array([0.5]))
        np.testing.assert_allclose(middle.orientation_w, half, atol=1e-12)


def test_new_setpoints_of_the_same_controller_glide():
    """Its memory stays: the ramp of targets is not started anew."""
    law = JointLaw(LIMIT)
    handover = Handover(law, T)
    old, new = joints.command([0.0, 1.0], kp=40.0), joints.command([1.0, 1.0], kp=40.0)
    handover.start(NOW, None)
    handover.update(old, NOW, DT)
    handover.switch(law, NOW)
    path = [positions(handover.update(new, NOW, DT)) for _ in range(60)]
    np.testing.assert_allclose(path[0], old.q, atol=1e-12)
    np.testing.assert_allclose(path[25], [[0.5, 1.0]])
    np.testing.assert_array_equal(path[-1], new.q)


def test_a_third_controller_takes_over_in_the_middle_without_a_bump():
    handover = Handover(JointLaw(LIMIT), T)
    setpoints = [joints.command([q, -q], tau=q, kp=40.0, kd=1.0) for q in (0.0, 1.0, -1.0, 2.0)]
    handover.start(NOW, None)
    handover.update(setpoints[0], NOW, DT)
    path = []
    for setpoint in setpoints[1:]:
        handover.switch(JointLaw(LIMIT, in_firmware=setpoint is not setpoints[2]), NOW)
        path += [effect(handover.update(setpoint, NOW, DT), NOW) for _ in range(20)]
    path += [effect(handover.update(setpoints[-1], NOW, DT), NOW) for _ in range(60)]
    largest = max(np.ptp([effect(s, NOW) for s in setpoints], axis=0))
    assert np.abs(np.diff(path, axis=0)).max() <= largest * 1.875 * DT / T
    np.testing.assert_array_equal(path[-1], effect(setpoints[-1], NOW))


def test_controllers_of_other_kinds_and_negative_durations_are_refused():
    handover = Handover(JointLaw(LIMIT))
    with pytest.raises(SpecMismatchError, match="'joint' commands got a BodyRates"):
        handover.switch(CASES["body_rates"].make(), NOW)
    with pytest.raises(SpecMismatchError, match="nothing between"):
        blend(joints.command([0.0]), flying.pose(), 0.5)
    with pytest.raises(ConfigError, match="duration"):
        Handover(JointLaw(LIMIT), -0.1)
