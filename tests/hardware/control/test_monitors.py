"""The watch on a logical clock: every condition at its threshold, neither before nor without."""

import math
from dataclasses import replace

import numpy as np
import pytest

from hardware.control.limits import JointBounds
from hardware.control.monitors import SafetyLimits, SafetyMonitor, StampedCommand, TickInputs
from hardware.control.safety import Condition, SafetyState
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec, SensorSpec
from robot_rl.core.robot_command import (
    BodyRateCommand,
    CommandKind,
    JointCommand,
    PoseCommand,
    RotorCommand,
)
from tests.hardware.control.robots import flying, multirotor, two_joints

C, S = Condition, SafetyState
PERIOD = 0.002
ALWAYS = {C.POLICY_SILENT, C.LEASE_LATE, C.LEASE_LOST}
"""What holds where nobody commands: it refuses and stops nothing."""


def joints(q=(0, 0), dq=(0, 0), tau=(0, 0)):
    names = ("joint_position", "joint_velocity", "joint_effort")
    return RobotState(
        {name: np.array([row], float) for name, row in zip(names, (q, dq, tau), strict=True)}
    )


def target(q=(0, 0), kp=(40, 20), dq=(0, 0)):
    zero = np.zeros((1, 2))
    return JointCommand(q=np.array([q], float), dq=np.array([dq], float), tau=zero,
                        kp=np.array([kp], float), kd=zero)  # fmt: skip


def pushed(force):
    return RobotState({"wrench_ee": np.array([[force, 4.0, 0, 99, 99, 99]])})


def with_sensor(name):
    """A robot on the ground with one sensor."""
    return RobotSpec(name="any", sensors={name: SensorSpec()}, command=CommandKind.joint)


ARM = two_joints()


class Watched:
    """A watch that is fed one tick per period."""

    def __init__(self, spec=None, limits=None, **settings):
        self.watch = SafetyMonitor(
            spec or two_joints(), limits or SafetyLimits(), PERIOD, **settings
        )
        self.now = 0.0

    def tick(self, state=None, *, safety=S.READY, stamp=None, **seen):
        self.now += PERIOD
        stamp = self.now if stamp is None else stamp
        return self.watch.update(
            TickInputs(now=self.now, safety=safety, state=state, stamp=stamp, **seen)
        )

    def first(self, condition, state=None, limit=1.0, **seen):
        """Time from now until a condition first holds, the same being seen at every tick."""
        start = self.now
        while self.now - start < limit:
            if condition in self.tick(state, **seen):
                return pytest.approx(self.now - start, abs=1e-9)
        return None


def test_a_healthy_robot_that_nobody_commands_has_nothing_to_stop_for():
    assert Watched().tick(joints()) == ALWAYS


