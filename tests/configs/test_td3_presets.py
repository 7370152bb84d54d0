"""TD3 has the numbers of its paper, and FastTD3 those of its authors' code."""

from typing import Any

import pytest

from tests.compositions import composed

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
