"""Learners from typed configs: each algorithm gets the networks that its config describes.

Every `build_...` takes the same: the config, what the worlds observe and do, the seed of the
initial weights, another seed of exploration and sampled actions where several processes share those
weights, and what joins the processes' gradients.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from configs.actor_builders import (
    deterministic_actor,
    estimating,
    gaussian_actor,
    normal_actor,
)
from policies.deterministic_actor import DeterministicActorConfig
from policies.gaussian_actor import GaussianActorConfig, LogStdBound
from policies.normal_actor import NormalActorConfig
from policies.q_ensemble import QEnsemble, QEnsembleConfig
from policies.trunks.kinds import NetworkKind
from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import Learner, MonteCarloReturns
from robot_rl.core.seeding import derive_seed
from robot_rl.learners.dsac_t import DSACT, DSACTConfig
from robot_rl.learners.estimation import EstimationConfig
from robot_rl.learners.flash_sac import FlashSAC, FlashSACConfig
from robot_rl.learners.off_policy import RewardScaling
from robot_rl.learners.offline.cql import Conservatism, ConservatismConfig
from robot_rl.learners.offline.critic_penalty import CriticPenalty
from robot_rl.learners.offline.h2o import DynamicsGap, DynamicsGapConfig
from robot_rl.learners.offline.iql import IQL, IQLConfig
from robot_rl.learners.optimization import Reduce
from robot_rl.learners.sac import SAC, SACConfig
from robot_rl.learners.td3 import TD3, TD3Config
from robot_rl.learners.values import make_values

_MEAN_AND_DEVIATION = 2
"""Outputs of a critic of DSAC-T."""


@dataclass(kw_only=True)
class SACLearnerConfig(SACConfig):
    """SAC and the networks that are handed to it."""

    actor: GaussianActorConfig = field(default_factory=GaussianActorConfig)
    """Policy network."""
    critic: QEnsembleConfig = field(default_factory=QEnsembleConfig)
    """Action-value networks."""
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    """How an encoder learns beside the actor's loss."""
    conservatism: ConservatismConfig = field(default_factory=ConservatismConfig)
    """How low values of actions are kept that nobody has tried: CQL, Cal-QL."""
    dynamics_gap: DynamicsGapConfig = field(default_factory=DynamicsGapConfig)
    """How simulated rows are weighed beside real ones: H2O."""

    def __post_init__(self) -> None:
        """Refuse a target of more members than there are, and penalties on what is no mean."""
        super().__post_init__()
        gap = self.dynamics_gap.weight > 0
        if gap and (self.conservatism.weight > 0 or self.n_step > 1 or self.values.atoms):
            raise ConfigError(
                "learner.dynamics_gap.weight above 0 judges single steps and mean values: set "
                "learner.n_step=1, learner.values.atoms=0 and learner.conservatism.weight=0, got "
                f"{self.n_step}, {self.values.atoms} and {self.conservatism.weight:g}"
            )
        scaled = self.reward_scale is not RewardScaling.none
        if self.conservatism.weight > 0 and (self.values.atoms or scaled):
            raise ConfigError(
                "learner.conservatism.weight above 0 is for values in the rewards' own size: set "
                "learner.values.atoms=0 and learner.reward_scale=none, got "
                f"{self.values.atoms} and {self.reward_scale.value}"
            )
        if (
            self.conservatism.weight > 0
            and self.conservatism.next_actions > 1
            and (self.entropy_in_target)
        ):
            raise ConfigError(
                f"learner.conservatism.next_actions {self.conservatism.next_actions} takes the "
                "largest of several values, which leaves no entropy to pay for: set "
                "learner.entropy_in_target=false, or next_actions to 1"
            )
        if self.conservatism.failure_reward and not self.conservatism.calibrated:
            raise ConfigError(
                f"learner.conservatism.failure_reward {self.conservatism.failure_reward} says what "
                "returns of failures count as, which calibrated values alone ask for: set "
                "learner.conservatism.calibrated=true (learner=cal_ql), or failure_reward=0"
            )
        if self.conservatism.weight > 0 and self.critic.kind is NetworkKind.flash:
            raise ConfigError(
                "learner.conservatism.weight above 0 compares stored actions with others, which "
                "the batch norm of learner.critic.kind=flash would see apart; take mlp, simba or "
                "bro, or set learner.conservatism.weight=0"
            )
        check_members(self, self.critic)