class TestState:
    def test_before_the_first_sample_the_state_is_lost(self):
        assert Watched().tick() == ALWAYS | {C.STATE_LATE, C.STATE_LOST}

    @pytest.mark.parametrize(("condition", "after"), [(C.STATE_LATE, 0.022), (C.STATE_LOST, 0.102)])
    def test_silence_is_noticed_in_the_first_tick_beyond_the_age(self, condition, after):
        watched = Watched()
        watched.tick(joints())
        assert watched.first(condition) == after

    def test_silence_is_measured_by_stamps_and_a_sample_that_was_overtaken_is_not_used(self):
        watched = Watched()
        watched.tick(joints())
        assert watched.first(C.STATE_LATE, joints(), stamp=watched.now) == 0.022
        watched = Watched()
        watched.tick(joints(q=(0.1, 0)))
        watched.tick(joints(q=(0.2, 0)), stamp=watched.now - 0.01)
        used = watched.watch.measured.state
        assert used is not None
        assert used.joint_position[0, 0] == 0.1

    def test_a_slow_loop_allows_three_of_its_periods(self):
        watch = SafetyMonitor(two_joints(), SafetyLimits(), 0.02)
        watch.update(TickInputs(now=0.0, safety=S.READY, state=joints(), stamp=0.0))
        assert C.STATE_LATE not in watch.update(TickInputs(now=0.06, safety=S.READY))
        assert C.STATE_LATE in watch.update(TickInputs(now=0.08, safety=S.READY))

    @pytest.mark.parametrize("bad", [joints(q=(math.nan, 0)), joints(q=(0, 0, 0)), RobotState({})])
    def test_a_sample_of_no_numbers_or_another_shape_is_told_and_not_used(self, bad):
        watched = Watched()
        watched.tick(joints(q=(0.1, 0)))
        assert C.STATE_INVALID in watched.tick(bad)
        used = watched.watch.measured.state
        assert used is not None
        assert used.joint_position[0, 0] == 0.1
        assert watched.first(C.STATE_LATE, bad) == 0.02

    @pytest.mark.parametrize(
        ("stamp", "told"),
        [(3600.0, "lies 3599.996 s in the future"), (0.0095, "in the future"),
         (math.nan, "is nan"), (math.inf, "is inf"), (-math.inf, "is -inf")],
    )  # fmt: skip
    def test_a_stamp_that_is_no_time_of_measurement_is_told_and_blinds_nobody(self, stamp, told):
        watched = Watched()
        watched.tick(joints(q=(0.1, 0)))
        assert C.STATE_INVALID in watched.tick(joints(q=(0.2, 0)), stamp=stamp)
        assert told in watched.watch.details[C.STATE_INVALID]
        used = watched.watch.measured.state
        assert used is not None
        assert used.joint_position[0, 0] == 0.1
        assert watched.tick(joints(q=(0.3, 0))) == ALWAYS
        used = watched.watch.measured.state
        assert used is not None
        assert used.joint_position[0, 0] == 0.3

    def test_a_sample_may_be_as_young_as_the_moment_after_its_reading(self):
        watched = Watched()
        assert watched.tick(joints(), stamp=0.5, read_at=0.5) == ALWAYS

    def test_stamps_that_go_back_are_said_once_the_sample_in_use_is_late(self):
        watched = Watched()
        watched.tick(joints())
        assert watched.first(C.STATE_LATE, joints(), stamp=watched.now - 3600) == 0.022
        expected = "newest sample is 22 ms old; the stamps of samples went back by 3600.000 s"
        assert watched.watch.details[C.STATE_LATE] == expected

    @pytest.mark.parametrize("length", [0.0, 0.85, 1.15, 1e200])
    def test_a_quaternion_that_is_no_attitude_is_a_bad_sample_not_a_broken_driver(self, length):
        watched = Watched(multirotor())
        watched.tick(flying())
        bad = flying()
        bad.fields["orientation_w"][:] *= length
        assert C.STATE_INVALID in watched.tick(bad)
        assert "no attitude" in watched.watch.details[C.STATE_INVALID]

    def test_hard_limits_have_a_tolerance_and_the_joint_is_named(self):
        watched = Watched()
        assert C.OUTSIDE_RANGE not in watched.tick(joints(q=(1.04, 0)))
        assert C.OUTSIDE_RANGE in watched.tick(joints(q=(0, -2.06)))
        assert watched.watch.details[C.OUTSIDE_RANGE] == "knee -2.06"

    def test_a_load_that_pauses_starts_from_the_beginning(self):
        watched = Watched()
        assert watched.first(C.OVERSPEED, joints(dq=(3, 0)), limit=0.04) is None
        watched.tick(joints())
        assert watched.first(C.OVERSPEED, joints(dq=(3, 0))) == 0.052

    @pytest.mark.parametrize(
        ("spec", "condition", "good", "bad", "after"),
        [
            (ARM, C.OVERSPEED, joints(dq=(2.39, 0)), joints(dq=(-2.41, 0)), 0.052),
            (ARM, C.OVERTORQUE, joints(tau=(10.4, 5.2)), joints(tau=(0, -5.3)), 0.052),
            (ARM, C.TRACKING_ERROR, joints(q=(0.9, 0)), joints(q=(-1.04, 0)), 0.102),
            (multirotor(), C.TUMBLE, flying((1.5, 0, 0)), flying((1.6, 0, 0)), 0.102),
            (with_sensor("orientation_w"), C.TILT, flying((1.19, 0, 0)), flying((1.21, 0, 0)),
             0.102),
            (multirotor(), C.OUTSIDE_WORKSPACE, flying(position=(1, -1, 2)),
             flying(position=(0, 0, 2.1)), 0.002),
            (with_sensor("wrench_ee"), C.EXTERNAL_FORCE, pushed(2.9), pushed(3.1), 0.002),
        ],
    )  # fmt: skip
    def test_thresholds_of_load_lag_lean_place_and_force_and_how_long_they_must_last(
        self, spec, condition, good, bad, after
    ):
        limits = SafetyLimits(
            workspace_lower=(-1, -1, 0), workspace_upper=(1, 1, 2), external_force=5.0
        )
        watched, followed = Watched(spec, limits), target()
        assert watched.first(condition, good, followed=followed) is None
        assert watched.first(condition, bad, followed=followed) == after
        limp = target(kp=(0, 0))
        found = Watched(spec, limits).first(condition, bad, followed=limp)
        assert (found is None) is (condition is C.TRACKING_ERROR), "it follows without stiffness"


