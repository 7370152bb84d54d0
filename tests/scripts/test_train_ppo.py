"""PPO of rsl_rl for comparison: a run like any other, whose curves can be drawn beside ours."""

from pathlib import Path

import pytest

from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.runs.run_folder import RunFolder, RunState

TINY = (
    "num_envs=16", "training.total_steps=1600", "training.evaluation_interval=800",
    "training.evaluation_episodes=4", "logging.tensorboard=false", "steps_per_env=8", "hidden=[8]",
)  # fmt: skip


@pytest.mark.slow
def test_it_leaves_a_run_with_curves(command, here):
    answer = command("scripts.baselines.train_ppo", "task=hover", *TINY)
    assert answer.code == 0, answer.err
    assert answer.out.count("evaluation: success") == 2
    (path,) = Path("runs").iterdir()
    assert path.name.endswith("hover_crazyflie_rsl_ppo_s0")
    run = RunFolder.open(path)
    assert run.status().state is RunState.FINISHED
    assert run.config()["learner"]["steps_per_env"] == 8
    records = read_metrics(run.metrics_path)
    assert [record["step"] for record in records] == [896, 1664]  # whole iterations of 128
    assert all(0 <= record["eval/success"] <= 1 for record in records)
    assert (run.checkpoints / "actor.pt").is_file()


@pytest.mark.slow
def test_its_curves_are_drawn_beside_those_of_others(command, here):
    assert command("scripts.baselines.train_ppo", "task=hover", *TINY).code == 0
    answer = command("runs", "compare", "metric=eval/success")
    assert answer.code == 0, answer.err
    assert "rsl_ppo" in answer.out


@pytest.mark.parametrize(
    ("wrong", "told"),
    [("steps_per_env=0", "steps_per_env must be above 0"), ("epoch=3", "epochs"),
     ("task=hoover", "hover")],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused_in_a_sentence(refused, here, wrong, told):
    assert told in refused("scripts.baselines.train_ppo", wrong)
    assert not Path("runs").exists()
