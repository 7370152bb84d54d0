"""SAC over choices: its losses in double precision, what it draws, and what it refuses."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from policies.networks.categorical_actor import CategoricalActorConfig
from policies.networks.mlp import Activation
from policies.networks.q_ensemble import QEnsembleConfig
from robot_rl.core.env import EnvSpec, choice_rows
from robot_rl.core.errors import ConfigError
from robot_rl.core.transition import Batch
from robot_rl.learners.discrete_sac import DiscreteSAC, DiscreteSACConfig
from tests.fakes import HIDDEN, LinearWorld, ToyEnv, copied, random_batch, small_learner
from tests.robot_rl.learners.reference_sac import (
    assert_step,
    doubled,
    member_outputs,
    normalized,
    trained,
)
from tests.robot_rl.learners.reference_sac import forward as run_mlp
from tests.robot_rl.learners.small_offline import warmed

CHOICES = 2
"""Entries of an action of `LinearWorld`."""
small_discrete_sac: Any = small_learner(
    DiscreteSAC, DiscreteSACConfig,
    {"actor": (CategoricalActorConfig, HIDDEN), "critic": (QEnsembleConfig, HIDDEN)},
)  # fmt: skip


class Reference:
    """Losses, written out."""

    def __init__(self, learner: DiscreteSAC) -> None:
        state = copied(learner.state_dict())
        self.actor, self.critic, self.target = (
            doubled(state[name]) for name in ("actor", "critic", "target_critic")
        )
        self.alpha = float(learner.temperature.value())

    def probs(self, obs: Tensor) -> Tensor:
        scores = run_mlp(self.actor, normalized(self.actor, obs), Activation.relu)
        weights = scores.exp()
        return weights / weights.sum(-1, keepdim=True)

    def values(self, critic: dict[str, Tensor], obs: Tensor) -> Tensor:
        nothing = torch.zeros(len(obs), 0, dtype=torch.float64)
        return torch.stack(member_outputs(critic, obs, nothing, Activation.relu))

    def critic_loss(self, batch: Batch) -> Tensor:
        probs = self.probs(batch.next_obs["actor"]).detach()
        value = self.values(self.target, batch.next_obs["critic"]).detach().min(0).values
        soft = (probs * (value - self.alpha * probs.log())).sum(-1)
        target = batch.reward.double() + batch.discount.double() * soft
        losses = []
        for member in self.values(self.critic, batch.obs["critic"]):
            chosen = torch.stack(
                [
                    row[number]
                    for row, number in zip(member, batch.action.argmax(-1).tolist(), strict=True)
                ]
            )
            losses.append((batch.weight.double() * (chosen - target) ** 2).mean())
        return torch.stack(losses).sum()

    def actor_loss(self, batch: Batch) -> Tensor:
        probs = self.probs(batch.obs["actor"])
        value = self.values(self.critic, batch.obs["critic"]).detach().min(0).values
        rows = (probs * (self.alpha * probs.log() - value)).sum(-1)
        return (batch.weight.double() * rows).mean()


def choosing(spec: EnvSpec, count: int = 16, seed: int = 0) -> Batch:
    batch = random_batch(spec, count, seed)
    return replace(batch, action=choice_rows(batch.action.argmax(-1), CHOICES))


def learner(**settings: Any) -> tuple[DiscreteSAC, EnvSpec]:
    return warmed(small_discrete_sac, **{"batch_size": 16, **settings})


def test_losses_and_gradients_equal_a_plain_implementation_in_double_precision():
    sac, spec = learner()
    batch = choosing(spec)
    batch.weight[:4] = torch.tensor([0.5, 2.0, 1.0, 1.5])
    reference = Reference(sac)
    metrics, error = sac.update(batch)
    assert error.shape == (16,)
    assert_step(
        reference.critic_loss(batch), trained(reference.critic), sac.critic.parameters(),
        metrics["critic_loss"],
    )  # fmt: skip
    reference.critic = Reference(sac).critic  # the actor climbs what has just learned
    assert_step(
        reference.actor_loss(batch), trained(reference.actor), sac.actor.parameters(),
        metrics["actor_loss"],
    )  # fmt: skip


def test_the_critics_learn_nothing_from_the_loss_of_the_actor():
    sac, spec = learner(actor_interval=1)
    late, _ = learner(actor_interval=100)
    late.load_state_dict(copied(sac.state_dict()))
    late.actor_interval = 100
    for one in (sac, late):
        one.update(choosing(spec))
    for ours, theirs in zip(sac.critic.parameters(), late.critic.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_choices_are_drawn_as_often_as_their_probabilities_say_and_the_best_is_played():
    sac, spec = learner()
    obs = {"actor": torch.randn(1, spec.groups["actor"].shape[0]).expand(20_000, -1)}
    drawn = sac.act(obs, explore=True)
    assert set(drawn.unique().tolist()) == {-1.0, 1.0}
    assert (drawn.sum(-1) == 2 - CHOICES).all()
    with torch.no_grad():
        probs = sac.actor.log_probs(obs)[0].exp()
    assert torch.allclose((drawn > 0).float().mean(0), probs, atol=0.02)
    assert (sac.act(obs, explore=False).argmax(-1) == probs.argmax()).all()
    assert torch.equal(sac.policy()(obs), sac.act(obs, explore=False))


def test_scores_that_are_no_numbers_show_in_what_is_done():
    sac, spec = learner()
    with torch.no_grad():
        next(iter(sac.actor.network.parameters())).fill_(torch.nan)
    obs = {"actor": torch.randn(4, spec.groups["actor"].shape[0])}
    assert sac.act(obs, explore=False).isnan().all()
    assert sac.act(obs, explore=True).isnan().all()


def test_rows_that_rounding_could_turn_are_not_decided():
    sac, spec = learner()
    last = [one for one in sac.actor.network.modules() if isinstance(one, torch.nn.Linear)][-1]
    obs = {"actor": torch.randn(4, spec.groups["actor"].shape[0])}
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([1.0, 1.0 + 1e-6]))
        assert not sac.actor.decided(obs).any()
        last.bias.copy_(torch.tensor([1.0, 1.1]))
        assert sac.actor.decided(obs).all()


def test_the_temperature_holds_the_entropy_at_its_share():
    sac, spec = learner(temperature_lr=0.05, actor_lr=3e-3, target_entropy_share=0.5)
    batch = replace(choosing(spec), reward=torch.zeros(16), discount=torch.zeros(16))
    for _ in range(599):
        sac.update(batch)
    metrics, _ = sac.update(batch)
    assert float(metrics["entropy"]) == pytest.approx(0.5 * math.log(CHOICES), abs=0.1)


def test_one_choice_and_an_estimate_are_refused():
    spec = ToyEnv(LinearWorld(), 2).spec
    with pytest.raises(ConfigError, match="there are 1"):
        small_discrete_sac(replace(spec, action_size=1))
    config = DiscreteSACConfig()
    config.actor.encoder.estimate = ["mass"]
    with pytest.raises(ConfigError, match="has no loss in learner=discrete_sac"):
        DiscreteSAC(config, spec, seed=0)
    with pytest.raises(ConfigError, match="target_entropy_share"):
        DiscreteSACConfig(target_entropy_share=1.5)
