"""A run of less than a second, and where the commands lie."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
TINY = (
    "experiment=smoke", "num_envs=16", "training.total_steps=1600", "training.random_steps=160",
    "training.evaluation_interval=800", "training.evaluation_episodes=4",
    "training.replay_capacity=800", "learner.batch_size=16", "logging.tensorboard=false",
    "logging.interval_seconds=1000",
)  # fmt: skip


def only_run(root: Path | str = "runs") -> Path:
    (run,) = Path(root).iterdir()
    return run
