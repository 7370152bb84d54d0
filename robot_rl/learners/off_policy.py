"""What all off-policy learners are told: batches, horizon, step sizes, targets, precision."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from robot_rl.core.errors import ConfigError


class Precision(Enum):
    """Number format of forward and backward passes; weights and losses are always float32."""

    fp32 = "fp32"
    bf16 = "bf16"


class RewardScaling(Enum):
    """What sampled rewards are divided by."""

    none = "none"
    """One."""
    running = "running"
    """A running scale of the returns that are collected."""


@dataclass(kw_only=True)
class DescentConfig:
    """How weights step down a gradient."""

    learning_rate_warmup: int = 0
    """Updates over which step sizes rise from 0 in the beginning, all but the temperature's."""
    learning_rate_end: float = 1.0
    """Share of the step sizes that is left after `learning_rate_decay` updates: a half cosine."""
    learning_rate_decay: int = 0
    """Updates over which step sizes fall to their end; 0 keeps them."""
    adam_betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    """Decay of Adam's two running means."""
    adam_epsilon: float = 1e-8
    """Added to the denominator of Adam."""
    weight_decay: float = 0.0
    """Decoupled decay (AdamW) of the weights of actor and critics; 0 is plain Adam."""
    max_grad_norm: float = 0.0
    """Gradients of actor and critics are scaled down to this norm; 0 leaves them."""
    precision: Precision = Precision.fp32
    """bf16 is faster where the processor has it; losses and weights stay in float32."""

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        if len(self.adam_betas) != 2 or not all(0 <= beta < 1 for beta in self.adam_betas):
            raise ConfigError(
                f"learner.adam_betas must be two numbers in [0, 1), got {self.adam_betas}"
            )
        check_ranges(self, {
            "learning_rate_end": (0, 1), "learning_rate_warmup": (0, 1e12),
            "learning_rate_decay": (0, 1e12), "adam_epsilon": (0, 1), "weight_decay": (0, 1e3),
            "max_grad_norm": (0, 1e9),
        })  # fmt: skip


@dataclass(kw_only=True)
class OffPolicyConfig(DescentConfig):
    """Hyperparameters of the whole family; the defaults are those of SAC's paper (2018b)."""

    batch_size: int = 256
    """Transitions per update."""
    gamma: float = 0.99
    """Discount per control step."""
    n_step: int = 1
    """Steps per sampled transition."""
    actor_lr: float = 3e-4
    """Step size of the actor."""
    critic_lr: float = 3e-4
    """Step size of the critics."""
    tau: float = 0.005
    """Share of the critics that their targets take over after every update."""
    actor_interval: int = 1
    """The actor steps in the last of every so many updates."""
    reward_scale: RewardScaling = RewardScaling.none
    """What sampled rewards are divided by."""
    reward_limit: float = 5.0
    """Size of the largest return after scaling; with categories, the edge of their support."""
    capture: bool = True
    """On a GPU, capture an update as a CUDA graph and play it from then on; does nothing on the
    CPU, nor with several processes."""
    freeze_normalizers: bool = False
    """Normalisers take in stored experience alone (`training.prior`, or what the learner of
    `training.start` has seen), nothing of what is acted on: a policy that was learned from data
    goes on to see what it saw."""

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        super().__post_init__()
        check_ranges(self, {
            "batch_size": (1, 1e9), "gamma": (0, 1), "n_step": (1, 1e6), "tau": (0, 1),
            "actor_lr": (0, 1), "critic_lr": (0, 1), "actor_interval": (1, 1e6),
            "reward_limit": (1e-6, 1e6),
        })  # fmt: skip


def check_ranges(
    config: object, ranges: Mapping[str, tuple[float, float]], owner: str = "learner"
) -> None:
    """Refuse fields outside their range, NaN too.

    Args:
        config: A learner's config, or a part of it.
        ranges: Field to its smallest and largest value.
        owner: What the fields belong to, as the command line names it.

    Raises:
        ConfigError: One lies outside.
    """
    for name, (low, high) in ranges.items():
        value = getattr(config, name)
        if not low <= value <= high:
            raise ConfigError(f"{owner}.{name} must lie in [{low:g}, {high:g}], got {value}")
