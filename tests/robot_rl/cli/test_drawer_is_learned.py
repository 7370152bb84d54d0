"""The documented commands open a drawer: demonstrations of the scripted hand, then a training."""

import pytest

from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.training.reporting.metrics import read_metrics
from tests.robot_rl.cli.tiny_run import only_run


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_drawer_is_opened_from_80_percent_of_starts_after_60000_steps(
    here, command, train_only
) -> None:
    command("collect", "task=drawer", "episodes=200", "out=datasets/drawer")
    assert len(EpisodeDataset("datasets/drawer")) == 200
    train_only(
        "task=drawer", "training.prior.run=datasets/drawer", "training.total_steps=60_000",
        "training.evaluation_interval=30_000", "training.evaluation_episodes=64", "video=false",
        "logging.tensorboard=false",
    )  # fmt: skip
    records = read_metrics(only_run() / "metrics.jsonl")
    success = [record["eval/success"] for record in records if "eval/success" in record]
    assert len(success) == 2
    assert max(success) >= 0.8, success
