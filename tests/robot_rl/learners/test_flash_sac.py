"""FlashSAC: losses and gradients against double precision, statistics, schedules, its traps."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import ConfigError
from robot_rl.learners.flash_sac import FlashSAC, FlashSACConfig, NoiseRepeat
from robot_rl.learners.optimization import ScheduleConfig
from robot_rl.learners.values import ValueConfig
from tests.fakes import CPU, random_batch, small_flash_sac
from tests.robot_rl.learners.reference_flash_sac import Parameters, trained
from tests.robot_rl.learners.reference_sac import assert_step
from tests.robot_rl.learners.small_offline import warmed

VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {"actor_interval": 1},
    "three critics, two blocks": {
        "actor_interval": 1, "critic": {"members": 3, "blocks": 2}, "actor": {"blocks": 2},
    },
    "few atoms": {"actor_interval": 1, "values": ValueConfig(atoms=5, low=-1.0, high=3.0)},
}  # fmt: skip


def learner(**settings: Any) -> tuple[FlashSAC, EnvSpec]:
    """A learner whose targets, statistics and scales differ from the start."""
    return warmed(small_flash_sac, updates=6, **{"init_temperature": 0.2, **settings})


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients_equal_a_plain_implementation_in_double_precision(variant):
    made, spec = learner(**VARIANTS[variant])
    batch = random_batch(spec, 16)
    batch.weight[:4] = torch.tensor([0.5, 2.0, 1.0, 1.5])
    reference = Parameters.of(made)
    metrics, _ = made.update(batch)

    actor_loss, log_prob = reference.actor_loss(batch)
    actor, told = trained(reference.actor).values(), metrics["actor_loss"]
    assert_step(actor_loss, [*actor], made.actor.parameters(), told)
    assert float(metrics["entropy"]) == pytest.approx(-float(log_prob.mean()), rel=1e-5)
    assert float(metrics["temperature"]) == pytest.approx(reference.alpha, rel=1e-6)

    stepped = Parameters.of(made)  # the next action is that of the actor that has just learned
    critic_loss = reference.critic_loss(batch, stepped.actor, stepped.alpha)
    names = list(trained(reference.critic[0]))
    leaves = [member[name] for name in names for member in reference.critic]
    assert_step(critic_loss, leaves, made.critic.parameters(), metrics["critic_loss"])


def test_the_target_entropy_is_that_of_the_target_deviation():
    made, _ = learner()
    # 0.5 ln(2 pi e 0.15^2) = -0.478 per action entry, of which there are two
    assert made.temperature.target_entropy == pytest.approx(2 * -0.47818, abs=1e-4)
    other, _ = learner(target_std=0.0, target_entropy_per_action=-0.25)
    assert other.temperature.target_entropy == -0.5
    with pytest.raises(ConfigError, match=r"target_entropy_per_action -0\.25 would have no effect"):
        FlashSACConfig(target_entropy_per_action=-0.25)


def test_a_fall_of_step_sizes_that_ends_where_it_began_is_refused():
    with pytest.raises(
        ConfigError, match=r"decay=12 was asked for, but .* learner.lr_schedule.end=0"
    ):
        ScheduleConfig(decay=12)


def test_actor_and_temperature_step_in_every_second_update_and_rates_fall_over_all():
    rates = {"actor_lr": 1e-3, "critic_lr": 1e-3, "temperature_lr": 1e-3}
    made, spec = learner(lr_schedule=ScheduleConfig(decay=12, end=0.5), **rates)
    found: list[list[float]] = []
    for update in range(made.updates, 14):  # actor and temperature step in every second one
        made.update(random_batch(spec, 16, update))
        state = made.state_dict()
        states = (state["critic_optimizer"], state["actor_optimizer"])
        states = (*states, state["temperature"]["optimizer"])
        found.append([float(one["param_groups"][0]["lr"]) for one in states])
    share = 0.5 + 0.25 * (1 + math.cos(math.pi * 10 / 12))
    assert [found[4][0], *found[5][1:]] == pytest.approx([1e-3 * share] * 3, rel=1e-5)
    assert found[4][1:] == found[3][1:] != found[5][1:]
    assert found[-1] == pytest.approx([0.5e-3] * 3, rel=1e-5)


def weights_of(network: Any) -> dict[str, Tensor]:
    return dict(network.named_parameters())


def statistics(network: Any) -> dict[str, Tensor]:
    return {n: b.clone() for n, b in network.named_buffers() if "running" in n}


def test_only_its_own_step_moves_the_statistics_of_the_actor():
    made, spec = learner(actor_interval=7)  # six updates are done
    changed = []
    for seed in range(3):
        before = statistics(made.actor)
        made.update(random_batch(spec, 16, seed))
        now = statistics(made.actor)
        changed.append(any(not torch.equal(now[name], before[name]) for name in now))
    assert changed == [True, False, False]  # the next action is that of constant statistics


def test_the_step_of_the_actor_leaves_the_statistics_of_the_critics_alone():
    (late, spec), (busy, _) = learner(actor_interval=100), learner(actor_interval=1)
    for made in (late, busy):
        made.update(random_batch(spec, 16))
    size = spec.groups["critic"].shape[0]
    for name in ("running_mean", "running_var"):
        # Of the observations, which both saw once; actions differ, once the actor has learned.
        seen = [
            statistics(made.critic)[f"network.norm.{name}"][..., :size] for made in (late, busy)
        ]
        assert torch.equal(*seen)
    assert not torch.equal(next(late.actor.parameters()), next(busy.actor.parameters()))


def test_critic_and_target_take_statistics_of_rows_and_successors_together():
    made, spec = learner()
    batch = random_batch(spec, 16)
    before = statistics(made.critic), statistics(made.target_critic)
    made.update(batch)
    size = spec.groups["critic"].shape[0]
    rows = torch.cat([batch.obs["critic"], batch.next_obs["critic"]])
    for network, old in zip((made.critic, made.target_critic), before, strict=True):
        for kind, value in (("mean", rows.mean(0)), ("var", rows.var(0))):
            name = f"network.norm.running_{kind}"
            got = statistics(network)[name][:, 0, :size]  # (E, D)
            expected = 0.99 * old[name][:, 0, :size] + 0.01 * value
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
    # Deeper statistics are each network's own: they are not averaged.
    deep = "network.blocks.0.branch.1.running_mean"
    assert not torch.equal(statistics(made.critic)[deep], statistics(made.target_critic)[deep])


def test_noise_is_held_by_world_until_an_episode_starts():
    made, spec = learner(noise_exponent=0.0, noise_longest=1_000_000)
    obs = {"actor": torch.zeros(4, spec.groups["actor"].shape[0])}
    first = made.act(obs, explore=True).clone()
    assert torch.equal(made.act(obs, explore=True), first)
    made.begin(torch.tensor([True, False, True, False]))
    second = made.act(obs, explore=True)
    assert (second != first).any(-1).tolist() == [True, False, True, False]


def noise(longest: int = 16, seed: int = 0) -> NoiseRepeat:
    return NoiseRepeat(2, exponent=2.0, longest=longest, device=CPU, seed=seed)


def drawn(source: NoiseRepeat, worlds: int, steps: int) -> Tensor:
    """(T, N, A)."""
    return torch.stack([source.draw(worlds) for _ in range(steps)])


def test_holding_times_follow_the_power_law():
    values = drawn(noise(), 500, 400)
    changed = (values[1:] != values[:-1]).any(-1)  # (T - 1, N)
    turns = changed.float().cumsum(0)
    lengths = torch.cat([
        torch.bincount(turns[:, world].long())[1:-1] for world in range(500)  # whole ones only
    ])  # fmt: skip
    assert len(lengths) > 80_000
    # Sum of 1/k over sum of 1/k^2 up to 16 is 3.3807 / 1.5843. Deviation of k is 2.4: four
    # standard errors of 80,000 are 0.034; cutting episodes of 400 steps favours short ones by less.
    assert float(lengths.float().mean()) == pytest.approx(2.134, abs=0.04)
    shares = torch.bincount(lengths, minlength=17) / len(lengths)
    for k in range(1, 17):
        assert float(shares[k]) == pytest.approx(k**-2 / 1.58435, abs=0.006)
    assert float(shares[1]) == pytest.approx(0.631, abs=0.006)
    assert lengths.max() == 16


def test_worlds_turn_at_times_of_their_own():
    values = drawn(noise(), 64, 100)
    turns = (values[1:] != values[:-1]).any(-1).float().mean(-1)  # (T - 1,): share of the worlds
    # Each world turns in 1 of 2.134 steps; one count for all would give shares of 0 and 1.
    assert float(turns.min()) > 0.2
    assert float(turns.max()) < 0.8
    assert not torch.equal(values[0, 0], values[0, 1])
