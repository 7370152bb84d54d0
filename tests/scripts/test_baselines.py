"""PPO of rsl_rl and SAC of Stable-Baselines3: runs like any other, drawn beside ours."""

from pathlib import Path

import pytest

from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.runs.run_folder import RunFolder, RunState

pytestmark = pytest.mark.slow
PPO, SB3 = "scripts.baselines.train_ppo", "scripts.baselines.train_sb3"
PPO_TINY = (
    "num_envs=16", "training.total_steps=1600", "training.evaluation_interval=800",
    "training.evaluation_episodes=4", "logging.tensorboard=false", "steps_per_env=8", "hidden=[8]",
)  # fmt: skip
SB3_TINY = (
    "experiment=hopper", "num_envs=1", "training.total_steps=250",
    "training.evaluation_episodes=2", "logging.tensorboard=false", "hidden=[8]",
    "buffer_size=1000", "learning_starts=50",
)  # fmt: skip


def test_ppo_leaves_a_run_with_curves_that_are_drawn_beside_others(command, here):
    answer = command(PPO, "task=hover", *PPO_TINY)
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
    answer = command("runs", "compare", "metric=eval/success")
    assert "rsl_ppo" in answer.out


def test_sb3_leaves_a_run_that_evaluations_do_not_change(command, here):
    """The library's loop goes on where an evaluation interrupted it."""
    weights = []
    for interval in (100, 250):
        command(SB3, *SB3_TINY, f"training.evaluation_interval={interval}", f"runs=runs{interval}")
        (path,) = Path(f"runs{interval}").iterdir()
        weights.append((path / "checkpoints" / "actor.pt").read_bytes())
    assert weights[0] == weights[1]
    (path,) = Path("runs100").iterdir()
    assert path.name.endswith("Hopper-v5_gymnasium_sb3_sac_s0")
    run = RunFolder.open(path)
    assert run.status().state is RunState.FINISHED
    assert run.config()["learner"]["hidden"] == [8]
    records = read_metrics(run.metrics_path)
    assert [record["step"] for record in records] == [100, 200, 250]
    assert all(record["eval/return"] > 0 for record in records)
    assert all("eval/success" not in record for record in records)  # nobody judges it


@pytest.mark.parametrize(
    ("script", "wrong", "told"),
    [
        (PPO, ["steps_per_env=0"], "steps_per_env must be above 0"),
        (PPO, ["epoch=3"], "epochs"),
        (SB3, ["experiment=hopper", "num_envs=8"], "got 8 worlds"),
        (SB3, ["task=hover", "num_envs=1"], "Gymnasium environment"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(refused, here, script, wrong, told):
    assert told in refused(script, *wrong)
    assert not Path("runs").exists()
