"""An arm from training to a bundle: the commands take a robot that does not fly as any other."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from policies.bundle import load_bundle
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import JointCommand
from tests.robot_rl.cli.tiny_run import TINY

pytestmark = pytest.mark.slow


@pytest.fixture
def trained(command, here) -> tuple[Path, str]:
    answer = command("train", *TINY, "task=reach", "robot=panda", "video=true")
    assert answer.code == 0
    return next(Path("runs").iterdir()), answer.out


def test_an_arm_is_trained_evaluated_and_exported_without_a_flight(command, trained):
    run, said = trained
    assert (run / "bundle" / "policy.onnx").is_file(), said
    assert "flight" not in said
    assert (run / "videos" / "episodes.mp4").is_file() or "none: " in said
    assert (run / "plots" / "learning_curve.png").is_file()
    answer = command("evaluate", f"run={run}", "episodes=8", "video=true", "out=trial")
    assert answer.code == 0
    assert "mean_distance" in answer.out
    assert Path("trial/plot.png").is_file()
    flown = command("evaluate", f"bundle={run}/bundle", "episodes=4")
    assert flown.code == 0
    assert "actions of the bundle and of torch differ by" in flown.out


def test_an_arms_bundle_makes_joint_commands_within_the_limits(trained):
    run, _ = trained
    shutil.move(run / "bundle", "bundle")  # alone, as on a robot
    runner = load_bundle("bundle", control_dt=0.04)
    joints = runner.spec.robot.joints
    measured = {
        "joint_position": np.array([[joint.default_position for joint in joints]], np.float32),
        "joint_velocity": np.zeros((1, 7), np.float32),
        "end_effector_position_b": np.array([[0.3, 0.0, 0.5]], np.float32),
        "end_effector_orientation_b": np.array([[0.0, 1.0, 0.0, 0.0]], np.float32),
        "gripper_opening": np.ones((1, 1), np.float32),
    }
    goal = {"end_effector_position_b": np.array([[0.5, 0.2, 0.4]], np.float32)}
    runner.reset()
    command = runner.act(RobotState(measured), goal)
    assert isinstance(command, JointCommand)
    for target, joint in zip(command.q[0], joints, strict=True):
        assert joint.position_limit[0] <= target <= joint.position_limit[1]
    np.testing.assert_allclose(command.kp[0], [joint.stiffness for joint in joints])


def test_a_task_for_another_kind_of_robot_is_refused_in_one_sentence(refused, here):
    told = refused("train", *TINY, "task=hover", "robot=panda")
    assert "JointRandomization" in told
    assert "task=reach robot=panda" in told
    assert list(Path().glob("runs/*")) == []
