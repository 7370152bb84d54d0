"""A run whose policy sees a camera, from training to a bundle that is played."""

from pathlib import Path

import pytest

from policies.bundle import load_bundle
from tests.robot_rl.cli.tiny_run import action_difference, last_state, only_run

pytestmark = pytest.mark.slow
SEEING = (
    "experiment=cartpole_pixels", "learner=drq_sac", "num_envs=4", "training.updates_per_step=1",
    "training.random_steps=40", "training.evaluation_interval=60", "training.evaluation_episodes=2",
    "training.replay_capacity=400", "learner.batch_size=8", "learner.actor.hidden=[16]",
    "learner.critic.hidden=[16]", "learner.images.channels=[8,8,8,8]", "logging.tensorboard=false",
    "video=false",
)  # fmt: skip


def test_a_policy_of_images_is_trained_resumed_exported_and_played(command, refused, here):
    said = command("train", *SEEING, "training.total_steps=60").out
    assert "updates: PyTorch operations (images are encoded by PyTorch)" in said
    assert "frames of cameras" in said
    assert "verified against PyTorch: 16 envs x 100 steps" in said
    run = only_run()
    state = last_state(run).state
    command("train", f"resume={run}", "training.total_steps=120")
    resumed = last_state(run).state
    assert resumed["replay"]["total_steps"] == 2 * state["replay"]["total_steps"] == 30
    assert resumed["replay"]["frames"]["image/side"]["total"] > 120  # the first frames too
    told = command("evaluate", f"run={run}", "episodes=2", "video=false").out
    assert "return" in told
    told = command(
        "evaluate", f"run={run}", f"bundle={run}/bundle", "episodes=2", "video=false"
    ).out
    assert action_difference(told) < 1e-5
    assert list(load_bundle(run / "bundle", pictures=True).spec.cameras) == ["side"]
    told = refused("deploy", f"bundle={run}/bundle", "driver=fake")
    assert "sees the camera 'side', and with driver=fake nothing says where its pictures" in told
    assert "sees the cameras side" in refused("export", f"bundle={run}/bundle", "target=c99")


def test_memory_that_this_machine_does_not_have_is_refused_before_it_is_taken(refused, here):
    told = refused("train", *SEEING, "training.replay_capacity=1e12")
    assert "replay of 1,000,000,000,000 transitions: " in told
    assert "MB on cpu are needed, but only" in told
    assert not Path("runs").exists()