def test_joint_that_stays_off_its_target_is_noticed_by_its_own_bounds():
    """Beside the bound of all joints, which a blocked joint 0.9 rad away does not reach."""
    bounds = replace(JointBounds.of(ARM), tracking_error=(math.inf, 0.4), tracking_time=(0.0, 0.3))
    watched, followed = Watched(limits=SafetyLimits(joints=bounds)), target(q=(0.9, 0.9))
    assert watched.first(C.TRACKING_ERROR, joints(q=(0, 0.55)), followed=followed) is None
    assert watched.first(C.TRACKING_ERROR, joints(), followed=followed, limit=0.25) is None
    watched.tick(joints(q=(0, 0.8)), followed=followed)  # it moved: counted from the beginning
    assert watched.first(C.TRACKING_ERROR, joints(), followed=followed) == pytest.approx(0.302)
    assert watched.watch.details[C.TRACKING_ERROR] == "knee 0.9 rad off"
    assert Watched().first(C.TRACKING_ERROR, joints(), followed=followed) is None


@pytest.mark.parametrize(
    ("spec", "control_dt", "period", "late", "lost"),
    [
        (two_joints(), 0.04, 0.005, 0.1, 0.2),  # arms
        (two_joints(), 0.02, 0.005, 0.06, 0.12),  # legged robots
        (two_joints(), 0.005, 0.001, 0.04, 0.1),  # never below the usual times
        (multirotor(), 0.01, 0.002, 0.1, 0.5),  # drones: those of PX4 and Crazyflie
    ],
)
def test_policy_that_fails_to_decide_once_is_borne_whatever_its_period(
    spec, control_dt, period, late, lost
):
    limits = SafetyLimits.for_policy(spec, control_dt, period)
    assert (limits.command_late, limits.command_lost) == pytest.approx((late, lost))
    assert limits.state_late == pytest.approx(late / 2)  # what a loop reads after a pause it bears
    assert limits.state_late >= (limits.overrun_ticks - 1) * period
    watch = SafetyMonitor(spec, limits, period)
    command = (
        target()
        if spec.joints
        else BodyRateCommand(rates_b=np.zeros((1, 3)), thrust=np.zeros((1, 1)))
    )
    state, sent = joints() if spec.joints else flying(), None
    every, answer = round(control_dt / period), 3
    for tick in range(40 * every):
        decisions, since = divmod(tick - answer, every)
        if since == 0 and decisions % 5 != 4:  # every fifth fails
            sent = StampedCommand(command=command, stamp=(tick - answer) * period)
        seen = TickInputs(
            now=tick * period, safety=S.POLICY if sent else S.READY, state=state,
            stamp=tick * period, commands={S.POLICY: sent},
        )  # fmt: skip
        assert C.COMMAND_LATE not in watch.update(seen)


