"""Targets that a person moves, against a robot that a test puts where it likes."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.controllers import rotations
from hardware.teleop.intent import MotionFrame
from hardware.teleop.targets import FlightTarget, JointTarget, PoseTarget, TargetConfig
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import JointSpec, RobotSpec
from robot_rl.core.robot_command import JointCommand, PoseCommand
from tests.hardware.control.robots import flying
from tests.hardware.controllers.arms import READY, panda_chain

BASE, TOOL = MotionFrame.base, MotionFrame.tool
LEVEL = (1.0, 0.0, 0.0, 0.0)
DT = 0.02


def at(place=(0.5, 0.0, 0.3), attitude=LEVEL, opening=1.0):
    return RobotState({
        "end_effector_position_b": np.array([place], float),
        "end_effector_orientation_b": np.array([attitude], float),
        "gripper_opening": np.array([[opening]]),
    })  # fmt: skip


def synced(config=None, state=None, followed=None):
    target = PoseTarget(config)
    target.sync(state or at(), followed)
    return target


def commanded(target) -> Any:
    """The setpoint, of whatever kind."""
    return target.command()


def push(target, axes, seconds, state, frame=BASE):
    for _ in range(round(seconds / DT)):
        target.advance(np.array(axes, float), frame, state, DT)


def turn_between(a, b):
    return math.hypot(*rotations.rotation_vector(rotations.multiply(rotations.conjugate(a), b)))


def test_it_starts_where_the_robot_is():
    target = synced()
    np.testing.assert_array_equal(commanded(target).position_w, [[0.5, 0.0, 0.3]])
    assert commanded(target).gripper is None


def test_it_starts_at_the_setpoint_followed_last_so_that_a_spring_keeps_its_tension():
    sagging = at((0.5, 0.0, 0.29))
    held = PoseCommand(position_w=np.array([[0.5, 0.0, 0.3]]), orientation_w=np.array([LEVEL]))
    np.testing.assert_allclose(synced(None, sagging, held).position, [0.5, 0.0, 0.3])
    far = PoseCommand(position_w=np.array([[0.9, 0.0, 0.29]]), orientation_w=np.array([LEVEL]))
    np.testing.assert_allclose(synced(None, sagging, far).position, [0.55, 0.0, 0.29])


def test_full_deflection_is_the_speed_in_every_direction():
    config = TargetConfig(linear_speed=0.1, leash=1.0, turn_leash=3.0, angular_speed=0.5)
    for axes in ([1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]):
        target = synced(config)
        push(target, axes, 1.0, at())
        assert np.linalg.norm(target.position - [0.5, 0, 0.3]) == pytest.approx(0.1)
    target = synced(config)
    push(target, [0, 0, 0, 0, 0, 1], 1.0, at())
    assert turn_between(LEVEL, target.orientation) == pytest.approx(0.5)


def test_the_tool_frame_moves_along_the_tools_own_axes():
    quarter = rotations.from_rotation_vector((0.0, 0.0, math.pi / 2))
    state = at(attitude=quarter)
    target = synced(TargetConfig(leash=1.0), state)
    push(target, [1, 0, 0, 0, 0, 0], 1.0, state, TOOL)
    np.testing.assert_allclose(target.position, [0.5, 0.1, 0.3], atol=1e-9)


def test_a_robot_that_is_held_up_keeps_the_target_on_its_leash():
    config = TargetConfig(leash=0.05, turn_leash=0.3)
    target = synced(config)
    push(target, [1, 0, 0, 0, 1, 0], 5.0, at())
    np.testing.assert_allclose(target.position, [0.55, 0.0, 0.3], atol=1e-9)
    assert turn_between(LEVEL, target.orientation) == pytest.approx(0.3)
    push(target, [-1, 0, 0, 0, 0, 0], 0.1, at())  # nothing has to be unwound first
    assert target.position[0] == pytest.approx(0.54)


vectors = st.lists(st.floats(-1, 1), min_size=6, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(vectors, max_size=30), st.lists(st.floats(-0.2, 0.2), min_size=3, max_size=3))
def test_whatever_is_done_it_stays_in_its_box_and_never_leaps(twists, drift):
    config = TargetConfig(lower=[0.4, -0.1, 0.2], upper=[0.6, 0.1, 0.4])
    target = synced(config)
    for i, twist in enumerate(twists):
        state = at(np.array([0.5, 0.0, 0.3]) + np.array(drift) * i / 30)
        before = target.position
        target.advance(np.array(twist), BASE, state, DT)
        assert np.all(target.position >= config.lower)
        assert np.all(target.position <= config.upper)
        # Its own way, and what the leash drags it by as the robot moves.
        dragged = np.linalg.norm(drift) / 30 * (i + 1) + 1e-9
        assert np.linalg.norm(target.position - before) <= 0.1 * DT + dragged
        assert math.hypot(*target.orientation) == pytest.approx(1.0)


def test_the_gripper_is_left_alone_until_it_is_turned_over():
    target, half_closed = synced(), at(opening=0.3)
    target.turn_gripper(half_closed)
    assert commanded(target).gripper[0, 0] == 1.0
    target.turn_gripper(half_closed)
    assert commanded(target).gripper[0, 0] == 0.0
    target.sync(half_closed, None)  # somebody else has the robot: what is held stays held
    assert commanded(target).gripper is None


def test_a_person_displaces_no_further_than_an_action_can():
    config = TargetConfig.for_actions(0.01, 0.05, 0.1)
    assert (config.linear_speed, config.angular_speed) == pytest.approx((0.1, 0.5))


def panda_spec():
    return RobotSpec(name="panda", joints=[
        JointSpec(name=f"joint{i}", position_limit=[-2.9, 2.9], velocity_limit=2.0,
                  stiffness=100.0, damping=5.0)
        for i in range(7)
    ])  # fmt: skip


def arm_state(q):
    pose = panda_chain().at(q)
    return RobotState({
        "joint_position": q[None], "end_effector_position_b": pose.tip_position_b[None],
        "end_effector_orientation_b": np.array([pose.tip_orientation_b]),
    })  # fmt: skip


def followed_by(command):
    """The arm, exactly where it is told to be."""
    return arm_state(np.array(command.q[0]))


def test_joint_targets_lead_the_tip_along_the_stick():
    target, state = JointTarget(panda_spec(), panda_chain()), arm_state(READY)
    target.sync(state, None)
    start, attitude = target.pose()
    for _ in range(50):
        target.advance(np.array([0, 1.0, 0, 0, 0, 0]), BASE, state, DT)
        state = followed_by(commanded(target))
    end, turned = target.pose()
    np.testing.assert_allclose(end - start, [0, 0.1, 0], atol=2e-3)
    assert turn_between(attitude, turned) < 0.01


def test_joint_targets_start_at_those_followed_last_and_never_outrun_the_joints():
    target, state = JointTarget(panda_spec(), panda_chain()), arm_state(READY)
    zero, gains = np.zeros((1, 7)), np.ones((1, 7))
    held = JointCommand(q=READY[None] + 0.02, dq=zero, tau=zero, kp=gains, kd=gains)
    target.sync(state, held)
    np.testing.assert_allclose(commanded(target).q, held.q)
    before = commanded(target).q
    for _ in range(200):  # far out, where the arm is stretched
        target.advance(np.array([1.0, 0, 1.0, 0, 0, 0]), BASE, state, DT)
        after = commanded(target).q
        assert np.abs(after - before).max() <= 2.0 * DT + 1e-9
        assert np.all(np.abs(after) <= 2.9)
        before, state = after, followed_by(commanded(target))


def test_a_drone_is_asked_for_a_heading_and_no_lean():
    target, leaning = FlightTarget(), flying(turn=(0.3, -0.2, 0.0))
    target.sync(leaning, None)
    _, attitude = target.pose()
    assert rotations.vertical(attitude) == pytest.approx((0.0, 0.0, 1.0))
    push(target, [0, 0, 0, 1, 1, 0.5], 0.5, leaning)
    assert rotations.vertical(target.orientation) == pytest.approx((0.0, 0.0, 1.0))
    push(target, [1, 0, 0, 0, 0, 0], 0.3, leaning)
    assert np.linalg.norm(target.position - [0, 0, 1]) == pytest.approx(0.3)


@pytest.mark.parametrize("config", [{"leash": 0.0}, {"linear_speed": math.inf},
                                    {"lower": [1.0, 0, 0], "upper": [0.0, 1, 1]}])  # fmt: skip
def test_settings_that_are_none_are_refused(config):
    with pytest.raises(ConfigError):
        TargetConfig(**config)
