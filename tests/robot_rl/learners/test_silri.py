"""SiLRI: losses and gradients against double precision, who counts as a person, its phases."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from policies.networks.mlp import Activation
from robot_rl.core.learner import Phase
from robot_rl.core.transition import Batch
from robot_rl.learners.silri import SiLRI
from tests.equality import assert_same
from tests.fakes import LinearWorld, ToyEnv, copied
from tests.robot_rl.learners.reference_sac import (
    assert_step,
    forward,
    gradients,
    member_outputs,
    normalized,
    trained,
)
from tests.robot_rl.learners.small_hil import small_silri, with_people

RELU = Activation.relu
VARIANTS: dict[str, dict[str, Any]] = {
    "gripper": {},
    "no gripper": {"gripper": {"commands": []}},
    "three critics, no normaliser, layer norm": {
        "critic": {"members": 3, "layer_norm": True, "normalize": False},
        "actor": {"normalize": False}, "std": 0.2, "tolerance": 0.01,
    },
}  # fmt: skip


def made(**settings: Any) -> tuple[SiLRI, Any]:
    """A learner whose targets lag behind, and whose multiplier has learned something."""
    env = ToyEnv(LinearWorld(), 32)
    env.reset(seed=0)
    learner = small_silri(env.spec, **{"tau": 0.5, "multiplier_lr": 0.1, **settings})
    for seed in range(3):
        learner.observe(env.step(torch.ones(32, 2)))
        learner.update(with_people(env.spec, seed=9 + seed))
    return learner, env.spec


class Plain:
    """The learner's networks in float64, one row after another."""

    def __init__(self, learner: SiLRI, batch: Batch) -> None:
        state = copied(learner.state_dict())
        self.config, self.batch = learner.config, batch
        names = ("actor", "target_actor", "critic", "target_critic", "expert", "multiplier")
        self.state: dict[str, dict[str, Tensor]] = {}
        for name in (*names, *(["gripper"] if learner.gripper is not None else [])):
            part = {n.removeprefix("scorer."): t.double() for n, t in state[name].items()}
            for key, tensor in part.items():
                tensor.requires_grad_(key.startswith("network"))
            self.state[name] = part
        self.size = learner.action_size
        self.generator = torch.Generator()
        self.generator.set_state(state["generator"])
        every = range(len(batch.reward))
        stored = batch.extra["source"]
        acted = [bool(batch.extra["intervened"][b]) or int(stored[b]) == 1 for b in every]
        self.acted = [float(batch.weight[b]) * acted[b] for b in every]

    def net(self, name: str, obs: Tensor) -> Tensor:
        part = self.state[name]
        return forward(part, normalized(part, obs), RELU)

    def q(self, name: str, obs: Tensor, action: Tensor) -> list[Tensor]:
        return [one[:, 0] for one in member_outputs(self.state[name], obs, action, RELU)]

    def expert(self, b: int) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation, (A,) each."""
        mean, log_std = self.net("expert", self.batch.obs["actor"])[b].chunk(2)
        return torch.tanh(mean), log_std.clamp(-5, 2).exp()

    def likelihoods(self, mean_of: Any) -> Tensor:
        total, count = torch.zeros((), dtype=torch.float64), 0.0
        for b, weight in enumerate(self.acted):
            mean, std = mean_of(b)
            action = self.batch.action[b, : self.size].double()
            total = total - weight * torch.distributions.Normal(mean, std).log_prob(action).sum()
            count += weight
        return total / max(count, 1.0)

    def expert_loss(self) -> Tensor:
        return self.likelihoods(self.expert)

    def critic_loss(self) -> Tensor:
        batch, c = self.batch, self.config
        noise = torch.randn(len(batch.reward), self.size, generator=self.generator).double()
        next_action = torch.tanh(self.net("target_actor", batch.next_obs["actor"])) + c.std * noise
        nexts = self.q("target_critic", batch.next_obs["critic"], next_action)
        now = self.q("critic", batch.obs["critic"], batch.action[:, : self.size])
        loss = torch.zeros((), dtype=torch.float64)
        for b in range(len(batch.reward)):
            least = min(one[b].item() for one in nexts)
            y = float(batch.reward[b]) + float(batch.discount[b]) * least
            for one in now:
                loss = loss + float(batch.weight[b]) * (one[b] - y) ** 2 / len(batch.reward)
        return loss

    def multiplier(self, b: int) -> Tensor:
        none = torch.empty(len(self.batch.reward), 0)
        x = member_outputs(self.state["multiplier"], self.batch.obs["actor"], none, RELU)[0][b, 0]
        return torch.log(1 + torch.exp(x))

    def actor_loss(self, critic: dict[str, Tensor]) -> Tensor:
        """By the critics after their step."""
        self.state["critic"] = critic
        batch = self.batch
        action = torch.tanh(self.net("actor", batch.obs["actor"]))
        values = self.q("critic", batch.obs["critic"], action)
        loss = torch.zeros((), dtype=torch.float64)
        for b in range(len(batch.reward)):
            factor = self.multiplier(b).item()
            distance = ((self.expert(b)[0].detach() - action[b]) ** 2).sum()
            least = min((one[b] for one in values), key=lambda one: one.item())
            row = (-least + factor * distance) / (1 + factor)
            loss = loss + float(batch.weight[b]) * row / len(batch.reward)
        return loss

    def multiplier_loss(self, actor: dict[str, Tensor]) -> Tensor:
        """By the actor after its step."""
        self.state["actor"] = actor
        action = torch.tanh(self.net("actor", self.batch.obs["actor"])).detach()
        loss = torch.zeros((), dtype=torch.float64)
        for b in range(len(action)):
            mean, std = self.expert(b)
            cost = ((mean - action[b]) ** 2).sum() - std.sum() - self.config.tolerance
            weight = float(self.batch.weight[b])
            loss = loss - weight * self.multiplier(b) * cost.detach() / len(action)
        return loss

    def gripper_loss(self) -> Tensor:
        none = torch.empty(len(self.batch.reward), 0)
        scores = member_outputs(self.state["gripper"], self.batch.obs["actor"], none, RELU)[0]
        commands, total = self.config.gripper.commands, torch.zeros((), dtype=torch.float64)
        for b, weight in enumerate(self.acted):
            entry = float(self.batch.action[b, -1])
            k = min(range(len(commands)), key=lambda k: abs(entry - commands[k]))
            shares = scores[b].exp() / scores[b].exp().sum()
            total = total - weight * torch.log(shares[k])
        return total / max(sum(self.acted), 1.0)


def doubles(network: Any) -> dict[str, Tensor]:
    return {name: t.detach().clone().double() for name, t in network.state_dict().items()}


def order(network: Any) -> list[Tensor]:
    by_name = dict(network.named_parameters())
    return [by_name[name] for name in network.state_dict() if name in by_name]


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients_equal_a_plain_implementation_in_double_precision(variant):
    learner, spec = made(**copied(VARIANTS[variant]))
    batch = with_people(spec)
    plain = Plain(learner, batch)
    losses = {"expert": plain.expert_loss(), "critic": plain.critic_loss()}
    if learner.gripper is not None:
        losses["gripper"] = plain.gripper_loss()
    by = {name: trained(part) for name, part in plain.state.items()}
    metrics, _ = learner.update(batch)
    for name, loss in losses.items():
        assert_step(loss, by[name], order(getattr(learner, name)), metrics[f"{name}_loss"])
    plain.state["expert"] = doubles(learner.expert)  # the newest counts in what follows
    actor = plain.actor_loss(doubles(learner.critic))
    assert_step(actor, by["actor"], order(learner.actor), metrics["actor_loss"])
    multiplier = plain.multiplier_loss(doubles(learner.actor))
    assert_step(multiplier, by["multiplier"], order(learner.multiplier), metrics["multiplier_loss"])


def test_offline_expert_and_actor_do_what_people_did_and_nothing_is_valued():
    learner, spec = made()
    learner.begin_phase(Phase.offline)
    batch = stored_by_people(with_people(spec))
    plain, before = Plain(learner, batch), copied(learner.state_dict())
    batch = replace(batch, extra={"intervened": batch.extra["intervened"]})  # all of it is stored
    std = torch.full((1,), learner.config.std, dtype=torch.float64)
    action = torch.tanh(plain.net("actor", batch.obs["actor"]))
    loss = plain.likelihoods(lambda b: (action[b], std))
    metrics, error = learner.update(batch)
    assert_step(loss, trained(plain.state["actor"]), order(learner.actor), metrics["actor_loss"])
    assert float(error.abs().max()) == 0.0
    after = learner.state_dict()
    for part in ("critic", "target_critic", "multiplier"):
        assert_same(after[part], before[part])
    # As coded, the slow copy begins where imitation ends; another run may begin there, too.
    assert_same(after["target_actor"], after["actor"])


def test_rows_in_which_nobody_acted_teach_the_expert_nothing():
    learner, spec = made()
    batch = with_people(spec)
    batch.extra["intervened"].fill_(False)
    batch.extra["source"].fill_(0)
    metrics, _ = learner.update(batch)
    assert float(metrics["expert_loss"]) == float(metrics["acted"]) == 0.0
    # Adam's mean of the past goes on; the gradients are none.
    for network in (learner.expert, learner.gripper):
        assert network is not None
        assert all(float(grad.abs().max()) == 0.0 for grad in gradients(network.parameters()))


def test_without_stored_experience_people_are_those_who_intervened():
    learner, spec = made()
    whole = with_people(spec)
    own = {name: value for name, value in whole.extra.items() if name != "source"}
    metrics, _ = learner.update(replace(whole, extra=own))
    assert float(metrics["acted"]) == pytest.approx(6 / 16)  # every third of 16 rows
    metrics, _ = learner.update(stored_by_people(whole))
    assert float(metrics["acted"]) == 1.0


def stored_by_people(batch: Batch) -> Batch:
    return replace(batch, extra={**batch.extra, "source": torch.ones(16, dtype=torch.int64)})


def test_the_multiplier_begins_at_the_logarithm_of_two_everywhere():
    spec = ToyEnv(LinearWorld(), 4).spec
    learner = small_silri(spec)
    metrics, _ = learner.update(with_people(spec))
    assert float(metrics["multiplier"]) == pytest.approx(math.log(2), rel=1e-6)
