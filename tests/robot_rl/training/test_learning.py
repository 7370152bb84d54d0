"""A small proof that all of it together learns: a point mass is brought to rest."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from policies.networks.trunks import NetworkKind
from robot_rl.core.base_action import BaseActionEnv
from robot_rl.core.env import BatchEnv, Obs
from robot_rl.core.learner import Learner
from robot_rl.learners.perturbation import PerturbationConfig
from robot_rl.learners.residual import Residual, ResidualConfig
from robot_rl.learners.sac import ActorStepsConfig
from robot_rl.training.assembly import assemble_trainer
from robot_rl.training.config import StartConfig, TrainerConfig
from robot_rl.training.evaluation import Evaluation, evaluate
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.storage.segments import SegmentStore
from tests.fakes import EXPERTS, PointMass, ToyEnv, small_mentor, small_sac

pytestmark = pytest.mark.slow
LIMIT = 60


def worlds(num_envs: int, seed: int) -> ToyEnv:
    return ToyEnv(
        PointMass(), num_envs, limit=LIMIT, reward_weights=lambda _: [1.0, 0.1, 0.01], seed=seed
    )


SETTINGS: dict[str, Any] = {
    "batch_size": 128, "gamma": 0.95, "tau": 0.02, "actor_lr": 3e-3, "critic_lr": 3e-3,
    "temperature_lr": 3e-3, "init_temperature": 0.1,
}  # fmt: skip
HIDDEN = {"hidden": [32, 32]}


def learned(folder: Path, env: BatchEnv, evaluation_env: BatchEnv, learner: Learner,
            **settings: Any) -> Evaluation:  # fmt: skip
    """Result of the policy after a training."""
    length, segments = settings["total_steps"], SegmentStore(folder / "segments")
    assemble_trainer(
        TrainerConfig(
            updates_per_step=2, replay_capacity=16_000, evaluation_interval=length,
            evaluation_episodes=100, save_replay=False, **settings,
        ),
        env=env, evaluation_env=evaluation_env, learner=learner,
        checkpoints=CheckpointStore(folder / "checkpoints", segments=segments),
        record=lambda record: None, interval_seconds=1e9, seed=0,
    ).run()  # fmt: skip
    return evaluate(evaluation_env, learner.policy(), seed=5)


def assert_learns(train: Callable[[int], Evaluation]) -> None:
    """Ask one seed, and both of two others where it fails: on another instruction set, which rounds
    otherwise, over thousands of updates it is another seed."""
    assert rests(train(0)) or (rests(train(1)) and rests(train(2)))


def rests(result: Evaluation) -> bool:
    """A good controller costs about 5 per episode and reaches 100 %."""
    return result.success_rate >= 0.95 and float(result.returns.mean()) > -10


def test_a_learner_brings_a_point_mass_to_rest_within_8000_steps(tmp_path):
    def train(seed: int) -> Evaluation:
        env, evaluation_env = worlds(16, seed=seed), worlds(100, seed=1)
        learner = small_sac(env.spec, seed, **SETTINGS, actor=HIDDEN, critic=HIDDEN)
        assert not rests(evaluate(evaluation_env, learner.policy(), seed=5))
        return learned(
            tmp_path / str(seed), env, evaluation_env, learner,
            total_steps=8_000, random_steps=1600,
        )  # fmt: skip

    assert_learns(train)


@pytest.mark.parametrize("actor", [EXPERTS, {**HIDDEN, "kind": NetworkKind.mlp}])
def test_mentor_brings_a_point_mass_to_rest_over_several_perturbations(actor, tmp_path):
    def train(seed: int) -> Evaluation:
        env, evaluation_env = worlds(16, seed=seed), worlds(100, seed=1)
        shared = ("batch_size", "gamma", "tau", "actor_lr", "critic_lr")
        learner = small_mentor(
            env.spec, seed, **{name: SETTINGS[name] for name in shared}, value_lr=3e-3,
            exploration_start=0.2, exploration_end=0.2, dormant_interval=5,
            perturbation=PerturbationConfig(interval=150, judge_interval=20),
            actor=actor, critic=HIDDEN, value=HIDDEN,
        )  # fmt: skip
        result = learned(
            tmp_path / str(seed), env, evaluation_env, learner,
            total_steps=8_000, random_steps=1600,
        )  # fmt: skip
        assert learner.perturbation.count >= 3
        return result

    assert_learns(train)


class WeakSpring:
    """A base that pulls to the origin and never brakes: it is not frozen in a file, nor plans."""

    groups = ("actor",)

    def next(self, obs: Obs) -> Tensor:
        return (-0.5 * obs["actor"][:, :1]).clamp(-1.0, 1.0)

    def restart(self, mask: Tensor, obs: Obs) -> Tensor:
        return self.next(obs)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore."""


def test_a_residual_brings_to_rest_what_its_base_lets_swing(tmp_path):
    swings = evaluate(worlds(100, seed=1), WeakSpring().next, seed=5)
    assert swings.success_rate < 0.5

    def train(seed: int) -> Evaluation:
        env, evaluation_env = (
            BaseActionEnv(worlds(count, seed=first), WeakSpring())
            for count, first in ((16, seed), (100, 1))
        )
        steps = ActorStepsConfig(critic_updates=100)
        config = ResidualConfig(**SETTINGS, actor_steps=steps)
        config.actor.hidden = config.critic.hidden = [32, 32]
        config.actor.scale, config.actor.initial_std = 0.5, 0.2
        learner = Residual(config, env.spec, seed=seed)
        before = evaluate(evaluation_env, learner.policy(), seed=5)
        assert torch.equal(before.returns, swings.returns)  # it begins as its base
        return learned(
            tmp_path / str(seed), env, evaluation_env, learner, total_steps=4_800,
            start=StartConfig(acts=True), warm_up_steps=800,
        )  # fmt: skip

    assert_learns(train)