def build_sac(
    config: SACLearnerConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
    reduce: Reduce | None = None,
) -> Learner:  # fmt: skip
    """SAC for an environment."""
    _begin(seed)
    actor = gaussian_actor(config.actor, spec)
    critic = make_critic(config.critic, spec, make_values(config.values, spec.device).width)
    low, wanted = config.conservatism, None
    if low.calibrated:
        goes_on = low.online or low.fade_updates > 0
        wanted = MonteCarloReturns(failure_reward=low.failure_reward, online=goes_on)

    def penalty(generator: torch.Generator) -> CriticPenalty:
        around: dict[str, Any] = {
            "device": spec.device, "generator": generator, "reduce": reduce
        }  # fmt: skip
        if low.weight > 0:
            return Conservatism(low, config, **around)
        return DynamicsGap(config.dynamics_gap, config, *_discriminators(config, spec), **around)

    learner = SAC(
        config, actor, critic, **surroundings(spec, seed, stream_seed, reduce),
        penalty=penalty if low.weight > 0 or config.dynamics_gap.weight > 0 else None,
        monte_carlo_returns=wanted,
    )  # fmt: skip
    return estimating(learner, actor, config, spec, reduce)


def _discriminators(config: SACLearnerConfig, spec: EnvSpec) -> tuple[QEnsemble, QEnsemble]:
    """Shaped as the critics: of observation and action, and of these and the successor."""
    group = "critic" if "critic" in spec.groups else "actor"
    size, shape = spec.groups[group].shape[0], replace(config.critic, members=1, normalize=False)
    return (
        QEnsemble(shape, group, size, spec.action_size, 2),
        QEnsemble(shape, group, size, spec.action_size + size, 2),
    )


@dataclass(kw_only=True)
class IQLLearnerConfig(IQLConfig):
    """IQL and the networks that are handed to it."""

    actor: NormalActorConfig = field(default_factory=NormalActorConfig)
    """Policy network."""
    critic: QEnsembleConfig = field(default_factory=QEnsembleConfig)
    """Action-value networks."""
    value: QEnsembleConfig = field(default_factory=lambda: QEnsembleConfig(members=1))
    """Network of the value of states; one member."""

    def __post_init__(self) -> None:
        """Refuse an ensemble of values."""
        super().__post_init__()
        if self.value.members != 1:
            raise ConfigError(
                f"learner.value.members must be 1, got {self.value.members}; critics are counted "
                "by learner.critic.members"
            )


def build_iql(
    config: IQLLearnerConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
    reduce: Reduce | None = None,
) -> IQL:  # fmt: skip
    """IQL for an environment."""
    _begin(seed)
    actor = normal_actor(config.actor, spec)
    critic = make_critic(config.critic, spec, 1)
    group = critic.group
    value = QEnsemble(config.value, group, spec.groups[group].shape[0], 0)
    return IQL(config, actor, critic, value, **surroundings(spec, seed, stream_seed, reduce))


@dataclass(kw_only=True)
class TD3LearnerConfig(TD3Config):
    """TD3 and the networks that are handed to it."""

    actor: DeterministicActorConfig = field(default_factory=DeterministicActorConfig)
    """Policy network."""
    critic: QEnsembleConfig = field(default_factory=QEnsembleConfig)
    """Action-value networks."""
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    """How an encoder learns beside the actor's loss."""


