"""The whole loop with a fake robot on a logical clock: what stops it, when, and what it sends."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hardware.control.clock import LogicalClock
from hardware.control.limits import JointBounds, JointLimiter, JointLimits
from hardware.control.monitors import SafetyLimits, StampedCommand
from hardware.control.safety import OPERATOR_REQUESTS, Condition, SafetyState
from hardware.control.stopping import StopConfig
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import JointCommand, RotorCommand
from tests.hardware.control.loops import PERIOD, Process, to, within
from tests.hardware.control.robots import two_joints

C, S = Condition, SafetyState
DEFAULT = (0.2, -0.5)


def joints(**settings: Any):
    return Process(two_joints(), **settings)


def last(process):
    command = process.driver.received[-1]
    assert isinstance(command, JointCommand)
    return command


def test_a_robot_put_elsewhere_has_its_targets_start_there():
    spec = two_joints()
    process = Process(spec, limiter=JointLimiter(JointLimits.of(spec)))
    process.in_policy(to(*DEFAULT))
    far = np.array(DEFAULT) + 0.5
    near = 2 * max(joint.velocity_limit for joint in spec.joints) * PERIOD
    assert near < 0.25, "this test can tell the two places apart"
    process.driver.body.q[0] = far
    process.ticks(command=to(*DEFAULT))
    assert abs(last(process).q[0] - DEFAULT).max() < near, "the target knows of no other place"
    process.driver.body.q[0] = far
    process.loop.restart()
    process.ticks(command=to(*DEFAULT))
    assert abs(last(process).q[0] - far).max() < near


def test_blocked_joint_ends_in_a_stop_though_its_torque_is_bounded():
    """It stayed in POLICY for ever: less than the bound of all joints away from its target."""
    spec = two_joints()
    bounds = replace(JointBounds.of(spec), tracking_error=(0.5, 0.5), tracking_time=(0.3, 0.3))
    process = Process(spec, limits=SafetyLimits(joints=bounds, first_command_jump=1.0))
    process.in_policy(to(-0.6, -0.5))
    for _ in range(500):
        process.driver.body.q[0, 0], process.driver.body.dq[0, 0] = 0.2, 0.0  # in a vice
        process.ticks(command=to(-0.6, -0.5))
        sent, seen = last(process), process.watch.measured.state
        assert seen is not None
        torque = sent.kp * (sent.q - seen.joint_position)
        torque = torque + sent.kd * (sent.dq - seen.joint_velocity)
        assert np.all(abs(torque) <= np.array([10.0, 5.0]) + 1e-9)
        if process.safety is SafetyState.SAFE_STOP:
            break
    assert process.safety is SafetyState.SAFE_STOP
    assert "tracking_error (hip 0." in process.loop.status.trip


def test_oldest_command_that_was_followed_is_on_the_status():
    process = joints().in_policy(to(*DEFAULT))
    assert process.loop.status.oldest_command == pytest.approx(PERIOD)
    process.ticks(15)
    process.ticks(5, command=to(*DEFAULT))
    assert process.loop.status.oldest_command == pytest.approx(16 * PERIOD)


class TestStandingUp:
    @pytest.mark.slow
    def test_arming_starts_at_the_measured_pose_and_ends_at_the_default_one(self):
        process = joints()
        process.driver.body.q = np.array([[-0.4, 0.1]])
        process.ticks()
        process.act(C.ARM)
        np.testing.assert_allclose(last(process).q, [[-0.4, 0.1]], atol=1e-3)
        # 0.6 rad at half of 2 rad/s, peak 1.875: 1.125 s, the tick of the act counts as the first
        assert process.until(S.HOLD) == pytest.approx(1.125 / PERIOD, abs=1)
        process.ticks(seconds=0.5)
        np.testing.assert_allclose(process.q, DEFAULT, atol=2e-3)
        assert within(JointLimits.of(two_joints()), process.driver.received)

    def test_arming_starts_where_somebody_moved_the_robot_to_once_it_was_heard(self):
        process = joints()
        process.ticks(5)
        process.driver.body.q = np.array([[-0.6, 0.3]])  # by hand, faster than any command
        process.ticks()
        process.act(C.ARM)
        np.testing.assert_allclose(last(process).q, [[-0.6, 0.3]], atol=1e-3)
        process = joints()
        process.driver.close()
        assert process.act(C.ARM) is S.PASSIVE
        assert "'arm' is refused: state_lost" in process.loop.status.refused
        assert process.driver.received == []
        assert process.driver.stops == 2  # when it was closed, and in the tick


class TestPolicy:
    @pytest.mark.slow
    def test_the_first_commands_are_blended_from_the_last_one(self):
        process = joints().in_policy(to(0.4, -0.4))
        sent = [last(process).q[0, 0]]
        for _ in range(210):
            process.ticks(command=to(0.4, -0.4))
            sent.append(last(process).q[0, 0])
        steps = np.diff(sent)
        assert sent[0] == 0.2
        # min-jerk over 0.4 s: 1.875 * 0.2 rad / 0.4 s at most
        assert steps.max() == pytest.approx(1.875 * 0.2 / 0.4 * PERIOD, rel=0.01)
        assert sent[-1] == pytest.approx(0.4)

    def test_a_first_command_far_from_the_pose_is_refused_and_nothing_moves(self):
        process = joints().ready()
        process.ticks(command=to(0.55, -0.5))
        assert process.act(C.ENABLE_POLICY, command=to(0.55, -0.5)) is S.READY
        refused = process.loop.status.refused
        assert "policy_jump (first command is 0.35 rad from the pose)" in refused
        process.ticks(100, command=to(0.55, -0.5))
        np.testing.assert_allclose(last(process).q, [DEFAULT])

    @pytest.mark.slow
    def test_a_robot_armed_where_the_policy_begins_takes_what_is_a_jump_elsewhere(self):
        there = StopConfig(ramp_time=0.5, pose=(0.55, -0.5))
        process = joints(stop=there).in_policy(to(0.8, -0.5))
        process.ticks(500, command=to(0.8, -0.5))
        np.testing.assert_allclose(process.q, [0.8, -0.5], atol=1e-3)
        other = joints(stop=there).ready()
        other.ticks(1000)  # the fake joints follow with a lag
        np.testing.assert_allclose(other.q, [0.55, -0.5], atol=1e-3)
        other.ticks(command=to(0.2, -0.5))  # the robot's own pose is the jump now
        assert other.act(C.ENABLE_POLICY, command=to(0.2, -0.5)) is S.READY
        assert "policy_jump (first command is 0.35 rad" in other.loop.status.refused

    @pytest.mark.slow
    def test_silence_holds_after_40_ms_and_stops_after_100_ms(self):
        process = joints().in_policy(to(0.3, -0.4))
        process.ticks(300, command=to(0.3, -0.4))
        # The stamp is one period older than the tick that it was first read in.
        assert process.until(S.HOLD) == 20
        held = last(process)
        np.testing.assert_allclose(held.q, [[0.3, -0.4]])
        assert process.until(S.SAFE_STOP) == 30
        assert process.loop.status.trip.startswith("hold -> safe_stop: command_lost")

    def test_a_controlled_stop_fades_to_damping_and_needs_a_reset(self):
        process = joints().in_policy(to(0.3, -0.4))
        process.until(S.SAFE_STOP)
        stiffness = [last(process).kp[0, 0]]
        assert process.act(C.RESET) is S.SAFE_STOP  # still under way
        for _ in range(100):
            process.ticks()
            stiffness.append(last(process).kp[0, 0])
        assert stiffness[0] > 35
        assert np.all(np.diff(stiffness) <= 0)
        assert stiffness[-1] == 0
        assert process.act(C.ARM) is S.SAFE_STOP
        assert process.act(C.RESET) is S.PASSIVE

    @pytest.mark.slow
    def test_a_policy_that_speaks_again_is_not_followed_until_a_person_says_so(self):
        process = joints().in_policy(to(0.3, -0.4))
        process.until(S.HOLD)
        process.ticks(200, command=to(0.3, -0.4))
        assert process.safety is S.HOLD
        assert process.act(C.ARM, command=to(0.3, -0.4)) is S.READY
        assert process.act(C.ENABLE_POLICY, command=to(0.3, -0.4)) is S.POLICY

    @pytest.mark.parametrize(
        "bad", [to(np.nan, 0), to(0.2), to(np.inf, 0), RotorCommand(speed=np.zeros((1, 4)))]
    )
    def test_one_bad_command_stops_the_robot_in_the_same_tick(self, bad):
        process = joints().in_policy(to(0.3, -0.4))
        process.ticks(command=bad)
        assert process.safety is S.SAFE_STOP
        assert "command_invalid" in process.loop.status.trip
        assert within(JointLimits.of(two_joints()), process.driver.received)

    @pytest.mark.slow
    def test_a_hold_keeps_the_commanded_pose_not_the_measured_one(self):
        process = joints().in_policy(to(0.3, -0.4))
        process.ticks(300, command=to(0.3, -0.4))
        process.driver.body.q = process.driver.body.q - 0.05  # a load pulls it down
        process.act(C.HOLD, command=to(0.3, -0.4))
        np.testing.assert_allclose(last(process).q, [[0.3, -0.4]])


class TestRobot:
    @pytest.mark.slow
    def test_a_state_that_freezes_holds_after_20_ms_and_is_an_emergency_after_100_ms(self):
        process = joints().in_policy(to(0.3, -0.4))
        process.faults.frozen = True
        assert process.until(S.HOLD, command=to(0.3, -0.4)) == 11
        assert process.until(S.ESTOP, command=to(0.3, -0.4)) == 40
        np.testing.assert_array_equal(last(process).kp, [[0, 0]])
        process.ticks(100, command=to(0.3, -0.4))
        assert process.act(C.RESET) is S.ESTOP  # the cause is still there
        process.faults.frozen = False
        process.ticks(2)
        assert process.act(C.RESET) is S.PASSIVE

    @pytest.mark.slow
    def test_lost_samples_now_and_then_are_nothing(self):
        process = joints()
        process.faults.dropout, process.faults.noise = 0.3, 1.0
        process.in_policy(to(0.3, -0.4)).ticks(500, command=to(0.3, -0.4))
        assert process.safety is S.POLICY

    def test_a_state_of_no_numbers_pauses_and_never_reaches_the_motors(self):
        process = joints().in_policy(to(0.3, -0.4))
        process.faults.no_number = True
        assert process.until(S.HOLD, command=to(0.3, -0.4)) == 1
        process.until(S.ESTOP, command=to(0.3, -0.4))
        assert within(JointLimits.of(two_joints()), process.driver.received)

    def test_a_joint_pushed_out_of_its_range_is_an_emergency_that_names_it(self):
        process = joints().ready()
        process.driver.body.q = np.array([[1.2, -0.5]])
        process.ticks()
        assert process.safety is S.ESTOP
        assert "outside_range (hip 1.2)" in process.loop.status.trip

    def test_the_button_stops_in_the_same_tick_and_is_latched(self):
        process = joints().in_policy(to(0.3, -0.4))
        assert process.act(C.ESTOP_PRESSED, command=to(0.3, -0.4)) is S.ESTOP
        np.testing.assert_array_equal(last(process).kp, [[0, 0]])
        for act in OPERATOR_REQUESTS - {C.RESET}:
            assert process.act(act, command=to(0.3, -0.4)) is S.ESTOP
        assert process.act(C.RESET, command=to(0.3, -0.4)) is S.PASSIVE
        process.ticks(100, command=to(0.3, -0.4))
        assert process.safety is S.PASSIVE

    def test_a_button_held_down_cannot_be_reset(self):
        process = joints().ready()
        process.requests.estop_down = True
        assert process.act(C.RESET) is S.ESTOP
        process.requests.estop_down = False
        assert process.act(C.RESET) is S.PASSIVE

    @pytest.mark.parametrize(
        ("fault", "ticks", "told"),
        [("write_error", 2, "OSError: cable pulled"), ("read_error", 1, "cable pulled")],
    )
    def test_a_driver_that_fails_is_an_emergency_and_nothing_is_raised(self, fault, ticks, told):
        process = joints().ready()
        setattr(process.faults, fault, "cable pulled")
        process.ticks(ticks)
        assert process.safety is S.ESTOP
        assert told in process.loop.status.trip

    def test_a_second_sender_pauses(self):
        process = joints().in_policy(to(0.3, -0.4))
        process.requests.publishers = 2
        process.ticks(command=to(0.3, -0.4))
        assert process.safety is S.HOLD

    def test_a_sample_of_another_shape_is_a_bad_sample_not_a_broken_driver(self):
        process = joints().ready()
        good = process.driver._sample
        process.driver._sample = lambda: RobotState(
            {**good().fields, "joint_position": np.zeros((1, 3))}
        )
        process.ticks()
        assert process.safety is S.HOLD
        assert "state_invalid ('joint_position' must be (1, 2), got (1, 3))" in (
            process.loop.status.trip
        )

    def test_only_samples_with_a_time_of_measurement_are_handed_on(self):
        process = joints()
        told: list[float] = []
        process.loop._on_sample = lambda fields, stamp: told.append(stamp)
        for shift in (0.0, 3600.0, np.nan, np.inf, 0.0):
            process.driver._now = process.clock.now
            type(process.driver).stamp = property(lambda d, s=shift: d._now() + s)
            process.ticks()
        del type(process.driver).stamp
        assert len(told) == 2


class TestClock:
    """CLOCK_MONOTONIC never does this; a loop that was given another clock must bear it."""

    class Clock(LogicalClock):
        shift = 0.0

        def now(self):
            return super().now() + self.shift

        def sleep_until(self, deadline):
            self.slept = deadline - self.now()
            super().sleep_until(deadline - self.shift)

    def process(self):
        process = joints(clock=self.Clock())
        return process.in_policy(to(0.3, -0.4)), process.clock

    @pytest.mark.parametrize(
        ("shift", "told"), [(-0.5, "went back by 0.498 s"), (np.nan, "says nan"), (np.inf, "inf")]
    )
    def test_a_clock_that_cannot_be_trusted_pauses_and_says_so(self, shift, told):
        process, clock = self.process()
        before = process.loop.status.time
        clock.shift = shift
        process.ticks()
        assert process.safety is S.HOLD
        assert "overrun (the clock" in process.loop.status.trip
        assert told in process.loop.status.trip
        assert process.loop.status.time == pytest.approx(before + PERIOD)

    @pytest.mark.parametrize("shift", [-0.05, -3600.0, np.nan, np.inf])
    def test_a_finished_stop_stays_without_stiffness_when_the_clock_steps_back(self, shift):
        process, clock = self.process()
        process.act(C.DISARM)
        process.ticks(seconds=0.25)
        assert process.safety is S.SAFE_STOP
        assert not last(process).kp.any()
        clock.shift = shift
        for _ in range(100):
            process.ticks()
            assert not last(process).kp.any()

    def test_where_nothing_moves_the_new_time_is_taken_and_the_robot_can_be_armed_again(self):
        process, clock = self.process()
        clock.shift = -3600.0
        process.until(S.ESTOP, command=to(0.3, -0.4))
        process.ticks(2)
        assert process.loop.status.time == pytest.approx(clock.now(), abs=1e-6)
        assert process.act(C.RESET) is S.PASSIVE
        assert process.act(C.ARM) is S.ARMING

    def test_nobody_sleeps_for_as_long_as_the_clock_went_back(self):
        process, clock = self.process()
        deadline = clock.now()
        for shift in (-3600.0, np.nan, 0.0, 3600.0):
            clock.shift = shift
            deadline = process.loop.tick_after(deadline)
            assert not clock.slept > 2 * PERIOD
            assert np.isfinite(deadline)


class TestPerson:
    def in_charge(self):
        process = joints().ready()
        process.ticks(person=to(0.3, -0.4))
        assert process.act(C.HAND_TO_HUMAN, person=to(0.3, -0.4)) is S.HUMAN
        return process

    @pytest.mark.slow
    def test_a_person_takes_over_from_a_policy_and_gives_back(self):
        process = joints().in_policy(to(0.3, -0.4))
        process.ticks(5, command=to(0.3, -0.4), person=to(0.25, -0.4))
        said: dict[str, Any] = {"command": to(0.3, -0.4), "person": to(0.25, -0.4)}
        process.ticks(300, **said)
        assert process.act(C.HAND_TO_HUMAN, **said) is S.HUMAN
        before = len(process.driver.received) - 2
        process.ticks(seconds=1.0, **said)
        way = [command.q[0, 0] for command in process.driver.received[before:]]
        # from 0.3 to 0.25 in 0.4 s, its steepest step the one in the middle
        assert max(abs(np.diff(way))) == pytest.approx(1.875 * 0.05 / 0.4 * PERIOD, rel=0.01)
        np.testing.assert_allclose(process.q, [0.25, -0.4], atol=2e-3)
        assert process.act(C.ENABLE_POLICY, **said) is S.POLICY

    @pytest.mark.slow
    def test_a_person_who_is_gone_stops_moving_after_150_ms_and_holds_after_250_ms(self):
        process = self.in_charge()
        moving = JointCommand(
            q=to(0.3, -0.4).q, dq=np.array([[0.5, 0]]), tau=np.zeros((1, 2)),
            kp=np.array([[40.0, 20]]), kd=np.array([[4.0, 2]]),
        )  # fmt: skip
        process.ticks(300, person=moving)
        assert last(process).dq[0, 0] == 0.5
        process.ticks(74)  # 150 ms after the stamp
        assert last(process).dq[0, 0] == 0.5
        process.ticks()
        assert (last(process).dq[0, 0], process.safety) == (0, S.HUMAN)
        assert not process.loop.status.withheld
        assert process.until(S.HOLD) == 50
        assert process.loop.status.withheld

    def test_a_person_who_is_gone_on_the_way_to_a_far_target_stops_moving_after_150_ms(self):
        """The target stayed the newest one: the robot drove towards it until the lease was lost."""
        process = self.in_charge()
        process.ticks(300, person=to(0.25, -0.4))
        process.ticks(2, person=to(0.9, -1.9))
        process.ticks(76)
        assert C.LEASE_LATE in process.loop.status.conditions
        stands = last(process).q
        assert stands[0, 0] < 0.7  # 0.15 s at 2 rad/s
        process.ticks(40)
        assert process.safety is S.HUMAN
        np.testing.assert_array_equal(last(process).q, stands)

    def test_nobody_there_is_nobody_to_hand_over_to(self):
        process = joints().ready()
        assert process.act(C.HAND_TO_HUMAN) is S.READY
        assert "lease_lost" in process.loop.status.refused


class TestWithheld:
    """What only a person may let go on."""

    def test_neither_the_start_nor_trouble_withholds_a_robot(self):
        process = joints().in_policy(to(*DEFAULT))
        assert not process.loop.status.withheld
        process.until(S.HOLD)  # the policy is silent
        assert not process.loop.status.withheld
        process.driver.close()
        process.until(S.ESTOP)
        assert not process.loop.status.withheld

    @pytest.mark.parametrize(
        ("request_", "after"),
        [(C.HOLD, S.HOLD), (C.DISARM, S.SAFE_STOP), (C.ESTOP_PRESSED, S.ESTOP)],
    )
    def test_a_person_withholds_it_until_somebody_is_in_charge(self, request_, after):
        process = joints().in_policy(to(*DEFAULT))
        assert process.act(request_) is after
        back = {S.ESTOP: C.RESET, S.SAFE_STOP: C.RESET, S.PASSIVE: C.ARM, S.HOLD: C.ARM}
        passed = set()
        while process.safety is not S.READY:
            assert process.loop.status.withheld
            passed.add(process.safety)
            if process.safety in back:
                process.act(back[process.safety])
            process.ticks(10)
            assert len(process.history) < 5000, "the robot does not come back"
        assert after in passed
        assert process.loop.status.withheld
        process.ticks(command=to(*DEFAULT))
        assert process.act(C.ENABLE_POLICY, command=to(*DEFAULT)) is S.POLICY
        assert not process.loop.status.withheld

    def test_trouble_that_ends_a_persons_lead_withholds_it(self):
        """A pause while a person led gave a simulated arm to the policy without anybody's word."""
        process = joints().ready()
        process.ticks(person=to(0.3, -0.4))
        assert process.act(C.HAND_TO_HUMAN, person=to(0.3, -0.4)) is S.HUMAN
        assert not process.loop.status.withheld
        process.driver.close()
        process.until(S.HOLD)
        assert C.LEASE_LOST not in process.loop.status.conditions
        assert process.loop.status.withheld

    def test_a_hold_counts_where_trouble_held_the_robot_already(self):
        process = joints().in_policy(to(*DEFAULT))
        process.until(S.HOLD)
        assert process.act(C.HOLD) is S.HOLD
        assert process.loop.status.withheld

    def test_trouble_after_a_hold_changes_nothing(self):
        process = joints().in_policy(to(*DEFAULT))
        process.act(C.HOLD)
        process.driver.close()
        process.until(S.ESTOP)
        assert process.loop.status.withheld


class TestAge:
    def test_what_is_answered_is_as_old_as_it_is_when_first_applied(self):
        process = joints().in_policy(to(*DEFAULT))
        begun = process.loop.latencies.samples("answer").size
        stamp = process.clock.now()
        process.policy.command = StampedCommand(command=to(*DEFAULT), stamp=stamp)
        process.ticks(3)
        assert process.loop.answered == stamp
        ages = process.loop.latencies.samples("answer")[begun:]
        np.testing.assert_allclose(ages, [PERIOD], atol=1e-9)  # once, not in every tick

    def test_nobody_is_answered_while_the_robot_holds(self):
        process = joints().in_policy(to(*DEFAULT))
        assert process.loop.answered > 0
        assert process.act(C.HOLD) is S.HOLD
        assert process.loop.answered == -np.inf
