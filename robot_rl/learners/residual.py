"""Residual on a frozen base (ResFiT, Ankile et al. 2025): SAC over an actor that corrects."""

from dataclasses import dataclass, field, replace

from policies.networks.residual import (
    WIDTHS,
    FrozenBaseConfig,
    ResidualActor,
    ResidualActorConfig,
    ResidualCritic,
)
from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import ConfigError
from robot_rl.learners.images import make_image_learning
from robot_rl.learners.networks import make_critic, seed_weights
from robot_rl.learners.off_policy import normal_entropy
from robot_rl.learners.optimization import Reduce
from robot_rl.learners.sac import SAC, SACConfig
from robot_rl.learners.values import make_values


@dataclass(kw_only=True)
class ResidualConfig(SACConfig):
    """SAC whose actor corrects a base."""

    target_entropy_per_action: float | None = None  # pyright: ignore
    """Target entropy of the residual in units of its scale, divided by the number of action entries
    [nat]; none holds the noise of executed actions at `actor.initial_std`, whatever the scale."""
    base: FrozenBaseConfig = field(default_factory=FrozenBaseConfig)
    """Base that is corrected."""
    actor: ResidualActorConfig = field(default_factory=ResidualActorConfig)  # pyright: ignore
    """Residual network."""
    critic_displacement: bool = True
    """The critics see, beside the executed action, the base's and the distance between the two in
    units of actor.scale; False leaves them the executed action alone."""

    def with_target_entropy(self) -> "ResidualConfig":
        """The same, with a number in place of none."""
        if self.target_entropy_per_action is not None:
            return self
        entropy = normal_entropy(self.actor.initial_std / self.actor.scale)
        return replace(self, target_entropy_per_action=entropy)


class Residual(SAC):
    """SAC of a residual; the environment around it adds the base's action (`BaseActionEnv`)."""

    def __init__(
        self, config: ResidualConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Make SAC over networks of a residual; arguments as of `SAC`.

        Raises:
            ConfigError: The environment has no group `actor`.
        """
        if "actor" not in spec.groups:
            raise ConfigError(
                "a residual and its base read the observation group 'actor', which this "
                f"environment does not have; it has {', '.join(spec.groups)}"
            )
        seed_weights(seed)
        images = make_image_learning(config.images, spec)
        actor = ResidualActor(
            config.actor, spec.groups["actor"].shape[0], spec.action_size,
            None if images is None else images.trunk(),
        )  # fmt: skip
        outputs = make_values(config.values, spec.device).width
        if config.critic_displacement:
            widened = replace(spec, action_size=WIDTHS * spec.action_size)
            ensemble = make_critic(config.critic, widened, outputs, images)
            critic = ResidualCritic(ensemble, config.actor.scale)
        else:
            critic = make_critic(config.critic, spec, outputs, images)
        super().__init__(
            config.with_target_entropy(), spec, seed=seed, stream_seed=stream_seed, reduce=reduce,
            networks=(actor, critic), images=images,
        )  # fmt: skip
