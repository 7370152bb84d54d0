"""MENTOR: losses and gradients in double precision, schedules, perturbation of every part."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from policies.networks.experts import ExpertsConfig
from policies.networks.trunks import NetworkKind
from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import ConfigError
from robot_rl.learners.dormancy import layers_of, parts_of
from robot_rl.learners.mentor import MENTOR, MENTORConfig
from robot_rl.learners.perturbation import PerturbationConfig
from robot_rl.training.trainer import not_finite
from tests.equality import assert_same
from tests.fakes import LinearWorld, ToyEnv, copied, random_batch, random_obs, small_mentor
from tests.robot_rl.learners.reference_mentor import Parameters
from tests.robot_rl.learners.reference_sac import assert_step, trained
from tests.robot_rl.learners.small_offline import warmed

ROWS = 64  # enough for the sparse path
PARTS = ("trunk", "gate", "experts", "head", "critic", "value")
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "all experts see all rows": {"experts": {"sparse": False}},
    "the authors' loss of the gate": {"experts": {"balance_weight": 0.0, "entropy_weight": 1.0}},
    "much noise": {"exploration_start": 2.0, "exploration_end": 2.0, "smoothing_clip": 0.7},
    "a low expectile": {"expectile": 0.3, "value_share": 0.9},
    "three critics": {"critic": {"members": 3}},
}


def shaped(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with those of the experts where they belong."""
    experts = {"count": 4, "width": 8, "top": 2, "gate_width": 8, **settings.pop("experts", {})}
    return {**settings, "actor": {"experts": ExpertsConfig(**experts), **settings.get("actor", {})}}


def learner(**settings: Any) -> tuple[MENTOR, EnvSpec]:
    return warmed(small_mentor, batch_size=ROWS, **shaped(settings))


def beta(mentor: MENTOR) -> float:
    return float(mentor.state_dict()["dormant"][0])


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients_equal_a_plain_implementation_in_double_precision(variant):
    mentor, spec = learner(**copied(VARIANTS[variant]))
    batch = random_batch(spec, ROWS)
    batch.weight[:5] = torch.tensor([0.5, 2.0, 1.0, 1.5, 0.0])
    reference = Parameters.of(mentor)
    metrics, error = mentor.update(batch)

    share = reference.dormant(batch)["all"]
    value_loss = reference.value_loss(batch)
    value, told = trained(reference.value), metrics["value_loss"]
    assert_step(value_loss, value, mentor.value.parameters(), told)

    reference.value = Parameters.of(mentor).value  # in the target it has just learned
    critic_loss = reference.critic_loss(batch, share)
    critic, told = trained(reference.critic), metrics["critic_loss"]
    assert_step(critic_loss, critic, mentor.critic.parameters(), told)

    reference.critic = Parameters.of(mentor).critic  # the actor climbs what has just learned
    actor_loss = reference.actor_loss(batch, share)
    actor, told = trained(reference.actor), metrics["actor_loss"]
    assert_step(actor_loss, actor, mentor.actor.parameters(), told)

    assert error.shape == (ROWS,)
    assert float(metrics["noise"]) == pytest.approx(reference.noise(share), rel=1e-5)


def test_dormant_units_equal_a_plain_count_in_every_part():
    mentor, spec = learner()
    with torch.no_grad():  # units that never fire, experts that give nothing
        network: Any = mentor.actor.network
        network.trunk[0].bias[:5] = -50
        network.mixture.gate[0].bias[2] = -50
        network.mixture.experts[0].bias[1] = -50
    batch = random_batch(spec, ROWS)
    batch.weight[3:9] = 0.0
    expected = Parameters.of(mentor).dormant(batch)
    metrics, _ = mentor.update(batch)
    assert metrics["dormant"] == pytest.approx(expected["all"], abs=1e-6)
    for name in ("trunk", "gate", "experts", "head"):
        assert metrics[f"dormant_{name}"] == pytest.approx(expected[name], abs=1e-6)
    assert expected["trunk"] >= 5 / 16
    assert expected["experts"] >= 8 / (4 * (8 + 16))


def test_a_count_holds_until_the_next_one():
    mentor, spec = learner(dormant_interval=4)  # three updates lie behind it
    counts = []
    for seed in range(6):
        with torch.no_grad():
            mentor.actor.network.trunk[0].bias[:seed] = -50  # pyright: ignore
        counts.append(float(mentor.update(random_batch(spec, ROWS, seed))[0]["dormant_trunk"]))
    assert counts[0] < counts[1] == counts[2] == counts[3] == counts[4]
    assert counts[5] > counts[4]


