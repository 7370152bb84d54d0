"""Soft actor-critic in double precision: one member, one row and one layer after another."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from policies.networks.gaussian_actor import GaussianActor, GaussianActorConfig, LogStdBound
from policies.networks.mlp import Activation
from robot_rl.core.transition import Batch
from robot_rl.learners.off_policy import ActorObjective, TemperatureLoss
from robot_rl.learners.sac import SAC, EntropyAt, SACConfig
from robot_rl.learners.values import TargetRule, ValueConfig
from tests.fakes import copied

State = Mapping[str, Tensor]


@dataclass
class Parameters:
    """Everything that a loss depends on, in float64."""

    config: SACConfig
    shape: GaussianActorConfig
    actor: dict[str, Tensor]
    critic: dict[str, Tensor]
    target: dict[str, Tensor]
    x: Tensor
    """Parameter of the temperature."""
    generator: torch.Generator

    @classmethod
    def of(cls, sac: SAC) -> "Parameters":
        """Copies of a learner's, with gradients on."""
        state = copied(sac.state_dict())
        generator = torch.Generator()
        generator.set_state(state["generator"])
        actor, critic, target = (doubled(state[n]) for n in ("actor", "critic", "target_critic"))
        x = state["temperature"]["parameter"].double().requires_grad_()
        assert isinstance(sac.actor, GaussianActor)
        return cls(sac.config, sac.actor.config, actor, critic, target, x, generator)

    @property
    def alpha(self) -> Tensor:
        """Temperature as a function of its parameter."""
        if self.config.temperature_loss is TemperatureLoss.softplus:
            return torch.log(1 + torch.exp(self.x))
        return torch.exp(self.x)

    def noise(self, rows: int, actions: int) -> Tensor:
        """The normals that the learner draws next, (B, A)."""
        return torch.randn(rows, actions, generator=self.generator).double()

    def drawn(self, members: int) -> list[int]:
        """The members of the target that the learner draws next."""
        count = self.config.target.members
        if not count:
            return list(range(members))
        if self.config.target.replacement:
            return torch.randint(members, (count,), generator=self.generator).tolist()
        ranks = torch.rand(members, generator=self.generator).tolist()
        return sorted(range(members), key=lambda e: ranks[e])[:count]

    def critic_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sum over members of the mean over rows, and log pi at the next observations."""
        with torch.no_grad():
            noise = self.noise(*batch.action.shape)
            action, log_prob = self.sample(batch.next_obs["actor"], noise)
            outputs = member_outputs(self.target, batch.next_obs["critic"], action, self.activation)
            outputs = [outputs[e] for e in self.drawn(len(outputs))]
            bonus = -self.alpha * log_prob if self.config.target.entropy else 0 * log_prob
        learned = member_outputs(self.critic, batch.obs["critic"], batch.action, self.activation)
        loss = torch.zeros((), dtype=torch.float64)
        for e, output in enumerate(learned):
            for b in range(len(output)):
                entry = [float(t[b]) for t in (batch.reward, batch.discount, bonus)]
                error = self.row_loss(output[b], [one[b] for one in outputs], e, *entry)
                loss = loss + batch.weight[b] * error / len(output)
        return loss, log_prob

    def row_loss(
        self, output: Tensor, nexts: Sequence[Tensor], e: int, reward: float, discount: float,
        bonus: float,
    ) -> Tensor:  # fmt: skip
        """Loss of member e in one row; `nexts` are the outputs of the target's members."""
        rule, values = self.config.target.rule, self.config.values
        if not values.atoms:
            entries = [float(one[0]) for one in nexts]
            value = {
                TargetRule.min: min(entries),
                TargetRule.mean: sum(entries) / len(entries),
                TargetRule.own: entries[min(e, len(entries) - 1)],
            }[rule]
            return (output[0] - (reward + discount * (value + bonus))) ** 2
        rows = [torch.tensor([entry]).double() for entry in (reward, discount, bonus)]
        target = categorical_target(
            torch.stack(list(nexts))[:, None],
            rows[0],
            rows[1],
            rows[2],
            rule,
            low=values.low,
            high=values.high,
        )
        target = target[e, 0] if rule is TargetRule.own else target[0]
        return -(target * torch.log_softmax(output, 0)).sum()

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """alpha log pi - Q of sampled actions, and the log-probabilities."""
        action, log_prob = self.sample(batch.obs["actor"], self.noise(*batch.action.shape))
        outputs = member_outputs(self.critic, batch.obs["critic"], action, self.activation)
        values = self.config.values
        q = torch.stack(
            [torch.softmax(o, -1) @ atoms(values) if values.atoms else o[:, 0] for o in outputs]
        )
        climbs_min = self.config.actor_value is ActorObjective.min
        value = q.min(0).values if climbs_min else q.mean(0)
        loss = (batch.weight * (self.alpha.detach() * log_prob - value)).mean()
        return loss, log_prob.detach()

    def temperature_loss(self, batch: Batch, log_prob: Tensor, next_log_prob: Tensor) -> Tensor:
        """Price times surplus of entropy."""
        at_obs = self.config.actor_steps.entropy_at is EntropyAt.obs
        target = self.config.target_entropy_per_action * batch.action.shape[1]
        surplus = (batch.weight * (-(log_prob if at_obs else next_log_prob) - target)).mean()
        linear = self.config.temperature_loss is TemperatureLoss.log_alpha
        return (self.x if linear else self.alpha) * surplus

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """tanh(mean + std * noise) and its log-density, by the change of variables."""
        output = forward(self.actor, normalized(self.actor, obs), self.activation)
        mean, log_std = output.chunk(2, dim=-1)
        low, high = self.shape.log_std_min, self.shape.log_std_max
        if self.shape.log_std_bound is LogStdBound.tanh:
            log_std = low + (high - low) * (torch.tanh(log_std) + 1) / 2
        std = log_std.clamp(low, high).exp()
        u = mean + std * noise
        action = torch.tanh(u)
        density = torch.distributions.Normal(mean, std).log_prob(u)
        return action, (density - torch.log(1 - action**2)).sum(-1)

    @property
    def activation(self) -> Activation:
        """Of actor and critics alike."""
        return self.shape.activation


