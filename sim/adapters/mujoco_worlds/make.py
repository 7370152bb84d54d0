"""Makes the worlds of `facts.py` from Gymnasium's own model files."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from pathlib import Path

import gymnasium
import mujoco
import torch

from robot_rl.core.errors import ConfigError, unknown_name
from sim.adapters.gymnasium_config import GymnasiumConfig
from sim.adapters.mujoco_worlds.env import MujocoWorldsEnv
from sim.adapters.mujoco_worlds.facts import WORLDS
from sim.physics.mujoco_engine.batch import MujocoEngine
from sim.physics.mujoco_model.quiet import warnings_unsaid

_MODELS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
_LIMIT = "max_episode_steps"
"""The argument of `gymnasium.make` that these worlds understand too."""


def what_needs_the_wrapper(config: GymnasiumConfig) -> list[str]:
    """Settings that only a loop over Gymnasium's environments understands."""
    asked = {
        "env.processes": config.processes,
        "env.groups": config.groups,
        "env.action_low": config.action_low,
        "env.action_high": config.action_high,
        "env.success": config.success,
    }
    asked |= {f"env.kwargs.{name}": True for name in config.kwargs if name != _LIMIT}
    return [name for name, value in asked.items() if value]


def can_make(config: GymnasiumConfig) -> bool:
    """True if these worlds are all that the settings ask for."""
    return config.id in WORLDS and not what_needs_the_wrapper(config)


def make_mujoco_worlds(
    config: GymnasiumConfig, *, num_envs: int, device: torch.device, seed: int
) -> MujocoWorldsEnv:
    """N worlds of one of `WORLDS`.

    Args:
        config: Which one, and what is changed.
        num_envs: N.
        device: Where the tensors live.
        seed: Of the starts.

    Raises:
        ConfigError: The id is none of `WORLDS`, or a setting is not understood here.
    """
    if config.id not in WORLDS:
        raise ConfigError(unknown_name("world of env.engine=batch", config.id, WORLDS))
    strange = what_needs_the_wrapper(config)
    if strange:
        raise ConfigError(
            f"env.engine=batch was asked for with {', '.join(strange)}, which it does not "
            "understand; leave out the setting, or take env.engine=gymnasium"
        )
    world = WORLDS[config.id]
    with warnings_unsaid():  # what is old in Gymnasium's files, nobody here can mend
        model = mujoco.MjModel.from_xml_path(str(_MODELS / world.model))
    engine = MujocoEngine(
        model,
        num_envs,
        decimation=world.frame_skip,
        threads=config.physics_threads,
    )
    return MujocoWorldsEnv(
        world,
        engine,
        device=device,
        seed=seed,
        episode_steps=int(config.kwargs.get(_LIMIT, world.episode_steps)),
        metrics=config.metrics,
        control_dt=config.control_dt,
    )
