"""What a robot is told when nobody is in charge, by hand, and drones that land."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hardware.control.monitors import SafetyLimits
from hardware.control.pipeline import ControllerSet
from hardware.control.safety import Condition, SafetyState
from hardware.control.stopping import FlightStopping, JointStopping, StopConfig, make_stopping
from hardware.controllers.controller import Controller
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.observation import RobotState
from robot_rl.core.quaternion import from_rotation_vector, tilt
from robot_rl.core.robot_command import (
    BodyRateCommand,
    CommandKind,
    JointCommand,
    PoseCommand,
    RotorCommand,
)
from tests.hardware.control.loops import PERIOD, Process, to
from tests.hardware.control.robots import flying, multirotor, two_joints

C, S = Condition, SafetyState
HOVER = 0.5


def pose(*q):
    return RobotState({"joint_position": np.array([q], float)})


def rates(thrust, *turn):
    return BodyRateCommand(rates_b=np.array([turn or (0, 0, 0)], float),
                           thrust=np.array([[thrust]], float))  # fmt: skip


class TestJoints:
    stop = StopConfig(ramp_time=2.0, stop_time=1.0)

    def test_the_ramp_takes_longer_where_a_joint_would_be_too_fast(self):
        stopping = JointStopping(two_joints(), self.stop)
        stopping.enter(S.ARMING, 0.0, pose(0.2, -2.0), None)  # knee: 1.5 rad at half of 4 rad/s
        assert stopping.conditions(S.ARMING, 1.99) == set()
        assert stopping.conditions(S.ARMING, 2.0) == {C.RAMPED}
        stopping.enter(S.ARMING, 0.0, pose(-1.0, -2.0), None)  # hip: 1.2 rad at half of 2 rad/s
        assert stopping.conditions(S.ARMING, 1.875 * 1.2 - 0.01) == set()
        assert stopping.conditions(S.ARMING, 1.875 * 1.2 + 0.01) == {C.RAMPED}

    @pytest.mark.parametrize("clock", [0.0, 0.3, -3600.0, math.nan, -math.inf])
    def test_stiffness_that_has_faded_does_not_come_back_with_the_clock(self, clock):
        stopping = JointStopping(two_joints(), self.stop)
        stopping.enter(S.SAFE_STOP, 10.0, pose(0.2, -0.5), to(0.2, -0.5))
        stopping.setpoint(S.SAFE_STOP, 10.5, None)
        half = stopping.setpoint(S.SAFE_STOP, clock, None)
        assert isinstance(half, JointCommand)
        np.testing.assert_array_equal(half.kp, [[20.0, 10.0]])
        assert stopping.conditions(S.SAFE_STOP, 11.0) == set()
        assert stopping.conditions(S.SAFE_STOP, clock) == set(), "the stop is over"
        none = stopping.setpoint(S.SAFE_STOP, clock, None)
        assert isinstance(none, JointCommand)
        np.testing.assert_array_equal(none.kp, [[0.0, 0.0]])

    def test_stiffness_that_a_limit_has_taken_does_not_come_back_within_the_stop(self):
        stopping = JointStopping(two_joints(), self.stop)
        stopping.enter(S.SAFE_STOP, 10.0, pose(0.2, -0.5), to(0.2, -0.5))
        first = stopping.setpoint(S.SAFE_STOP, 10.1, None)
        assert isinstance(first, JointCommand)
        stopping.hear(replace(first, kp=first.kp * [[0.25, 1.0]]))  # the hip was pulled away
        later = stopping.setpoint(S.SAFE_STOP, 10.5, None)
        assert isinstance(later, JointCommand)
        np.testing.assert_allclose(later.kp, [[0.25 * first.kp[0, 0], 10.0]])
        stopping.enter(S.SAFE_STOP, 20.0, pose(0.2, -0.5), to(0.2, -0.5))
        anew = stopping.setpoint(S.SAFE_STOP, 20.0, None)
        assert isinstance(anew, JointCommand)
        np.testing.assert_array_equal(anew.kp, [[40.0, 20.0]])

    def test_arming_leads_to_another_pose_as_slowly_as_to_the_default_one(self):
        stopping = JointStopping(two_joints(), StopConfig(ramp_time=2.0, pose=(-0.7, -1.0)))
        stopping.enter(S.ARMING, 0.0, pose(0.2, -1.0), None)  # hip: 0.9 rad at half of 2 rad/s
        end = max(2.0, 1.875 * 0.9)
        assert stopping.conditions(S.ARMING, end - 0.01) == set()
        assert stopping.conditions(S.ARMING, end) == {C.RAMPED}
        way = [stopping.setpoint(S.ARMING, t, pose(0, 0)) for t in np.linspace(0, end, 201)]
        places = np.array([one.q[0] for one in way if isinstance(one, JointCommand)])
        np.testing.assert_allclose(places[[0, -1]], [[0.2, -1.0], [-0.7, -1.0]], atol=1e-12)
        assert np.abs(np.diff(places[:, 0])).max() * 200 / end <= 1.0

    def test_a_robot_that_lies_is_armed_where_it_is_and_holds_there(self):
        stopping = JointStopping(two_joints(), StopConfig(in_place=True))
        for q in ((0.6, -1.2), (-0.3, 0.1)):  # the second time elsewhere
            stopping.enter(S.ARMING, 1.0, pose(*q), None)
            assert stopping.conditions(S.ARMING, 1.0) == {C.RAMPED}
            armed = stopping.setpoint(S.ARMING, 1.0, pose(0, 0))
            assert isinstance(armed, JointCommand)
            np.testing.assert_allclose(armed.q, [q])
            np.testing.assert_array_equal(armed.kp, [[40.0, 20.0]])

    @pytest.mark.parametrize(
        ("asked", "told"),
        [((0.1,), "has 1 numbers; expected 2"), ((0.0, 99.0), "has 99 rad for .*; expected"),
         ((0.0, math.nan), "has nan rad for")],
    )  # fmt: skip
    def test_a_pose_that_the_joints_cannot_take_is_refused(self, asked, told):
        with pytest.raises(ConfigError, match=told):
            JointStopping(two_joints(), StopConfig(pose=asked))

    def test_a_stop_keeps_the_pose_and_a_hold_has_at_least_the_robots_own_damping(self):
        stopping = JointStopping(two_joints(), self.stop)
        stopping.enter(S.SAFE_STOP, 5.0, pose(0, 0), to(0.3, -0.4))
        half = stopping.setpoint(S.SAFE_STOP, 5.5, pose(0, 0))
        assert isinstance(half, JointCommand)
        np.testing.assert_array_equal(half.q, [[0.3, -0.4]])
        np.testing.assert_array_equal(half.kp, [[20, 10]])
        np.testing.assert_array_equal(half.kd, [[4, 2]])
        assert stopping.conditions(S.SAFE_STOP, 5.99) == {C.STOPPING}
        assert stopping.conditions(S.SAFE_STOP, 6.0) == set()
        stopping = JointStopping(two_joints())
        stopping.enter(S.HOLD, 0.0, pose(0, 0), to(0.3, -0.4, kd=(0, 9)))
        held = stopping.setpoint(S.HOLD, 0.0, pose(0, 0))
        assert isinstance(held, JointCommand)
        np.testing.assert_array_equal(held.kd, [[4, 9]])

    def test_a_pose_that_another_controller_follows_is_held_as_a_pose(self):
        stopping = JointStopping(two_joints())
        target = PoseCommand(position_w=np.ones((1, 3)), orientation_w=np.eye(1, 4))
        stopping.enter(S.HOLD, 0.0, pose(0, 0), target)
        assert stopping.setpoint(S.HOLD, 0.0, pose(0, 0)) is target
        stopping.enter(S.SAFE_STOP, 0.0, pose(0.1, 0.2), target)
        stop = stopping.setpoint(S.SAFE_STOP, 0.0, pose(0, 0))
        assert isinstance(stop, JointCommand)
        np.testing.assert_array_equal(stop.q, [[0.1, 0.2]])


class TestLevelling:
    def levelled(self, state, safety=S.HOLD):
        stopping = FlightStopping(multirotor())
        stopping.enter(safety, 0.0, state, rates(0.6))
        command = stopping.setpoint(safety, 0.0, state)
        assert isinstance(command, BodyRateCommand)
        return command.rates_b[0], command.thrust[0, 0]

    @pytest.mark.parametrize(
        ("turn", "back"),
        [
            *((0.3 * np.array(axis), -5.0 * math.sin(0.3) * np.array(axis))
              for axis in ((1, 0, 0), (0, 1, 0), (-0.6, 0.8, 0))),
            ((3.0, 0, 0), [-5, 0, 0]),  # upside down it turns fastest
            ((0, 0, 2.0), [0, 0, 0]),  # yaw is left alone
        ],
    )  # fmt: skip
    def test_it_turns_back_about_the_axis_that_it_leans_about(self, turn, back):
        np.testing.assert_allclose(self.levelled(flying(turn))[0], back, atol=1e-12)

    def test_thrust_makes_up_for_the_lean_and_for_the_vertical_speed(self):
        assert self.levelled(flying())[1] == pytest.approx(HOVER)
        assert self.levelled(flying((0.5, 0, 0)))[1] == pytest.approx(HOVER / math.cos(0.5))
        assert self.levelled(flying(climb=1.0))[1] == pytest.approx(HOVER - 0.2)
        assert self.levelled(flying(climb=-0.5), S.SAFE_STOP)[1] == pytest.approx(HOVER)

    def test_rotors_that_were_off_stay_off_and_off_means_rotors_where_the_driver_takes_them(self):
        stopping = FlightStopping(multirotor())
        for safety in (S.HOLD, S.READY, S.SAFE_STOP):
            stopping.enter(safety, 0.0, flying(), rates(0.0))
            off: Any = stopping.setpoint(safety, 0.0, flying())
            assert not off.thrust.any()
        assert stopping.conditions(S.SAFE_STOP, 0.0) == set()
        stopping = make_stopping(multirotor(CommandKind.rotors))
        assert isinstance(stopping.setpoint(S.PASSIVE, 0.0, flying()), RotorCommand)

    def test_without_a_height_it_has_landed_where_a_person_lets_the_rotors_rest_for_long(self):
        blind = RobotState({"orientation_w": np.eye(1, 4)})
        for rest, thrust in ((4.9, HOVER), (5.1, 0.0)):
            stopping = FlightStopping(multirotor(), StopConfig(landing_time=5.0))
            stopping.note(rates(0.6), 1.0, blind)
            stopping.note(rates(0.0), 2.0, blind)
            stopping.note(rates(0.0), 2.0 + rest, blind)
            stopping.enter(S.HOLD, 2.0 + rest, blind, rates(0.0))
            held: Any = stopping.setpoint(S.HOLD, 2.0 + rest, blind)
            assert held.thrust == thrust
            frozen: Any = stopping.freeze(rates(0.0), blind)
            assert frozen.thrust == thrust

    def test_without_a_height_the_rotors_stop_after_a_time(self):
        stopping = FlightStopping(multirotor(), StopConfig(landing_time=5.0))
        blind = RobotState({"orientation_w": np.eye(1, 4)})
        stopping.enter(S.SAFE_STOP, 1.0, blind, rates(0.6))
        command = stopping.setpoint(S.SAFE_STOP, 5.9, blind)
        assert isinstance(command, BodyRateCommand)
        assert command.thrust == pytest.approx(0.9 * HOVER)
        command = stopping.setpoint(S.SAFE_STOP, 6.0, blind)
        assert isinstance(command, BodyRateCommand)
        assert command.thrust == 0
        assert stopping.conditions(S.SAFE_STOP, 6.0) == set()

    def landed(self, height, seconds=12.0, config=None):
        """Time at which the rotors of a landing drone stop, and thrusts until then."""
        stopping = FlightStopping(multirotor(), config)
        stopping.enter(S.SAFE_STOP, 1.0, flying(), rates(0.6))
        thrusts = []
        for tick in range(round(seconds / 0.01)):
            now = 1.0 + 0.01 * tick
            state = flying(position=(0, 0, height(now - 1.0)))
            command: Any = stopping.setpoint(S.SAFE_STOP, now, state)
            if not command.thrust.any():
                return now - 1.0, thrusts
            thrusts.append(command.thrust[0, 0])
        return None, thrusts

    def test_a_drone_that_came_to_rest_on_a_table_loses_its_thrust_slowly_and_then_stops(self):
        ended, thrusts = self.landed(lambda now: max(1.5 - 0.5 * now, 0.75))
        assert ended == pytest.approx(1.5 + 1.0 + 5.0, abs=0.1)
        assert thrusts[240] == pytest.approx(HOVER - 0.1)  # for a second nothing happens
        assert np.all(np.diff(thrusts) <= 0)
        assert thrusts[-1] == pytest.approx(0.5 * (HOVER - 0.1), rel=0.01)
        ended, _ = self.landed(lambda now: 0.75, config=StopConfig(landing_time=2.0))
        assert ended == pytest.approx(3.0, abs=0.1)

    def test_a_drone_that_sinks_keeps_its_rotors_however_slowly_and_however_high_it_is(self):
        ended, thrusts = self.landed(lambda now: 30.0 - 0.05 * now)
        assert ended is None
        assert thrusts[-1] == thrusts[0]

    def test_thrust_that_was_lost_does_not_come_back_within_a_landing_but_does_in_the_next(self):
        _, thrusts = self.landed(lambda now: 0.75 if now < 4 else 0.75 - 0.1 * (now - 4), 6.0)
        assert thrusts[-1] < 0.9 * thrusts[0]
        assert thrusts[-1] == thrusts[-100]


class Evenly:
    """Body rates to rotors without a frame: every rotor gives the thrust."""

    setpoint = CommandKind.body_rates
    command = CommandKind.rotors

    def start(self, state, last):
        pass

    def update(self, setpoint, state, dt):
        return RotorCommand(speed=np.repeat(setpoint.thrust, 4, axis=1))


class TestDrone:
    def aloft(self, **settings):
        """A drone that a policy has flown to some height and speed."""
        process: Any = Process(multirotor(), limits=SafetyLimits.for_flight(), **settings)
        process.in_policy(rates(0.6)).ticks(seconds=1.0, command=rates(0.6))
        process.ticks(seconds=0.1, command=rates(0.6, 4, 0, 0))
        assert process.driver.body.position[0, 2] > 0.5
        return process

    def test_the_rotors_stay_off_until_a_policy_is_in_charge(self):
        process: Any = Process(multirotor(), limits=SafetyLimits.for_flight()).ready()
        process.ticks(50, command=rates(0.6))
        assert all(not command.thrust.any() for command in process.driver.received)

    def test_a_moment_without_thrust_does_not_drop_it_when_a_person_holds_it(self):
        """An action of -1 in the last tick switched the rotors off aloft, for good."""
        process = self.aloft()
        process.ticks(2, command=rates(0.0))
        assert process.act(C.HOLD, command=rates(0.0)) is S.HOLD
        process.ticks(seconds=1.0, command=rates(0.0))
        assert process.driver.received[-1].thrust[0, 0] == pytest.approx(HOVER, rel=0.1)
        assert process.driver.body.velocity[0, 2] == pytest.approx(0.0, abs=0.2)

    def test_without_thrust_on_the_ground_it_does_not_start_in_a_hold(self):
        process: Any = Process(multirotor(), limits=SafetyLimits.for_flight())
        process.in_policy(rates(0.0)).ticks(20, command=rates(0.1))  # too little to lift it
        process.ticks(2, command=rates(0.0))
        assert process.act(C.HOLD, command=rates(0.0)) is S.HOLD
        process.ticks(20, command=rates(0.6))
        assert not process.driver.received[-1].thrust.any()

    @pytest.mark.slow
    def test_silence_levels_it_then_lands_it_then_stops_the_rotors(self):
        process = self.aloft()
        assert tilt(process.driver.body.orientation)[0] > 0.1
        assert process.until(S.HOLD) == pytest.approx(0.1 / PERIOD, abs=1)
        lean = tilt(process.driver.body.orientation)[0]
        assert process.until(S.SAFE_STOP) == pytest.approx(0.4 / PERIOD, abs=1)
        # a gain of 5 / s for 0.4 s, less the lag of the inner loop
        assert tilt(process.driver.body.orientation)[0] < 0.2 * lean
        process.ticks(seconds=0.5)
        assert process.driver.body.velocity[0, 2] == pytest.approx(-0.5, abs=0.15)
        process.ticks(seconds=6.0)
        assert process.driver.body.position[0, 2] < 0.05
        assert process.driver.received[-1].thrust == 0
        assert process.act(C.RESET) is S.PASSIVE

    @pytest.mark.slow
    def test_a_tumble_switches_off(self):
        process = self.aloft()
        process.driver.body.orientation = from_rotation_vector(np.array([[3.0, 0, 0]]))
        process.until(S.ESTOP, command=rates(0.6))
        assert process.driver.received[-1].thrust == 0
        assert "tumble" in process.loop.status.trip

    @pytest.mark.slow
    def test_a_person_who_is_gone_leaves_it_level(self):
        process = self.aloft()
        said = {"command": rates(0.5), "person": rates(0.5, 0, 1, 0)}
        process.ticks(2, **said)
        assert process.act(C.HAND_TO_HUMAN, **said) is S.HUMAN
        process.ticks(100, person=rates(0.5, 0, 1, 0))
        process.ticks(100)
        assert process.safety is S.HUMAN
        assert process.driver.received[-1].rates_b[0, 1] < 0

    @pytest.mark.slow
    def test_a_drone_that_takes_rotors_is_stopped_through_a_controller(self):
        spec = multirotor(CommandKind.rotors)
        with pytest.raises(ConfigError, match="name a controller"):
            Process(spec)
        process: Any = Process(
            spec, limits=SafetyLimits.for_flight(), controllers=ControllerSet(stop=Evenly())
        )
        lift = RotorCommand(speed=np.full((1, 4), 0.6))
        process.in_policy(lift).ticks(seconds=0.5, command=lift)
        assert process.driver.body.position[0, 2] > 0.03
        process.ticks(seconds=2.5)
        assert process.safety is S.SAFE_STOP
        assert process.driver.body.position[0, 2] < 0.05
        assert not process.driver.received[-1].speed.any()

    def test_a_controller_of_other_kinds_is_refused(self):
        wrong: Controller = Evenly()
        with pytest.raises(SpecMismatchError, match="from 'joint' to 'joint' was asked for"):
            Process(two_joints(), controllers=ControllerSet(stop=wrong))


@pytest.mark.parametrize(
    "bad",
    [
        {"ramp_time": 0.0}, {"ramp_time": math.inf}, {"stop_time": math.nan},
        {"landing_time": math.inf}, {"hover_thrust": 1.0},
    ],
)  # fmt: skip
def test_settings_that_stop_nothing_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        StopConfig(**bad)