def build_td3(
    config: TD3LearnerConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
    reduce: Reduce | None = None,
) -> Learner:  # fmt: skip
    """TD3 for an environment."""
    _begin(seed)
    actor = deterministic_actor(config.actor, spec)
    critic = make_critic(config.critic, spec, make_values(config.values, spec.device).width)
    learner = TD3(config, actor, critic, **surroundings(spec, seed, stream_seed, reduce))
    return estimating(learner, actor, config, spec, reduce)


@dataclass(kw_only=True)
class DSACTLearnerConfig(DSACTConfig):
    """DSAC-T and the networks that are handed to it."""

    actor: GaussianActorConfig = field(default_factory=GaussianActorConfig)
    """Policy network."""
    critic: QEnsembleConfig = field(default_factory=QEnsembleConfig)
    """Networks of the return's mean and deviation."""
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    """How an encoder learns beside the actor's loss."""


def build_dsac_t(
    config: DSACTLearnerConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
    reduce: Reduce | None = None,
) -> Learner:  # fmt: skip
    """DSAC-T for an environment."""
    _begin(seed)
    actor = gaussian_actor(config.actor, spec)
    critic = make_critic(config.critic, spec, _MEAN_AND_DEVIATION)
    learner = DSACT(config, actor, critic, **surroundings(spec, seed, stream_seed, reduce))
    return estimating(learner, actor, config, spec, reduce)


def _flash_actor() -> GaussianActorConfig:
    return GaussianActorConfig(
        kind=NetworkKind.flash, log_std_min=-10.0, log_std_bound=LogStdBound.tanh, normalize=False
    )


def _flash_critic() -> QEnsembleConfig:
    return QEnsembleConfig(kind=NetworkKind.flash, normalize=False)


@dataclass(kw_only=True)
class FlashSACLearnerConfig(FlashSACConfig):
    """FlashSAC and the networks that are handed to it; the authors' unless said otherwise."""

    actor: GaussianActorConfig = field(default_factory=_flash_actor)
    """Policy network."""
    critic: QEnsembleConfig = field(default_factory=_flash_critic)
    """Action-value networks."""
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    """How an encoder learns beside the actor's loss."""


def build_flash_sac(
    config: FlashSACLearnerConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
    reduce: Reduce | None = None,
) -> Learner:  # fmt: skip
    """FlashSAC for an environment."""
    _begin(seed)
    actor = gaussian_actor(config.actor, spec)
    critic = make_critic(config.critic, spec, make_values(config.values, spec.device).width)
    learner = FlashSAC(config, actor, critic, **surroundings(spec, seed, stream_seed, reduce))
    return estimating(learner, actor, config, spec, reduce)


def _begin(seed: int) -> None:
    """Initial weights are drawn from torch's own generator."""
    torch.manual_seed(derive_seed(seed, "initial weights"))


def make_critic(config: QEnsembleConfig, spec: EnvSpec, outputs: int) -> QEnsemble:
    """Critics of the group `critic` where there is one, else of what the actor sees."""
    group = "critic" if "critic" in spec.groups else "actor"
    return QEnsemble(config, group, spec.groups[group].shape[0], spec.action_size, outputs)


def check_members(config: SACConfig, critic: QEnsembleConfig) -> None:
    """Refuse a target of more members than there are.

    Raises:
        ConfigError: It asks for them.
    """
    if config.target_members > critic.members and not config.target_replacement:
        raise ConfigError(
            f"learner.target_members {config.target_members} asks for more critics than "
            f"learner.critic.members has, {critic.members}"
        )


def surroundings(
    spec: EnvSpec, seed: int, stream_seed: int | None, reduce: Reduce | None
) -> dict[str, Any]:
    """What every learner is built with beside its networks."""
    return {
        "action_size": spec.action_size, "device": spec.device,
        "seed": seed if stream_seed is None else stream_seed, "reduce": reduce,
    }  # fmt: skip
