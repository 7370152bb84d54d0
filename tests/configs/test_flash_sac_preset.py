"""FlashSAC has the numbers of its source, and networks of the published size."""

import pytest

from policies.networks.trunks import NetworkKind
from robot_rl.core.env import GroupSpec
from robot_rl.learners.flash_sac import FlashSAC
from tests.compositions import composed
from tests.fakes import LinearWorld, ToyEnv

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
