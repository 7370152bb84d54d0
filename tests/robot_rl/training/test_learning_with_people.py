"""Small proofs that the learners of human-in-the-loop learning learn, by margins that decide."""

from typing import Any

import pytest
import torch
from torch import Tensor

from robot_rl.core.env import Obs
from robot_rl.training.config import OfflineConfig, PriorConfig
from robot_rl.training.evaluation import Evaluation, evaluate
from tests.fakes import ToyEnv
from tests.robot_rl.learners.small_hil import small_expo, small_hil_serl, small_silri
from tests.robot_rl.training.people import Grasp, HelpedEnv, SparsePointMass, store_steps
from tests.robot_rl.training.test_learning import (
    HIDDEN,
    assert_learns,
    learned,
    rests,
    worlds,
)

pytestmark = pytest.mark.slow
FAST: dict[str, Any] = {"batch_size": 128, "tau": 0.02, "actor_lr": 3e-3, "critic_lr": 3e-3}
WARM: dict[str, Any] = {**FAST, "temperature_lr": 3e-3, "init_temperature": 0.1}


def test_hil_serl_closes_a_gripper_above_what_it_grasps_and_keeps_it_closed(tmp_path):
    """It begins at 0 to 6 %, and is at 100 % after 8,000 steps in three of three seeds."""

    def train(seed: int) -> bool:
        env, evaluation_env = (
            ToyEnv(Grasp(), count, limit=15, seed=first) for count, first in ((16, seed), (200, 1))
        )
        learner = small_hil_serl(
            env.spec, seed, **WARM, gamma=0.9, gripper_lr=3e-3, grasp_penalty=0.1, actor=HIDDEN,
            critic=HIDDEN, target_entropy_per_action=-0.5,
        )  # fmt: skip
        assert evaluate(evaluation_env, learner.policy(), seed=5).success_rate < 0.2
        result = learned(
            tmp_path / str(seed), env, evaluation_env, learner, total_steps=8_000,
            random_steps=1600,
        )  # fmt: skip
        return result.success_rate >= 0.95

    assert train(0) or (train(1) and train(2))


def unsure_person(seen: Tensor) -> Tensor:
    """A controller that damps well and whose hand shakes by most of the range."""
    wanted = -seen[:, :1] - 0.6 * seen[:, 1:] + 0.8 * torch.randn(len(seen), 1)
    return wanted.clamp(-1.0, 1.0)


def test_silri_learns_from_an_unsure_person_what_it_does_not_find_alone(tmp_path):
    """The person rests in 25 % of episodes. With help in half of the episodes it comes to 100 % in
    five of five seeds, without to 0 to 11 %."""
    torch.manual_seed(0)
    evaluation_env = ToyEnv(SparsePointMass(), 200, limit=60, seed=1)
    alone = evaluate(evaluation_env, lambda obs: unsure_person(obs["actor"]), seed=5)
    assert alone.success_rate < 0.4

    def train(seed: int, share: float) -> Evaluation:
        env = HelpedEnv(
            SparsePointMass(), 16, limit=60, seed=seed, person=unsure_person, share=share
        )
        learner = small_silri(
            env.spec, seed, **FAST, gamma=0.95, multiplier_lr=3e-5, gripper={"commands": []},
        )  # fmt: skip
        return learned(
            tmp_path / f"{seed} {share}", env, evaluation_env, learner, total_steps=4_800,
            random_steps=160,
        )  # fmt: skip

    def learns(seed: int) -> bool:
        result = train(seed, 0.5)
        return result.success_rate >= 0.95 and float(result.returns.mean()) > 40

    assert learns(0) or (learns(1) and learns(2))
    assert train(0, 0.0).success_rate < 0.5


def weak_spring(obs: Obs) -> Tensor:
    """Pulls to the origin with a shaking hand, and never brakes."""
    pull = -0.5 * obs["actor"][:, :1]
    return (pull + 0.2 * torch.randn(len(pull), 1)).clamp(-1.0, 1.0)


def test_expo_brings_to_rest_what_it_imitates_swinging(tmp_path):
    """Imitation rests in 21 % of episodes; edited and chosen, in 100 % in three of three
    seeds."""
    torch.manual_seed(0)
    assert evaluate(worlds(100, seed=1), weak_spring, seed=5).success_rate < 0.5
    stored = store_steps(tmp_path / "stored", worlds(16, seed=3), weak_spring, steps=240)

    def train(seed: int) -> Evaluation:
        env, evaluation_env = worlds(16, seed=seed), worlds(100, seed=1)
        learner = small_expo(
            env.spec, seed, **WARM, gamma=0.95, edit_lr=3e-3, actor_interval=2, candidates=4,
            next_candidates=4, actor={"hidden": [32, 32], "steps": 4},
            edit={"hidden": [32, 32], "scale": 0.5, "initial_std": 0.5},
            critic={"hidden": [32, 32], "members": 4, "layer_norm": True},
        )  # fmt: skip
        return learned(
            tmp_path / str(seed), env, evaluation_env, learner, total_steps=4_800,
            warm_up_steps=160, prior=PriorConfig(run=str(stored), share=0.5),
            offline=OfflineConfig(updates=300, evaluation_interval=300, held_out=0.0),
        )  # fmt: skip

    assert_learns(train)


def test_expo_imitates_before_it_values_anything(tmp_path):
    """After the offline phase alone it swings as what it imitates."""
    torch.manual_seed(0)
    stored = store_steps(tmp_path / "stored", worlds(16, seed=3), weak_spring, steps=240)
    env, evaluation_env = worlds(16, seed=0), worlds(100, seed=1)
    learner = small_expo(
        env.spec, **FAST, candidates=1, actor={"hidden": [32, 32], "steps": 4},
        edit={"hidden": [32, 32], "scale": 0.01, "initial_std": 0.01},
    )  # fmt: skip
    result = learned(
        tmp_path / "run", env, evaluation_env, learner, total_steps=16, warm_up_steps=16,
        prior=PriorConfig(run=str(stored), share=0.5),
        offline=OfflineConfig(updates=600, evaluation_interval=600, held_out=0.0),
    )  # fmt: skip
    assert not rests(result)
    obs = {"actor": torch.tensor([[0.8, 0.0], [-0.8, 0.0], [0.0, 0.3]])}
    with torch.no_grad():
        action = learner.act(obs, explore=False)[:, 0]
    assert torch.allclose(action, torch.tensor([-0.4, 0.4, 0.0]), atol=0.15)
