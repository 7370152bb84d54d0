"""Keeping the time, ending, and whatever may happen: the loop as a process."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.control.clock import LogicalClock
from hardware.control.limits import JointLimiter, JointLimits
from hardware.control.pipeline import ControllerSet
from hardware.control.safety import DRIVEN, OPERATOR_REQUESTS, Condition, SafetyState
from tests.hardware.control.loops import PERIOD, Process, to, within
from tests.hardware.control.robots import two_joints
from tests.hardware.controllers.joint_law import JointLaw

C, S = Condition, SafetyState


def joints():
    return Process(two_joints())


def last(process):
    return process.driver.received[-1]


class TestRunning:
    def test_ctrl_c_stops_softly_and_leaves_a_stopped_driver(self):
        class Interrupted(LogicalClock):
            at = np.inf

            def sleep_until(self, deadline):
                super().sleep_until(deadline)
                if deadline > self.at:
                    self.at = np.inf
                    raise KeyboardInterrupt

        process = joints()
        clock = Interrupted(0.0)
        process.clock = process.driver._clock = process.loop._clock = clock
        process.ready()
        clock.at = clock.now() + 0.1
        process.loop.run()
        assert process.safety is S.SAFE_STOP
        np.testing.assert_array_equal(last(process).kp, [[0, 0]])
        assert process.driver.stops == 1

    def test_run_ends_when_asked_and_stops_the_robot(self):
        process = joints().ready()
        begin = process.clock.now()
        process.loop.run(until=lambda: process.clock.now() > begin + 0.1)
        assert process.safety is S.SAFE_STOP
        # 0.1 s of standing, 0.2 s of fading, and the ticks that begin and end both
        assert process.clock.now() - begin == pytest.approx(0.3, abs=4 * PERIOD)

    def test_who_looks_between_ticks_looks_on_while_the_robot_stops(self):
        process = joints().ready()
        begin = process.clock.now()

        def look():
            if process.safety is S.SAFE_STOP:
                process.loop.requests.ask(Condition.ESTOP_PRESSED)
            return process.clock.now() > begin + 0.1

        process.loop.run(until=look)
        assert process.safety is S.ESTOP
        process = joints()
        process.loop.run(until=lambda: True)
        assert process.loop.status.ticks == 1

    def test_whatever_ends_it_the_driver_is_stopped(self):
        def broken():
            raise RuntimeError("of the caller")

        process = joints().ready()
        with pytest.raises(RuntimeError, match="of the caller"):
            process.loop.run(until=broken)
        assert process.driver.stops == 1

    def test_deadlines_are_absolute_and_missed_periods_are_skipped_and_counted(self):
        process = joints()
        begins, slow = [], {3: 0.0071}

        def read(original=process.driver.read):
            begins.append(round(process.clock.now() / PERIOD, 6))
            process.clock.advance(slow.get(len(begins), 0.0005))
            return original()

        process.driver.read = read
        process.loop.run(until=lambda: len(begins) == 6)
        # The third tick takes 7.1 ms: the fourth begins late, the fifth on the old grid again.
        assert begins == [1, 2, 3, 6.55, 7, 8]
        assert process.loop.status.missed == 2
        assert process.loop.latencies.summary()["lateness"].longest == pytest.approx(0.0051)

    def test_a_loop_that_is_always_late_holds(self):
        process = joints().ready()
        for _ in range(130):
            process.clock.advance(PERIOD)
            process.loop.tick(missed=1)
        assert process.safety is S.HOLD
        assert "overrun" in process.loop.status.trip


angle = st.floats(-4, 4) | st.just(np.nan) | st.just(np.inf)
spoken = st.one_of(
    st.none(), st.builds(to, st.floats(-0.2, 0.5), st.floats(-0.8, 0)), st.builds(to, angle, angle)
)
happenings = st.lists(
    st.tuples(
        st.sampled_from([*OPERATOR_REQUESTS, C.ARM, C.ENABLE_POLICY, C.RESET, None]),
        spoken,
        st.sampled_from(["", "", "", "frozen", "no_number", "read_error", "write_error", "push"]),
        st.integers(1, 30),
    ),
    max_size=25,
)


@settings(max_examples=15)
@given(happenings)
@pytest.mark.slow
def test_whatever_happens_nothing_is_raised_and_no_command_leaves_its_limits(history):
    process = joints().ready()
    for act, command, trouble, count in history:
        for name in ("frozen", "no_number"):
            setattr(process.faults, name, trouble == name)
        for name in ("read_error", "write_error"):
            setattr(process.faults, name, name if trouble == name else "")
        if trouble == "push":
            process.driver.body.q = process.driver.body.q + 0.3
        if act is not None:
            process.requests.ask(act)
        process.ticks(count, command=command)
        # Stiffness means that somebody armed the robot.
        if process.safety not in DRIVEN | {S.SAFE_STOP}:
            assert not process.driver.received or not last(process).kp.any()
    # The position that is sent for the torque's sake returns at once where a push has ended.
    pushed = any(trouble == "push" for _, _, trouble, _ in history)
    assert within(JointLimits.of(two_joints()), process.driver.received, speed=not pushed)


@pytest.mark.slow
def test_a_joint_that_is_pushed_while_it_is_held_pulls_within_its_torque():
    process = joints().ready()
    process.driver.body.q = process.driver.body.q + 0.3
    process.ticks(3)
    assert within(JointLimits.of(two_joints()), process.driver.received, speed=False)


class Broken:
    """A controller that fails when it is told to."""

    setpoint = command = two_joints().command

    def __init__(self):
        self.trouble = ""

    def start(self, state, last):
        pass

    def update(self, setpoint, state, dt):
        if self.trouble == "raise":
            raise ZeroDivisionError("no inverse")
        return to(np.nan, np.nan) if self.trouble == "nan" else setpoint


class TestControllers:
    @pytest.mark.slow
    @pytest.mark.parametrize("trouble", ["raise", "nan"])
    def test_a_controller_that_fails_in_charge_stops_the_robot_in_the_next_tick(self, trouble):
        broken = Broken()
        process = Process(
            two_joints(), controllers=ControllerSet(by_kind={Broken.setpoint: broken})
        )
        process.in_policy(to(0.3, -0.4)).ticks(300, command=to(0.3, -0.4))
        broken.trouble = trouble
        process.ticks(command=to(0.3, -0.4))
        np.testing.assert_allclose(last(process).q, [[0.3, -0.4]])  # as before
        process.ticks(command=to(0.3, -0.4))
        assert process.safety is S.SAFE_STOP
        assert "controller_fault" in process.loop.status.trip
        process.ticks(200)
        assert within(JointLimits.of(two_joints()), process.driver.received)

    def test_a_stop_that_fails_leaves_the_drivers_own(self):
        broken = Broken()
        process = Process(two_joints(), controllers=ControllerSet(stop=broken)).ready()
        broken.trouble = "raise"
        process.ticks()
        assert process.driver.stops == 1
        process.ticks()
        assert process.safety is S.ESTOP
        assert process.driver.stops == 2

    @pytest.mark.slow
    def test_motors_that_take_torques_stand_up_hold_and_stop_by_a_law_in_this_process(self):
        """The law's command has no gains: what it follows is limited and watched before it."""
        spec = two_joints()
        law = JointLaw([10.0, 5.0], in_firmware=False)
        joint = spec.command
        process = Process(
            spec,
            controllers=ControllerSet(by_kind={joint: law}, stop=law,
                      limiters={joint: JointLimiter(JointLimits.of(spec))}),
        )  # fmt: skip
        process.driver.body.q = np.array([[-0.2, 0.1]])
        process.in_policy(to(0.4, -0.4)).ticks(seconds=1.0, command=to(0.4, -0.4))
        np.testing.assert_allclose(process.q, [0.4, -0.4], atol=2e-3)
        assert not last(process).kp.any()
        process.driver.body.q = process.driver.body.q - 0.02
        process.act(C.HOLD, command=to(0.4, -0.4))
        process.ticks(seconds=0.5)
        np.testing.assert_allclose(process.q, [0.4, -0.4], atol=2e-3)
        process.act(C.DISARM)
        process.ticks(seconds=0.3)
        assert abs(last(process).tau).max() < 0.1  # at rest: damping has nothing to do
        assert within(JointLimits.of(spec), process.driver.received)