@pytest.mark.parametrize(
    ("share", "noise", "mix", "kept"),
    [  # suninghuang19/mentor f4fa81f, in its own numbers
        (0.0, 0.095, 0.600, 0.95), (0.05, 0.146, 0.600, 0.90), (0.1, 0.215, 0.596, 0.80),
        (0.2, 0.40, 0.30, 0.60), (0.3, 0.585, 0.004, 0.40), (0.4, 0.704, 0.0, 0.20),
        (1.0, 0.800, 0.0, 0.20),
    ],
)  # fmt: skip
def test_schedules_follow_the_share_of_dormant_units(share, noise, mix, kept):
    mentor = small_mentor(ToyEnv(LinearWorld(), 4).spec, dormant_interval=2)
    state = copied(mentor.state_dict())
    state["dormant"][0], state["updates"] = share, 1  # no count in the next update
    mentor.load_state_dict(state)
    told, _ = mentor.update(random_batch(ToyEnv(LinearWorld(), 4).spec, 8))
    assert float(told["dormant"]) == pytest.approx(share)
    assert float(mentor.noise) == pytest.approx(noise, abs=1e-3)
    assert float(mentor.value_share) == pytest.approx(mix, abs=1e-3)
    assert float(mentor.kept) == pytest.approx(kept, abs=1e-6)


def test_before_the_first_count_all_units_are_taken_for_dormant():
    mentor = small_mentor(ToyEnv(LinearWorld(), 4).spec)
    assert float(mentor.noise) == pytest.approx(0.8, abs=1e-3)
    assert float(mentor.kept) == pytest.approx(0.2)


def test_the_least_noise_falls_in_a_line():
    settings = {"exploration_start": 1.0, "exploration_end": 0.2, "exploration_updates": 10}
    mentor, spec = learner(**settings)
    noises = [float(mentor.update(random_batch(spec, ROWS, seed))[0]["noise"]) for seed in range(9)]
    lines = [1.0 - 0.08 * updates for updates in range(4, 11)]
    assert noises[:6] == pytest.approx(lines[:6], abs=1e-6)
    assert noises[7:] == pytest.approx([0.2, 0.2], abs=0.02)


def test_exploring_adds_noise_of_the_size_that_it_tells_and_stays_within_bounds():
    mentor, spec = learner(exploration_start=0.3, exploration_end=0.3, exploration_max=0.0)
    obs = random_obs(spec, 4000, torch.Generator().manual_seed(0))
    plain, noisy = mentor.act(obs, explore=False), mentor.act(obs, explore=True)
    assert noisy.abs().max() <= 1
    free = (plain.abs() < 0.1).all(-1)  # far enough from the bounds to be cut off in 0.3 % of draws
    assert int(free.sum()) > 100
    assert float((noisy - plain)[free].std()) == pytest.approx(0.3, rel=0.1)


def test_noise_comes_with_the_policy_to_those_who_act_elsewhere():
    mentor, spec = learner(exploration_start=0.3, exploration_end=0.3)
    acting = small_mentor(spec, 7, **shaped({}))
    assert float(acting.noise) == pytest.approx(0.8, abs=1e-3)
    acting.policy().load_state_dict(mentor.policy().state_dict())
    assert torch.equal(acting.noise, mentor.noise)
    obs = random_obs(spec, 32, torch.Generator())
    acting.generator.set_state(mentor.generator.get_state())
    assert torch.equal(acting.act(obs, explore=True), mentor.act(obs, explore=True))


