"""SAC of Stable-Baselines3 for comparison: a run like any other, with the library's own loop."""

from pathlib import Path

import pytest

from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.runs.run_folder import RunFolder, RunState

TINY = (
    "experiment=hopper", "num_envs=1", "training.total_steps=250",
    "training.evaluation_interval=100", "training.evaluation_episodes=2",
    "logging.tensorboard=false", "hidden=[8]", "buffer_size=1000", "learning_starts=50",
)  # fmt: skip


@pytest.mark.slow
def test_it_leaves_a_run_with_curves(command, here):
    answer = command("scripts.baselines.train_sb3", *TINY)
    assert answer.code == 0, answer.err
    (path,) = Path("runs").iterdir()
    assert path.name.endswith("Hopper-v5_gymnasium_sb3_sac_s0")
    run = RunFolder.open(path)
    assert run.status().state is RunState.FINISHED
    assert run.config()["learner"]["hidden"] == [8]
    records = read_metrics(run.metrics_path)
    assert [record["step"] for record in records] == [100, 200, 250]
    assert all(record["eval/return"] > 0 for record in records)
    assert all("eval/success" not in record for record in records)  # nobody judges it
    assert (run.checkpoints / "actor.pt").is_file()


@pytest.mark.slow
def test_evaluations_leave_the_training_as_it_is(command, here):
    """The library's loop goes on where an evaluation interrupted it."""
    weights = []
    for interval in (50, 250):
        other = [one for one in TINY if not one.startswith("training.evaluation_interval")]
        runs = Path(f"runs{interval}")
        answer = command(
            "scripts.baselines.train_sb3",
            *other,
            f"training.evaluation_interval={interval}",
            f"runs={runs}",
        )
        assert answer.code == 0, answer.err
        weights.append((next(runs.iterdir()) / "checkpoints" / "actor.pt").read_bytes())
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["experiment=hopper", "num_envs=1", "batch_size=0"], "batch_size must be above 0"),
        (["experiment=hopper", "num_envs=8"], "got 8 worlds"),
        (["task=hover", "num_envs=1"], "Gymnasium environment"),
        (["experiment=hopper", "num_envs=1", "bach_size=3"], "batch_size"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(refused, here, wrong, told):
    assert told in refused("scripts.baselines.train_sb3", *wrong)
    assert not Path("runs").exists()
