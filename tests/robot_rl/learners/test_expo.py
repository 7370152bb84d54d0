"""EXPO: losses and gradients against double precision, its choice, what it imitates, its phases."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from policies.networks.mlp import Activation
from robot_rl.core.learner import Phase
from robot_rl.core.transition import Batch
from robot_rl.learners.expo import EXPO
from tests.equality import assert_same
from tests.fakes import LinearWorld, ToyEnv, copied
from tests.robot_rl.learners.reference_sac import (
    assert_step,
    forward,
    member_outputs,
    normalized,
    trained,
)
from tests.robot_rl.learners.small_hil import small_expo
from tests.robot_rl.learners.small_offline import chunked

RELU, SILU = Activation.relu, Activation.silu
VARIANTS: dict[str, dict[str, Any]] = {
    "single actions": {},
    "chunks of three": {"chunk_length": 3, "drawn_members": 3},
    "layer norm, no normaliser, a larger scale": {
        "critic": {"layer_norm": True, "normalize": False}, "actor": {"normalize": False},
        "edit": {"normalize": False, "scale": 0.7, "layer_norm": True}, "next_candidates": 1,
    },
}  # fmt: skip


def made(**settings: Any) -> tuple[EXPO, Any]:
    """A learner whose normalisers have statistics, whose targets lag and whose editor edits."""
    env = ToyEnv(LinearWorld(), 32)
    env.reset(seed=0)
    learner = small_expo(env.spec, **{"tau": 0.5, "edit_lr": 0.03, **settings})
    for seed in range(3):
        learner.observe(env.step(torch.ones(32, 2)))
        learner.update(chunked(env.spec, seed=9 + seed, length=learner.chunk_length))
    return learner, env.spec


class Plain:
    """The learner's networks in float64, one candidate and one row after another."""

    def __init__(self, learner: EXPO, batch: Batch) -> None:
        state = copied(learner.state_dict())
        self.config, self.batch = learner.config, batch
        inside = {n: t.double() for n, t in state["chooser"].items()}
        parts = {
            name: {n.removeprefix(f"{name}."): t for n, t in inside.items() if n.startswith(name)}
            for name in ("actor", "edit")
        }
        target = {n.removeprefix("critic."): t for n, t in inside.items() if n.startswith("critic")}
        critic = {n: t.double() for n, t in state["critic"].items()}
        self.state = {**parts, "target": target, "critic": critic}
        for part in self.state.values():
            for name, tensor in part.items():
                tensor.requires_grad_(name.startswith("network"))
        self.x = state["temperature"]["parameter"].double().requires_grad_()
        self.generator = torch.Generator()
        self.generator.set_state(state["generator"])
        self.chunk = batch.extra["chunk"].double()
        self.entries = self.chunk[0].numel()

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator).double()

    def drawn(self) -> list[int]:
        ranks = torch.rand(4, generator=self.generator).tolist()
        return sorted(range(4), key=lambda e: ranks[e])[: self.config.drawn_members]

    def velocity(self, obs: Tensor, x: Tensor, time: Tensor) -> Tensor:
        angle, actor = time * torch.pi * 2.0 ** torch.arange(8), self.state["actor"]
        inputs = [normalized(actor, obs), x.flatten(1), angle.sin(), angle.cos()]
        return forward(actor, torch.cat(inputs, -1).double(), SILU).reshape(x.shape)

    def proposal(self, obs: Tensor, noise: Tensor) -> Tensor:
        x = noise
        for k in range(2):
            x = x + self.velocity(obs, x, torch.full((len(obs), 1), k / 2).double()) / 2
        return x.clamp(-1, 1).flatten(1)

    def edited(self, obs: Tensor, base: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The edited chunks and the log-density of what was added."""
        edit, shape = self.state["edit"], self.config.edit
        mean, log_std = forward(
            edit, torch.cat([normalized(edit, obs), base], -1), RELU
        ).chunk(2, -1)  # fmt: skip
        std = (log_std + math.log(shape.initial_std / shape.scale)).clamp(-10, 2).exp()
        u = mean + std * noise
        added = shape.scale * torch.tanh(u)
        # Change of variables from u to what is added, entry by entry.
        slope = shape.scale * (1 - torch.tanh(u) ** 2)
        density = torch.distributions.Normal(mean, std).log_prob(u) - torch.log(slope)
        return (base + added).clamp(-1, 1), density.sum(-1)

    def values(self, name: str, obs: Tensor, chunk: Tensor) -> Tensor:
        """(E, B)."""
        return torch.stack(member_outputs(self.state[name], obs, chunk, RELU))[..., 0]

    def critic_loss(self, *, only_proposals: bool = False) -> Tensor:
        batch, count, obs = self.batch, self.config.next_candidates, self.batch.next_obs["actor"]
        rows = len(obs)
        with torch.no_grad():
            noises = self.normal(count, rows, *self.chunk.shape[1:])
            of_edits = self.normal(count * rows, self.entries).view(count, rows, -1)
            proposals = [self.proposal(obs, noise) for noise in noises]
            pairs = zip(proposals, of_edits, strict=True)
            edits = [self.edited(obs, base, noise)[0] for base, noise in pairs]
            candidates = proposals + ([] if only_proposals else edits)
            first, second = self.drawn(), self.drawn()
            liked = [self.values("target", obs, one)[first].amin(0) for one in candidates]
            worth = [self.values("target", obs, one)[second].amin(0) for one in candidates]
        now = self.values("critic", batch.obs["actor"], self.chunk.flatten(1))
        loss = torch.zeros((), dtype=torch.float64)
        for b in range(rows):
            best = max(range(len(candidates)), key=lambda s: float(liked[s][b]))
            y = float(batch.reward[b]) + float(batch.discount[b]) * float(worth[best][b])
            if bool(batch.extra["valid"][b].all()):
                loss = loss + float(batch.weight[b]) * ((now[:, b] - y) ** 2).sum() / rows
        return loss

    def imitation_loss(self, counts: Any) -> Tensor:
        """Of the rows that count."""
        batch, (rows, length, size) = self.batch, self.chunk.shape
        noise = self.normal(rows, length, size)
        time = torch.rand(rows, 1, generator=self.generator).double()
        now = (1 - time[..., None]) * noise + time[..., None] * self.chunk
        velocity = self.velocity(batch.obs["actor"], now, time)
        loss, count = torch.zeros((), dtype=torch.float64), 0.0
        for b, h in itertools.product(range(rows), range(length)):
            weight = float(batch.weight[b]) * float(batch.extra["valid"][b, h]) * counts(b)
            error = ((velocity[b, h] - self.chunk[b, h] + noise[b, h]) ** 2).sum()
            loss, count = loss + weight * error, count + weight * size
        return loss / max(count, 1.0)

    def edit_losses(self, critic: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Of the editor by the critics after their step, and of the temperature."""
        self.state["critic"] = critic
        batch, base = self.batch, self.chunk.flatten(1)
        obs, alpha = batch.obs["actor"], torch.exp(self.x)
        chunk, log_prob = self.edited(obs, base, self.normal(*base.shape))
        value = self.values("critic", obs, chunk).mean(0)
        weight = batch.weight * batch.extra["valid"].all(1)
        loss = (weight * (alpha.detach() * log_prob - value)).mean()
        surplus = (weight * (-log_prob.detach() + 0.5 * self.entries)).mean()
        return loss, alpha * surplus


def order(network: Any) -> list[Tensor]:
    by_name = dict(network.named_parameters())
    return [by_name[name] for name in network.state_dict() if name in by_name]


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients_equal_a_plain_implementation_in_double_precision(variant):
    learner, spec = made(**copied(VARIANTS[variant]))
    batch = chunked(spec, length=learner.chunk_length)
    plain = Plain(learner, batch)
    critic = plain.critic_loss()
    actor = plain.imitation_loss(lambda b: b % 2)  # every second row is stored experience
    by = {name: trained(part) for name, part in plain.state.items()}
    mistaken = Plain(learner, batch).critic_loss(only_proposals=True)
    metrics, _ = learner.update(batch)
    assert_step(critic, by["critic"], order(learner.critic), metrics["critic_loss"])
    assert float(metrics["critic_loss"]) != pytest.approx(mistaken.item(), rel=1e-4)
    assert_step(actor, by["actor"], order(learner.actor), metrics["actor_loss"])
    newest = {n: t.detach().clone().double() for n, t in learner.critic.state_dict().items()}
    edit, temperature = plain.edit_losses(newest)
    assert_step(edit, by["edit"], order(learner.edit), metrics["edit_loss"])
    assert_step(temperature, [plain.x], [learner.temperature.parameter])


def test_without_stored_rows_the_flow_learns_from_none_and_without_a_source_from_all():
    learner, spec = made()
    batch = chunked(spec, length=1)
    own = replace(batch, extra={**batch.extra, "source": torch.zeros(16, dtype=torch.int64)})
    assert float(learner.update(own)[0]["actor_loss"]) == 0.0
    unknown = {name: value for name, value in batch.extra.items() if name != "source"}
    metrics, _ = learner.update(replace(batch, extra=unknown))
    assert float(metrics["actor_loss"]) > 0.0


def test_offline_the_flow_imitates_all_rows_and_nothing_is_valued():
    learner, spec = made()
    learner.begin_phase(Phase.offline)
    batch = chunked(spec, length=1)
    batch = replace(batch, extra={k: v for k, v in batch.extra.items() if k != "source"})
    before = copied(learner.state_dict())
    loss = Plain(learner, batch).imitation_loss(lambda b: 1.0)
    metrics, _ = learner.update(batch)
    assert float(metrics["actor_loss"]) == pytest.approx(loss.item(), rel=1e-5)
    after = learner.state_dict()
    for part in ("critic", "edit_optimizer", "temperature", "critic_optimizer"):
        assert_same(after[part], before[part])
    assert "critic_loss" not in metrics


def test_the_deployed_policy_takes_the_candidate_with_the_best_mean_of_smallest_values():
    learner, _ = made(drawn_members=2)
    obs = torch.randn(7, 4, generator=torch.Generator().manual_seed(2))
    chooser = learner.chooser
    with torch.no_grad():
        candidates = chooser.candidates(
            {"actor": obs}, chooser.noise[:, None].expand(-1, 7, -1, -1), learner.edit
        )
        got = learner.policy()({"actor": obs})
        assert torch.equal(got, learner.act({"actor": obs}, explore=False))
        for b in range(7):
            worth = []
            for one in candidates[:, b]:
                q = learner.target_critic({"actor": obs[b : b + 1]}, one[None]).flatten().tolist()
                worth.append(sum(map(min, itertools.combinations(q, 2))) / 6)
            assert torch.equal(got[b], candidates[worth.index(max(worth)), b])
    assert len(candidates) == 6  # three proposals and their edits


def test_what_is_valued_is_within_the_scale_of_what_is_proposed():
    learner, _ = made()
    obs = {"actor": torch.randn(5, 4, generator=torch.Generator().manual_seed(2))}
    noise = torch.randn(3, 5, 1, 2, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        both = learner.chooser.candidates(obs, noise, learner.edit)
    apart = (both[3:] - both[:3]).abs().amax()
    assert 0.01 < float(apart) <= 0.2 + 1e-6
    assert float(both.abs().amax()) <= 1.0
