"""Settings of a Gymnasium environment; readable without Gymnasium."""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import IMAGE_PREFIX


class WorldEngine(Enum):
    """Engine that steps the envs."""

    auto = "auto"
    """`batch` where it knows the id and every setting, else `gymnasium`."""
    batch = "batch"
    """Our own engine, all worlds at once, for the ids of `gymnasium_mujoco.py`."""
    gymnasium = "gymnasium"
    """Gymnasium's environments, one after the other or in processes."""
    envpool = "envpool"
    """The package envpool, for its ids."""


@dataclass(kw_only=True)
class GymnasiumConfig:
    """Environment, and how its spaces become groups and actions in [-1, 1]."""

    id: str = ""
    """Registered id, such as Hopper-v5; `module:Name-v0` imports the module first."""
    engine: WorldEngine = WorldEngine.auto
    """Engine that steps the envs: auto, batch, gymnasium or envpool."""
    physics_threads: int = 0
    """CPU threads of the engines batch and envpool; 0 for one per core."""
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of `gymnasium.make`, such as env.kwargs.max_episode_steps=500."""
    processes: bool = False
    """Give each world a process of its own: pays where a step takes milliseconds, and is several
    times slower than the plain loop where it takes microseconds, as in MuJoCo tasks."""
    groups: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Observation group -> keys of a Dict space, nested ones as a/b, in that order; empty puts all
    vectors into `actor`, and each image into `image/<key>`."""
    pixels: bool = False
    """Observe a picture that the environment renders, as `image/pixels`, beside its own
    observation."""
    image_size: list[int] = field(default_factory=list[int])
    """Height and width that all images are brought to, by means over areas [pixels]; empty for
    their own."""
    stack: int = 3
    """Frames in an observation of an image."""
    action_low: list[float] = field(default_factory=list[float])
    """Meaning of action -1: one number, or one per entry; empty takes the space's bounds."""
    action_high: list[float] = field(default_factory=list[float])
    """Meaning of action 1: one number, or one per entry; empty takes the space's bounds."""
    success: list[str] = field(default_factory=list[str])
    """Info keys, one of which is true in the last step of an episode that succeeded; empty looks
    for `success` and `is_success` in the info of a first step."""
    metrics: list[str] = field(default_factory=list[str])
    """Info keys of numbers to log."""
    control_dt: float = 0.0
    """Time between two actions [s]; 0 asks the environment (`dt`, else `render_fps`, else 1 s)."""

    def __post_init__(self) -> None:
        if self.physics_threads < 0:
            raise ConfigError(f"env.physics_threads must be at least 0, got {self.physics_threads}")
        if not 0 <= self.control_dt < float("inf"):
            raise ConfigError(f"env.control_dt must be >= 0 s, got {self.control_dt}")
        if self.stack < 1:
            raise ConfigError(f"env.stack must be at least 1, got {self.stack}")
        if self.image_size and (len(self.image_size) != 2 or min(self.image_size) < 1):
            raise ConfigError(
                f"env.image_size must be height and width [pixels], or [], got {self.image_size}"
            )
        check_groups(self.groups)


def check_groups(groups: Collection[str]) -> None:
    """Refuse observation groups without one for the policy."""
    if groups and not any(name == "actor" or name.startswith(IMAGE_PREFIX) for name in groups):
        raise ConfigError(
            f"env.groups has {', '.join(groups)}; expected `actor` or `image/<name>` among them: "
            "it is what the policy sees"
        )
