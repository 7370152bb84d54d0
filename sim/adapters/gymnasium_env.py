"""Any Gymnasium environment as a `BatchEnv`, with the true successor of every step.

Gymnasium's vector environments begin new episodes in one of three ways (`AutoresetMode`):

- SAME_STEP: in the step that ends; the last observation is in `infos["final_obs"]`.
- DISABLED: when asked; they are asked in the step that ends. To the caller it is the same.
- NEXT_STEP: in the step after, which ignores its action. That row is marked invalid.

Steps and resets run on the host, whatever the device of the tensors.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from torch import Tensor

from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec, Obs
from robot_rl.core.errors import ConfigError, SpecMismatchError, unknown_name
from sim.adapters.gymnasium_config import GymnasiumConfig
from sim.env import FaultFlags


class ObservationLayout:
    """Parts of an observation and their places in our groups."""

    def __init__(self, space: gymnasium.Space[Any], groups: Mapping[str, Sequence[str]]) -> None:
        """Lay out the groups.

        Args:
            space: Observation space of one world: a Box, or a Dict of them.
            groups: Group -> keys of the Dict; empty puts everything into `actor`.

        Raises:
            ConfigError: A part is no vector of numbers, or a key is unknown.
        """
        leaves = dict(_leaves(space, ""))
        self._keys = {name: list(keys) for name, keys in groups.items()} or {"actor": list(leaves)}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for name, keys in self._keys.items():
            for key in keys:
                if key not in leaves:
                    raise ConfigError(unknown_name(f"key of env.groups.{name}", key, leaves))
                self._shapes[key] = _vector(leaves[key], key).shape
        self.sizes = {
            name: sum(int(np.prod(self._shapes[key])) for key in keys)
            for name, keys in self._keys.items()
        }
        """Width of every group."""

    def column_names(self, group: str) -> list[str]:
        """Name of every column of a group, for messages."""
        return [
            f"{key or 'observation'}[{i}]"
            for key in self._keys[group]
            for i in range(int(np.prod(self._shapes[key])))
        ]

    def write(self, observation: Any, out: Obs) -> None:
        """Write observations of N worlds, as one structure of arrays (N, ...), into the groups."""
        for name, keys in self._keys.items():
            parts = [
                np.reshape(_part(observation, key), (len(out[name]), -1)).astype(np.float32)
                for key in keys
            ]
            joined = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
            out[name].copy_(torch.from_numpy(joined))

    def write_world(self, observation: Any, out: Obs, world: int) -> None:
        """Write the observation of one world into its row of the groups."""
        for name, keys in self._keys.items():
            parts = [np.ravel(_part(observation, key)).astype(np.float32) for key in keys]
            out[name][world] = torch.from_numpy(np.concatenate(parts))


class ActionScale:
    """From [-1, 1] to the bounds of an action space."""

    def __init__(
        self, space: gymnasium.Space[Any], low: Sequence[float], high: Sequence[float]
    ) -> None:
        """Find the bounds.

        Args:
            space: Action space of one world.
            low: What -1 means: one number, one per entry, or none for the space's own bound.
            high: What 1 means, likewise.

        Raises:
            ConfigError: Actions are not continuous, or have no bounds.
        """
        if not isinstance(space, gymnasium.spaces.Box) or space.dtype.kind != "f":
            raise ConfigError(
                f"the action space is {space}; expected a Box of real numbers, as policies here "
                "are continuous: choose another environment, or wrap it"
            )
        self._space = space
        self.size = int(np.prod(space.shape))
        """A."""
        self._low = self._bound("low", low, space.low)
        self._high = self._bound("high", high, space.high)
        if not (self._low < self._high).all():
            raise ConfigError(
                f"actions go from {self._low.tolist()} to {self._high.tolist()}; expected every "
                "low below its high: check env.action_low and env.action_high"
            )

    def to_native(self, action: Tensor) -> np.ndarray:
        """Actions (N, A), in [-1, 1], as the space's own (N, ...)."""
        unit = action.cpu().numpy().astype(np.float64)
        native = self._low + 0.5 * (unit + 1.0) * (self._high - self._low)
        # The ends exactly: half a rounding outside is an error to a strict environment.
        native = native.clip(self._low, self._high).astype(self._space.dtype)
        return native.reshape(-1, *self._space.shape)

    def _bound(self, name: str, given: Sequence[float], own: np.ndarray) -> np.ndarray:
        if len(given) not in (0, 1, self.size):
            raise ConfigError(
                f"env.action_{name} has {len(given)} numbers; expected one, or one for each of the "
                f"{self.size} entries of {self._space}"
            )
        own = own.ravel().astype(np.float64)
        bound = np.broadcast_to(np.array(given, dtype=np.float64), own.shape) if given else own
        if not np.isfinite(bound).all():
            raise ConfigError(
                f"the action space {self._space} has no bounds; say what -1 and 1 mean with "
                "env.action_low=[...] and env.action_high=[...]"
            )
        return bound