def relative_error(got: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Norm of the difference over the norm of what is expected, of all tensors together."""
    flat, reference = (torch.cat([t.flatten().double() for t in ts]) for ts in (got, expected))
    return float((flat - reference).norm() / reference.norm())


def gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    found = [p.grad for p in parameters]
    assert all(grad is not None for grad in found)
    return [grad for grad in found if grad is not None]


def assert_step(
    loss: Tensor, by: Sequence[Tensor], parameters: Iterable[Tensor], told: Tensor | None = None
) -> None:  # fmt: skip
    """A step was taken down the gradient of a reference's loss, and the loss was told.

    float32 has 7 digits; sums over 16 rows and 16 units lose one or two.
    """
    if told is not None:
        assert float(told) == pytest.approx(loss.item(), rel=1e-5)
    wanted = torch.autograd.grad(loss, list(by))
    assert relative_error(gradients(parameters), list(wanted)) < 1e-5


def trained(state: State) -> list[Tensor]:
    return [tensor for name, tensor in state.items() if name.startswith("network")]


def doubled(state: State) -> dict[str, Tensor]:
    """Copies in float64, of which the weights have gradients."""
    doubles = {name: tensor.double() for name, tensor in state.items()}
    for name, tensor in doubles.items():
        tensor.requires_grad_(name.startswith("network"))
    return doubles


def atoms(values: ValueConfig) -> Tensor:
    """Returns that the categories stand for."""
    return torch.linspace(values.low, values.high, values.atoms, dtype=torch.float64)


def categorical_target(
    output: Tensor, reward: Tensor, discount: Tensor, bonus: Tensor, rule: TargetRule,
    low: float, high: float,
) -> Tensor:  # fmt: skip
    """Projection in double precision by the triangular kernel: (B, K), or (E, B, K) with `own`."""
    atoms = output.shape[-1]
    z = low + (high - low) / (atoms - 1) * torch.arange(atoms, dtype=torch.float64)
    probability = output.double().exp() / output.double().exp().sum(-1, keepdim=True)
    moved = (reward.double() + discount.double() * bonus.double())[:, None]
    moved = (moved + discount.double()[:, None] * z).clamp(low, high)  # (B, K)
    distance = (moved[:, :, None] - z).abs() * (atoms - 1) / (high - low)  # (B, K, K)
    projected = torch.einsum("mbk,bkj->mbj", probability, (1 - distance).clamp_min(0))
    if rule is TargetRule.own:
        return projected
    if rule is TargetRule.mean:
        return projected.mean(0)
    means = (probability * z).sum(-1)  # (M, B)
    return torch.stack([projected[int(means[:, b].argmin()), b] for b in range(len(reward))])


def member_outputs(
    critic: State, obs: Tensor, action: Tensor, activation: Activation
) -> list[Tensor]:
    """(B, W) of every member."""
    inputs = torch.cat([normalized(critic, obs), action.double()], dim=-1)
    members = critic["network.0.weight"].shape[0]
    each = [{name: t[e] for name, t in critic.items() if name.startswith("network")}
            for e in range(members)]  # fmt: skip
    transposed = [
        {name: t.T if "weight" in name and t.shape[0] > 1 else t[0] for name, t in member.items()}
        for member in each
    ]
    return [forward(member, inputs, activation) for member in transposed]


def forward(network: State, x: Tensor, activation: Activation) -> Tensor:
    """Linear layers, layer norms where a weight is a vector, and an activation between."""
    curve = {
        Activation.relu: lambda y: y.clamp(min=0),
        Activation.tanh: torch.tanh,
        Activation.silu: lambda y: y * torch.sigmoid(y),
    }[activation]
    places = sorted({int(n.split(".")[1]) for n in network if n.startswith("network.")})
    for i in places:
        weight, bias = network[f"network.{i}.weight"], network[f"network.{i}.bias"]
        if weight.ndim == 2:
            x = x @ weight.T + bias
            normed_next = network.get(f"network.{i + 1}.weight")
            if i != places[-1] and (normed_next is None or normed_next.ndim == 2):
                x = curve(x)
        else:
            mean, variance = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
            x = curve((x - mean) / (variance + 1e-6).sqrt() * weight + bias)
    return x


def normalized(network: State, obs: Tensor) -> Tensor:
    if "normalizer.mean" not in network:
        return obs.double()
    x = (obs.double() - network["normalizer.mean"]) * network["normalizer.scale"]
    return x.clamp(-10, 10)
