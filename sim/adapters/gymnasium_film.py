"""A policy of ours in one Gymnasium environment: as a function, and as a film of an episode."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError
from sim.adapters.gymnasium_config import GymnasiumConfig
from sim.adapters.gymnasium_env import ActionScale, ObservationLayout
from sim.adapters.gymnasium_make import make_single

_MOST_FRAMES = 3000


def native_policy(
    config: GymnasiumConfig, act: Callable[[Obs], Tensor]
) -> Callable[[Any], NDArray[Any]]:
    """A policy in the environment's own observations and actions.

    Args:
        config: The environment.
        act: Groups (1, ...) -> (1, A), in [-1, 1].

    Raises:
        ConfigError: The environment cannot be made, or cannot be learned from; or the policy sees
            images, of which it needs several in a row.
    """
    env = make_single(config)
    layout = ObservationLayout(env.observation_space, config.groups, config.image_size)
    if layout.images or config.pixels:
        env.close()
        raise ConfigError(
            f"a policy that sees images of '{config.id}' is no function of one observation; play "
            "it with run.evaluate()"
        )
    scale = ActionScale(env.action_space, config.action_low, config.action_high)
    env.close()
    obs = {name: torch.zeros(1, size) for name, size in layout.sizes.items()}

    def native(observation: Any) -> NDArray[Any]:
        layout.write_world(observation, obs, 0)
        return scale.to_native(act(obs).clamp(-1.0, 1.0))[0]

    return native


def film_gymnasium(
    config: GymnasiumConfig, act: Callable[[Any], NDArray[Any]], path: Path, *, seed: int
) -> Path:
    """Play one episode and write its frames as they are drawn by the environment.

    Args:
        act: The environment's own observation -> an action for its `step`.
        path: File ending in .mp4.

    Raises:
        ConfigError: The environment cannot draw itself.
    """
    env = make_single(config, render_mode="rgb_array")
    try:
        frames = _frames(env, act, seed)
        first = next(frames)
        if not isinstance(first, np.ndarray) or first.ndim != 3:
            raise ConfigError(
                f"the environment '{config.id}' drew {type(first).__name__}; expected an image of "
                "render_mode=rgb_array"
            )
        from sim.rendering.video import write_video  # PyAV: not for all

        path.parent.mkdir(parents=True, exist_ok=True)
        height, width = _even(first).shape[:2]
        fps = int(env.metadata.get("render_fps") or 30)
        pictures = (_even(frame) for frame in chain([first], frames))
        write_video(path, pictures, width=width, height=height, fps=fps)
    finally:
        env.close()
    return path


def _frames(env: Any, act: Callable[[Any], NDArray[Any]], seed: int) -> Iterator[Any]:
    observation, _ = env.reset(seed=seed)
    try:
        yield env.render()
    except (gymnasium.error.Error, ImportError) as error:  # a package that draws is not there
        raise ConfigError(f"the environment cannot be drawn: {error}") from error
    for _ in range(_MOST_FRAMES):
        observation, _, terminated, truncated, _ = env.step(act(observation))
        yield env.render()
        if terminated or truncated:
            return


def _even(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Without a last odd row and column, which the codec cannot take."""
    height, width = frame.shape[0] // 2 * 2, frame.shape[1] // 2 * 2
    return np.ascontiguousarray(frame[:height, :width, :3])
