"""Our environments as Gymnasium's: many worlds as a `VectorEnv`, one as an `Env`.

Observations are the group `actor` as float32; `info["is_success"]` and the metrics that have a
value come with every step. What the critic alone may see stays inside.
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from robot_rl.core.env import BatchEnv, EnvSpec, EnvStep
from robot_rl.core.errors import ShapeError


class VectorWorlds(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """N worlds that begin anew in the step that ends an episode (SAME_STEP)."""

    def __init__(self, env: BatchEnv) -> None:
        """Describe the worlds of `env`, which is closed with this."""
        self._env = env
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
            _copied(step.reward).astype(np.float64),
            _copied(step.terminated),
            _copied(step.truncated),
            infos,
        )

    def close_extras(self, **kwargs: Any) -> None:
        """Close the worlds."""
        self._env.close()


class SingleWorld(gymnasium.Env[np.ndarray, np.ndarray]):
    """One world; it waits for `reset` where an episode ended."""

    def __init__(self, env: BatchEnv) -> None:
        """Describe the world of `env`, which is closed with this.

        Raises:
            ShapeError: There are several.
        """
        if env.spec.num_envs != 1:
            raise ShapeError(f"expected one world, got {env.spec.num_envs}; take VectorWorlds")
        self._env = env
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
            float(step.reward),
            bool(step.terminated),
            bool(step.truncated),
            {name: v[0].item() for name, v in _told(step).items() if not bool(v[0].isnan())},
        )

    def close(self) -> None:
        """Close the world."""
        self._env.close()


def _metadata(spec: EnvSpec) -> dict[str, Any]:
    return {"render_modes": [], "render_fps": round(1 / spec.control_dt)}


def _spaces(spec: EnvSpec) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Box]:
    """Observation and action space of one world."""
    observation = gymnasium.spaces.Box(-np.inf, np.inf, spec.groups["actor"].shape, np.float32)
    return observation, gymnasium.spaces.Box(-1.0, 1.0, (spec.action_size,), np.float32)


def _told(step: EnvStep) -> dict[str, Tensor]:
    return {"is_success": step.success, **step.metrics}


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
