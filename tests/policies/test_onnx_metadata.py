"""Metadata and parameters for other programs, read back as those would."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnxruntime import InferenceSession

from policies.bundle import ROS2_FILE, ROS2_NETWORK, load_bundle
from policies.caller import CallerSpec
from policies.export import export_bundle
from robot_rl.core.observation import RobotState, TermConfig
from tests.policies.conftest import SmallPolicy
from tests.policies.test_caller import arm_arguments, joints

pytestmark = pytest.mark.slow

TERMS = [
    TermConfig(term="goal/velocity_b"),
    TermConfig(term="joint_position", scale=0.5, history=2),
    TermConfig(term="state/joint_velocity", scale=0.05),
    TermConfig(term="last_action"),
]


def plain(**changes: Any) -> dict[str, Any]:
    """A policy that a controller of ros2_control can run."""
    values: dict[str, Any] = {
        "terms": TERMS, "policy": SmallPolicy(3 + 4 + 2 + 2, 2), "clocks": {},
        "goal_widths": {"velocity_b": 3}, "caller": None,
    }  # fmt: skip
    return arm_arguments(**(values | changes))


def parameters(folder: Path) -> dict[str, Any]:
    return yaml.safe_load((folder / ROS2_FILE).read_text())["policy_controller"]["ros__parameters"]


def test_metadata_is_that_of_the_spec_in_the_order_of_joints_and_terms(tmp_path):
    folder = export_bundle(tmp_path / "arm", **plain())
    properties = onnx.load(folder / "policy.onnx").metadata_props
    assert {one.key: one.value for one in properties} == {
        "observation_names": "velocity_commands,joint_pos,joint_vel,actions",
        "observation_scales": "1,0.5,0.05,1",
        "observation_history_lengths": "1,2,1,1",
        "command_names": "velocity_b",
        "control_dt": "0.1",
        "joint_names": "shoulder,elbow",
        "joint_stiffness": "50,50",
        "joint_damping": "5,5",
        "default_joint_pos": "0.2,0.2",
        "action_scale": "1,1",
    }


def test_controller_that_follows_the_file_does_what_the_bundle_does(tmp_path):
    folder = export_bundle(tmp_path / "arm", **plain())
    told, runner = parameters(folder), load_bundle(folder)
    assert told["runnable"]
    session = InferenceSession(folder / told["model_path"], providers=["CPUExecutionProvider"])
    default, scale = np.array(told["default_joint_pos"]), np.array(told["action_scale"])
    scales = dict(zip(told["observation_names"], told["observation_scales"], strict=True))
    random, actions, frames = np.random.default_rng(0), np.zeros(2), []
    for _ in range(5):
        q, dq, velocity = (random.standard_normal(n) * 0.3 for n in (2, 2, 3))
        frame = scales["joint_pos"] * (q - default)
        frames = [*(frames or [frame]), frame][-2:]
        obs = np.concatenate([velocity, *frames, scales["joint_vel"] * dq, actions])
        (answer,) = session.run(["actions"], {"obs": obs[None].astype(np.float32)})
        actions = np.asarray(answer)[0]
        state = RobotState({"joint_position": q[None], "joint_velocity": dq[None]})
        command = joints(runner.act(state, {"velocity_b": velocity[None]}))
        np.testing.assert_allclose(default + scale * actions, command.q[0], atol=1e-5)
    assert told["update_rate"] == 10
    assert told["joint_names"] == ["shoulder", "elbow"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"caller": CallerSpec(control_dt=0.1, target_speed_limit=[1.0, 1.0])},
         "its targets must move no faster than caller.target_speed_limit"),
        ({"goal_widths": {"height": 3}, "terms": [TermConfig(term="goal/height"), *TERMS[1:]]},
         "the observation term 'goal/height' has no counterpart there"),
        ({"caller": CallerSpec(control_dt=0.1, gravity_compensation=True)},
         "its robot's controller bears the weight of the links"),
        ({"action_map": replace(plain()["action_map"], limit=[[-0.1, 0.1], [-9.0, 9.0]])},
         "its targets are cut at the joints' limits"),
        ({"initial_action": [0.1, 0.0]}, "its first last action is not zero"),
        ({"terms": [*TERMS[:3], TermConfig(term="last_action", clip=0.5)]},
         "the term 'last_action' is clipped"),
        ({"terms": [*TERMS[:3], TermConfig(term="last_action", average=5)]},
         "the term 'last_action' is averaged"),
        ({"policy": SmallPolicy(11, 2, 3), "initial_state": [0.0] * 3},
         "it has a recurrent state"),
    ],
)  # fmt: skip
def test_policy_that_needs_more_says_why_not(tmp_path, changes, reason):
    folder = export_bundle(tmp_path / "arm", **plain(**changes))
    assert parameters(folder) == {"runnable": False, "reasons": [reason]}
    assert not (folder / ROS2_NETWORK).exists()


def test_a_bundle_that_a_controller_can_run_is_replaced_by_one_that_it_cannot(tmp_path):
    folder = export_bundle(tmp_path / "arm", **plain())
    assert (folder / ROS2_NETWORK).is_file()
    export_bundle(folder, **plain(initial_action=[0.1, 0.0]))
    assert not (folder / ROS2_NETWORK).exists()
    assert [path.name for path in tmp_path.iterdir()] == ["arm"]
