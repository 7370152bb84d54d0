"""CQL, Cal-QL and IQL in double precision: one member, one row and one action after another."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from policies.networks.mlp import Activation
from robot_rl.core.transition import Batch
from robot_rl.learners.cql import MONTE_CARLO, CQLPenaltyConfig
from robot_rl.learners.iql import IQL
from tests.fakes import copied
from tests.robot_rl.learners.reference_sac import Parameters, forward, member_outputs, normalized

RELU = Activation.relu


def largest_backup(at: Parameters, batch: Batch, count: int) -> tuple[Tensor, Tensor]:
    """Sum over members of the squared error to the best of several next actions; log pi, (B,)."""
    rows, size = batch.action.shape
    with torch.no_grad():
        noise = at.noise(count * rows, size).view(count, rows, size)
        nexts, log_probs = [], []
        for one in noise:
            action, log_prob = at.sample(batch.next_obs["actor"], one)
            nexts.append(member_outputs(at.target, batch.next_obs["critic"], action, RELU))
            log_probs.append(log_prob)
        drawn = at.drawn(len(nexts[0]))
        target = []
        for b in range(rows):
            each = [min(float(one[e][b]) for e in drawn) for one in nexts]
            target.append(float(batch.reward[b]) + float(batch.discount[b]) * max(each))
    loss = torch.zeros((), dtype=torch.float64)
    for output in member_outputs(at.critic, batch.obs["critic"], batch.action, RELU):
        for b in range(rows):
            loss = loss + batch.weight[b] * (output[b, 0] - target[b]) ** 2 / rows
    return loss, torch.stack(log_probs).mean(0)


def gap(at: Parameters, batch: Batch, config: CQLPenaltyConfig, members: int) -> Tensor:
    """How far the soft maximum lies above the stored action, mean over drawn members and rows."""
    (rows, size), count = batch.action.shape, config.actions
    drawn = at.drawn(members)
    uniform = torch.empty(count * rows, size).uniform_(-1, 1, generator=at.generator)
    with torch.no_grad():
        here = _samples(at, batch.obs["actor"], count)
        there = _samples(at, batch.next_obs["actor"], count)
    tried = [(a, None) for a in uniform.double().view(count, rows, size)] + here + there
    q = [member_outputs(at.critic, batch.obs["critic"], action, RELU) for action, _ in tried]
    data = member_outputs(at.critic, batch.obs["critic"], batch.action, RELU)
    total = torch.zeros((), dtype=torch.float64)
    for e in drawn:
        for b in range(rows):
            entries = []
            for k, (_, log_prob) in enumerate(tried):
                value = q[k][e][b, 0]
                if config.calibrated and log_prob is not None:
                    reached = float(batch.extra[MONTE_CARLO][b])
                    value = value if float(value.detach()) >= reached else 0 * value + reached
                if config.importance:
                    density = size * math.log(0.5) if log_prob is None else float(log_prob[b])
                    value = value - density
                entries.append(value / config.temperature)
            correction = 0.0
            if not config.importance:
                entries.append(data[e][b, 0] / config.temperature)
                correction = math.log(len(entries))
            top = max(float(entry.detach()) for entry in entries)
            soft = top + torch.log(sum((torch.exp(x - top) for x in entries), torch.zeros(())))
            row = config.temperature * (soft - correction) - data[e][b, 0]
            total = total + batch.weight[b] * row / rows / len(drawn)
    return total


def _samples(at: Parameters, obs: Tensor, count: int) -> list[tuple[Tensor, Tensor]]:
    rows, size = len(obs), at.actor["network.2.bias"].shape[0] // 2
    noise = at.noise(count * rows, size).view(count, rows, size)
    return [at.sample(obs, one) for one in noise]


def iql_losses(iql: IQL, batch: Batch) -> tuple[dict[str, Tensor], dict[str, list[Tensor]]]:
    """Losses by name and what each is derived by, all of the weights before the update."""
    state = copied(iql.state_dict())
    critic, target, value, actor = (
        {n: t.double() for n, t in state[part].items()}
        for part in ("critic", "target_critic", "value", "actor")
    )
    actor = {n.removeprefix("mode."): t for n, t in actor.items()}
    trained = {
        name: [t.requires_grad_() for n, t in part.items() if n.startswith(("network", "log_std"))]
        for name, part in (("critic", critic), ("value", value), ("actor", actor))
    }
    config, rows = iql.config, len(batch.action)
    none = torch.empty(rows, 0)
    now = member_outputs(value, batch.obs["critic"], none, RELU)[0]
    after = member_outputs(value, batch.next_obs["critic"], none, RELU)[0]
    data = member_outputs(critic, batch.obs["critic"], batch.action, RELU)
    lagging = member_outputs(target, batch.obs["critic"], batch.action, RELU)
    drawn = list(range(len(lagging)))
    if config.target_members:
        generator = torch.Generator()
        generator.set_state(state["generator"])
        drawn = torch.randint(len(lagging), (config.target_members,), generator=generator).tolist()
    mean = torch.tanh(forward(actor, normalized(actor, batch.obs["actor"]), RELU))
    losses = {name: torch.zeros((), dtype=torch.float64) for name in ("value", "critic", "actor")}
    for b in range(rows):
        weight = float(batch.weight[b]) / rows
        best = min(float(lagging[e][b]) for e in drawn)
        u = best - now[b, 0]
        side = config.expectile if float(u.detach()) >= 0 else 1 - config.expectile
        losses["value"] = losses["value"] + weight * side * u**2
        y = float(batch.reward[b]) + float(batch.discount[b]) * float(after[b].detach())
        for output in data:
            losses["critic"] = losses["critic"] + weight * (output[b, 0] - y) ** 2
        count = min(math.exp(config.advantage_scale * float(u.detach())), config.weight_limit)
        normal = torch.distributions.Normal(mean[b], torch.exp(actor["log_std"]))
        likely = normal.log_prob(batch.action[b].double()).sum()
        losses["actor"] = losses["actor"] - weight * count * likely
    return losses, trained


def named(state: Mapping[str, Tensor]) -> list[Tensor]:
    """Trained tensors of a reference's network."""
    return [tensor for name, tensor in state.items() if name.startswith("network")]
