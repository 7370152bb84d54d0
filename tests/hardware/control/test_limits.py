"""Joint commands: the rules by hand, and bounds that hold for any stream of commands."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.control.limits import (
    GAIN_TIME,
    RETURN_SPEED,
    BoxLimiter,
    JointLimiter,
    JointLimits,
    PoseLimiter,
    PoseLimits,
    body_rate_limiter,
    make_limiter,
    rotor_limiter,
)
from robot_rl.core.errors import ConfigError, ShapeError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import (
    BodyRateCommand,
    CommandKind,
    JointCommand,
    PoseCommand,
    RotorCommand,
)
from tests.hardware.control.robots import multirotor, two_joints

DT = 0.01
SPEC = two_joints()
LOWER, UPPER = np.array([-1.0, -2.0]), np.array([1.0, 0.5])
SPEED, EFFORT = np.array([2.0, 4.0]), np.array([10.0, 5.0])


def command(q=(0, 0), dq=(0, 0), tau=(0, 0), kp=(40, 20), kd=(4, 2), gripper=None):
    rows = [np.array([row], dtype=float) for row in (q, dq, tau, kp, kd)]
    if gripper is not None:
        gripper = np.array([[gripper]])
    return JointCommand(**dict(zip(("q", "dq", "tau", "kp", "kd"), rows, strict=True)),
                        gripper=gripper)  # fmt: skip


def measured(q=(0, 0), dq=(0, 0)):
    return RobotState({"joint_position": np.array([q], float),
                       "joint_velocity": np.array([dq], float)})  # fmt: skip


def limiter(**settings):
    return JointLimiter(JointLimits.of(SPEC, **settings))


def target(limits, *asked):
    """The command of a tick before its torque was bounded: joints here do not follow."""
    limits.limit(*asked)
    return limits.target


def joint(sent):
    assert isinstance(sent.command, JointCommand)
    return sent.command


class TestByHand:
    def test_a_command_within_limits_passes_unchanged(self):
        sent = limiter().limit(command(q=(0.01, -0.02), tau=(3, -2)), measured(), DT)
        np.testing.assert_array_equal(joint(sent).q, [[0.01, -0.02]])
        np.testing.assert_array_equal(joint(sent).tau, [[3, -2]])
        assert not sent.clamped
        assert not sent.replaced

    def test_the_first_window_lies_around_the_measured_pose_the_next_around_the_previous_command(
        self,
    ):
        limits = limiter()
        for step in (1, 2, 3):  # the joints never move
            sent = limits.limit(command(q=(1, -2)), measured(), DT)
            np.testing.assert_allclose(limits.target.q, [[0.02 * step, -0.04 * step]])
        assert sent.clamped
        sent = limiter().limit(command(q=(0, 0)), measured(q=(0.5, -1)), DT)
        np.testing.assert_allclose(joint(sent).q, [[0.48, -0.96]])

    def test_acceleration_widens_the_window_step_by_step(self):
        limits = limiter(acceleration=50.0)  # 0.5 rad/s per step of 10 ms
        sent = [target(limits, command(q=(1, -2)), measured(), DT).q[0] for _ in range(3)]
        np.testing.assert_allclose(sent, [[0.005, -0.005], [0.015, -0.015], [0.03, -0.03]])

    def test_the_soft_limiter_slows_in_proportion_to_the_distance_and_drives_back(self):
        limits = limiter(soft_margin=0.1, k_position=10.0)
        limits.start(measured(q=(0.8, 0)))
        sent = limits.limit(command(q=(1, 0)), measured(q=(0.8, 0)), DT)
        # 10 / s times 0.1 rad to the soft limit of 0.9: 1 rad/s instead of 2
        np.testing.assert_allclose(joint(sent).q[0, 0], 0.81)
        limits = limiter(soft_margin=0.1, k_position=10.0)
        limits.start(measured(q=(0.95, 0)))
        sent = target(limits, command(q=(1, 0)), measured(), DT)
        np.testing.assert_allclose(sent.q[0, 0], 0.95 - 10 * 0.05 * DT)

    def test_a_joint_outside_its_limits_moves_slowly_and_far_outside_not_at_all(self):
        limits = limiter(soft_margin=0.1, k_position=10.0)
        limits.start(measured())
        sent = target(limits, command(q=(-1, 0)), measured(q=(0.95, 0)), DT)
        np.testing.assert_allclose(sent.q[0, 0], -RETURN_SPEED * DT)
        limits = limiter(soft_margin=0.1, k_position=10.0)
        limits.start(measured())
        sent = target(limits, command(q=(-1, 0), dq=(-1, 0)), measured(q=(1.01, 0)), DT)
        assert (sent.q[0, 0], sent.dq[0, 0]) == (0, 0)

    def test_torque_and_gripper_are_clipped_and_the_velocity_ends_at_the_position_limit(self):
        sent = limiter().limit(command(dq=(2, 9)), measured(q=(0.99, 0)), DT)
        np.testing.assert_allclose(joint(sent).dq, [[1.0, 4.0]])
        sent = limiter().limit(command(tau=(11, -6), gripper=1.5), measured(), DT)
        np.testing.assert_array_equal(joint(sent).tau, [[10, -5]])
        assert joint(sent).gripper == 1.0
        assert sent.clamped

    @pytest.mark.parametrize(
        ("q", "dq", "asked", "sent"),
        [
            (1.0, 0.0, 3.0, 0.0),  # at the upper stop: nothing outward
            (1.0, 0.0, -3.0, -3.0),  # ... but inward
            (1.0, -0.1, 3.0, 3.0),  # on its way back: may be braked
            (-1.0, 0.0, -3.0, 0.0),
            (-1.0, 0.0, 3.0, 3.0),
            (0.0, 2.1, 3.0, 0.0),  # too fast: nothing forward
            (0.0, 2.1, -3.0, -3.0),
            (0.0, -2.1, -3.0, 0.0),
        ],
    )
    def test_torque_does_not_push_into_a_stop_nor_beyond_the_speed(self, q, dq, asked, sent):
        limits = limiter()
        result = target(limits, command(tau=(asked, 0)), measured((q, 0), (dq, 0)), DT)
        assert result.tau[0, 0] == sent

    def test_soft_effort_fades_toward_the_velocity_bound(self):
        limits = limiter(k_velocity=4.0)
        sent = limits.limit(command(tau=(10, 0)), measured(dq=(1.5, 0)), DT)
        assert joint(sent).tau[0, 0] == 4.0 * (2.0 - 1.5)

    def test_gains_are_bounded_by_a_multiple_of_the_robots_own(self):
        sent = limiter(gain_factor=2.0).limit(command(kp=(100, -1), kd=(9, 1)), measured(), DT)
        np.testing.assert_array_equal(joint(sent).kp, [[80, 0]])
        np.testing.assert_array_equal(joint(sent).kd, [[8, 1]])

    def test_no_number_keeps_the_previous_entry_and_is_told(self):
        limits = limiter()
        limits.limit(command(q=(0.01, 0.02), gripper=0.3), measured(), DT)
        bad = command(q=(math.nan, 0.03), tau=(math.inf, 1), gripper=math.nan)
        sent = limits.limit(bad, measured(), DT)
        np.testing.assert_array_equal(limits.target.q, [[0.01, 0.03]])
        np.testing.assert_array_equal(limits.target.tau, [[0, 1]])
        assert joint(sent).gripper == 0.3
        assert sent.replaced


def test_limits_that_contradict_each_other_are_refused():
    with pytest.raises(ConfigError, match="soft limits"):
        limiter(soft_margin=2.0)
    with pytest.raises(ConfigError, match="acceleration"):
        limiter(acceleration=-1.0)


anything = st.floats(allow_nan=True, allow_infinity=True, width=32) | st.floats(-3, 3)
pair = st.tuples(anything, anything)
commands = st.lists(
    st.builds(command, q=pair, dq=pair, tau=pair, kp=pair, kd=pair), min_size=1, max_size=30
)
pose = st.tuples(st.floats(-1, 1), st.floats(-2, 0.5))
states = st.builds(measured, q=pair, dq=pair)
limit_settings = st.fixed_dictionaries(
    {},
    optional={
        "acceleration": st.floats(1.0, 500.0),
        "soft_margin": st.floats(0.01, 0.5),
        "k_position": st.floats(1.0, 200.0),
        "k_velocity": st.floats(0.1, 50.0),
    },
)


@pytest.mark.slow
@settings(max_examples=30)
@given(limit_settings, pose, commands, states)
def test_no_command_outside_limits_ever_leaves_nor_one_that_leaps(chosen, start, stream, state):
    limits = limiter(**chosen)
    limits.start(measured(q=start))
    q, speed, setpoint = np.array(start), np.zeros(2), np.zeros(2)
    for asked in stream:
        sent = joint(limits.limit(asked, state, DT))
        assert np.all((sent.q >= LOWER) & (sent.q <= UPPER))
        assert np.all(np.abs(sent.dq) <= SPEED)
        assert np.all(np.abs(sent.tau) <= EFFORT)
        assert np.all((sent.kp >= 0) & (sent.kp <= [80, 40]))
        assert np.all((sent.kd >= 0) & (sent.kd <= [8, 4]))
        sent = limits.target
        new_speed = (sent.q[0] - q) / DT
        assert np.all(np.abs(new_speed) <= SPEED * (1 + 1e-9))
        if "acceleration" in chosen and "soft_margin" not in chosen:
            # 1e-9: positions of size 1 differ by 1e-16, divided by dt twice
            step = chosen["acceleration"] * DT + 1e-9
            assert np.all(np.abs(new_speed - speed) <= step)
            assert np.all(np.abs(sent.dq[0] - setpoint) <= step)
        q, speed, setpoint = sent.q[0], new_speed, sent.dq[0]


@pytest.mark.slow
@settings(max_examples=30)
@given(st.floats(1.0, 500.0), commands)
def test_soft_limits_do_not_break_the_bound_of_acceleration(acceleration, stream):
    limits = limiter(acceleration=acceleration, soft_margin=0.2, k_position=20.0)
    limits.start(measured())
    q, speed = np.zeros(2), np.zeros(2)
    for asked in stream:
        sent = target(limits, asked, measured(), DT)
        new_speed = (sent.q[0] - q) / DT
        assert np.all(np.abs(new_speed - speed) <= acceleration * DT + 1e-9)
        assert np.all((sent.q[0] + 1e-12 >= LOWER + 0.2) & (sent.q[0] - 1e-12 <= UPPER - 0.2))
        q, speed = sent.q[0], new_speed


@pytest.mark.parametrize("acceleration", [10.0, 20.0, 500.0])
def test_a_joint_at_full_speed_brakes_ahead_of_its_limit(acceleration):
    limits = limiter(acceleration=acceleration)
    limits.start(measured())
    sent = [target(limits, command(q=(9, -9)), measured(), DT).q[0] for _ in range(400)]
    speed = np.diff(sent, axis=0) / DT
    assert np.all(abs(np.diff(speed, axis=0)) <= acceleration * DT + 1e-9)
    np.testing.assert_allclose(sent[-1], [1, -2], atol=0.02)


@pytest.mark.slow
@settings(max_examples=5)
@given(pose)
def test_a_target_within_limits_is_reached(place):
    limits = limiter(acceleration=200.0)
    limits.start(measured())
    sent = [target(limits, command(q=place), measured(), DT).q[0] for _ in range(300)]
    np.testing.assert_allclose(sent[-1], place, atol=1e-6)


def torque(sent, state):
    """Of a motor with its own loop in a measured state, (J,)."""
    q, dq = state.joint_position[0], state.joint_velocity[0]
    return (sent.kp * (sent.q - q) + sent.kd * (sent.dq - dq) + sent.tau)[0]


real = st.floats(-4, 4)
far_states = st.builds(measured, q=st.tuples(real, real), dq=st.tuples(st.floats(-50, 50), real))
wild = st.builds(command, q=pair, dq=pair, tau=pair, kp=pair, kd=pair)


def opposite(other):
    """Whatever is furthest from another command: its negative, with the other joint's gains."""
    return JointCommand(
        q=-other.q, dq=-other.dq, tau=-other.tau, kp=other.kp[:, ::-1], kd=other.kd[:, ::-1]
    )


