"""A run in wandb's offline folder, as `wandb sync` would upload it."""

import json
from pathlib import Path

import pytest

from robot_rl.cli.sweep import plan
from tests.robot_rl.cli.tiny_run import TINY, interrupt, only_run
from tests.wandb_file import WandbFile


def test_jobs_of_a_sweep_that_differ_in_the_seed_alone_share_a_group():
    words = ["seed=0,1", "learner.n_step=1,3", "learner.critic.hidden=[64,64]"]
    jobs = plan(["task=hover", *words, "logging.wandb=offline"])
    groups = [job.config.logging.wandb_group for job in jobs]
    assert groups == [f"hover_crazyflie_sac learner.n_step={n}" for n in (1, 3, 1, 3)]
    assert jobs[0].name == "seed=0 learner.n_step=1"
    for further, group in (("logging.wandb_group=mine", "mine"), ("logging.wandb='off'", None)):
        assert plan(["seed=0,1", "logging.wandb=online", further])[
            0
        ].config.logging.wandb_group == (group)


@pytest.mark.slow
def test_a_run_that_was_stopped_and_resumed_is_one_run_in_wandb(command, here, at_collect):
    at_collect(1000, interrupt)
    command("train", *TINY, "logging.wandb=offline", exits=130)
    run = only_run()
    command("train", f"resume={run}")
    found = [WandbFile(path) for path in run.glob("wandb/offline-run-*/*.wandb")]
    one, two = sorted(found, key=lambda file: file.run.start_time.ToNanoseconds())
    identifier = json.loads((run / "wandb.json").read_text())["id"]
    assert {file.run.run_id for file in found} == {identifier}
    assert one.run.run_group == "hover_crazyflie_sac"
    assert list(one.run.tags) == ["hover", "crazyflie", "sac"]
    assert one.config["training"]["total_steps"] == 1600
    kinds = [{artifact.name.rpartition("-")[2] for artifact in file.artifacts} for file in found]
    assert kinds[found.index(one)] == {"checkpoint", "evaluations"}
    assert kinds[found.index(two)] == {"checkpoint", "evaluations", "bundle"}
    curve = Path("media/images/plots/learning_curve").as_posix()
    assert any(media.startswith(curve) for media in two.media)
    assert not any(media.startswith(curve) for media in one.media)
    assert two.summary["step"] == 1600
    assert two.summary["best/step"] in (800, 1600)
    rows = [row["_step"] for row in (*one.rows, *two.rows)]
    assert rows == list(range(len(rows)))
