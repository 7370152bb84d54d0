"""A robot with joints from training to a bundle: what it does is drawn, exported and evaluated."""

from pathlib import Path

import numpy as np
import pytest

from policies.bundle import load_bundle
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import JointCommand
from tests.robot_rl.cli.tiny_run import TINY

pytestmark = pytest.mark.slow

LEGS = (
    "task=velocity", "robot=go2", "num_envs=8", "task.episode_length=0.4", "task.goal_time=0.2",
    "learner.batch_size=16", "learner.actor.hidden=[16]", "learner.critic.hidden=[16]",
    "training.total_steps=800", "training.random_steps=80", "training.updates_per_step=1",
    "training.replay_capacity=800", "training.evaluation_interval=400",
    "training.evaluation_episodes=4", "logging.tensorboard=false",
)  # fmt: skip


def test_an_arm_is_trained_filmed_evaluated_and_exported_without_a_flight(command, here):
    answer = command("train", *TINY, "task=reach", "robot=panda", "video=true")
    assert "flight" not in answer.out
    run = next(Path("runs").iterdir())
    assert (run / "videos" / "episodes.mp4").is_file() or "none: " in answer.out
    flown = command("evaluate", f"bundle={run}/bundle", "episodes=4", "video=false", "out=trial")
    assert "mean_distance" in flown.out
    assert "actions of the bundle and of torch differ by" in flown.out
    assert Path("trial/plot.png").is_file()

    runner = load_bundle(run / "bundle", control_dt=0.04)
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
    told = runner.act(RobotState(measured), goal)
    assert isinstance(told, JointCommand)
    for target, joint in zip(told.q[0], joints, strict=True):
        assert joint.position_limit[0] <= target <= joint.position_limit[1]
    np.testing.assert_allclose(told.kp[0], [joint.stiffness for joint in joints])


def test_a_quadruped_is_trained_drawn_and_flown_from_its_bundle(command, here):
    command("train", *LEGS, "video=false")
    run = next(Path("runs").iterdir())
    assert (run / "plots" / "walk.png").is_file()
    walked = command("evaluate", f"bundle={run}/bundle", "episodes=4", "video=false", "out=trial")
    assert "mean_velocity_error" in walked.out
    (line,) = [one for one in walked.out.splitlines() if one.startswith("actions of the bundle")]
    assert float(line.split()[-1]) < 1e-4


def test_a_task_for_another_kind_of_robot_is_refused_in_one_sentence(refused, here):
    told = refused("train", *TINY, "task=hover", "robot=panda")
    assert "task hover was asked of robot 'panda', and is for a multirotor" in told
    assert "choose robot=crazyflie or robot=x500" in told
    assert list(Path().glob("runs/*")) == []
