"""Recorded walks: what is kept, where it ends, and its picture."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError
from robot_rl.training.evaluation import evaluate
from sim.tasks.legs.gait import heading_velocity
from sim.tasks.legs.velocity import GOAL
from sim.walks.plots import plot_walk
from sim.walks.recording import WalkRecorder, WalkRecording
from tests.sim.arms import arm_worlds
from tests.sim.flying import flight_worlds
from tests.sim.legs import STEPS, leg_worlds


def record(walks: int = 3, **changes: Any) -> WalkRecording:
    env = leg_worlds(4, seed=1, **changes)
    recorder = WalkRecorder(env, walks)
    evaluate(env, lambda obs: torch.zeros(4, 12), seed=1, on_step=recorder.on_step)
    return recorder.recording()


def test_a_walk_is_the_true_state_after_every_step() -> None:
    env = leg_worlds(4, seed=1)
    recorder, seen = WalkRecorder(env, 4), []
    env.reset(seed=1)
    for _ in range(STEPS - 1):
        recorder.on_step(env.step(torch.zeros(4, 12)))
        true_state = env.simulation.true_state
        rotation = quaternion.rotation_matrix(true_state.orientation_w)
        seen.append(
            (
                heading_velocity(rotation, true_state.linear_velocity_w).numpy().copy(),
                true_state.foot_force.numpy().copy(),
                env.task.goal[GOAL].numpy().copy(),
            )
        )
    found = recorder.recording()
    for t, (velocity, force, goal) in enumerate(seen):
        np.testing.assert_array_equal(found.velocity[:, t, :2], velocity)
        np.testing.assert_array_equal(found.foot_force[:, t], force)
        np.testing.assert_array_equal(found.goal[:, t], goal)
    assert found.feet == ["FL", "FR", "RL", "RR"]
    assert found.time[1] == pytest.approx(0.02)


def test_nothing_is_kept_of_the_episode_that_follows() -> None:
    found = record()
    assert found.velocity.shape == (3, STEPS, 3)
    assert np.isfinite(found.velocity[:, : STEPS - 1]).all()
    assert np.isnan(found.velocity[:, STEPS - 1 :]).all()  # the state is of the next episode
    assert not found.fell.any()


def test_who_falls_is_told() -> None:
    found = record(lowest_height=0.31)
    assert found.fell.any()
    fallen = int(np.flatnonzero(found.fell)[0])
    assert np.isnan(found.height[fallen, -1])


def test_the_picture_is_written(tmp_path: Path) -> None:
    path = plot_walk(record(), tmp_path / "new" / "walk.png", title="a walk", walk=1)
    picture = imread(path)
    assert picture.shape[0] > 500
    blue = np.abs(picture[..., :3] - np.array([0, 0x72, 0xB2]) / 255).max(-1) < 0.02
    assert blue.sum() > 2000  # bars of feet that stood


def test_arms_and_quadrotors_do_not_walk() -> None:
    for env in (arm_worlds(1), flight_worlds("hover", 1)):
        with pytest.raises(ConfigError, match="only robots with feet"):
            WalkRecorder(env, 1)
