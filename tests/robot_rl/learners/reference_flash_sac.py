"""FlashSAC's losses in double precision, one member after another."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.core.transition import Batch
from robot_rl.learners.flash_sac import FlashSAC
from robot_rl.learners.values import TargetRule
from tests.fakes import copied
from tests.robot_rl.learners.reference_sac import State, categorical_target


@dataclass
class Parameters:
    """Everything that a loss depends on, in float64."""

    actor: dict[str, Tensor]
    critic: list[dict[str, Tensor]]
    target: list[dict[str, Tensor]]
    alpha: float
    reward_divisor: float
    atoms: list[float]
    generator: torch.Generator

    @classmethod
    def of(cls, learner: FlashSAC) -> "Parameters":
        """Copies of a learner's, with gradients on."""
        state = copied(learner.state_dict())
        generator = torch.Generator()
        generator.set_state(state["generator"])
        values = learner.config.values
        spacing = (values.high - values.low) / (values.atoms - 1)
        scale = state["reward_scale"]
        deviation = math.sqrt(float(scale["squares"]) / float(scale["count"]))
        return cls(
            actor=_double(state["actor"]),
            critic=_members(state["critic"]),
            target=_members(state["target_critic"]),
            alpha=math.exp(float(state["temperature"]["parameter"])),
            reward_divisor=max(deviation, float(scale["peak"]) / learner.config.reward_limit),
            atoms=[values.low + spacing * k for k in range(values.atoms)],
            generator=generator,
        )

    def noise(self, rows: int, width: int) -> Tensor:
        """The normals that the learner draws next."""
        return torch.randn(rows, width, generator=self.generator).double()

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """alpha log pi - min Q, where the actor is normalised by the batch and its successors."""
        rows, width = batch.action.shape
        obs = torch.cat([batch.obs["actor"], batch.next_obs["actor"]])
        action, log_prob = sample(self.actor, obs, self.noise(2 * rows, width), of_batch=True)
        action, log_prob = action[:rows], log_prob[:rows]
        inputs = torch.cat([batch.obs["critic"].double(), action], -1)
        q = [self._mean(flash(member, inputs, of_batch=False)) for member in self.critic]
        value = torch.stack(q).min(0).values
        loss = (batch.weight * (self.alpha * log_prob - value)).mean()
        return loss, log_prob.detach()

    def critic_loss(self, batch: Batch, actor: State, alpha: float) -> Tensor:
        """Cross-entropy to the target, where rows and successors are normalised together."""
        rows, width = batch.action.shape
        with torch.no_grad():
            noise = self.noise(rows, width)
            action, log_prob = sample(actor, batch.next_obs["actor"], noise, of_batch=False)
            first = torch.cat([batch.obs["critic"], batch.action], -1).double()
            second = torch.cat([batch.next_obs["critic"].double(), action], -1)
            both = torch.cat([first, second])
            logits = [flash(member, both, of_batch=True)[rows:] for member in self.target]
            target = categorical_target(
                torch.stack(logits), batch.reward.double() / self.reward_divisor, batch.discount,
                -alpha * log_prob, TargetRule.min, self.atoms[0], self.atoms[-1],
            )  # fmt: skip
        losses = []
        for member in self.critic:
            log_probability = flash(member, both, of_batch=True)[:rows].log_softmax(-1)
            losses.append((batch.weight * -(target * log_probability).sum(-1)).mean())
        return torch.stack(losses).sum()

    def _mean(self, logits: Tensor) -> Tensor:
        return (logits.softmax(-1) * torch.tensor(self.atoms, dtype=torch.float64)).sum(-1)


def sample(
    actor: State, obs: Tensor, noise: Tensor, *, of_batch: bool
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """tanh(mean + std * noise) and its log-density, by the change of variables."""
    mean, raw = flash(actor, obs.double(), of_batch=of_batch).chunk(2, dim=-1)
    std = (-10 + 6 * (1 + raw.tanh())).exp()
    u = mean + std * noise
    density = torch.distributions.Normal(mean, std).log_prob(u)
    # log(1 - tanh^2(u)), which in this form loses its digits where tanh is near one.
    jacobian = 2 * (math.log(2) - u - torch.nn.functional.softplus(-2 * u))
    return torch.tanh(u), (density - jacobian).sum(-1)


def flash(network: State, x: Tensor, *, of_batch: bool) -> Tensor:
    """Batch norm, linear, residual blocks, RMS norm, linear."""

    def normed(name: str, x: Tensor) -> Tensor:
        if of_batch:
            mean, variance = x.mean(0), ((x - x.mean(0)) ** 2).mean(0)
        else:
            mean = network[f"{name}.running_mean"][0]
            variance = network[f"{name}.running_var"][0]
        normal = (x - mean) / (variance + 1e-5).sqrt()
        return normal * network[f"{name}.weight"] + network[f"{name}.bias"]

    x = normed("network.norm", x) @ network["network.embed.weight"]
    block = 0
    while (branch := f"network.blocks.{block}.branch") + ".0.weight" in network:
        inner = normed(f"{branch}.1", x @ network[f"{branch}.0.weight"]).relu()
        x = x + normed(f"{branch}.4", inner @ network[f"{branch}.3.weight"]).relu()
        block += 1
    x = x / ((x * x).mean(-1, keepdim=True) + 1e-6).sqrt() * network["network.out_norm.weight"]
    return x @ network["network.out.weight"] + network["network.out.bias"]


def trained(state: State) -> dict[str, Tensor]:
    """Tensors that gradients are asked of."""
    return {name: tensor for name, tensor in state.items() if tensor.requires_grad}


def _double(state: State) -> dict[str, Tensor]:
    return {
        name: tensor.double().requires_grad_("running" not in name)
        for name, tensor in state.items()
    }


def _members(state: State) -> list[dict[str, Tensor]]:
    count = state["network.out.weight"].shape[0]
    return [_double({name: tensor[e] for name, tensor in state.items()}) for e in range(count)]
