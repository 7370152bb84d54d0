"""The package is found, its worlds step, and a policy is trained and exported."""

from pathlib import Path

import numpy as np
import torch

import robot_rl
from robot_rl.core.observation import TERMS, ObservationInputs, RobotState

TASK = "task=my_project_reach"


def inputs(array: object) -> ObservationInputs:
    """Two robots, 0.3 m and 0.5 m away from their goals."""
    here = {"end_effector_position_b": array([[0.3, 0.0, 0.0], [0.3, 0.4, 0.0]])}  # pyright: ignore
    goal = {name: 0 * value for name, value in here.items()}
    return ObservationInputs(state=RobotState(here), goal=goal, last_action=goal[next(iter(goal))])


def test_term_says_the_same_in_numpy_and_torch() -> None:
    """The robot computes with numpy what the training did with torch."""
    distance = TERMS.find("my_project_distance")
    for array in (np.array, torch.tensor):
        np.testing.assert_allclose(np.asarray(distance(inputs(array))), [[0.3], [0.5]], rtol=1e-6)


def test_worlds_step_and_reward_what_is_near() -> None:
    """Random actions give finite rewards, and goals lie within reach."""
    env = robot_rl.make_env(TASK, num_envs=8)
    assert env.spec.action_size == 2
    for _ in range(20):
        step = env.step(2 * torch.rand(8, 2) - 1)
        assert bool(step.reward.isfinite().all())
    env.close()


def test_policy_is_trained_and_exported(tmp_path: Path) -> None:
    """A run of seconds: it shows that everything works, and learns next to nothing."""
    run = robot_rl.train(
        TASK, "experiment=smoke", "num_envs=8", "training.random_steps=160",
        "training.evaluation_interval=800", "training.evaluation_episodes=4",
        total_steps=800, runs=tmp_path, quiet=True,
    )  # fmt: skip
    assert run.evaluate(episodes=4).episodes == 4
    assert robot_rl.load_bundle(run.export(tmp_path / "bundle")).spec.robot.name == "my_project_arm"
