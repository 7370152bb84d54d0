"""FlashSAC: losses and gradients against double precision, statistics, schedules, its traps."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import ConfigError
from robot_rl.learners.flash_sac import FlashSAC, FlashSACConfig, NoiseRepeat
from robot_rl.learners.optimization import Precision, ScheduleConfig
from robot_rl.learners.values import ValueConfig
from tests.equality import assert_same
from tests.fakes import CPU, LinearWorld, ToyEnv, copied, random_batch
from tests.robot_rl.learners.reference_flash_sac import Parameters, trained
from tests.robot_rl.learners.reference_sac import gradients, relative_error
from tests.small_flash_sac import small_flash_sac

VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {"actor_interval": 1},
    "three critics, two blocks": {
        "actor_interval": 1, "critic": {"members": 3, "blocks": 2}, "actor": {"blocks": 2},
    },
    "few atoms": {"actor_interval": 1, "values": ValueConfig(atoms=5, low=-1.0, high=3.0)},
}  # fmt: skip


def learner(**settings: Any) -> tuple[FlashSAC, EnvSpec]:
    """A learner whose targets, statistics and scales differ from the start."""
    env = ToyEnv(LinearWorld(), 32)
    env.reset(seed=0)
    made = small_flash_sac(env.spec, **{"init_temperature": 0.2, "tau": 0.5, **settings})
    for seed in range(6):
        made.observe(env.step(torch.ones(32, 2)))
        made.update(random_batch(env.spec, 16, seed=9 + seed))
    return made, env.spec


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients_equal_a_plain_implementation_in_double_precision(variant):
    made, spec = learner(**VARIANTS[variant])
    batch = random_batch(spec, 16)
    batch.weight[:4] = torch.tensor([0.5, 2.0, 1.0, 1.5])
    reference = Parameters.of(made)
    metrics, _ = made.update(batch)

    actor_loss, log_prob = reference.actor_loss(batch)
    actor_grad = torch.autograd.grad(actor_loss, list(trained(reference.actor).values()))
    assert float(metrics["actor_loss"]) == pytest.approx(actor_loss.item(), rel=1e-5)
    assert float(metrics["entropy"]) == pytest.approx(-float(log_prob.mean()), rel=1e-5)
    assert float(metrics["temperature"]) == pytest.approx(reference.alpha, rel=1e-6)
    assert relative_error(gradients(made.actor.parameters()), list(actor_grad)) < 1e-5

    stepped = Parameters.of(made)  # the next action is that of the actor that has just learned
    critic_loss = reference.critic_loss(batch, stepped.actor, stepped.alpha)
    assert float(metrics["critic_loss"]) == pytest.approx(critic_loss.item(), rel=1e-5)
    names = list(trained(reference.critic[0]))
    leaves = [member[name] for name in names for member in reference.critic]
    critic_grad = torch.autograd.grad(critic_loss, leaves)
    assert relative_error(gradients(made.critic.parameters()), list(critic_grad)) < 1e-5


def test_the_target_entropy_is_that_of_the_target_deviation():
    made, _ = learner()
    # 0.5 ln(2 pi e 0.15^2) = -0.478 per action entry, of which there are two
    assert made.temperature.target_entropy == pytest.approx(2 * -0.47818, abs=1e-4)
    other, _ = learner(target_std=0.0, target_entropy_per_action=-0.25)
    assert other.temperature.target_entropy == -0.5
    with pytest.raises(ConfigError, match=r"target_entropy_per_action -0\.25 would have no effect"):
        FlashSACConfig(target_entropy_per_action=-0.25)


def test_actor_and_temperature_learn_in_the_last_of_every_second_update():
    made, spec = learner()
    changed = []
    for seed in range(4):
        actor = copied(list(made.actor.parameters()))
        alpha = made.temperature.value().item()
        made.update(random_batch(spec, 16, seed))
        same = all(torch.equal(a, b) for a, b in zip(actor, made.actor.parameters(), strict=True))
        assert same == (alpha == made.temperature.value().item())
        changed.append(not same)
    assert changed == [False, True, False, True]


@pytest.mark.slow
def test_every_step_size_falls_along_a_half_cosine_to_the_share_that_is_said():
    made, spec = learner(
        lr_schedule=ScheduleConfig(decay=40, end=0.5), actor_lr=1e-3, critic_lr=1e-3,
        temperature_lr=1e-3,
    )  # fmt: skip

    def rates() -> dict[str, float]:
        state = made.state_dict()
        states = {
            "critic": state["critic_optimizer"], "actor": state["actor_optimizer"],
            "temperature": state["temperature"]["optimizer"],
        }  # fmt: skip
        return {name: float(one["param_groups"][0]["lr"]) for name, one in states.items()}

    for update in range(made.updates, 44):
        made.update(random_batch(spec, 16, update))
        for name, rate in rates().items():
            # The critics step in every update, the others in the second of two.
            begun = update if name == "critic" else (update - 1) // 2 * 2
            if update < 7 and name != "critic":
                continue
            share = 0.5 + 0.25 * (1 + math.cos(math.pi * min(1.0, begun / 40)))
            assert rate == pytest.approx(1e-3 * share, rel=1e-5), (name, update)
    assert list(rates().values()) == pytest.approx([0.5e-3] * 3, rel=1e-3)


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


def test_targets_move_by_tau_and_are_not_projected():
    made, spec = learner(tau=0.25)
    before = copied(weights_of(made.target_critic))
    made.update(random_batch(spec, 16))
    sources = weights_of(made.critic)
    for name, target in weights_of(made.target_critic).items():
        moved = 0.75 * before[name] + 0.25 * sources[name]
        torch.testing.assert_close(target, moved, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_weights_keep_their_norms_while_learning():
    made, spec = learner(actor_lr=1e-2, critic_lr=1e-2)
    for seed in range(30):
        made.update(random_batch(spec, 16, seed))
    for network in (made.actor, made.critic):
        for name, parameter in weights_of(network).items():
            if parameter.shape[-2] > 1:
                lengths = torch.linalg.vector_norm(parameter, dim=-2)
                torch.testing.assert_close(lengths, torch.ones_like(lengths), msg=name)


def test_the_whole_distribution_of_the_smaller_critic_is_the_target():
    made, spec = learner(actor_interval=1000)
    batch = random_batch(spec, 16)
    with torch.no_grad():  # two critics that are sure: the second of the smallest return
        for network in (made.critic, made.target_critic):
            weights = weights_of(network)
            weights["network.out.weight"].zero_()
            weights["network.out.bias"].zero_()
            weights["network.out.bias"][0, 0, -1] = 100.0
            weights["network.out.bias"][1, 0, 0] = 100.0
    batch.reward.zero_()
    batch.discount.fill_(1.0)
    made.temperature.parameter.data.fill_(-100.0)
    metrics, _ = made.update(batch)
    # The first is surely wrong by 100 nat, the second surely right.
    assert float(metrics["critic_loss"]) == pytest.approx(100.0, rel=1e-3)


def test_rewards_are_scaled_by_the_newest_statistics_when_they_are_sampled():
    made, spec = learner()
    batch = random_batch(spec, 16)
    before = Parameters.of(made)
    env = ToyEnv(LinearWorld(), 32)
    env.reset(seed=4)
    for _ in range(5):
        made.observe(env.step(-torch.ones(32, 2)))
    reference = Parameters.of(made)
    assert reference.reward_divisor != before.reward_divisor
    metrics, _ = made.update(batch)
    loss = reference.critic_loss(batch, reference.actor, reference.alpha)
    assert float(metrics["critic_loss"]) == pytest.approx(loss.item(), rel=1e-5)


def test_noise_is_held_by_world_until_an_episode_starts():
    made, spec = learner(noise_exponent=0.0, noise_longest=1_000_000)
    obs = {"actor": torch.zeros(4, spec.groups["actor"].shape[0])}
    first = made.act(obs, explore=True).clone()
    assert torch.equal(made.act(obs, explore=True), first)
    made.begin(torch.tensor([True, False, True, False]))
    second = made.act(obs, explore=True)
    assert (second != first).any(-1).tolist() == [True, False, True, False]


def test_bfloat16_learns_about_the_same():
    (exact, spec), (rough, _) = learner(), learner(precision=Precision.bf16)
    rough.load_state_dict(copied(exact.state_dict()))
    batch = random_batch(spec, 16)
    exact.update(batch)
    rough.update(batch)
    expected, got = exact.update(batch)[0], rough.update(batch)[0]
    for name in ("critic_loss", "q_mean"):
        assert got[name].dtype is torch.float32
        assert float(got[name]) == pytest.approx(float(expected[name]), rel=0.05, abs=0.02)


def test_priorities_are_not_negative_and_without_a_graph():
    made, spec = learner()
    _, priority = made.update(random_batch(spec, 16))
    assert priority.shape == (16,)
    assert (priority >= 0).all()
    assert not priority.requires_grad


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("target_std", -0.1), ("reward_limit", 0.0), ("noise_longest", 0),
        ("noise_exponent", float("nan")), ("tau", 1.5),
    ],
)  # fmt: skip
def test_values_outside_their_range_are_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=rf"learner\.{name} must lie in \[.*got {value}"):
        FlashSACConfig(**{name: value})


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


def test_noise_is_standard_normal():
    values = drawn(noise(), 2000, 50)
    assert abs(float(values.mean())) < 0.02
    assert float(values.std()) == pytest.approx(1.0, abs=0.02)


def test_worlds_turn_at_times_of_their_own():
    values = drawn(noise(), 64, 100)
    turns = (values[1:] != values[:-1]).any(-1).float().mean(-1)  # (T - 1,): share of the worlds
    # Each world turns in 1 of 2.134 steps; one count for all would give shares of 0 and 1.
    assert float(turns.min()) > 0.2
    assert float(turns.max()) < 0.8
    assert not torch.equal(values[0, 0], values[0, 1])


def test_an_episode_begins_with_noise_of_its_own_and_leaves_the_others_alone():
    source, twin = noise(seed=3), noise(seed=3)
    for _ in range(50):
        before, same = source.draw(40).clone(), twin.draw(40)
        assert torch.equal(before, same)
        starting = torch.arange(40) < 20
        source.begin(starting)
        after, plain = source.draw(40), twin.draw(40)
        assert (after[:20] != before[:20]).any(-1).all()
        assert torch.equal(after[20:], plain[20:])
        twin.load_state_dict(copied(source.state_dict()))


def test_a_longest_time_of_one_draws_anew_in_every_step():
    values = drawn(noise(longest=1), 8, 20)
    assert (values[1:] != values[:-1]).any(-1).all()


def test_a_restored_source_goes_on_bit_equal_and_seeds_differ():
    source, other = noise(), noise(seed=1)
    assert not torch.equal(source.draw(5), other.draw(5))
    other.load_state_dict(copied(source.state_dict()))
    assert_same(drawn(other, 5, 20), drawn(source, 5, 20))
