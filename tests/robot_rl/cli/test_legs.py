"""A quadruped from training to a bundle: what walks is drawn, exported and refused elsewhere."""

from pathlib import Path

import numpy as np
import pytest

from policies.bundle import load_bundle
from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import JointCommand
from tests.compositions import composed
from tests.sim.legs import go2

pytestmark = pytest.mark.slow

TINY = (
    "task=velocity", "robot=go2", "num_envs=8", "task.episode_length=0.4", "task.goal_time=0.2",
    "learner.batch_size=16", "learner.actor.hidden=[16]", "learner.critic.hidden=[16]",
    "training.total_steps=800", "training.random_steps=80", "training.updates_per_step=1",
    "training.replay_capacity=800", "training.evaluation_interval=400",
    "training.evaluation_episodes=4", "logging.tensorboard=false",
)  # fmt: skip


def test_a_quadruped_is_trained_drawn_exported_and_flown_from_its_bundle(command, here):
    answer = command("train", *TINY, "video=false")
    assert answer.code == 0
    run = next(Path("runs").iterdir())
    assert (run / "bundle" / "policy.onnx").is_file(), answer.out
    assert (run / "plots" / "walk.png").is_file()
    walked = command("evaluate", f"bundle={run}/bundle", "episodes=4", "video=false", "out=trial")
    assert walked.code == 0
    assert "mean_velocity_error" in walked.out
    (line,) = [one for one in walked.out.splitlines() if one.startswith("actions of the bundle")]
    assert float(line.split()[-1]) < 1e-4

    runner = load_bundle(run / "bundle", control_dt=0.02)
    widths = go2().spec.state_widths
    measured = {name: np.zeros((1, width), np.float32) for name, width in widths.items()}
    measured["orientation_w"][0, 0] = 1.0
    goal = {"velocity_b": np.zeros((1, 3), np.float32), "clock": np.zeros((1, 2), np.float32)}
    runner.reset()
    assert isinstance(runner.act(RobotState(measured), goal), JointCommand)
    other = composed(["task=velocity", "robot=go1"]).config.robot.spec
    with pytest.raises(SpecMismatchError, match="has name go1; use a bundle"):
        load_bundle(run / "bundle", robot=other, control_dt=0.02)
