"""Our environments as Gymnasium's: many worlds as a `VectorEnv`, one as an `Env`.

Observations are the group `actor` as float32; `info["is_success"]` and the metrics that have a
value come with every step. What the critic alone may see stays inside. `render` draws with the GL
backend that the variable MUJOCO_GL names (egl or osmesa without a screen).
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from robot_rl.core.env import BatchEnv, EnvSpec, EnvStep
from robot_rl.core.errors import ConfigError, ShapeError

_RENDER_MODES = ("rgb_array",)


class VectorWorlds(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """N worlds that begin anew in the step that ends an episode (SAME_STEP)."""

    def __init__(self, env: BatchEnv, render_mode: str | None = None) -> None:
        """Describe the worlds of `env`, which is closed with this.

        Args:
            render_mode: rgb_array, or None for no pictures.

        Raises:
            ConfigError: Another render mode.
        """
        self._env, self._pictures = env, _Pictures(env, render_mode)
        self.render_mode = render_mode
        self.num_envs = env.spec.num_envs
        self.metadata = {**_metadata(env.spec), "autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space, self.single_action_space = _spaces(env.spec)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin new episodes, in the worlds of `options["reset_mask"]` if there is one."""
        super().reset(seed=seed)
        mask = torch.ones(self.num_envs, dtype=torch.bool)
        if options and "reset_mask" in options:
            mask = torch.from_numpy(np.asarray(options["reset_mask"]))
        # A mask, even of all: the first episodes of training otherwise end at random times.
        obs = self._env.reset(seed=seed, mask=mask.to(self._env.spec.device))
        return _copied(obs["actor"]), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all worlds; actions (N, A), in [-1, 1]."""
        step = self._env.step(_tensor(actions, self._env.spec))
        self._env.check()
        ended = _copied(step.ended)
        told = {name: _copied(values) for name, values in _told(step).items()}
        # Gymnasium's form: a key belongs to the worlds where its underscored mask is true. Where an
        # episode ended, the step's own infos are the final ones.
        infos: dict[str, Any] = _masked(told, ~ended)
        if ended.any():
            last = _copied(step.next_obs["actor"])
            final_obs = np.full(self.num_envs, None, dtype=object)
            for world in np.flatnonzero(ended):
                final_obs[world] = last[world]
            final = {"final_obs": final_obs, "final_info": _masked(told, ended)}
            infos |= final | {f"_{name}": ended.copy() for name in final}
        return (
            _copied(step.obs["actor"]),
            _copied(_paid(step)).astype(np.float64),
            _copied(step.terminated),
            _copied(step.truncated),
            infos,
        )

    def render(self) -> tuple[np.ndarray, ...] | None:
        """A picture of every world, (480, 640, 3) uint8; None without a render mode."""
        return self._pictures.draw(self.num_envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the worlds."""
        self._pictures.close()
        self._env.close()


class SingleWorld(gymnasium.Env[np.ndarray, np.ndarray]):
    """One world; it waits for `reset` where an episode ended."""

    def __init__(self, env: BatchEnv, render_mode: str | None = None) -> None:
        """Describe the world of `env`, which is closed with this.

        Args:
            render_mode: rgb_array, or None for no pictures.

        Raises:
            ConfigError: Another render mode.
            ShapeError: There are several worlds.
        """
        if env.spec.num_envs != 1:
            raise ShapeError(f"expected one world, got {env.spec.num_envs}; take VectorWorlds")
        self._env, self._pictures = env, _Pictures(env, render_mode)
        self.render_mode = render_mode
        self.metadata = _metadata(env.spec)
        self.observation_space, self.action_space = _spaces(env.spec)
        self._all = torch.ones(1, dtype=torch.bool, device=env.spec.device)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin a new episode."""
        super().reset(seed=seed)
        return _copied(self._env.reset(seed=seed, mask=self._all)["actor"])[0], {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Step the world; the action (A,) in [-1, 1]."""
        step = self._env.step(_tensor(np.asarray(action)[None], self._env.spec))
        self._env.check()
        return (
            _copied(step.next_obs["actor"])[0],
            float(_paid(step)),
            bool(step.terminated),
            bool(step.truncated),
            {name: v[0].item() for name, v in _told(step).items() if not bool(v[0].isnan())},
        )

    def render(self) -> np.ndarray | None:
        """A picture of the world, (480, 640, 3) uint8; None without a render mode."""
        pictures = self._pictures.draw(1)
        return None if pictures is None else pictures[0]

    def close(self) -> None:
        """Close the world."""
        self._pictures.close()
        self._env.close()


class _Pictures:
    """Pictures of worlds; GL is opened with the first."""

    def __init__(self, env: BatchEnv, render_mode: str | None) -> None:
        if render_mode not in (None, *_RENDER_MODES):
            raise ConfigError(f"render_mode is {render_mode!r}; known: {', '.join(_RENDER_MODES)}")
        self._env, self._mode = env, render_mode
        self._drawn: Any = None

    def draw(self, count: int) -> tuple[np.ndarray, ...] | None:
        if self._mode is None:
            return None
        if self._drawn is None:
            from sim.rendering.stage import WorldPictures  # opens the library of a GL backend

            simulation: Any = getattr(self._env, "simulation", None)
            self._drawn = WorldPictures(simulation)
        return tuple(self._drawn.draw(world) for world in range(count))

    def close(self) -> None:
        if self._drawn is not None:
            self._drawn.close()
            self._drawn = None


def _metadata(spec: EnvSpec) -> dict[str, Any]:
    return {"render_modes": list(_RENDER_MODES), "render_fps": round(1 / spec.control_dt)}


def _spaces(spec: EnvSpec) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Box]:
    """Observation and action space of one world."""
    observation = gymnasium.spaces.Box(-np.inf, np.inf, spec.groups["actor"].shape, np.float32)
    return observation, gymnasium.spaces.Box(-1.0, 1.0, (spec.action_size,), np.float32)


def _paid(step: EnvStep) -> Tensor:
    """Rewards, (N,): 0 where the engine put a world back, as nothing was done for them there."""
    return torch.where(step.valid, step.reward, 0.0)


def _told(step: EnvStep) -> dict[str, Tensor]:
    """Infos of a step; a row that is not `valid` was put back by the engine, and says nothing."""
    return {"is_success": step.success, "valid": step.valid, **step.metrics}


def _masked(told: dict[str, np.ndarray], mask: np.ndarray) -> dict[str, np.ndarray]:
    """Infos with the masks that say which worlds they belong to; zero elsewhere."""
    masked: dict[str, np.ndarray] = {}
    for name, values in told.items():
        mine = mask & ~np.isnan(values)
        masked |= {name: np.where(mine, values, np.zeros_like(values)), f"_{name}": mine}
    return masked


def _tensor(actions: np.ndarray, spec: EnvSpec) -> Tensor:
    return torch.from_numpy(np.array(actions, dtype=np.float32)).to(spec.device)


def _copied(values: Tensor) -> np.ndarray:
    """An array of its own: the environment overwrites its tensors in the next step."""
    return values.detach().cpu().numpy().copy()
