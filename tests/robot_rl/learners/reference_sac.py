"""Soft actor-critic in double precision, one member and one layer after another."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.core.transition import Batch
from robot_rl.learners.sac import SAC, ActorValue, SACConfig
from tests.fakes import copied

State = Mapping[str, Tensor]


@dataclass
class Parameters:
    """Everything that a loss depends on, in float64."""

    config: SACConfig
    actor: dict[str, Tensor]
    critic: dict[str, Tensor]
    target: dict[str, Tensor]
    log_alpha: Tensor
    generator: torch.Generator

    @classmethod
    def of(cls, sac: SAC) -> "Parameters":
        """Copies of a learner's, with gradients on."""
        state = copied(sac.state_dict())
        generator = torch.Generator()
        generator.set_state(state["generator"])
        actor, critic, target = (_double(state[n]) for n in ("actor", "critic", "target_critic"))
        log_alpha = state["temperature"]["parameter"].double().requires_grad_()
        return cls(sac.config, actor, critic, target, log_alpha, generator)

    def noise(self, batch: Batch) -> Tensor:
        """The normals that the learner draws next, (B, A)."""
        return torch.randn(batch.action.shape, generator=self.generator).double()

    def critic_loss(self, batch: Batch) -> Tensor:
        """Squared error to r + discount * (min Q' - alpha log pi): mean over B, sum of members."""
        with torch.no_grad():
            action, log_prob = sample(self.actor, batch.next_obs["actor"], self.noise(batch))
            value = q_values(self.target, batch.next_obs["critic"], action).min(0).values
            if self.config.entropy_in_target:
                value = value - self.log_alpha.exp() * log_prob
            target = batch.reward.double() + batch.discount.double() * value
        q = q_values(self.critic, batch.obs["critic"], batch.action.double())
        return torch.stack([((member - target) ** 2 * batch.weight).mean() for member in q]).sum()

    def actor_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        """alpha log pi - Q of sampled actions, and the log-probabilities."""
        action, log_prob = sample(self.actor, batch.obs["actor"], noise)
        q = q_values(self.critic, batch.obs["critic"], action)
        climbs_min = self.config.actor_value is ActorValue.min
        value = q.min(0).values if climbs_min else q.mean(0)
        loss = (batch.weight * (self.log_alpha.detach().exp() * log_prob - value)).mean()
        return loss, log_prob.detach()

    def temperature_loss(self, log_prob: Tensor, target_entropy: float) -> Tensor:
        """alpha (H - H_target)."""
        return self.log_alpha.exp() * (-log_prob.mean() - target_entropy)


def sample(actor: State, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """tanh(mean + std * noise) and its log-density, by the change of variables."""
    mean, log_std = forward(actor, normalized(actor, obs)).chunk(2, dim=-1)
    normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
    u = mean + log_std.clamp(-5, 2).exp() * noise
    action = torch.tanh(u)
    return action, (normal.log_prob(u) - torch.log(1 - action**2)).sum(-1)


def q_values(critic: State, obs: Tensor, action: Tensor) -> Tensor:
    """(E, B)."""
    inputs = torch.cat([normalized(critic, obs), action], dim=-1)
    members = critic["network.0.weight"].shape[0]
    each = [{name: t[e] for name, t in critic.items() if name.startswith("network")}
            for e in range(members)]  # fmt: skip
    transposed = [
        {name: t.T if "weight" in name and t.shape[0] > 1 else t[0] for name, t in member.items()}
        for member in each
    ]
    return torch.stack([forward(member, inputs)[:, 0] for member in transposed])


def forward(network: State, x: Tensor) -> Tensor:
    """Linear layers, layer norms where a weight is a vector, and ReLU between."""
    places = sorted({int(n.split(".")[1]) for n in network if n.startswith("network.")})
    for i in places:
        weight, bias = network[f"network.{i}.weight"], network[f"network.{i}.bias"]
        if weight.ndim == 2:
            x = x @ weight.T + bias
            normed_next = network.get(f"network.{i + 1}.weight")
            if i != places[-1] and (normed_next is None or normed_next.ndim == 2):
                x = x.relu()
        else:
            mean, variance = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
            x = ((x - mean) / (variance + 1e-6).sqrt() * weight + bias).relu()
    return x


def normalized(network: State, obs: Tensor) -> Tensor:
    """Observation as the network's own normaliser scales it."""
    x = (obs.double() - network["normalizer.mean"]) * network["normalizer.scale"]
    return x.clamp(-10, 10)


def _double(state: State) -> dict[str, Tensor]:
    doubles = {name: tensor.double() for name, tensor in state.items()}
    for name, tensor in doubles.items():
        tensor.requires_grad_(name.startswith("network"))
    return doubles
