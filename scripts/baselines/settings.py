"""Settings of other people's learners that train in our worlds, readable without them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from configs.compose import Composition, compose, read_options, to_plain
from configs.schema import RunConfig
from robot_rl.core.errors import ConfigError

Settings = TypeVar("Settings", bound="PPOSettings | SB3Settings")


@dataclass(kw_only=True)
class PPOSettings:
    """PPO as rsl_rl and Isaac Lab's locomotion tasks set it."""

    steps_per_env: int = 24
    """Steps of every world per iteration."""
    epochs: int = 5
    """Passes over them."""
    mini_batches: int = 4
    """Parts of each pass."""
    gamma: float = 0.99
    """Discount per control step."""
    lam: float = 0.95
    """Lambda of the generalised advantages."""
    learning_rate: float = 1e-3
    """Step size at the start."""
    desired_kl: float = 0.01
    """Divergence per iteration that the step size aims at."""
    entropy: float = 0.005
    """Weight of the entropy."""
    hidden: list[int] = field(default_factory=lambda: [256, 128, 64])
    """Hidden layers of actor and critic."""
    init_std: float = 1.0
    """Standard deviation of the actions at the start."""

    def __post_init__(self) -> None:
        """Refuse loops that cannot run."""
        _check_positive(
            self, "steps_per_env", "epochs", "mini_batches", "init_std", "learning_rate"
        )

    def rsl_rl(self, critic_group: str) -> dict[str, Any]:
        """The same in rsl_rl's words."""
        network = {
            "class_name": "MLPModel", "hidden_dims": list(self.hidden), "activation": "elu",
            "obs_normalization": True,
        }  # fmt: skip
        deviation = {"class_name": "GaussianDistribution", "init_std": self.init_std}
        return {
            "num_steps_per_env": self.steps_per_env,
            "obs_groups": {"actor": ["actor"], "critic": [critic_group]},
            "multi_gpu": None,
            "actor": {**network, "distribution_cfg": deviation},
            "critic": network,
            "algorithm": {
                "class_name": "PPO", "num_learning_epochs": self.epochs,
                "num_mini_batches": self.mini_batches, "gamma": self.gamma, "lam": self.lam,
                "learning_rate": self.learning_rate, "desired_kl": self.desired_kl,
                "entropy_coef": self.entropy, "schedule": "adaptive", "clip_param": 0.2,
                "value_loss_coef": 1.0, "max_grad_norm": 1.0,
            },
        }  # fmt: skip


@dataclass(kw_only=True)
class SB3Settings:
    """SAC of Stable-Baselines3 with the defaults of its 2.9.2 (sac/sac.py)."""

    learning_rate: float = 3e-4
    """Step size of actor, critics and temperature."""
    batch_size: int = 256
    """Rows per update."""
    buffer_size: int = 1_000_000
    """Transitions kept."""
    learning_starts: int = 100
    """Random steps at the start."""
    tau: float = 0.005
    """Share of the new weights that a target takes per update."""
    gamma: float = 0.99
    """Discount per control step."""
    hidden: list[int] = field(default_factory=lambda: [256, 256])
    """Hidden layers of actor and critics."""

    def __post_init__(self) -> None:
        """Refuse loops that cannot run."""
        _check_positive(self, "learning_rate", "batch_size", "buffer_size", "tau")

    def stable_baselines3(self) -> dict[str, Any]:
        """The same in the words of Stable-Baselines3."""
        values = asdict(self)
        return {"policy_kwargs": {"net_arch": values.pop("hidden")}, **values}


BASELINES: Mapping[str, type[PPOSettings] | type[SB3Settings]] = {
    "train_ppo": PPOSettings,
    "train_sb3": SB3Settings,
}
"""Settings by the name of the script that trains with them."""


def compose_baseline(
    settings: type[Settings], overrides: Sequence[str]
) -> tuple[Settings, Composition]:
    """Read a command line that holds the baseline's own settings and fields of a run.

    Raises:
        ConfigError: A setting, a field or a value is wrong.
    """
    own, rest = read_options(settings, overrides)
    return own, compose(rest)


def plain_baseline(settings: PPOSettings | SB3Settings, config: RunConfig) -> dict[str, Any]:
    """The configuration as the baseline's run keeps it: its settings take our learner's place."""
    return {**to_plain(config), "learner": asdict(settings)}


def _check_positive(settings: object, *names: str) -> None:
    for name in names:
        if not getattr(settings, name) > 0:
            raise ConfigError(f"{name} must be above 0, got {getattr(settings, name)}")
