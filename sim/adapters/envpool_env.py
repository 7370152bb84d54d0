"""Worlds of the package envpool as a Gymnasium vector environment that can be seeded anew.

envpool (Weng et al. 2022, "EnvPool: A Highly Parallel Reinforcement Learning Environment Execution
Engine") steps compiled environments on threads. It begins episodes anew in the step after their end
(NEXT_STEP), where it ignores the action and returns a reward that belongs to nobody; and a pool
takes its seed when it is made, never later.
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

from robot_rl.core.errors import ConfigError, MissingExtraError, SpecMismatchError, unknown_name

_RESERVED = ("num_envs", "num_threads", "batch_size", "seed", "env_seed", "env_type")
"""Arguments of `envpool.make` that are said elsewhere."""


class EnvpoolWorlds(VectorEnv[Any, np.ndarray, np.ndarray]):
    """N worlds of one pool."""

    def __init__(
        self, name: str, num_envs: int, *, threads: int = 0, kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """Make the pool.

        Args:
            name: An id of envpool, such as HalfCheetah-v5.
            threads: CPU threads; 0 for one per core.

        Raises:
            ConfigError: envpool knows no such id, or no such argument.
            MissingExtraError: envpool is not installed.
        """
        package = _envpool()
        if name not in package.list_all_envs():
            near = unknown_name("envpool id", name, package.list_all_envs()).partition("; known")
            raise ConfigError(f"{near[0]}; envpool.list_all_envs() lists all of them")
        strange = [key for key in kwargs or {} if key in _RESERVED]
        if strange:
            raise ConfigError(
                f"env.kwargs has {', '.join(strange)}, which num_envs, seed and "
                "env.physics_threads say; leave it out"
            )
        self._arguments = {
            "task_id": name, "env_type": "gymnasium", "num_envs": num_envs,
            "num_threads": min(num_envs, threads or os.cpu_count() or 1), **(kwargs or {}),
        }  # fmt: skip
        self._pool = self._make(np.random.SeedSequence(0))
        self.num_envs = num_envs
        self.metadata = dict(self._pool.metadata)
        self.single_observation_space = self._pool.observation_space
        self.single_action_space = self._pool.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._last, self.first_info = self._pool.reset()
        """Infos of the first reset: their keys are those of every step."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes, in the worlds of `options["reset_mask"]` if there is one."""
        mask = (options or {}).get("reset_mask")
        if mask is None or bool(np.all(mask)):
            if seed is not None:
                self._pool.close()
                self._pool = self._make(np.random.SeedSequence(seed))
            self._last, infos = self._pool.reset()
            return self._last, infos
        if seed is not None:
            raise SpecMismatchError(
                "envpool was asked to seed some of its worlds; it can only seed all of them"
            )
        ids = np.flatnonzero(mask).astype(np.int32)
        first, infos = self._pool.reset(ids)
        self._last = _replaced(self._last, ids, first)
        return self._last, infos

    def step(
        self, actions: np.ndarray
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all worlds; rows that only begin anew have a reward that belongs to nobody."""
        self._last, reward, terminated, truncated, infos = self._pool.step(actions)
        return self._last, reward, terminated, truncated, infos

    def close_extras(self, **kwargs: Any) -> None:
        """Close the pool."""
        self._pool.close()

    def _make(self, seed: np.random.SeedSequence) -> Any:
        # A seed per world: given one, envpool counts upwards from it, and runs would share worlds.
        seeds = (seed.generate_state(self._arguments["num_envs"]) >> 1).astype(int).tolist()
        try:
            return _envpool().make(**self._arguments, seed=seeds)
        except (TypeError, AssertionError) as error:
            name = self._arguments["task_id"]
            raise ConfigError(f"envpool cannot make '{name}': {error}") from error


def _envpool() -> Any:
    try:
        import envpool  # pyright: ignore[reportMissingImports]  in the extra `envpool` only
    except ModuleNotFoundError as error:
        raise MissingExtraError("envpool", "envpool", "env.engine=envpool") from error
    return envpool


def _replaced(all_of: Any, ids: np.ndarray, some: Any) -> Any:
    """A copy of observations of all worlds with those of `ids` put in place."""
    if isinstance(all_of, Mapping):
        return {key: _replaced(part, ids, some[key]) for key, part in all_of.items()}
    copy = np.array(all_of)
    copy[ids] = some
    return copy