RATE = np.array([40.0 * 2.0, 20.0 * 4.0])
"""Own stiffness times largest speed [N m/s]."""


@pytest.mark.slow
@settings(max_examples=100)
@given(st.lists(st.tuples(wild, far_states, st.booleans()), min_size=1, max_size=20))
def test_no_command_makes_a_torque_beyond_the_limit_nor_one_that_leaps(stream):
    """In the measured state of its tick, wherever the robot is; a stop may leap within limits."""
    limits, before = limiter(), None
    for asked, state, abrupt in stream:
        for command in (asked, opposite(asked)):
            sent = joint(limits.limit(command, state, DT, abrupt=abrupt))
            now = torque(sent, state)
            assert np.all(np.abs(now) <= EFFORT * (1 + 1e-9) + 1e-9)
            assert np.all((sent.q >= LOWER) & (sent.q <= UPPER))
            assert np.all((sent.kp >= 0) & (sent.kd >= 0))
            if command is not asked and not abrupt:  # in the same state as the one before
                assert np.all(np.abs(now - before) <= RATE * DT + 1e-6)
            before = now


@pytest.mark.slow
@settings(max_examples=50)
@given(pose, st.lists(st.builds(command, q=pair, kp=pair), min_size=1, max_size=30))
def test_position_sent_to_joints_that_follow_is_never_faster_than_they_may_be(start, stream):
    limits, q = limiter(), np.array(start)
    limits.start(measured(q=start))
    for asked in stream:
        sent = joint(limits.limit(asked, measured(q=q), DT)).q[0]
        assert np.all(np.abs(sent - q) / DT <= SPEED * (1 + 1e-9))
        q = sent


