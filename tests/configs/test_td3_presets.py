"""TD3 by its paper and FastTD3 by its authors' code: numbers, and that they arrive."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from robot_rl.learners.td3 import TD3
from tests.compositions import composed
from tests.fakes import LinearWorld, ToyEnv, random_batch

pytestmark = pytest.mark.slow

ELSEWHERE = "task=tracking"
"""A task without settings of its own for TD3."""
# Fujimoto et al. 2018, section 6.1 and table 3.
PAPER: dict[str, Any] = {
    "batch_size": 100, "gamma": 0.99, "n_step": 1, "actor_lr": 1e-3, "critic_lr": 1e-3,
    "weight_decay": 0.0, "tau": 0.005, "actor_interval": 2, "exploration_min": 0.1,
    "exploration_max": 0.1, "smoothing_noise": 0.2, "smoothing_clip": 0.5, "target_actor": True,
    "delay_targets": True, "max_grad_norm": 0.0,
}  # fmt: skip
# younggyoseo/FastTD3 229ed59, fast_td3/hyperparams.py: BaseArgs, MuJoCoPlaygroundArgs.
PLAYGROUND: dict[str, Any] = {
    "batch_size": 32768, "gamma": 0.97, "n_step": 1, "actor_lr": 3e-4, "critic_lr": 3e-4,
    "weight_decay": 0.1, "tau": 0.1, "actor_interval": 2, "exploration_min": 0.001,
    "exploration_max": 0.4, "smoothing_noise": 0.001, "smoothing_clip": 0.5,
    "target_actor": False, "delay_targets": False, "max_grad_norm": 0.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "published", "run", "choices", "layers"),
    [
        ("td3", PAPER, (1, 1, 10_000), ("first", "min", 0), ([400, 300], [400, 300])),
        (
            "fast_td3", PLAYGROUND, (1024, 2, 10_240), ("min", "min", 101),
            ([512, 256, 128], [1024, 512, 256]),
        ),
    ],
)  # fmt: skip
def test_a_preset_has_the_numbers_of_its_source(name, published, run, choices, layers):
    config = composed([f"learner={name}", ELSEWHERE]).config
    learner, training = config.learner, config.training
    assert {field: getattr(learner, field) for field in published} == published
    assert (config.num_envs, training.updates_per_step, training.random_steps) == run
    rules = (learner.actor_value.name, learner.target_rule.name, learner.values.atoms)
    assert rules == choices
    assert (learner.actor.hidden, learner.critic.hidden) == layers
    assert learner.critic.members == 2


@pytest.mark.parametrize("name", ["td3", "fast_td3"])
def test_a_preset_builds_a_learner_that_learns(name):
    config = composed([f"learner={name}", ELSEWHERE]).config.learner
    actor, critic = (replace(part, hidden=[16]) for part in (config.actor, config.critic))
    config = replace(config, actor=actor, critic=critic, batch_size=8)
    env = ToyEnv(LinearWorld(), 4)
    learner = TD3(config, env.spec, seed=0)
    learner.begin(torch.ones(4, dtype=torch.bool))
    learner.update(random_batch(env.spec, 8, seed=0))
    metrics, priority = learner.update(random_batch(env.spec, 8, seed=1))
    assert all(value.isfinite() for value in metrics.values())
    assert priority is not None
    assert priority.shape == (8,)
    assert set(metrics) == {"critic_loss", "q_mean", "actor_loss"}
    assert learner.act(env.reset(seed=0), explore=True).shape == (4, 2)


def test_overrides_reach_what_is_made_of_them():
    overrides = [
        "learner=td3", ELSEWHERE, "learner.values={atoms: 9, high: 40}",
        "learner.critic.members=5", "learner.exploration_max=0.1", "learner.exploration_min=0.1",
        "learner.actor.hidden=[7]", "learner.actor.last_layer_std=1e-6",
    ]  # fmt: skip
    td3 = TD3(composed(overrides).config.learner, ToyEnv(LinearWorld()).spec, seed=0)
    assert isinstance(td3, TD3)
    critic, actor = td3.critic.state_dict(), td3.actor.state_dict()
    assert critic["network.0.weight"].shape[0] == 5
    assert critic["network.4.weight"].shape[-1] == 9
    assert actor["network.0.weight"].shape[0] == 7
    assert actor["network.2.weight"].abs().max() < 1e-5
    td3.begin(torch.ones(3, dtype=torch.bool))
    assert td3.state_dict()["sigma"].tolist() == pytest.approx([0.1] * 3)
