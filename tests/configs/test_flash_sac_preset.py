"""FlashSAC as published, on every environment, and that its settings reach what is made of them."""

from dataclasses import replace

import pytest

from policies.networks.trunks import NetworkKind
from robot_rl.core.env import GroupSpec
from robot_rl.learners.flash_sac import FlashSAC
from robot_rl.learners.values import UnitRewardScale
from tests.compositions import composed
from tests.fakes import LinearWorld, ToyEnv, random_batch

pytestmark = pytest.mark.slow


def test_the_preset_has_the_numbers_of_its_source():
    config = composed(["learner=flash_sac", "task=tracking"]).config
    learner, training = config.learner, config.training
    assert (config.num_envs, training.updates_per_step) == (1024, 2)
    assert (training.random_steps, training.replay_capacity) == (100_000, 10_000_000)
    assert (learner.batch_size, learner.gamma, learner.n_step, learner.tau) == (2048, 0.99, 3, 0.01)
    rates = (learner.actor_lr, learner.critic_lr, learner.temperature_lr)
    assert (*rates, learner.lr_schedule.end) == (3e-4, 3e-4, 3e-4, 0.5)
    assert (learner.actor_interval, learner.weight_decay, learner.max_grad_norm) == (2, 0.0, 0.0)
    assert (learner.init_temperature, learner.target_std) == (0.01, 0.15)
    assert (learner.noise_exponent, learner.noise_longest) == (2.0, 16)
    values = learner.values
    assert (values.atoms, values.low, values.high, learner.reward_limit) == (101, -5.0, 5.0, 5.0)
    actor, critic = learner.actor, learner.critic
    assert actor.kind is critic.kind is NetworkKind.flash
    assert (actor.width, actor.blocks, actor.log_std_min, actor.log_std_max) == (128, 2, -10, 2)
    assert (critic.width, critic.blocks, critic.members) == (256, 2, 2)
    assert not actor.normalize
    assert not critic.normalize


def test_networks_of_the_published_shape_have_the_published_number_of_weights():
    config = composed(["learner=flash_sac", "task=tracking"]).config.learner
    world = LinearWorld(groups={"actor": GroupSpec(shape=(123,))}, action_size=37)
    learner = FlashSAC(config, ToyEnv(world, 2).spec, seed=0)
    assert isinstance(learner, FlashSAC)
    counts = [sum(p.numel() for p in net.parameters()) for net in (learner.actor, learner.critic)]
    # By hand, with d inputs, width w and k outputs: 2 d + d w + 2 (8 w^2 + 10 w) + w + (w + 1) k.
    assert counts == [290_368, 2 * 1_121_189]
    assert sum(counts) / 1e6 == pytest.approx(2.5, abs=0.05)  # as the paper says


def test_the_preset_builds_a_learner_that_learns():
    config = composed(["learner=flash_sac", "task=tracking"]).config.learner
    actor, critic = (replace(part, width=16) for part in (config.actor, config.critic))
    env = ToyEnv(LinearWorld(), 4)
    learner = FlashSAC(replace(config, actor=actor, critic=critic, batch_size=8), env.spec, seed=0)
    for seed in range(3):
        metrics, priority = learner.update(random_batch(env.spec, 8, seed))
        assert all(value.isfinite() for value in metrics.values())
        assert priority is not None
        assert priority.shape == (8,)


def test_overrides_reach_what_is_made_of_them():
    def made(*overrides: str) -> FlashSAC:
        config = composed(["learner=flash_sac", *(f"learner.{one}" for one in overrides)]).config
        return FlashSAC(config.learner, ToyEnv(LinearWorld()).spec, seed=0)

    one = made("target_std=0.25", "reward_scale=none", "values.atoms=9", "critic.members=3")
    assert one.temperature.target_entropy == pytest.approx(2 * 0.03264, abs=1e-4)
    assert isinstance(one.reward_scale, UnitRewardScale)
    weight = one.critic.state_dict()["network.out.weight"]
    assert (weight.shape[0], weight.shape[-1]) == (3, 9)
    other = made("critic.kind=simba", "actor.kind=bro")
    assert "network.head.weight" in other.critic.state_dict()
    assert "network.embed.0.bias" in other.actor.state_dict()