class TestTorque:
    def test_gain_rises_within_a_time_and_falls_at_once(self):
        limits, seen = limiter(), []
        for kp in (0, *[80] * 12, 0):
            seen.append(joint(limits.limit(command(kp=(kp, 0)), measured(), DT)).kp[0, 0])
        rise = [80 * min(1.0, step * DT / GAIN_TIME) for step in range(13)]
        np.testing.assert_allclose(seen, [*rise, 0])

    def test_position_never_runs_ahead_of_a_fast_joint(self):
        limits = limiter()
        limits.start(measured())
        fast = measured(dq=(9.0, 0))  # its damping of 4 N m s/rad makes 36 N m, of 10
        for _ in range(20):
            sent = joint(limits.limit(command(q=(0.1, 0), kd=(4, 0)), fast, DT))
            assert 0 <= sent.q[0, 0] <= limits.target.q[0, 0]
            torque = sent.kp[0, 0] * sent.q[0, 0] - 9.0 * sent.kd[0, 0]
            assert abs(torque) <= EFFORT[0] + 1e-9

    def test_a_speed_that_is_absurd_hides_no_torque_of_the_stiffness(self):
        limits = limiter()
        asked, there = command(q=(0.5, -0.5)), measured((0.5, -0.5))
        held = [joint(limits.limit(asked, there, DT)) for _ in range(50)]
        sent = joint(limits.limit(asked, measured((-0.9, 0.4), (1e300, -1e300)), DT))
        q, kp = sent.q[0], sent.kp[0]
        assert held[-1].kp[0, 0] == 40.0
        assert np.all(abs(kp * (q - [-0.9, 0.4])) <= EFFORT * (1 + 1e-9))
        np.testing.assert_array_equal(sent.kd, 0.0)

    def test_position_moves_and_gains_stay(self):
        limits = limiter()
        limits.start(measured(q=(0.6, 0)))
        state = measured(q=(0.2, 0))  # 0.4 rad x 40 N m/rad = 16 N m, of 10
        seen = [joint(limits.limit(command(q=(0.6, 0)), state, DT)) for _ in range(20)]
        sent = seen[-1]
        np.testing.assert_allclose(sent.q, [[0.45, 0]])
        np.testing.assert_array_equal(sent.kp, [[40, 20]])
        assert limits.target.q[0, 0] == 0.6

    def test_stop_damps_up_to_the_limit_at_once(self):
        limits = limiter()
        limits.limit(command(), measured(), DT)
        state = measured(dq=(5, 1))  # 4 N m s/rad x 5 rad/s = 20 N m, of 10
        sent = limits.limit(command(kp=(0, 0)), state, DT, abrupt=True)
        np.testing.assert_allclose(torque(joint(sent), state), [-10, -2])
        assert not joint(sent).kp.any()
        assert not joint(sent).tau.any()

    def test_feed_forward_and_gains_that_flip_make_no_leaps(self):
        limits, state = limiter(), measured(q=(0.1, 0))
        seen = []
        for tick in range(50):
            sign = 1 - 2 * (tick % 2)
            asked = command(tau=(10 * sign, 0), kp=(40 + 40 * sign, 20))
            seen.append(torque(joint(limits.limit(asked, state, DT)), state)[0])
        assert np.abs(np.diff(seen)).max() <= RATE[0] * DT + 1e-9

    def test_joint_that_is_pushed_answers_with_its_damping_at_once(self):
        """An impact is no change of the command."""
        limits = limiter()
        limits.limit(command(), measured(), DT)
        state = measured(dq=(2, 0))
        np.testing.assert_allclose(torque(joint(limits.limit(command(), state, DT)), state)[0], -8)