def ended(env: ToyEnv, *mentors: MENTOR, seed: int = 0) -> None:
    """Let an episode end in every world."""
    env.reset(seed=seed)
    action = torch.rand(32, 2, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    step = env.step(action)
    for mentor in mentors:
        mentor.observe(replace(step, terminated=torch.ones_like(step.terminated)))


def perturbed(
    updates: int = 8, *, episodes: bool = True, **settings: Any
) -> tuple[MENTOR, EnvSpec]:
    """A learner after so many updates, with an agent judged in each."""
    env = ToyEnv(LinearWorld(), 32)
    env.reset(seed=0)
    mentor = small_mentor(env.spec, batch_size=ROWS, **shaped(settings))
    mentor.begin(torch.ones(32, dtype=torch.bool))
    for seed in range(updates):
        if episodes:
            ended(env, mentor, seed=seed)
        mentor.update(random_batch(env.spec, ROWS, seed))
    return mentor, env.spec


def every(interval: int, **settings: Any) -> PerturbationConfig:
    return PerturbationConfig(interval=interval, judge_interval=1, **settings)


def weights(mentor: MENTOR, part: str) -> list[Tensor]:
    modules = {
        **parts_of(mentor.actor.network), "critic": mentor.critic.network,
        "value": mentor.value.network,
    }  # fmt: skip
    return [w.detach().clone() for layer in layers_of(modules[part]) for w in layer.parameters()]


@pytest.mark.parametrize("part", PARTS)
def test_perturbation_goes_on_past_three_intervals_in_every_part(part, monkeypatch):
    """The authors' code stops at its first one: in the actor, and in the critic."""
    found: list[float] = []
    mentor, spec = perturbed(4, perturbation=every(5, parts=[part]))
    move = mentor.perturbation.move

    def compared(keep: Tensor, generator: torch.Generator) -> None:
        before, others = weights(mentor, part), copied(mentor.state_dict())
        state = mentor.perturbation.agents.state_dict()
        count = len(state["returns"])
        twin = torch.Generator()
        twin.set_state(generator.get_state())
        move(keep, generator)
        for i, (old, new) in enumerate(zip(before, weights(mentor, part), strict=True)):
            mean, variance = state["mean"][i].double(), state["variance"][i].double()
            std = (variance * count / (count - 1)).sqrt().clamp_min(1e-7)
            drawn = mean + std * torch.randn(mean.shape, generator=twin).double()
            rho = min(0.95, max(0.2, 1 - 2 * beta(mentor)))
            expected = rho * old.double() + (1 - rho) * drawn
            assert float((new.double() - expected).norm() / expected.norm()) < 1e-5
        for name in {"actor", "critic", "value"} - {
            part if part in ("critic", "value") else "actor"
        }:
            assert_same(mentor.state_dict()[name], others[name])
        found.append(float(keep))

    monkeypatch.setattr(mentor.perturbation, "move", compared)
    env, metrics = ToyEnv(LinearWorld(), 32), {}
    for seed in range(17):
        ended(env, mentor, seed=seed)
        metrics, _ = mentor.update(random_batch(spec, ROWS, seed))
        assert all(value.isfinite() for value in metrics.values())
    assert len(found) == 4
    assert metrics["perturbations"] == 4
    assert not_finite(mentor.state_dict(), "the learner") == []


def test_the_target_critic_takes_the_draw_of_its_critic():
    mentor, _ = perturbed(7, perturbation=every(1_000), tau=0.0)  # the target stays behind
    pairs = list(zip(mentor.target_critic.parameters(), mentor.critic.parameters(), strict=True))
    before = [(target - source).detach().clone() for target, source in pairs]
    mentor.perturbation.move(torch.tensor(0.6), mentor.generator)
    for (target, source), apart in zip(pairs, before, strict=True):
        # rho t + (1 - rho) x - rho s - (1 - rho) x: they come closer, whatever was drawn
        torch.testing.assert_close((target - source).detach(), 0.6 * apart, rtol=1e-4, atol=1e-6)
        assert apart.abs().max() > 1e-4


@pytest.mark.parametrize("reset", [True, False])
def test_adam_begins_anew_where_weights_were_moved_or_goes_on(reset):
    config = every(5, parts=["critic"], reset_optimizers=reset)
    mentor, _ = perturbed(5, perturbation=config)
    steps = {
        name: {int(entry["step"]) for entry in mentor.state_dict()[name]["state"].values()}
        for name in ("critic_optimizer", "actor_optimizer", "value_optimizer")
    }
    assert steps["critic_optimizer"] == {1 if reset else 5}
    assert steps["actor_optimizer"] == steps["value_optimizer"] == {5}
    mentor, _ = perturbed(5, perturbation=every(5, reset_optimizers=reset))
    for name in steps:
        state = mentor.state_dict()[name]
        assert {int(entry["step"]) for entry in state["state"].values()} == {1 if reset else 5}
        assert state["updates"] == 5  # schedules go on


class TestGuards:
    def test_without_episodes_nothing_is_moved(self):
        mentor, _ = perturbed(9, episodes=False, perturbation=every(2))
        other, _ = perturbed(9, episodes=False, perturbation=every(0))
        assert mentor.perturbation.count == 0
        assert_same(list(mentor.actor.parameters()), list(other.actor.parameters()))

    def test_one_best_agent_moves_nothing_and_gives_no_nan(self):
        mentor, spec = perturbed(4, episodes=False, perturbation=every(5))
        env, metrics = ToyEnv(LinearWorld(), 32), {}
        ended(env, mentor)
        for seed in range(12):
            metrics, _ = mentor.update(random_batch(spec, ROWS, seed))
        assert (metrics["agents"], metrics["perturbations"]) == (1, 0)
        assert not_finite(mentor.state_dict(), "the learner") == []

    def test_equal_agents_are_a_pull_to_one_place_and_give_no_nan(self):
        mentor, spec = perturbed(
            20, perturbation=every(4), actor_lr=0.0, critic_lr=0.0, value_lr=0.0
        )
        assert mentor.perturbation.count == 5
        fresh = small_mentor(spec, batch_size=ROWS, **shaped({}))
        for now, then in zip(mentor.actor.parameters(), fresh.actor.parameters(), strict=True):
            torch.testing.assert_close(now, then, rtol=0, atol=1e-5)
        assert not_finite(mentor.state_dict(), "the learner") == []

    def test_an_agent_of_nan_is_not_among_the_best(self):
        mentor, spec = perturbed(3, perturbation=every(1_000))
        assert mentor.perturbation.agents.count == 3
        with torch.no_grad():
            mentor.critic.network[0].weight[0, 0, 0] = math.nan  # pyright: ignore
        env = ToyEnv(LinearWorld(), 32)
        ended(env, mentor)
        mentor.update(random_batch(spec, ROWS))
        assert mentor.perturbation.agents.count == 3
        agents = mentor.state_dict()["perturbation"]["agents"]
        assert all(mean.isfinite().all() for mean in agents["mean"])


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_run_goes_on_bit_equal_across_a_perturbation(dropout):
    settings = {
        "perturbation": every(5),
        "experts": {"gate_dropout": dropout},
        "dormant_interval": 3,
    }
    mentor, spec = perturbed(8, **copied(settings))
    env = ToyEnv(LinearWorld(), 32)
    ended(env, mentor)  # waits to be judged
    other = small_mentor(spec, 5, batch_size=ROWS, **shaped(copied(settings)))
    other.load_state_dict(copied(mentor.state_dict()))
    obs = random_obs(spec, 32, torch.Generator().manual_seed(0))
    for seed in range(9):
        ended(env, mentor, other, seed=seed)
        batch = random_batch(spec, ROWS, seed)
        assert_same(other.update(batch), mentor.update(batch))
        assert torch.equal(other.act(obs, explore=True), mentor.act(obs, explore=True))
    assert mentor.perturbation.count == 3
    assert_same(other.state_dict(), mentor.state_dict())


def test_actors_without_experts_learn_too_and_are_moved_as_one_part():
    plain = {"actor": {"kind": NetworkKind.mlp}, "perturbation": every(4)}
    mentor, spec = perturbed(9, **plain)
    metrics, _ = mentor.update(random_batch(spec, ROWS))
    assert mentor.perturbation.names == ("actor", "critic", "value")
    assert mentor.perturbation.count == 2
    assert "dormant_actor" in metrics
    assert "gate_entropy" not in metrics


def test_the_actors_gradient_is_scaled_down_to_its_own_norm():
    mentor, spec = learner(actor_grad_norm=1e-3)
    mentor.update(random_batch(spec, ROWS))
    norms = [
        torch.stack([p.grad.norm() for p in network.parameters() if p.grad is not None]).norm()
        for network in (mentor.actor, mentor.critic)
    ]
    assert float(norms[0]) == pytest.approx(1e-3, rel=1e-3)
    assert norms[1] > 0.01


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"expectile": 1.0}, "expectile"), ({"dormant_interval": 0}, "dormant_interval"),
     ({"value_share": 1.5}, "value_share")],
)  # fmt: skip
def test_settings_out_of_range_are_refused(settings, told):
    with pytest.raises(ConfigError, match=rf"learner\.{told}"):
        MENTORConfig(**settings)


def test_several_processes_are_refused():
    with pytest.raises(ConfigError, match="learner=mentor learns in one process"):
        small_mentor(ToyEnv(LinearWorld(), 4).spec, reduce=lambda params: None)
