"""TD3: its losses and gradients against double precision, its delays, its noise."""

from typing import Any

import pytest
import torch
from torch import Tensor

from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import ShapeError
from robot_rl.learners.off_policy import ActorObjective
from robot_rl.learners.td3 import TD3
from robot_rl.learners.values import TargetRule, ValueConfig
from tests.fakes import LinearWorld, ToyEnv, random_batch, random_obs, small_td3
from tests.robot_rl.learners.reference_sac import assert_step, trained
from tests.robot_rl.learners.reference_td3 import Parameters
from tests.robot_rl.learners.small_offline import warmed

CATEGORIES = ValueConfig(atoms=51, low=-3.0, high=3.0)
FAST: dict[str, Any] = {
    "values": CATEGORIES, "actor_value": ActorObjective.min, "target_actor": False,
    "delay_targets": False, "exploration_min": 0.001, "exploration_max": 0.4,
    "weight_decay": 0.1,
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "actor climbs the smallest": {"actor_value": ActorObjective.min},
    "mean of five": {
        "actor_value": ActorObjective.mean, "target_rule": TargetRule.mean,
        "critic": {"members": 5},
    },
    "own targets": {"target_rule": TargetRule.own},
    "online actor": {"target_actor": False},
    "much noise": {"smoothing_noise": 1.0, "smoothing_clip": 0.3},
    "categories": {"values": CATEGORIES},
    "categories, own targets": {"values": CATEGORIES, "target_rule": TargetRule.own},
    "fast": FAST,
    "layer norm": {"actor": {"layer_norm": True}, "critic": {"layer_norm": True}},
}  # fmt: skip


def learner(**settings: Any) -> tuple[Any, EnvSpec]:
    settings = {"batch_size": 16, "actor_interval": 1, "compile": False, **settings}
    return warmed(small_td3, **settings)


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients_equal_a_plain_implementation_in_double_precision(variant):
    td3, spec = learner(**VARIANTS[variant])
    batch = random_batch(spec, 16)
    batch.weight[:4] = torch.tensor([0.5, 2.0, 1.0, 1.5])
    reference = Parameters.of(td3)
    metrics, priority = td3.update(batch)

    critic_loss = reference.critic_loss(batch)
    critic, told = trained(reference.critic), metrics["critic_loss"]
    assert_step(critic_loss, critic, td3.critic.parameters(), told)

    reference.critic = Parameters.of(td3).critic  # the actor climbs what has just learned
    actor_loss = reference.actor_loss(batch)
    actor, told = trained(reference.actor), metrics["actor_loss"]
    assert_step(actor_loss, actor, td3.actor.parameters(), told)

    assert priority.shape == (16,)
    assert priority.min() >= 0


class TestExploration:
    def started(self, **settings: Any) -> tuple[TD3, dict[str, Tensor]]:
        """A learner whose 4,000 worlds have begun, and what they see: the same everywhere."""
        env = ToyEnv(LinearWorld(), 2)
        td3 = small_td3(env.spec, actor={"last_layer_std": 1e-4}, **settings)
        td3.begin(torch.ones(4000, dtype=torch.bool))
        return td3, random_obs(env.spec, 4000, torch.Generator().manual_seed(0))

    def deviation(self, td3: TD3, obs: dict[str, Tensor], draws: int = 400) -> Tensor:
        """Standard deviation of each world's noise, (N,)."""
        plain = td3.act(obs, explore=False)
        noise = torch.stack([td3.act(obs, explore=True) - plain for _ in range(draws)])
        return noise.square().mean((0, 2)).sqrt()

    @pytest.mark.slow
    def test_every_world_has_noise_of_its_own_strength_uniform_between_the_bounds(self):
        td3, obs = self.started(exploration_min=0.05, exploration_max=0.25)
        # 400 draws of 2 entries: each world's deviation is off by 1 / sqrt(1600) = 2.5 %.
        found = self.deviation(td3, obs).sort().values
        uniform = torch.linspace(0.05, 0.25, 4000)
        assert (found - uniform).abs().max() < 0.025
        assert found.mean() == pytest.approx(0.15, rel=0.02)

    def test_noise_is_drawn_anew_only_where_an_episode_began(self):
        td3, _ = self.started(exploration_max=0.5)
        before = td3.state_dict()["sigma"]
        begun = torch.arange(4000) % 3 == 0
        td3.begin(begun)
        after = td3.state_dict()["sigma"]
        assert torch.equal(after[~begun], before[~begun])
        assert (after[begun] != before[begun]).float().mean() > 0.999
        td3.begin(torch.zeros(4000, dtype=torch.bool))
        assert torch.equal(td3.state_dict()["sigma"], after)

    def test_exploring_in_worlds_that_never_began_is_refused(self):
        env = ToyEnv(LinearWorld(), 1)
        td3 = small_td3(env.spec)
        obs = random_obs(env.spec, 1, torch.Generator())
        assert td3.act(obs, explore=False).shape == (1, 2)
        with pytest.raises(ShapeError, match="exploring in 1 worlds, but episodes began in 0"):
            td3.act(obs, explore=True)