class TestPolicy:
    def stamped(self, watched, command=None, **settings):
        return StampedCommand(command=command or target(), stamp=watched.now, **settings)

    @pytest.mark.parametrize(
        ("condition", "after"), [(C.COMMAND_LATE, 0.042), (C.COMMAND_LOST, 0.102)]
    )
    def test_silence_counts_from_the_stamp_of_the_state_used(self, condition, after):
        watched = Watched()
        watched.tick(joints())
        commands = {S.POLICY: self.stamped(watched)}
        assert watched.first(condition, joints(), safety=S.POLICY, commands=commands) == after

    def test_the_pause_that_silence_made_goes_on_counting(self):
        watched = Watched()
        watched.tick(joints())
        commands = {S.POLICY: self.stamped(watched)}
        watched.first(C.COMMAND_LATE, joints(), safety=S.POLICY, commands=commands)
        assert watched.first(C.COMMAND_LOST, joints(), safety=S.HOLD, commands=commands) == 0.06

    def test_a_policy_that_speaks_again_ends_the_count_but_not_the_pause(self):
        watched = Watched()
        watched.tick(joints())
        old = {S.POLICY: self.stamped(watched)}
        watched.first(C.COMMAND_LATE, joints(), safety=S.POLICY, commands=old)
        new = {S.POLICY: self.stamped(watched)}
        watched.tick(joints(), safety=S.HOLD, commands=new)
        assert watched.first(C.COMMAND_LOST, joints(), safety=S.HOLD, commands=new) is None

    def test_a_policy_that_is_not_in_charge_may_be_silent(self):
        watched = Watched()
        for safety in (S.PASSIVE, S.ARMING, S.HOLD, S.READY, S.HUMAN, S.SAFE_STOP, S.ESTOP):
            assert watched.tick(joints(), safety=safety) == ALWAYS

    @pytest.mark.parametrize(
        "bad",
        [*(target(q=q) for q in ((math.nan, 0), (0, 0, 0), (math.inf, 0))),
         RotorCommand(speed=np.zeros((1, 4)))],
    )  # fmt: skip
    def test_one_bad_command_of_the_one_in_charge_is_enough(self, bad):
        watched = Watched()
        watched.tick(joints())
        commands = {S.POLICY: self.stamped(watched, bad)}
        assert C.COMMAND_INVALID in watched.tick(joints(), safety=S.POLICY, commands=commands)
        assert watched.watch.commanded.good[S.POLICY] is None

    def test_a_bad_command_of_somebody_else_cannot_stop_the_robot_nor_take_it_over(self):
        watched = Watched()
        watched.tick(joints())
        commands = {S.POLICY: self.stamped(watched, target(q=(math.nan, 0)))}
        assert watched.tick(joints(), safety=S.READY, commands=commands) == ALWAYS
        assert "nan" in watched.watch.details[C.POLICY_SILENT]

    def test_unknown_gains_and_stamps_of_the_future_are_refused(self):
        watched = Watched(gain_sets=("stand", "policy:1a2b"))
        watched.tick(joints())
        for bad in (self.stamped(watched, gains="walk"),
                    StampedCommand(command=target(), stamp=watched.now + 0.02, gains="stand"),
                    StampedCommand(command=target(), stamp=math.nan, gains="stand")):  # fmt: skip
            found = watched.tick(joints(), safety=S.POLICY, commands={S.POLICY: bad})
            assert C.COMMAND_INVALID in found
        good = {S.POLICY: self.stamped(watched, gains="policy:1a2b")}
        found = watched.tick(joints(), safety=S.POLICY, commands=good)
        assert not found & {C.COMMAND_INVALID, C.POLICY_SILENT}

    def test_what_is_no_command_is_refused_for_its_own_reason(self):
        watched = Watched()
        watched.tick(joints())
        bad = self.stamped(watched, target(q=(math.nan, 0)), fault="a message lacks ['hip']")
        found = watched.tick(joints(), safety=S.POLICY, commands={S.POLICY: bad})
        assert C.COMMAND_INVALID in found
        assert watched.watch.details[C.COMMAND_INVALID] == "a message lacks ['hip']"

    def test_a_first_command_far_from_the_pose_is_told_until_it_is_in_charge(self):
        watched = Watched()
        watched.tick(joints())
        far = {S.POLICY: self.stamped(watched, target(q=(0.31, 0)))}
        assert C.POLICY_JUMP in watched.tick(joints(), commands=far)
        assert C.POLICY_JUMP not in watched.tick(joints(), safety=S.POLICY, commands=far)
        near = {S.POLICY: self.stamped(watched, target(q=(0.29, 0)))}
        assert C.POLICY_JUMP not in watched.tick(joints(), commands=near)

    def test_a_first_pose_far_from_the_end_effector_is_told(self):
        watched = Watched(with_sensor("end_effector_position_b"), kinds=(CommandKind.pose,))
        state = RobotState({"end_effector_position_b": np.array([[0.5, 0.0, 0.5]])})
        pose = PoseCommand(position_w=np.array([[0.5, 0.11, 0.5]]),
                           orientation_w=np.array([[1.0, 0, 0, 0]]))  # fmt: skip
        watched.tick(state)
        assert C.HUMAN_JUMP in watched.tick(state, commands={S.HUMAN: self.stamped(watched, pose)})

    def test_a_pose_that_is_no_attitude_is_not_taken_and_stops_nobody(self):
        watched = Watched(with_sensor("end_effector_position_b"), kinds=(CommandKind.pose,))
        state = RobotState({"end_effector_position_b": np.array([[0.5, 0.0, 0.5]])})
        pose = PoseCommand(position_w=np.array([[0.5, 0.0, 0.5]]), orientation_w=np.zeros((1, 4)))
        watched.tick(state)
        commands = {S.HUMAN: self.stamped(watched, pose)}
        assert C.COMMAND_INVALID not in watched.tick(state, commands=commands)
        assert watched.watch.commanded.good[S.HUMAN] is None
        found = watched.tick(state, safety=S.HUMAN, commands=commands)
        assert C.COMMAND_INVALID in found
        assert "no attitude" in watched.watch.details[C.COMMAND_INVALID]

    def test_after_a_reset_no_old_command_counts(self):
        watched = Watched()
        watched.tick(joints())
        commands = {S.POLICY: self.stamped(watched)}
        assert C.POLICY_SILENT not in watched.tick(joints(), commands=commands)
        watched.watch.commanded.forget()
        assert C.POLICY_SILENT in watched.tick(joints(), commands=commands)


