"""MENTOR in double precision: one row, one expert and one layer after another."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from policies.networks.mlp import Activation
from robot_rl.core.transition import Batch
from robot_rl.learners.mentor import MENTOR, MENTORConfig
from tests.fakes import copied
from tests.robot_rl.learners.reference_sac import (
    State,
    doubled,
    forward,
    member_outputs,
    normalized,
)


@dataclass
class Parameters:
    """Everything that an update depends on, in float64."""

    config: MENTORConfig
    actor: dict[str, Tensor]
    critic: dict[str, Tensor]
    target: dict[str, Tensor]
    value: dict[str, Tensor]
    generator: torch.Generator

    @classmethod
    def of(cls, mentor: MENTOR) -> "Parameters":
        """Copies of a learner's, with gradients on."""
        state = copied(mentor.state_dict())
        generator = torch.Generator()
        generator.set_state(state["generator"])
        names = ("actor", "critic", "target_critic", "value")
        actor, critic, target, value = (doubled(state[name]) for name in names)
        return cls(mentor.config, actor, critic, target, value, generator)

    def normal(self, like: Tensor) -> Tensor:
        """The normals that the learner draws next."""
        return torch.randn(like.shape, generator=self.generator).double()

    def layers(self, obs: Tensor) -> dict[str, list[Tensor]]:
        """Output of every linear layer, after a ReLU that follows, by part; the gate's weights."""
        x = normalized(self.actor, obs)
        trunk = [(self._linear("network.trunk.0", x)).clamp(min=0)]
        hidden = self._linear("network.mixture.gate.0", trunk[0]).clamp(min=0)
        gate = [hidden, self._linear("network.mixture.gate.2", hidden)]
        prefix = "network.mixture.experts"
        experts: list[Tensor] = []
        for e in range(gate[1].shape[1]):
            own = [self.actor[f"{prefix}.{i}.{name}"][e] for i in (0, 2)
                   for name in ("weight", "bias")]  # fmt: skip
            experts.append((trunk[0] @ own[0] + own[1]).clamp(min=0))
            experts.append(experts[-1] @ own[2] + own[3])
        p = gate[1].exp() / gate[1].exp().sum(-1, keepdim=True)
        rows: list[Tensor] = []
        for b in range(len(p)):
            kept = sorted(range(p.shape[1]), key=lambda e: -p[b, e].item())
            kept = kept[: self.config.actor.experts.top]
            total = sum(p[b, e] for e in kept) + 1e-9
            rows.append(
                sum((p[b, e] / total * experts[2 * e + 1][b] for e in kept), torch.zeros(()))
            )
        head = self._linear("network.out", torch.stack(rows).clamp(min=0))
        return {"trunk": trunk, "gate": gate, "experts": experts, "head": [head], "p": [p]}

    def dormant(self, batch: Batch) -> dict[str, float]:
        """Share of dormant units of each part, and of all."""
        found: dict[str, list[int]] = {}
        valid = batch.weight > 0
        with torch.no_grad():
            layers = self.layers(batch.obs["actor"])
        for name in ("trunk", "gate", "experts", "head"):
            counts = [0, 0]
            for output in layers[name]:
                activity = output[valid].abs().mean(0)
                counts[0] += int((activity <= 0.025 * activity.mean()).sum())
                counts[1] += len(activity)
            found[name] = counts
        shares = {name: dormant / units for name, (dormant, units) in found.items()}
        return shares | {
            "all": sum(a for a, _ in found.values()) / sum(b for _, b in found.values())
        }

    def noise(self, beta: float) -> float:
        """Standard deviation at a share of dormant units."""
        found = self.config.exploration_max / (1 + math.exp(-10 * (beta - 0.2)))
        return max(found, self.config.exploration_start)

    def value_loss(self, batch: Batch) -> Tensor:
        """Expectile regression on the least of the critics."""
        with torch.no_grad():
            least = self.q(self.critic, batch.obs, batch.action).min(0).values
        excess = self.v(batch.obs) - least
        high = self.config.expectile
        side = torch.tensor([1 - high if u > 0 else high for u in excess.tolist()]).double()
        return (batch.weight.double() * side * excess**2).mean()

    def critic_loss(self, batch: Batch, beta: float) -> Tensor:
        """Squared error of both, with a target that mixes in the value of states."""
        with torch.no_grad():
            action = torch.tanh(self.layers(batch.next_obs["actor"])["head"][0])
            action = (action + self.clipped(action, beta)).clamp(-1, 1)
            least = self.q(self.target, batch.next_obs, action).min(0).values
            share = self.config.value_share / (1 + math.exp(50 * (beta - 0.2)))
            mixed = share * self.v(batch.next_obs) + (1 - share) * least
            target = batch.reward.double() + batch.discount.double() * mixed
        q = self.q(self.critic, batch.obs, batch.action)
        return sum(
            ((batch.weight.double() * (one - target) ** 2).mean() for one in q), torch.zeros(())
        )

    def actor_loss(self, batch: Batch, beta: float) -> Tensor:
        """Minus the least value of noisy actions, and the losses of the gate."""
        found = self.layers(batch.obs["actor"])
        action = torch.tanh(found["head"][0])
        noisy = action + self.clipped(action, beta)
        action = noisy + (noisy.clamp(-1, 1) - noisy).detach()
        least = self.q(self.critic, batch.obs, action).min(0).values
        experts, p = self.config.actor.experts, found["p"][0]
        weight = batch.weight.double() / batch.weight.double().sum()
        share = torch.zeros(experts.count, dtype=torch.float64)
        for b, row in enumerate(p):
            for e in row.topk(experts.top).indices:
                share[e] += weight[b]
        mean = (weight[:, None] * p).sum(0)
        balance = experts.count * (share / experts.top * mean).sum()
        entropy = -(weight[:, None] * p * p.log()).sum() + share.var(unbiased=False)
        return (
            -(batch.weight.double() * least).mean() + experts.balance_weight * balance
            + experts.entropy_weight * entropy
        )  # fmt: skip

    def clipped(self, action: Tensor, beta: float) -> Tensor:
        clip = self.config.smoothing_clip
        return (self.noise(beta) * self.normal(action)).clamp(-clip, clip)

    def q(self, critic: State, obs: dict[str, Tensor], action: Tensor) -> Tensor:
        """(E, B)."""
        outputs = member_outputs(critic, obs["critic"], action, Activation.relu)
        return torch.stack(outputs)[..., 0]

    def v(self, obs: dict[str, Tensor]) -> Tensor:
        """(B,)."""
        one = {
            name: t[0].T if "weight" in name and t.ndim == 3 else t
            for name, t in self.value.items()
        }
        one = {
            name: t[0, 0] if name.endswith("bias") and t.ndim == 3 else t for name, t in one.items()
        }
        return forward(one, normalized(self.value, obs["critic"]), Activation.relu)[:, 0]

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.actor[f"{name}.weight"].T + self.actor[f"{name}.bias"]
