"""CQL and Cal-QL: losses and gradients against double precision, and what each choice does."""

from typing import Any

import pytest
import torch

from robot_rl.core.learner import Phase
from robot_rl.core.transition import Batch
from robot_rl.learners.off_policy import TemperatureLoss
from robot_rl.learners.optimization import ScheduleConfig
from robot_rl.learners.sac import ActorStepsConfig, EntropyAt, TargetConfig
from tests.equality import assert_same
from tests.fakes import copied, small_sac
from tests.robot_rl.learners.reference_offline import gap, largest_backup, named
from tests.robot_rl.learners.reference_sac import Parameters, assert_step, gradients, relative_error
from tests.robot_rl.learners.small_offline import small_cql, stored, warmed

SUBSET = {
    "target": TargetConfig(members=2, replacement=True, entropy=False), "critic": {"members": 4}
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "cql": {},
    "cql without importance sampling": {"conservatism": {"importance": False}},
    "cql of a large backup": {"conservatism": {"next_actions": 4}},
    "cql with a temperature": {"conservatism": {"temperature": 0.5}},
    "cal_ql": {"conservatism": {"calibrated": True}},
    "cal_ql without importance sampling": {
        "conservatism": {"calibrated": True, "importance": False}
    },
    "cal_ql as wsrl sets it": {
        **SUBSET, "conservatism": {"calibrated": True, "next_actions": 3},
        "temperature_loss": TemperatureLoss.softplus,
        "actor_steps": ActorStepsConfig(entropy_at=EntropyAt.next_obs),
    },
    "cql with a tuned weight": {"conservatism": {"wanted_gap": 0.8, "weight": 1.0}},
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients_equal_a_plain_implementation_in_double_precision(variant):
    cql, spec = warmed(small_cql, **VARIANTS[variant])
    batch = stored(spec)
    config, members = cql.penalty.config, 4 if "critic" in VARIANTS[variant] else 2
    x = cql.penalty.parameter.detach().double()
    at = Parameters.of(cql)
    metrics, _ = cql.update(batch)

    td, next_log_prob = largest_backup(at, batch, config.next_actions)
    surplus = gap(at, batch, config, members)
    weight = torch.log(1 + torch.exp(x)) if config.wanted_gap else torch.tensor(config.weight)
    loss = td + members * weight * surplus
    # float32 has 7 digits; sums over rows, actions and units lose one or two.
    assert float(metrics["critic_loss"]) == pytest.approx(td.item(), rel=1e-5)
    # Where it is a difference of two nearly equal values, it is as good as these.
    assert float(metrics["conservative_gap"]) == pytest.approx(surplus.item(), rel=1e-5, abs=1e-6)
    assert float(metrics["conservative_weight"]) == pytest.approx(float(weight), rel=1e-6)
    assert_step(loss, named(at.critic), cql.critic.parameters())
    if config.wanted_gap:
        slope = -torch.sigmoid(x) * (surplus.detach() - config.wanted_gap)
        assert relative_error(gradients([cql.penalty.parameter]), [slope]) < 1e-5

    stepped = Parameters.of(cql)
    at.critic = stepped.critic
    actor_loss, log_prob = at.actor_loss(batch)
    assert_step(actor_loss, named(at.actor), cql.actor.parameters(), metrics["actor_loss"])
    alpha_loss = at.temperature_loss(batch, log_prob, next_log_prob)
    assert_step(alpha_loss, [at.x], [cql.temperature.parameter])
    assert torch.equal(stepped.generator.get_state(), at.generator.get_state())


def moves_actor(learner: Any, batch: Batch) -> bool:
    before = copied(learner.actor.state_dict())["network.0.weight"]
    learner.update(batch)
    return not torch.equal(before, learner.actor.state_dict()["network.0.weight"])


def test_online_without_conservatism_it_is_sac_to_the_last_bit():
    """WSRL: from the switch on, and for networks and random stream alike."""
    cql, spec = warmed(small_cql, conservatism={"online": False}, actor_interval=2)
    cql.begin_phase(Phase.online)
    sac = small_sac(
        spec, batch_size=16, target=TargetConfig(entropy=False), tau=0.5, actor_interval=2
    )
    sac.load_state_dict(copied(cql.state_dict()))
    for seed in range(4):
        cql.update(stored(spec, seed=seed))
        sac.update(stored(spec, seed=seed))
    state = cql.state_dict()
    del state["penalty"]
    assert_same(sac.state_dict(), state)


def test_offline_the_actor_steps_in_every_update_and_online_in_the_last_of_its_interval():
    cql, spec = warmed(small_cql, actor_interval=3, actor_steps=ActorStepsConfig(on_all=True))
    for phase, moves in ((Phase.offline, [True] * 3), (Phase.online, [False, False, True])):
        cql.begin_phase(phase)
        assert [moves_actor(cql, stored(spec, seed=seed)) for seed in range(3)] == moves


def test_after_an_offline_phase_the_critics_may_learn_alone_first():
    """Two updates of them, although a save and a load come between."""
    cql, spec = warmed(small_cql, actor_steps=ActorStepsConfig(critic_updates=2))
    other, _ = warmed(small_cql, actor_steps=ActorStepsConfig(critic_updates=2))
    other.load_state_dict(copied(small_cql(spec).state_dict()))  # before its first update
    other.begin_phase(Phase.offline)
    assert [moves_actor(other, stored(spec)) for _ in range(3)] == [True] * 3
    other.begin_phase(Phase.online)
    assert not moves_actor(other, stored(spec))
    cql.load_state_dict(copied(other.state_dict()))
    cql.begin_phase(Phase.online)
    assert [moves_actor(cql, stored(spec)) for _ in range(3)] == [False, True, True]
    # What was counted before does not hold an offline phase up: updates of the run it begins with.
    late, _ = warmed(small_cql, actor_steps=ActorStepsConfig(critic_updates=100))
    late.begin_phase(Phase.offline)
    assert moves_actor(late, stored(spec))


def test_a_penalty_fades_after_the_offline_phase():
    """All of it offline, then half, then none: from there on plain SAC's own target too."""
    spec = warmed(small_cql)[1]
    fading = small_cql(spec, conservatism={"online": False, "fade_updates": 2, "calibrated": True})
    assert fading.monte_carlo_returns.online
    assert "conservative_gap" not in fading.update(stored(spec))[0]  # nothing to fade yet
    fading.begin_phase(Phase.offline)
    for seed in range(3):
        fading.update(stored(spec, seed=seed))
    fading.begin_phase(Phase.online)
    weights: list[float | None] = []
    for seed in range(4):
        metrics, _ = fading.update(stored(spec, seed=seed))
        weight = metrics.get("conservative_weight")
        weights.append(None if weight is None else float(weight))
    assert weights == [5.0, 2.5, None, None]


def test_a_tuned_weight_stays_where_it_is_while_it_fades():
    spec = warmed(small_cql)[1]
    low = {"online": False, "fade_updates": 2, "wanted_gap": 0.01, "weight_lr": 0.1}
    fading = small_cql(spec, conservatism=low)
    fading.begin_phase(Phase.offline)
    fading.update(stored(spec))
    fading.begin_phase(Phase.online)
    tuned, told = [], []
    for _ in range(3):
        tuned.append(float(fading.penalty.parameter.detach()))
        told.append(fading.update(stored(spec))[0].get("conservative_weight"))
    assert tuned[0] != tuned[1] == tuned[2]
    full = torch.nn.functional.softplus(torch.tensor(tuned[1]))
    assert float(told[1]) == pytest.approx(float(full) / 2)
    assert told[2] is None


def test_a_state_that_does_not_know_its_switch_is_not_faded_in_silence(caplog):
    fade: dict[str, Any] = {"conservatism": {"online": False, "fade_updates": 50}}
    learner, _ = warmed(small_cql, **fade)
    state = copied(learner.state_dict())
    learner.load_state_dict(state)
    assert not caplog.text
    del state["switch"]
    learner.load_state_dict(state)
    assert "3 updates old, does not say when an offline phase ended" in caplog.text
    caplog.clear()
    plain, _ = warmed(small_cql, actor_steps=ActorStepsConfig(critic_updates=7))
    plain.load_state_dict({k: v for k, v in plain.state_dict().items() if k != "switch"})
    assert "learner.actor_steps.critic_updates=7 counts from its first update" in caplog.text


def test_rates_of_an_offline_phase_fall_over_its_updates():
    """The actor's as late as the critics', though online it steps in every third."""
    cql, spec = warmed(
        small_cql, actor_interval=3, lr_schedule=ScheduleConfig(decay=7, end=0.0)
    )  # three updates are over
    cql.begin_phase(Phase.offline)

    def changes() -> tuple[bool, bool]:
        before = copied((cql.actor.state_dict(), cql.critic.state_dict()))
        cql.update(stored(spec))
        found = []
        for network, old in zip((cql.actor, cql.critic), before, strict=True):
            named = network.named_parameters()
            found.append(any(not torch.equal(value, old[name]) for name, value in named))
        return found[0], found[1]

    assert [changes() for _ in range(5)] == [(True, True)] * 4 + [(False, False)]
