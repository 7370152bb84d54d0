"""TD3 in double precision, one member and one layer after another."""

from dataclasses import dataclass

import torch
from torch import Tensor

from policies.networks.mlp import Activation
from robot_rl.core.transition import Batch
from robot_rl.learners.off_policy import ActorObjective
from robot_rl.learners.td3 import TD3, TD3Config
from robot_rl.learners.values import TargetRule
from tests.fakes import copied
from tests.robot_rl.learners.reference_sac import (
    State,
    categorical_target,
    doubled,
    forward,
    member_outputs,
    normalized,
)


@dataclass
class Parameters:
    """Everything that a loss depends on, in float64."""

    config: TD3Config
    actor: dict[str, Tensor]
    critic: dict[str, Tensor]
    target_actor: dict[str, Tensor]
    target_critic: dict[str, Tensor]
    generator: torch.Generator

    @classmethod
    def of(cls, td3: TD3) -> "Parameters":
        """Copies of a learner's, with gradients on."""
        state = copied(td3.state_dict())
        state.setdefault("target_actor", state["actor"])
        generator = torch.Generator()
        generator.set_state(state["generator"])
        names = ("actor", "critic", "target_actor", "target_critic")
        networks = {name: doubled(state[name]) for name in names}
        return cls(config=td3.config, **networks, generator=generator)

    def next_action(self, batch: Batch) -> Tensor:
        """The target actor's, with clipped noise: the normals that the learner draws next."""
        normal = torch.randn(batch.action.shape, generator=self.generator).double()
        clip = self.config.smoothing_clip
        noise = torch.clamp(self.config.smoothing_noise * normal, -clip, clip)
        return torch.clamp(act(self.target_actor, batch.next_obs["actor"]) + noise, -1, 1)

    def critic_loss(self, batch: Batch) -> Tensor:
        """Squared error, or cross-entropy: weighted mean over rows, sum of members."""
        with torch.no_grad():
            target = self.target(batch)
        output = outputs(self.critic, batch.obs["critic"], batch.action.double())  # (E, B, W)
        losses = []
        for e, member in enumerate(output):
            own = target[e] if self.config.target_rule is TargetRule.own else target
            if self.config.values.atoms:
                log_probability = member - member.exp().sum(-1, keepdim=True).log()
                rows = -(own * log_probability).sum(-1)
            else:
                rows = (member[:, 0] - own) ** 2
            losses.append((rows * batch.weight.double()).mean())
        return torch.stack(losses).sum()

    def target(self, batch: Batch) -> Tensor:
        """Returns or probabilities that the critics learn."""
        output = outputs(self.target_critic, batch.next_obs["critic"], self.next_action(batch))
        rule, values = self.config.target_rule, self.config.values
        if values.atoms:
            return categorical_target(
                output, batch.reward, batch.discount, torch.zeros_like(batch.reward), rule,
                low=values.low, high=values.high,
            )  # fmt: skip
        value = output[..., 0]
        if rule is not TargetRule.own:
            value = value.min(0).values if rule is TargetRule.min else value.mean(0)
        return batch.reward.double() + batch.discount.double() * value

    def actor_loss(self, batch: Batch) -> Tensor:
        """Minus the expected value that is climbed."""
        action = act(self.actor, batch.obs["actor"])
        output = outputs(self.critic, batch.obs["critic"], action)
        values = self.config.values
        q = output[..., 0]
        if values.atoms:
            atoms = torch.linspace(values.low, values.high, values.atoms, dtype=torch.float64)
            q = (output.exp() * atoms).sum(-1) / output.exp().sum(-1)
        climbed = {
            ActorObjective.first: q[0], ActorObjective.min: q.min(0).values,
            ActorObjective.mean: q.mean(0),
        }[self.config.actor_value]  # fmt: skip
        return -(batch.weight.double() * climbed).mean()


def act(actor: State, obs: Tensor) -> Tensor:
    """(B, A)."""
    return torch.tanh(forward(actor, normalized(actor, obs), Activation.relu))


def outputs(critic: State, obs: Tensor, action: Tensor) -> Tensor:
    """(E, B, W)."""
    return torch.stack(member_outputs(critic, obs, action, Activation.relu))
