"""A policy of ours in one Gymnasium environment: as a function, and as a film of an episode."""

import copy
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from robot_rl.core.env import Obs
from robot_rl.core.episodic import begin_episodes
from robot_rl.core.errors import ConfigError
from sim.adapters.gymnasium_config import GymnasiumConfig
from sim.adapters.gymnasium_env import (
    GymnasiumEnv,
    ObservationLayout,
    action_scale,
    world_seeds,
)
from sim.adapters.gymnasium_make import make_single, with_pixels
from sim.rendering.video import gl_backends, write_video

_LONGEST = 20.0
"""Time after which a film ends though its episode goes on [s]: some environments draw two pictures
a second without a GPU."""
_MOST_STEPS = 3000
_DEADLINE = 120.0
"""Longest time of the process that draws [s]."""


def film_episode(
    folder: Path, config: GymnasiumConfig, act: Callable[[Obs], Tensor], *, seed: int
) -> dict[str, str]:
    """Film an episode of a run's environment, as it draws itself.

    Args:
        folder: Where `videos` goes.
        config: The environment.
        act: Policy, groups (1, ...) -> (1, A).
        seed: Of the episode.

    Returns:
        `video` -> its file.

    Raises:
        ConfigError: It cannot draw itself.
    """
    path = folder / "videos" / "episode.mp4"
    return {"video": str(film_gymnasium(config, act, path, seed=seed))}


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
    scale = action_scale(env.action_space, config.action_low, config.action_high)
    env.close()
    obs = {name: torch.zeros(1, size) for name, size in layout.sizes.items()}

    @torch.no_grad()
    def native(observation: Any) -> NDArray[Any]:
        layout.write_world(observation, obs, 0)
        return scale.to_native(act(obs).clamp(-1.0, 1.0))[0]

    return native


def film_gymnasium(
    config: GymnasiumConfig, act: Callable[[Obs], Tensor], path: Path, *, seed: int
) -> Path:
    """Play one episode and write its frames as the environment draws them, for 20 s at most.

    The episode is played first; then a process of its own repeats its actions from the same seed
    and draws, as a graphics library may take its process with it.

    Args:
        act: Policy, groups (1, ...) -> (1, A), in [-1, 1]; may remember.
        path: File ending in .mp4.

    Raises:
        ConfigError: The environment cannot draw itself.
        RenderUnavailableError: Drawing is switched off.
    """
    actions = _play(config, act, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    faults: list[str] = []
    for backend in gl_backends():
        receiver, sender = _CONTEXT.Pipe(duplex=False)
        child = _CONTEXT.Process(
            target=_draw,
            args=(config, actions, path, _first_seed(seed), backend, sender),
            daemon=True,
        )
        child.start()
        sender.close()
        told = _ended(child, receiver)
        if not told:
            return path
        if "is not installed" in told:  # no other backend would help
            raise ConfigError(f"the environment '{config.id}' draws nothing here: {told}")
        faults.append(f"{backend}: {told}")
    path.unlink(missing_ok=True)
    raise ConfigError(
        f"the environment '{config.id}' draws nothing here ({'; '.join(faults)}); MuJoCo's "
        "environments need MUJOCO_GL=egl or osmesa and its library where there is no screen"
    )


_CONTEXT = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
"""Forked, the process knows environments that were registered here."""


@torch.no_grad()
def _play(config: GymnasiumConfig, act: Callable[[Obs], Tensor], seed: int) -> list[NDArray[Any]]:
    """Actions of an episode that begins with the seed of `_first_seed`."""
    single = make_single(config, **({"render_mode": "rgb_array"} if config.pixels else {}))
    world = with_pixels(single) if config.pixels else single
    if isinstance(act, nn.Module):
        act = copy.deepcopy(act).to("cpu")  # the world is on the host, whatever trained the policy
    env = GymnasiumEnv(world, config, device=torch.device("cpu"), seed=seed)
    actions = list[NDArray[Any]]()
    with closing(env):
        obs = env.reset(seed=seed)
        begin_episodes(act, torch.ones(1, dtype=torch.bool))
        for _ in range(_MOST_STEPS):
            action = act(obs).clamp(-1.0, 1.0)
            actions.append(env.scale.to_native(action)[0])
            step = env.step(action)
            if bool(step.ended):
                break
            obs = step.obs
    return actions


def _first_seed(seed: int) -> int:
    """Seed that `GymnasiumEnv` resets a single world with."""
    return world_seeds((seed,), 1)[0]


def _ended(child: Any, receiver: Any) -> str:
    """Wait for a process that draws; returns why it failed, or nothing."""
    child.join(_DEADLINE)
    if child.exitcode == 0:
        return ""
    if child.exitcode is None:
        child.kill()
        child.join()
        return f"not ready after {_DEADLINE:.0f} s"
    return receiver.recv() if receiver.poll() else f"it ended with code {child.exitcode}"


def _draw(
    config: GymnasiumConfig, actions: Sequence[NDArray[Any]], path: Path, seed: int, backend: str,
    sender: Any,
) -> None:  # fmt: skip
    """The process that draws; says why it cannot."""
    os.environ["MUJOCO_GL"] = backend
    os.environ["PYOPENGL_PLATFORM"] = backend
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    try:
        env = make_single(config, render_mode="rgb_array")
        frames = _frames(env, actions, seed)
        first = _even(next(frames))
        fps = int(env.metadata.get("render_fps") or 30)
        pictures = chain([first], map(_even, frames))
        write_video(path, pictures, width=first.shape[1], height=first.shape[0], fps=fps)
    except Exception as error:  # noqa: BLE001 - renderers raise errors of many types
        sender.send(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
        os._exit(1)
    os._exit(0)  # what this process has from its parent is its parent's to close


def _frames(env: Any, actions: Sequence[NDArray[Any]], seed: int) -> Iterator[Any]:
    env.reset(seed=seed)
    yield env.render()
    end = time.monotonic() + _LONGEST
    for action in actions:
        if time.monotonic() > end:
            return
        env.step(action)
        yield env.render()


def _even(frame: Any) -> NDArray[np.uint8]:
    """Without a last odd row and column, which the codec cannot take."""
    if not isinstance(frame, np.ndarray) or frame.ndim != 3:
        raise TypeError(f"render gave {type(frame).__name__}, no picture of render_mode=rgb_array")
    height, width = frame.shape[0] // 2 * 2, frame.shape[1] // 2 * 2
    return np.ascontiguousarray(frame[:height, :width, :3])
