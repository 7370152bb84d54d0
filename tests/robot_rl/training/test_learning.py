"""A small proof that all of it together learns: a point mass is brought to rest."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robot_rl.learners.dsac_t import DSACTLoss
from robot_rl.learners.off_policy import Precision
from robot_rl.training.checkpoint import CheckpointStore
from robot_rl.training.evaluation import evaluate
from robot_rl.training.storage.segments import SegmentStore
from robot_rl.training.trainer import Trainer, TrainerConfig
from tests.fakes import PointMass, ToyEnv, small_dsac_t, small_sac

LIMIT = 60


def worlds(num_envs: int, seed: int) -> ToyEnv:
    def weights(step: int) -> list[float]:
        return [1.0, 0.1, 0.01]

    return ToyEnv(PointMass(), num_envs, limit=LIMIT, reward_weights=weights, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (small_sac, {"n_step": 1}),
        (small_sac, {"n_step": 3}),
        (small_sac, {"precision": Precision.bf16}),
        (small_dsac_t, {"loss": DSACTLoss.paper}),
        (small_dsac_t, {"loss": DSACTLoss.huber, "precision": Precision.bf16}),
    ],
    ids=["sac", "sac, n=3", "sac in bf16", "dsac_t", "dsac_t's later code in bf16"],
)
def test_a_learner_brings_a_point_mass_to_rest_within_16000_steps(
    tmp_path: Path, make: Callable[..., Any], settings: dict[str, Any]
) -> None:
    env, evaluation_env = worlds(16, seed=0), worlds(100, seed=1)
    learner = make(
        env.spec, **settings, batch_size=128, gamma=0.95, tau=0.02, actor_lr=3e-3,
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