NOTHING = RobotState({})
any_float = st.floats(allow_nan=True, allow_infinity=True)


def limited(limiter, command, dt=0.01) -> tuple[Any, bool, bool]:
    """Command (of whatever kind), clamped, replaced."""
    return limiter.limit(command, NOTHING, dt)


def rotors(*speed):
    return RotorCommand(speed=np.array([speed], float))


def rates(x, y, z, thrust):
    return BodyRateCommand(rates_b=np.array([[x, y, z]], float), thrust=np.array([[thrust]], float))


def pose_command(*position, turn=(1, 0, 0, 0)):
    return PoseCommand(
        position_w=np.array([position], float), orientation_w=np.array([turn], float)
    )


def test_rotors_are_clipped_and_no_number_keeps_the_previous():
    limiter = rotor_limiter(4)
    assert limited(limiter, rotors(0.1, 0.2, 0.3, 0.4))[1:] == (False, False)
    sent, *told = limited(limiter, rotors(np.nan, 1.5, -1, 0.5))
    np.testing.assert_array_equal(sent.speed, [[0.1, 1.0, 0.0, 0.5]])
    assert told == [True, True]


def test_body_rates_and_thrust_are_clipped_each_by_its_own_limit():
    limiter = body_rate_limiter((1, 2, 3), 0.8)
    sent, *told = limited(limiter, rates(-5, 5, np.nan, 0.9))
    np.testing.assert_array_equal(sent.rates_b, [[-1, 2, 0]])
    np.testing.assert_array_equal(sent.thrust, [[0.8]])
    assert told == [True, True]


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.tuples(any_float, any_float, any_float, any_float), min_size=1, max_size=10))
def test_no_flight_command_outside_limits_ever_leaves(stream):
    speed, inner = rotor_limiter(4), body_rate_limiter()
    for values in stream:
        sent = limited(speed, rotors(*values))[0].speed
        assert np.all((sent >= 0) & (sent <= 1))
        command = limited(inner, rates(*values))[0]
        assert np.all(np.abs(command.rates_b) <= [10, 10, 6])
        assert np.all((command.thrust >= 0) & (command.thrust <= 1))


