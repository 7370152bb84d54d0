"""Demonstrations with pictures: collected, cloned, and exported as a policy that sees."""

import pytest

from policies.bundle import load_bundle
from robot_rl.datasets.reader import EpisodeDataset
from tests.robot_rl.cli.tiny_run import only_run

pytestmark = pytest.mark.slow
SEEING = (
    "task=reach", "robot=panda", "env.cameras=[front]", "robot.cameras.front.width=24",
    "robot.cameras.front.height=24", "robot.cameras.front.stack=2", "task.episode_length=0.6",
    "task.success_window=0.2",
)  # fmt: skip
CLONE = (
    "learner=bc", "learner.images.encoder=conv", "learner.images.channels=[8,8]",
    "learner.images.strides=[2,2]", "learner.actor.hidden=[16]", "learner.batch_size=8",
    "learner.chunk_length=3", "training.total_steps=6", "training.evaluation_interval=6",
    "training.evaluation_episodes=2", "num_envs=2", "logging.tensorboard=false", "video=false",
    "training.demonstrations.data=set",
)  # fmt: skip


def test_what_a_camera_saw_is_stored_and_cloned(command, refused, here):
    command("collect", *SEEING, "episodes=4", "num_envs=4", "out=set")
    dataset = EpisodeDataset("set")
    assert dict(dataset.spec.images) == {"front": (24, 24, 3)}
    frames = dataset.episode(0).images["front"]
    assert len(frames) == dataset.lengths[0] + 1
    assert frames.std() > 1
    assert (frames[0] != frames[-1]).any()
    said = command("train", *SEEING, *CLONE).out
    assert "verified against PyTorch: 16 envs x 100 steps" in said
    spec = load_bundle(only_run() / "bundle", pictures=True).spec
    assert (spec.chunk_length, list(spec.cameras)) == (3, ["front"])
    assert spec.cameras["front"].period == pytest.approx(0.04)
    told = refused("train", *SEEING, *CLONE, "robot.cameras.front.width=32")
    assert "have the shape (24, 24, 3), and this run's have (24, 32, 3)" in told