def _leaves(space: gymnasium.Space[Any], path: str) -> list[tuple[str, gymnasium.Space[Any]]]:
    """Every part of a space with its path: `a/b` in nested Dicts, empty for the space itself."""
    if not isinstance(space, gymnasium.spaces.Dict):
        return [(path, space)]
    return [
        leaf
        for key, part in space.spaces.items()
        for leaf in _leaves(part, f"{path}/{key}" if path else key)
    ]


def _vector(space: gymnasium.Space[Any], path: str) -> gymnasium.spaces.Box:
    what = f"the observation '{path}'" if path else "the observation"
    if not isinstance(space, gymnasium.spaces.Box):
        raise ConfigError(
            f"{what} is {space}; expected a Box, or a Dict of them: leave it out with env.groups, "
            "or wrap the environment, with gymnasium.wrappers.FlattenObservation for example"
        )
    if space.dtype == np.uint8 and len(space.shape) == 3:
        raise ConfigError(
            f"{what} is an image of shape {space.shape}; expected vectors, as images of foreign "
            "environments are not read yet: leave it out with env.groups"
        )
    return space


def _part(observation: Any, path: str) -> np.ndarray:
    for key in filter(None, path.split("/")):
        observation = observation[key]
    return np.asarray(observation)


class GymnasiumEnv:
    """N worlds of a Gymnasium environment; their state cannot be saved (`spec.resumable`)."""

    def __init__(
        self,
        worlds: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any],
        config: GymnasiumConfig,
        *,
        device: torch.device,
        seed: int,
    ) -> None:
        """Describe the worlds and begin their first episodes.

        Args:
            worlds: A vector environment, or a single one.
            config: How to read it; `id` and `kwargs` are the maker's business.

        Raises:
            ConfigError: Its actions or observations cannot be learned from, or have no bounds.
            SpecMismatchError: It does not say how it begins new episodes.
        """
        if isinstance(worlds, gymnasium.Env):
            single = worlds
            worlds = SyncVectorEnv([lambda: single], autoreset_mode=AutoresetMode.SAME_STEP)
        self._worlds = worlds
        self._mode = _autoreset_mode(worlds)
        self._layout = ObservationLayout(worlds.single_observation_space, config.groups)
        self._scale = ActionScale(worlds.single_action_space, config.action_low, config.action_high)
        self._success_keys, self._metric_keys = tuple(config.success), tuple(config.metrics)
        count = worlds.num_envs
        self.spec = EnvSpec(
            num_envs=count,
            device=device,
            groups={name: GroupSpec(shape=(size,)) for name, size in self._layout.sizes.items()},
            action_size=self._scale.size,
            control_dt=config.control_dt or 1.0 / (worlds.metadata.get("render_fps") or 1.0),
            metric_names=self._metric_keys,
            judges_success=bool(config.success),
            resumable=False,
        )
        self._obs: Obs = {
            name: torch.zeros(count, size, device=device)
            for name, size in self._layout.sizes.items()
        }
        self._next_obs: Obs = {name: torch.zeros_like(group) for name, group in self._obs.items()}
        self._none = torch.zeros(count, dtype=torch.bool, device=device)
        self._waiting = np.zeros(count, dtype=np.bool_)  # NEXT_STEP: ended, not begun anew
        self._flags = FaultFlags(count, device)
        self._seed, self._steps = seed, 0
        self.reset(seed=seed)

    def reset(
        self,
        seed: int | None = None,
        mask: Tensor | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Obs:
        """Start new episodes in all or in the masked worlds; a state only chooses fresh starts."""
        self.spec.check_reset(mask, state)
        if state is not None:
            self.load_state_dict(state)
            return self._obs
        seeds = None
        if seed is not None:
            self._seed, self._steps = seed, 0
            seeds = self._world_seeds((seed,))
        if mask is None:
            observation, _ = self._worlds.reset(seed=seeds)
            self._layout.write(observation, self._obs)
            self._waiting[:] = False
        else:
            self._begin(mask.cpu().numpy(), seeds)
        return self._obs

    def step(self, action: Tensor) -> EnvStep:
        """Apply actions for one control period and begin anew where an episode ended."""
        self.spec.check_action(action)
        asked = action
        action = torch.nan_to_num(asked, nan=0.0).clamp(-1.0, 1.0)  # `check` tells of a NaN
        observation, reward, terminated, truncated, infos = self._worlds.step(
            self._scale.to_native(action)
        )
        self._steps += 1
        begun = self._waiting.copy()  # rows that only began anew: no step was taken in them
        terminated = np.asarray(terminated, dtype=np.bool_) & ~begun
        truncated = np.asarray(truncated, dtype=np.bool_) & ~begun & ~terminated
        ended = terminated | truncated

        self._layout.write(observation, self._obs)
        for name, group in self._obs.items():
            self._next_obs[name].copy_(group)
        if self._mode is AutoresetMode.SAME_STEP:
            self._put_final(infos, ended)
        elif self._mode is AutoresetMode.DISABLED:
            self._begin(ended, None)
        else:
            self._waiting[:] = ended

        device = self.spec.device
        skipped = torch.from_numpy(begun).to(device)
        gained = torch.from_numpy(np.asarray(reward, dtype=np.float32)).to(device)
        gained = torch.where(skipped, 0.0, gained)
        watched = {**self._next_obs, "reward": gained[:, None], "action": asked}
        valid = self._flags.watch(watched, excused=skipped)
        return EnvStep(
            obs=self._obs,
            next_obs=self._next_obs,
            reward=gained,
            terminated=torch.from_numpy(terminated).to(device),
            truncated=torch.from_numpy(truncated).to(device),
            success=torch.from_numpy(self._succeeded(infos) & ended).to(device),
            valid=valid,
            action=action,
            intervened=self._none,
            metrics={
                name: torch.from_numpy(self._told(infos, name)).to(device)
                for name in self._metric_keys
            },
        )

    def check(self) -> None:
        """Raise NonFiniteError for observations, rewards or actions that were not numbers."""
        columns = {name: self._layout.column_names(name) for name in self._obs}
        columns["reward"] = ["reward"]
        columns["action"] = [f"entry {i}" for i in range(self.spec.action_size)]
        self._flags.check(columns)

    def state_dict(self) -> dict[str, Any]:
        """Seed and steps that choose unseen starts; the envs' own state is out of reach."""
        return {"seed": self._seed, "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin new episodes in all worlds, the same ones for the same state."""
        self._seed, self._steps = int(state["seed"]), int(state["steps"])
        observation, _ = self._worlds.reset(seed=self._world_seeds((self._seed, self._steps)))
        self._layout.write(observation, self._obs)
        self._waiting[:] = False

    def close(self) -> None:
        """Close the worlds, and their processes."""
        self._worlds.close()

    def _world_seeds(self, origin: tuple[int, ...]) -> Any:
        """A seed per world: adding to one, neighbouring runs would share worlds.

        Vector environments of others understand a single seed only.
        """
        seeds = np.random.SeedSequence(origin).generate_state(self.spec.num_envs).tolist()
        return seeds if isinstance(self._worlds, SyncVectorEnv | AsyncVectorEnv) else seeds[0]

    def _begin(self, mask: np.ndarray, seeds: Any) -> None:
        """Begin anew in the masked worlds.

        Raises:
            SpecMismatchError: The others did too.
        """
        if not mask.any():
            return
        before = {name: group.clone() for name, group in self._obs.items()}
        observation, _ = self._worlds.reset(seed=seeds, options={"reset_mask": mask})
        self._layout.write(observation, self._obs)
        self._waiting &= ~mask
        others = torch.from_numpy(~mask).to(self.spec.device)
        if any(
            ((group != before[name]) & before[name].isfinite())[others].any()
            for name, group in self._obs.items()
        ):
            raise SpecMismatchError(
                f"{self._worlds} was asked to reset some worlds and changed others; expected that "
                "it honours options['reset_mask'], which Gymnasium asks of vector environments"
            )

    def _put_final(self, infos: Mapping[str, Any], ended: np.ndarray) -> None:
        """Put the last observations of ended episodes into the true successors."""
        if not ended.any():
            return
        if "final_obs" not in infos:
            raise SpecMismatchError(
                f"{self._worlds} resets in the step that ends an episode, but its infos hold no "
                f"'final_obs', only {', '.join(infos) or 'nothing'}; without the true last "
                "observation values cannot be learned"
            )
        for world in np.flatnonzero(ended):
            self._layout.write_world(infos["final_obs"][world], self._next_obs, int(world))

    def _succeeded(self, infos: Mapping[str, Any]) -> np.ndarray:
        found = np.zeros(self.spec.num_envs, dtype=np.bool_)
        for key in self._success_keys:
            found |= self._told(infos, key) > 0
        return found

    def _told(self, infos: Mapping[str, Any], key: str) -> np.ndarray:
        """An info of all worlds, float32; where an episode ended, the one of its last step."""
        values = np.zeros(self.spec.num_envs, dtype=np.float32)
        for source in (infos, infos.get("final_info", {})):
            if key in source:
                told = source.get(f"_{key}", np.ones(len(values), dtype=np.bool_))
                values[told] = np.asarray(source[key])[told]
        return values


def _autoreset_mode(worlds: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    mode = worlds.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = ", ".join(each.name for each in AutoresetMode)
        raise SpecMismatchError(
            f"{worlds} says metadata['autoreset_mode'] = {mode!r}; expected one of {known}: else "
            "nobody can tell which observation ends an episode"
        ) from None