def test_a_pose_target_moves_no_faster_than_allowed_and_stays_in_its_box():
    limiter = PoseLimiter(PoseLimits(lower=(0, -1, 0), upper=(1, 1, 1), speed=0.25))
    limited(limiter, pose_command(0.9, 0, 0.5))
    sent, clamped, _ = limited(limiter, pose_command(0.9, 3.0, 0.5, turn=(2, 0, 0, 0)))
    np.testing.assert_allclose(sent.position_w, [[0.9, 0.0025, 0.5]])
    np.testing.assert_allclose(sent.orientation_w, [[1, 0, 0, 0]])
    assert clamped
    for _ in range(1000):
        sent = limited(limiter, pose_command(9, 9, 9))[0]
    np.testing.assert_allclose(sent.position_w, [[1, 1, 1]])


def test_a_pose_that_is_no_number_keeps_the_previous_or_is_refused_as_the_first():
    limiter = PoseLimiter(PoseLimits())
    with pytest.raises(ShapeError, match="first"):
        limited(limiter, pose_command(np.nan, 0, 0))
    limited(limiter, pose_command(1, 2, 3))
    sent, _, replaced = limited(limiter, pose_command(1, np.nan, 3))
    np.testing.assert_array_equal(sent.position_w, [[1, 2, 3]])
    assert replaced