class TestPerson:
    @pytest.mark.parametrize(("condition", "after"), [(C.LEASE_LATE, 0.152), (C.LEASE_LOST, 0.252)])
    def test_a_person_who_is_gone_loses_the_lease(self, condition, after):
        watched = Watched()
        watched.tick(joints())
        rates = {S.HUMAN: StampedCommand(command=target(), stamp=watched.now)}
        seen = {"safety": S.HUMAN, "commands": rates, "heartbeat": watched.now}
        assert watched.first(condition, joints(), **seen) == after

    def test_a_heartbeat_alone_does_not_keep_an_old_command_alive(self):
        watched = Watched()
        commands = {S.HUMAN: StampedCommand(command=target(), stamp=watched.now)}
        found: frozenset[Condition] = frozenset()
        for _ in range(130):  # 0.26 s
            found = watched.tick(joints(), safety=S.HUMAN, commands=commands,
                                 heartbeat=watched.now)  # fmt: skip
        assert C.LEASE_LOST in found

    @pytest.mark.parametrize("ahead", [math.inf, math.nan, 0.006, 3600.0])
    def test_a_heartbeat_of_no_time_or_of_the_future_does_not_count(self, ahead):
        watched = Watched()
        watched.tick(joints())
        rates = {S.HUMAN: StampedCommand(command=target(), stamp=watched.now)}
        seen = {"safety": S.HUMAN, "commands": rates, "heartbeat": watched.now + PERIOD + ahead}
        assert {C.LEASE_LATE, C.LEASE_LOST} <= watched.tick(joints(), **seen)


class TestLoop:
    def test_more_than_one_tick_in_four_within_a_second_is_too_many(self):
        watched = Watched()  # 500 ticks a second, 125 may come late
        found = [watched.tick(joints(), missed=1) for _ in range(126)]
        assert [C.OVERRUN in f for f in found] == 125 * [False] + [True]
        found = [watched.tick(joints()) for _ in range(500)]
        assert C.OVERRUN in found[0]
        assert C.OVERRUN not in found[-1]

    def test_a_single_tick_that_misses_six_periods_is_enough(self):
        watched = Watched()
        assert C.OVERRUN not in watched.tick(joints(), missed=5)
        assert C.OVERRUN in watched.tick(joints(), missed=6)
        assert C.OVERRUN not in watched.tick(joints())

    def test_a_second_publisher_is_noticed(self):
        assert C.SECOND_PUBLISHER in Watched().tick(joints(), publishers=2)

    def test_measurements_of_two_senders_are_noticed_in_words(self):
        watched = Watched()
        assert C.SECOND_PUBLISHER in watched.tick(joints(), doubled="2 publish /arm/joints")
        assert watched.watch.details[C.SECOND_PUBLISHER] == "2 publish /arm/joints"


def test_a_drone_takes_body_rates_and_waits_longer():
    watched = Watched(multirotor(), SafetyLimits.for_flight())
    watched.tick(flying())
    rates = BodyRateCommand(rates_b=np.zeros((1, 3)), thrust=np.full((1, 1), 0.5))
    commands = {S.POLICY: StampedCommand(command=rates, stamp=watched.now)}
    assert watched.tick(flying(), commands=commands) == {C.LEASE_LATE, C.LEASE_LOST}
    seen = {"safety": S.POLICY, "commands": commands}
    assert watched.first(C.COMMAND_LOST, flying(), **seen) == 0.5


def test_a_loop_may_miss_half_of_the_time_that_a_command_may_be_old():
    arm = SafetyLimits.for_policy(two_joints(), 0.04, 0.005)
    assert (arm.command_late, arm.overrun_ticks) == (0.1, 10)
    legged = SafetyLimits.for_policy(two_joints(), 0.02, 0.002)
    assert legged.command_late == pytest.approx(0.048)
    assert legged.overrun_ticks == 12
    assert SafetyLimits.for_policy(multirotor(), 0.01, 0.002).overrun_ticks == 25
    assert SafetyLimits.for_policy(two_joints(), 0.005, 0.005).overrun_ticks == 5, "the usual"


def test_limits_that_contradict_each_other_are_refused():
    with pytest.raises(ConfigError, match="state_late"):
        SafetyLimits(state_late=0.2)
    with pytest.raises(ConfigError, match="tilt"):
        SafetyLimits(tilt=-1.0)
    with pytest.raises(ConfigError, match="no inside"):
        SafetyLimits(workspace_lower=(0, 0, 1), workspace_upper=(1, 1, 1))
