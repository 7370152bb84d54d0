"""A small proof that all of it together learns: a point mass is brought to rest."""

from pathlib import Path

import pytest

from robot_rl.training.checkpoint import CheckpointStore
from robot_rl.training.evaluation import evaluate
from robot_rl.training.storage.segments import SegmentStore
from robot_rl.training.trainer import Trainer, TrainerConfig
from tests.fakes import PointMass, ToyEnv, small_sac

LIMIT = 60


def worlds(num_envs: int, seed: int) -> ToyEnv:
    def weights(step: int) -> list[float]:
        return [1.0, 0.1, 0.01]

    return ToyEnv(PointMass(), num_envs, limit=LIMIT, reward_weights=weights, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("n_step", [1, 3])
def test_sac_brings_a_point_mass_to_rest_within_16000_steps(tmp_path: Path, n_step: int) -> None:
    env, evaluation_env = worlds(16, seed=0), worlds(100, seed=1)
    learner = small_sac(
        env.spec, batch_size=128, n_step=n_step, gamma=0.95, tau=0.02, actor_lr=3e-3,
        critic_lr=3e-3, temperature_lr=3e-3, init_temperature=0.1,
        actor={"hidden": [32, 32]}, critic={"hidden": [32, 32]},
    )  # fmt: skip
    before = evaluate(evaluation_env, learner.policy(), seed=5)
    segments = SegmentStore(tmp_path / "segments")
    trainer = Trainer(
        TrainerConfig(
            total_steps=16_000, random_steps=1600, updates_per_step=2, replay_capacity=16_000,
            evaluation_interval=16_000, evaluation_episodes=100, save_replay=False,
        ),
        env=env, evaluation_env=evaluation_env, learner=learner,
        checkpoints=CheckpointStore(tmp_path / "checkpoints", segments=segments),
        segments=segments, record=lambda record: None, interval_seconds=1e9, seed=0,
    )  # fmt: skip
    trainer.run()
    after = evaluate(evaluation_env, learner.policy(), seed=5)
    assert before.success_rate < 0.3
    # A good controller costs about 5 per episode and reaches 100 %.
    assert after.success_rate >= 0.95
    assert float(after.returns.mean()) > -10