@pytest.mark.parametrize("acceleration", [math.inf, 10.0])
@pytest.mark.parametrize("dt", [0.0, -0.0, -1.0, math.nan, math.inf, -math.inf, 1e-320])
def test_a_time_that_is_none_moves_nothing_and_every_limit_holds(dt, acceleration):
    limits = limiter(acceleration=acceleration)
    limits.start(measured())
    before = [joint(limits.limit(command(q=(1, -1)), measured(), DT)) for _ in range(10)][-1]
    for asked in (command(q=(9, -9), dq=(99, 99), tau=(99, 99), kp=(999, 0), kd=(99, -1)),
                  command(q=(0, 0), kp=(0, 0))):  # fmt: skip
        sent = joint(limits.limit(asked, measured(), dt))
        np.testing.assert_allclose(sent.q, before.q, atol=1e-7)
        assert (abs(sent.dq) <= SPEED).all()
        assert (abs(sent.tau) <= EFFORT).all()
        assert ((sent.kp >= 0) & (sent.kp <= [[80, 40]])).all()
    after = joint(limits.limit(command(q=(1, -1)), measured(), DT))
    assert (abs(after.q - before.q) <= SPEED * DT + 1e-7).all()


@pytest.mark.parametrize("dt", [0.0, -1.0, math.nan, math.inf])
def test_a_pose_target_waits_where_no_time_passes(dt):
    limiter = PoseLimiter(PoseLimits())
    limiter.limit(pose_command(1, 2, 3), measured(), DT)
    sent = limiter.limit(pose_command(9, 9, 9), measured(), dt).command
    assert isinstance(sent, PoseCommand)
    np.testing.assert_allclose(sent.position_w, [[1, 2, 3]], atol=1e-8)


@pytest.mark.parametrize(
    ("limiter", "bad"),
    [
        (limiter(), command(q=(0, 0, 0))), (limiter(), rotors(0, 0, 0, 0)),
        (rotor_limiter(4), rates(0, 0, 0, 0)), (rotor_limiter(4), rotors(0, 0)),
        (body_rate_limiter(), rotors(0, 0, 0, 0)), (PoseLimiter(PoseLimits()), rotors(0)),
    ],
)  # fmt: skip
def test_another_kind_or_shape_is_refused(limiter, bad):
    with pytest.raises(ShapeError):
        limiter.limit(bad, measured(), DT)


def test_a_robot_gets_the_limiter_of_its_command():
    assert isinstance(make_limiter(two_joints()), JointLimiter)
    for robot, command in (
        (multirotor(CommandKind.rotors), rotors(2, 2, 2, 2)), (multirotor(), rates(0, 0, 0, 2)),
    ):  # fmt: skip
        limiter = make_limiter(robot)
        assert isinstance(limiter, BoxLimiter)
        assert limited(limiter, command)[1]
    with pytest.raises(ConfigError, match="pose"):
        make_limiter(multirotor(CommandKind.pose))
