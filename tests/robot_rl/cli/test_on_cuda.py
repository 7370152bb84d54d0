"""A whole run on a GPU: trained, drawn, exported, evaluated and continued there."""

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
HOVER = ("experiment=smoke",)
WALK = (
    "task=velocity", "robot=go2", "robot.engine=warp", "num_envs=16", "task.episode_length=1",
    "learner.batch_size=64", "training.total_steps=800", "training.random_steps=160",
    "training.replay_capacity=800", "training.evaluation_interval=400",
    "training.evaluation_episodes=8",
)  # fmt: skip


@pytest.mark.parametrize("run", [HOVER, WALK], ids=["hover", "walk"])
def test_a_run_on_a_gpu_ends_with_pictures_a_bundle_and_an_evaluation(run, command, here):
    answer = command("train", *run, "device=cuda", "video=true", "runs=runs")
    assert "cuda:0" in answer.out
    assert "none:" not in answer.out, answer.out
    (folder,) = (here / "runs").iterdir()
    assert (folder / "bundle" / "policy.onnx").is_file()
    told = command("evaluate", f"run={folder}", "device=cuda", "episodes=8", "video=false")
    assert "8 " in told.out
    again = command("train", f"resume={folder}", "training.total_steps=9600", "video=false")
    assert "cuda:0" in again.out
    on_the_cpu = command("evaluate", f"run={folder}", "device=cpu", "episodes=8", "video=false")
    assert "success" in on_the_cpu.out
