"""The action map and its inverse."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch.testing import assert_close

from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot import GripperSpec, JointSpec, RobotSpec
from robot_rl.core.robot_command import BodyRateCommand, CommandKind, JointCommand, RotorCommand

ROTORS = ActionMap(kind=CommandKind.rotors, low=[0.0, 0.2], high=[1.0, 0.6])
RATES = ActionMap(
    kind=CommandKind.body_rates, low=[-10.0, -10.0, -5.0, 0.0], high=[10.0, 10.0, 5.0, 1.0]
)

ARM = RobotSpec(
    name="arm",
    command=CommandKind.joint,
    joints=[
        JointSpec(
            name="a", position_limit=[-1.0, 3.0], default_position=1.0, stiffness=600, damping=50
        ),
        JointSpec(
            name="b", position_limit=[-0.3, 0.9], default_position=0.2, stiffness=40, damping=2
        ),
    ],
)
JOINTS = ActionMap.joint_positions(ARM, scale=1.0)
HANDED = replace(ARM, gripper=GripperSpec(joints=["left", "right"]))
GRASPING = ActionMap.joint_positions(HANDED, scale=1.0, gripper=True)


def command_values(command: Any) -> np.ndarray:
    return np.concatenate([np.asarray(v) for v in entries_of(command)], axis=-1)


def entries_of(command: Any) -> list[Any]:
    return [value for value in vars(command).values() if value is not None]


def test_ends_and_middle_by_hand():
    command = ROTORS.to_command(np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0], [0.5, -0.5]]))
    assert isinstance(command, RotorCommand)
    assert_allclose(command.speed, [[0, 0.2], [0.5, 0.4], [1, 0.6], [0.75, 0.3]])
    command = RATES.to_command(np.array([[1.0, 0.0, -1.0, 0.5]]))
    assert isinstance(command, BodyRateCommand)
    assert_allclose(command.rates_b, [[10, 0, -5]])
    assert_allclose(command.thrust, [[0.75]])


@pytest.mark.slow
@pytest.mark.parametrize("action_map", [ROTORS, RATES])
@given(entries=st.lists(st.floats(-1, 1), min_size=4, max_size=4))
def test_inverse_gives_the_action_back(action_map, entries):
    action = np.array([entries[: action_map.size]])
    back = action_map.from_command(action_map.to_command(action))
    assert_allclose(back, action, atol=1e-12)


def test_command_out_of_range_is_seen_in_the_inverse_and_clipped_forward():
    action = ROTORS.from_command(RotorCommand(speed=np.array([[1.5, 0.4]])))
    assert_allclose(action, [[2.0, 0.0]], atol=1e-12)
    assert_allclose(command_values(ROTORS.to_command(action)), [[1.0, 0.4]])


def test_joint_targets_lie_around_the_default_pose_within_the_limits_by_hand():
    command = JOINTS.to_command(np.array([[0.0, 0.0], [0.5, -0.5], [1.0, 1.0], [-9.0, 0.25]]))
    assert isinstance(command, JointCommand)
    assert_allclose(command.q, [[1, 0.2], [1.5, -0.3], [2, 0.9], [0, 0.45]])
    assert_array_equal(command.kp, [[600, 40]] * 4)
    assert_array_equal(command.kd, [[50, 2]] * 4)
    assert not command.dq.any()
    assert not command.tau.any()


def test_the_last_entry_opens_the_gripper_where_the_map_has_one_by_hand():
    command = GRASPING.to_command(np.array([[0.5, -0.5, -1.0], [0.0, 0.0, 0.5], [0, 0, 7.0]]))
    assert isinstance(command, JointCommand)
    assert_allclose(command.q, [[1.5, -0.3], [1, 0.2], [1, 0.2]])
    assert command.gripper is not None
    assert_allclose(command.gripper, [[0.0], [0.75], [1.0]])
    assert_array_equal(command.kp, [[600, 40]] * 3)
    back = GRASPING.from_command(command)
    assert_allclose(back[1:], [[0, 0, 0.5], [0, 0, 1]], atol=1e-12)
    with pytest.raises(SpecMismatchError, match="the command says nothing of one"):
        GRASPING.from_command(replace(command, gripper=None))


@given(entries=st.lists(st.floats(-1, 1), min_size=2, max_size=2))
def test_inverse_of_a_clipped_joint_target_makes_the_same_command(entries):
    command = JOINTS.to_command(np.array([entries]))
    back = JOINTS.from_command(command)
    assert (abs(back * (1 - 1e-12)) <= 1).all()
    assert_allclose(command_values(JOINTS.to_command(back)), command_values(command), atol=1e-12)


@pytest.mark.parametrize("action_map", [ROTORS, RATES, JOINTS, GRASPING])
def test_numpy_and_torch_agree(action_map):
    rng = np.random.default_rng(0)
    action = rng.uniform(-1.2, 1.2, (20, action_map.size)).astype(np.float32)
    tensor = torch.from_numpy(action)
    by_numpy, by_torch = action_map.to_command(action), action_map.to_command(tensor)
    assert all(v.dtype == np.float32 for v in entries_of(by_numpy))
    assert all(v.dtype == torch.float32 for v in entries_of(by_torch))
    assert_allclose(command_values(by_numpy), command_values(by_torch), rtol=1e-6)


def test_gradient_flows_even_after_use_in_inference_mode():
    fresh = ActionMap(kind=CommandKind.rotors, low=[0.0], high=[0.123])
    with torch.inference_mode():
        fresh.to_command(torch.zeros(1, 1))
    action = torch.zeros(1, 1, requires_grad=True)
    command = fresh.to_command(action)
    assert isinstance(command, RotorCommand)
    command.speed.sum().backward()
    assert action.grad is not None
    assert_close(action.grad, torch.tensor([[0.0615]]))


@pytest.mark.parametrize("action_map", [RATES, GRASPING])
def test_map_survives_json_and_that_of_an_older_bundle_is_read(action_map):
    assert ActionMap.from_dict(json.loads(json.dumps(action_map.to_dict()))) == action_map
    old = {"kind": "rotors", "low": [0.0, 0.2], "high": [1.0, 0.6]}
    assert ActionMap.from_dict(old) == ROTORS
    with pytest.raises(SpecMismatchError, match="expected a BodyRateCommand, got a RotorCommand"):
        RATES.from_command(RotorCommand(speed=np.zeros((1, 4))))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"low": [0.0], "high": []}, "as many low as high"),
        ({"low": [float("nan")], "high": [1.0]}, "must lie below"),
        ({"kind": CommandKind.joint, "low": [0.0], "high": [1.0]}, "needs 1 gains"),
        ({"low": [0.0] * 4, "high": [1.0] * 4, "gripper": True}, "no room for a gripper"),
        ({"kind": CommandKind.pose, "low": [0.0], "high": [1.0]}, "'pose' needs one"),
    ],
)
def test_impossible_maps_are_refused(values, sentence):
    with pytest.raises(ConfigError, match=sentence):
        ActionMap(**values)


def test_robot_with_another_command_or_number_of_rotors_is_refused():
    ROTORS.check_robot(RobotSpec(name="twin", rotors=["left", "right"]))
    JOINTS.check_robot(HANDED)  # a policy need not move the fingers
    with pytest.raises(SpecMismatchError, match="entry for a gripper, but robot 'arm' has none"):
        GRASPING.check_robot(ARM)
    with pytest.raises(SpecMismatchError, match=r"has 2 entries, .* robot 'one' has 1"):
        JOINTS.check_robot(RobotSpec(name="one", joints=ARM.joints[:1], command=CommandKind.joint))
    RATES.check_robot(RobotSpec(name="quad", rotors=["a", "b", "c", "d"]))  # by an inner loop
    with pytest.raises(SpecMismatchError, match=r"makes 'body_rates' .* accepts 'joint'"):
        RATES.check_robot(ARM)
    with pytest.raises(SpecMismatchError, match=r"makes 'rotors' .* accepts 'body_rates'"):
        ROTORS.check_robot(
            RobotSpec(name="fc", rotors=["left", "right"], command=CommandKind.body_rates)
        )
