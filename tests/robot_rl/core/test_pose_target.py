"""Displacements of an end effector: by hand, as an inverse, and within leash and workspace."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from robot_rl.core import quaternion
from robot_rl.core.action import ActionMap, PoseFrame, PoseMotion
from robot_rl.core.env_selection import Array
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.observation import RobotState
from robot_rl.core.pose_target import CommandMaker, PoseTarget, rotation_between
from robot_rl.core.robot import GripperSpec, JointSpec, RobotSpec, SensorSpec
from robot_rl.core.robot_command import CommandKind, JointCommand, PoseCommand

QUARTER = quaternion.from_rotation_vector(np.array([[0.0, 0.0, np.pi / 2]]))
LEVEL = np.array([[1.0, 0.0, 0.0, 0.0]])
AT = np.array([[0.5, 0.0, 0.3]])


def state(position: Array = AT, orientation: Array = LEVEL) -> RobotState:
    return RobotState(
        {"end_effector_position_b": position, "end_effector_orientation_b": orientation}
    )


def action_map(gripper: bool = False, **motion: Any) -> ActionMap:
    made = PoseMotion(**{"position_leash": 1.0, "rotation_leash": 3.0, **motion})
    return ActionMap.end_effector(translation=0.01, rotation=0.1, motion=made, gripper=gripper)


def test_an_action_displaces_the_target_along_the_base_by_hand():
    target = PoseTarget(action_map(gripper=True), state())
    command = target.command(np.array([[1.0, -0.5, 0.0, 0.0, 0.0, 2.0, -1.0]]), state())
    assert_allclose(command.position_w, [[0.51, -0.005, 0.3]])
    assert_allclose(command.orientation_w, [[np.cos(0.05), 0, 0, np.sin(0.05)]])
    assert command.gripper is not None
    assert_allclose(command.gripper, [[0.0]])
    assert_allclose(target.position, AT)  # until it was followed
    target.follow(command)
    assert_allclose(target.position, [[0.51, -0.005, 0.3]])


def test_in_the_frame_of_the_start_a_policy_does_not_see_where_that_was():
    motion: dict[str, Any] = {"frame": PoseFrame.start}
    level, turned = (
        PoseTarget(action_map(**motion), state(orientation=start)) for start in (LEVEL, QUARTER)
    )
    action = np.array([[1.0, 0.0, 0.0, 0.5, 0.0, 0.0]])
    for _ in range(3):  # the frame stays that of the start while the target turns
        one = level.command(action, state())
        other = turned.command(action, state(orientation=QUARTER))
        way = quaternion.rotate(QUARTER, one.position_w - AT)
        assert_allclose(other.position_w - AT, way, atol=1e-12)
        expected = quaternion.multiply(quaternion.multiply(QUARTER, one.orientation_w), LEVEL)
        assert_allclose(rotation_between(expected, other.orientation_w), 0, atol=1e-12)
        for target, command in ((level, one), (turned, other)):
            found, beyond = target.executed(command)
            assert_allclose(found, action, atol=1e-9)
            assert not beyond.any()
            target.follow(command)


@given(
    st.lists(st.floats(-1, 1), min_size=7, max_size=7), st.sampled_from(PoseFrame),
    st.lists(st.floats(-2, 2), min_size=3, max_size=3),
)  # fmt: skip
def test_what_was_followed_gives_the_action_back_in_numpy_and_torch(values, frame, turn):
    orientation = quaternion.from_rotation_vector(np.array([turn]))
    action = np.array([values])
    for make in (np.asarray, torch.tensor):
        now = state(make(AT), make(orientation))
        target = PoseTarget(action_map(gripper=True, frame=frame), now)
        found, beyond = target.executed(target.command(make(action), now))
        assert_allclose(np.asarray(found), action, atol=1e-8)
        assert not beyond.any()


def test_the_target_stays_on_the_leash_and_in_the_workspace():
    box = [[0.4, 0.505], [-1.0, 1.0], [-np.inf, np.inf]]
    motion = {"position_leash": 0.02, "rotation_leash": 0.15, "workspace": box}
    target = PoseTarget(action_map(**motion), state())
    for _ in range(10):
        target.follow(target.command(np.array([[0.0, 1.0, 0.0, 0.0, 0.0, 1.0]]), state()))
    assert_allclose(target.position, [[0.5, 0.02, 0.3]])
    assert_allclose(rotation_between(LEVEL, target.orientation), [[0, 0, 0.15]])
    command = target.command(np.array([[1.0, 0, 0, 0, 0, 0]]), state())
    assert command.position_w[0, 0] == 0.505
    action, beyond = target.executed(command)
    assert_allclose(action[0, 0], 0.5, atol=0.1)  # what was done, not what was asked for
    assert not beyond.any()


def test_its_offset_is_the_way_from_the_measured_pose_by_hand():
    target = PoseTarget(action_map(), state())
    target.follow(target.command(np.array([[1.0, 0, -0.5, 0, 0, 1.0]]), state()))
    behind = state(AT + np.array([[0.002, 0.001, 0.0]]))
    assert_allclose(target.offset(behind), [[0.008, -0.001, -0.005, 0, 0, 0.1]], atol=1e-12)
    turned = target.offset(state(AT, QUARTER))
    assert_allclose(turned, [[0.01, 0, -0.005, 0, 0, 0.1 - np.pi / 2]], atol=1e-12)


def test_axes_that_are_not_named_stay_and_their_motion_is_flagged():
    target = PoseTarget(action_map(axes=["x", "z", "rz"]), state())
    command = target.command(np.array([[1.0, -1.0, 0.5]]), state())
    assert_allclose(command.position_w, [[0.51, 0.0, 0.29]])
    assert_allclose(rotation_between(LEVEL, command.orientation_w), [[0, 0, 0.05]])
    assert not target.executed(command)[1].any()
    aside = replace(command, position_w=command.position_w + np.array([[0.0, 0.001, 0.0]]))
    action, beyond = target.executed(aside)
    assert beyond.all()
    assert_allclose(action, [[1.0, -1.0, 0.5]])


def test_what_moved_further_than_an_action_can_is_clipped_and_flagged():
    target = PoseTarget(action_map(), state())
    far = PoseCommand(position_w=AT + np.array([[0.03, 0.0, 0.005]]), orientation_w=-LEVEL)
    action, beyond = target.executed(far)
    assert_allclose(action, [[1.0, 0.0, 0.5, 0.0, 0.0, 0.0]], atol=1e-9)
    assert beyond.all()


def test_a_command_that_leaves_the_gripper_as_it_is_repeats_the_opening_before():
    """It counted as half open, which a critic of discrete openings took for a command to close."""
    made = action_map(gripper=True)
    still = PoseCommand(position_w=AT, orientation_w=LEVEL)
    with pytest.raises(SpecMismatchError, match="says nothing of one"):
        PoseTarget(made, state()).executed(still)
    maker, first, later = CommandMaker(made), np.array([True]), np.array([False])
    opens, closes = (np.array([[0.0] * 6 + [end]]) for end in (1.0, -1.0))
    maker.command(opens, state(), first)
    maker.command(closes, state(), later)
    assert_allclose(maker.accept(still), opens, atol=1e-12)
    maker.command(closes, state(), later)
    assert_allclose(maker.accept(still), opens, atol=1e-12)  # nobody closed it meanwhile
    maker.command(closes, state(), later)  # counts as followed
    maker.command(opens, state(), later)
    assert_allclose(maker.accept(still), closes, atol=1e-12)


def test_a_joint_command_that_leaves_the_gripper_as_it_is_repeats_the_opening_before():
    joints = [JointSpec(name=name, stiffness=10.0, damping=1.0) for name in "ab"]
    arm = RobotSpec(name="arm", joints=joints, command=CommandKind.joint,
                    gripper=GripperSpec(joints=["finger"]))  # fmt: skip
    made = ActionMap.joint_positions(arm, scale=0.5, gripper=True)
    maker = CommandMaker(made)
    asked = maker.command(np.array([[0.2, 0.4, 0.6]]), state(), np.array([True]))
    assert isinstance(asked, JointCommand)
    found = maker.accept(replace(asked, gripper=None))
    assert_allclose(found, [[0.2, 0.4, 0.6]], atol=1e-12)


def test_the_map_is_written_and_read_and_refuses_what_needs_a_target():
    made = action_map(gripper=True, frame=PoseFrame.start, workspace=[[0, 1], [-1, 1], [0, 1]])
    assert ActionMap.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    rotors = ActionMap(kind=CommandKind.rotors, low=[0.0], high=[1.0])
    assert "pose" not in rotors.to_dict()
    with pytest.raises(SpecMismatchError, match="PoseTarget"):
        made.to_command(np.zeros((1, 7)))
    with pytest.raises(SpecMismatchError, match="PoseTarget"):
        made.from_command(PoseCommand(position_w=AT, orientation_w=LEVEL))
    with pytest.raises(SpecMismatchError, match="kind 'pose'"):
        PoseTarget(rotors, state())
    zero = np.zeros((1, 1))
    joints = JointCommand(q=zero, dq=zero, tau=zero, kp=zero, kd=zero)
    with pytest.raises(SpecMismatchError, match="expected a PoseCommand"):
        PoseTarget(made, state()).executed(joints)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"low": [-1.0, -1.0]}, "as many low as high"),
        ({"low": [-0.02] * 6}, "as far back as forth"),
        ({"pose": None}, "needs one"),
        ({"pose": PoseMotion(axes=["x"])}, "needs 1 entries"),
    ],
)
def test_maps_that_do_not_fit_are_refused(changes, match):
    with pytest.raises(ConfigError, match=match):
        replace(action_map(), **changes)


@pytest.mark.parametrize(
    ("motion", "match"),
    [
        ({"axes": ["z", "x"]}, "in this order"),
        ({"axes": []}, "in this order"),
        ({"position_leash": 0.0}, "position_leash must be > 0"),
        ({"workspace": [[0, 1]]}, "for x, y and z"),
        ({"workspace": [[0, 1], [1, 0], [0, 1]]}, "for x, y and z"),
    ],
)
def test_motions_that_make_no_sense_are_refused(motion, match):
    with pytest.raises(ConfigError, match=match):
        PoseMotion(**motion)


def test_the_robot_must_measure_its_end_effector():
    sensors = {name: SensorSpec() for name in state().fields}
    arm = RobotSpec(
        name="arm", command=CommandKind.joint, joints=[JointSpec(name="a")], sensors=sensors
    )
    action_map().check_robot(arm)
    with pytest.raises(SpecMismatchError, match="has none"):
        action_map(gripper=True).check_robot(arm)
    action_map(gripper=True).check_robot(replace(arm, gripper=GripperSpec(joints=["finger"])))
    with pytest.raises(SpecMismatchError, match="end_effector_orientation_b"):
        action_map().check_robot(replace(arm, sensors={}))
