"""The learner of a residual from typed configs: soft actor-critic over a frozen base."""

from dataclasses import dataclass, field, replace

import torch

from configs.learner_builders import check_members, make_critic, surroundings
from policies.bases.frozen import FrozenBaseConfig
from policies.q_ensemble import QEnsembleConfig
from policies.residual_actor import ResidualActor, ResidualActorConfig
from policies.residual_critic import WIDTHS, ResidualCritic
from robot_rl.core.env import EnvSpec
from robot_rl.core.seeding import derive_seed
from robot_rl.learners.optimization import Reduce
from robot_rl.learners.sac import SAC, SACConfig
from robot_rl.learners.temperature import normal_entropy
from robot_rl.learners.values import make_values


@dataclass(kw_only=True)
class ResidualLearnerConfig(SACConfig):
    """SAC whose actor corrects a base, and the networks that are handed to it."""

    target_entropy_per_action: float | None = None  # pyright: ignore
    """Target entropy of the residual in units of its scale, divided by the number of action entries
    [nat]; none holds the noise of executed actions at `actor.initial_std`, whatever the scale."""
    base: FrozenBaseConfig = field(default_factory=FrozenBaseConfig)
    """What is corrected."""
    actor: ResidualActorConfig = field(default_factory=ResidualActorConfig)
    """Residual network."""
    critic: QEnsembleConfig = field(default_factory=QEnsembleConfig)
    """Action-value networks, of executed actions."""
    critic_displacement: bool = True
    """The critics see, beside the executed action, the base's and the distance between the two in
    units of actor.scale; False leaves them the executed action alone."""

    def __post_init__(self) -> None:
        """Refuse a target of more members than there are."""
        super().__post_init__()
        check_members(self, self.critic)

    def with_target_entropy(self) -> "ResidualLearnerConfig":
        """The same, with a number in place of none."""
        if self.target_entropy_per_action is not None:
            return self
        entropy = normal_entropy(self.actor.initial_std / self.actor.scale)
        return replace(self, target_entropy_per_action=entropy)


def build_residual(
    config: ResidualLearnerConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
    reduce: Reduce | None = None,
) -> SAC:  # fmt: skip
    """SAC of a residual; the worlds around it add what the base would do (`BaseActionEnv`)."""
    torch.manual_seed(derive_seed(seed, "initial weights"))
    actor = ResidualActor(config.actor, spec.groups["actor"].shape[0], spec.action_size)
    outputs = make_values(config.values, spec.device).width
    if config.critic_displacement:
        widened = replace(spec, action_size=WIDTHS * spec.action_size)
        critic = ResidualCritic(make_critic(config.critic, widened, outputs), config.actor.scale)
    else:
        critic = make_critic(config.critic, spec, outputs)
    learner = SAC(
        config.with_target_entropy(), actor, critic, **surroundings(spec, seed, stream_seed, reduce)
    )
    learner.actor_groups = ResidualActor.groups
    return learner
