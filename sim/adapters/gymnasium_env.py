"""Any Gymnasium environment as a `BatchEnv`, with the true successor of every step.

Gymnasium's vector environments begin new episodes in one of three ways (`AutoresetMode`):

- SAME_STEP: in the step that ends; the last observation is in `infos["final_obs"]`.
- DISABLED: when asked; they are asked in the step that ends. To the caller it is the same.
- NEXT_STEP: in the step after, which ignores its action. That row is marked invalid.

Steps and resets run on the host, whatever the device of the tensors.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from torch import Tensor

from robot_rl.core.action import within_bounds
from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec, Obs, choice_rows
from robot_rl.core.errors import ConfigError, SpecMismatchError
from sim.adapters.gymnasium_config import GymnasiumConfig
from sim.adapters.spaces import ActionBounds, GroupLayout, part_of
from sim.env import FaultFlags

_logger = logging.getLogger(__name__)


class ObservationLayout(GroupLayout):
    """Reads observations of NumPy as the newest frames of our groups."""

    def __init__(
        self, space: Any, groups: Mapping[str, Sequence[str]], image_size: Sequence[int]
    ) -> None:
        """Lay out the groups.

        Args:
            image_size: Height and width that images are brought to; empty for their own.
        """
        super().__init__(space, groups, takes_images=True)
        self._resized = bool(image_size)
        if image_size:
            height, width = image_size
            self.images = {name: (height, width, size[2]) for name, size in self.images.items()}

    def write(self, observation: Any, out: Obs) -> None:
        """Write observations of N worlds, as one structure of arrays (N, ...), into frames."""
        for name, paths in self._parts.items():
            if name in self.images:
                out[name].copy_(self._read_images(part_of(observation, paths[0])))
                continue
            count = len(out[name])
            parts = [
                np.reshape(self._values(observation, path), (count, -1)).astype(np.float32)
                for path in paths
            ]
            joined = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
            out[name].copy_(torch.from_numpy(joined))

    def write_world(self, observation: Any, out: Obs, world: int) -> None:
        """Write the observation of one world into its row of frames."""
        for name, paths in self._parts.items():
            if name in self.images:
                out[name][world] = self._read_images(part_of(observation, paths[0])[None])[0]
                continue
            parts = [np.ravel(self._values(observation, path)).astype(np.float32) for path in paths]
            out[name][world] = torch.from_numpy(np.concatenate(parts))

    def _values(self, observation: Any, path: str) -> Any:
        """A part, of a choice with 1 at its number and 0 elsewhere."""
        values = part_of(observation, path)
        if path not in self._choices:
            return values
        count, first = self._choices[path]
        places = np.asarray(values, dtype=np.int64) - first
        if (places < 0).any() or (places >= count).any():
            raise SpecMismatchError(
                f"the observation '{path}' is {values}; expected {first} to {first + count - 1}"
            )
        rows = np.zeros((*places.shape, count), dtype=np.float32)
        np.put_along_axis(rows, places[..., None], 1.0, axis=-1)
        return rows

    def _read_images(self, images: np.ndarray) -> Tensor:
        """Images (N, H, W, C) uint8, in the size that is asked for; grey ones may be (N, H, W)."""
        found = torch.from_numpy(np.ascontiguousarray(images))
        found = found[..., None] if found.ndim == 3 else found
        if not self._resized:
            return found
        height, width, _ = next(iter(self.images.values()))
        areas = torch.nn.functional.interpolate(
            found.permute(0, 3, 1, 2).float(), (height, width), mode="area"
        )
        return areas.round().to(torch.uint8).permute(0, 2, 3, 1)


class ActionScale(ActionBounds):
    """From [-1, 1] to the bounds of an action space."""

    discrete = False

    def to_native(self, action: Tensor) -> np.ndarray:
        """Actions (N, A), in [-1, 1], as the space's own (N, ...)."""
        native = within_bounds(action.cpu().numpy(), self.low, self.high)
        return native.astype(self._space.dtype).reshape(-1, *self._shape)

    def accepted(self, action: Tensor) -> Tensor:
        """Part of actions (N, A), in [-1, 1], that is done: all of it."""
        return action


class ActionChoice:
    """From rows, whose largest entry is chosen, to the numbers of a discrete space."""

    discrete = True

    def __init__(self, space: gymnasium.spaces.Discrete) -> None:
        """Take over how many choices there are, and the number of the first."""
        self.size, self.first = int(space.n), int(space.start)
        """K, and the number of the first."""

    def to_native(self, action: Tensor) -> np.ndarray:
        """Numbers (N,), int64, of rows (N, K)."""
        return action.argmax(-1).cpu().numpy() + self.first

    def accepted(self, action: Tensor) -> Tensor:
        """Rows (N, K): 1 at what is chosen and -1 elsewhere."""
        return choice_rows(action.argmax(-1), self.size)


def action_scale(
    space: gymnasium.Space[Any], low: Sequence[float], high: Sequence[float]
) -> ActionScale | ActionChoice:
    """Meaning of actions in [-1, 1] in a space.

    Args:
        space: Of an action of one world.
        low: What -1 means, as of `ActionBounds`.
        high: What 1 means.

    Raises:
        ConfigError: Actions are neither numbers nor one of two choices or more, or bounds are
            missing or do not fit.
    """
    if not (isinstance(space, gymnasium.spaces.Discrete) and space.n > 1):
        return ActionScale(space, low, high)
    if low or high:
        raise ConfigError(
            f"env.action_low and env.action_high bound numbers, and the action space is {space}; "
            "leave them out"
        )
    return ActionChoice(space)


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

        Raises:
            ConfigError: Its actions or observations cannot be learned from, or have no bounds.
            SpecMismatchError: It does not say how it begins new episodes.
        """
        if isinstance(worlds, gymnasium.Env):
            single = worlds
            worlds = SyncVectorEnv([lambda: single], autoreset_mode=AutoresetMode.DISABLED)
        self._worlds = worlds
        self._mode = _autoreset_mode(worlds)
        self._layout = layout = ObservationLayout(
            worlds.single_observation_space, config.groups, config.image_size
        )
        self.scale = action_scale(worlds.single_action_space, config.action_low, config.action_high)
        """Meaning of actions in [-1, 1]."""
        self._success_keys, self._metric_keys = tuple(config.success), tuple(config.metrics)
        # Until the first episode ends.
        self._unchecked_keys = {"success": config.success, "metrics": config.metrics}
        count = worlds.num_envs
        self.spec = EnvSpec(
            num_envs=count,
            device=device,
            groups={
                **{name: GroupSpec(shape=(size,)) for name, size in layout.sizes.items()},
                **{
                    name: GroupSpec(
                        shape=(config.stack, *size), dtype=torch.uint8, stack=config.stack
                    )
                    for name, size in layout.images.items()
                },
            },
            action_size=self.scale.size,
            discrete=self.scale.discrete,
            control_dt=config.control_dt or 1.0 / (worlds.metadata.get("render_fps") or 1.0),
            metric_names=self._metric_keys,
            judges_success=bool(config.success),
            resumable=False,
        )
        self._obs: Obs = {
            name: torch.zeros(count, *group.shape, dtype=group.dtype, device=device)
            for name, group in self.spec.groups.items()
        }
        self._next_obs: Obs = {name: torch.zeros_like(group) for name, group in self._obs.items()}
        # Newest frames: of a vector all there is, of images what the stacks get next.
        self._frames, self._next_frames = self._newest(self._obs), self._newest(self._next_obs)
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
            self._layout.write(observation, self._frames)
            self._fill(np.ones_like(self._waiting))
            self._waiting[:] = False
        else:
            self._begin(mask.cpu().numpy(), seeds)
        return self._obs

    def step(self, action: Tensor) -> EnvStep:
        """Apply actions for one control period and begin anew where an episode ended."""
        self.spec.check_action(action)
        asked = action
        finite = torch.nan_to_num(asked, nan=0.0).clamp(-1.0, 1.0)  # `check` tells of a NaN
        action = self.scale.accepted(finite)
        # 0, and NaN where the step begins with what is no number: nobody else looks at first obs.
        zero = {name: self._obs[name] * 0.0 for name in self._layout.sizes}
        observation, reward, terminated, truncated, infos = self._worlds.step(
            self.scale.to_native(action)
        )
        self._steps += 1
        begun = self._waiting.copy()  # rows that only began anew: no step was taken in them
        terminated = np.asarray(terminated, dtype=np.bool_) & ~begun
        truncated = np.asarray(truncated, dtype=np.bool_) & ~begun & ~terminated
        ended = terminated | truncated
        if self._unchecked_keys and ended.any():
            self._warn_of_missing_keys(infos)

        for name in self._layout.images:
            self._obs[name][:, :-1] = self._obs[name][:, 1:].clone()
        self._layout.write(observation, self._frames)
        for name, group in self._obs.items():
            self._next_obs[name].copy_(group)
        if self._mode is AutoresetMode.SAME_STEP:
            self._put_final(infos, ended)
            self._fill(ended)
        elif self._mode is AutoresetMode.DISABLED:
            self._begin(ended, None)
        else:
            self._fill(begun)
            for name in self._layout.images if begun.any() else ():
                self._next_obs[name].copy_(self._obs[name])
            self._waiting[:] = ended

        device = self.spec.device
        skipped = torch.from_numpy(begun).to(device)
        gained = torch.from_numpy(np.asarray(reward, dtype=np.float32)).to(device)
        gained = torch.where(skipped, 0.0, gained)
        vectors = {name: self._next_obs[name] + at_start for name, at_start in zero.items()}
        watched = {**vectors, "reward": gained[:, None], "action": asked}
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
        columns = {name: self._layout.column_names(name) for name in self._layout.sizes}
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
        self._layout.write(observation, self._frames)
        self._fill(np.ones_like(self._waiting))
        self._waiting[:] = False

    def close(self) -> None:
        """Close the worlds, and their processes."""
        self._worlds.close()

    def _world_seeds(self, origin: tuple[int, ...]) -> Any:
        """A seed per world; vector environments of others understand a single one only."""
        seeds = world_seeds(origin, self.spec.num_envs)
        return seeds if isinstance(self._worlds, SyncVectorEnv | AsyncVectorEnv) else seeds[0]

    def _begin(self, mask: np.ndarray, seeds: Any) -> None:
        """Begin anew in the masked worlds.

        Raises:
            SpecMismatchError: The others did too.
        """
        if not mask.any():
            return
        before = {name: frame.clone() for name, frame in self._frames.items()}
        observation, _ = self._worlds.reset(seed=seeds, options={"reset_mask": mask})
        self._layout.write(observation, self._frames)
        self._fill(mask)
        self._waiting &= ~mask
        others = torch.from_numpy(~mask).to(self.spec.device)
        if any(
            ((frame != before[name]) & before[name].isfinite())[others].any()
            for name, frame in self._frames.items()
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
            self._layout.write_world(infos["final_obs"][world], self._next_frames, int(world))

    def _newest(self, obs: Obs) -> Obs:
        """Newest frames of the groups, views."""
        images = self._layout.images
        return {name: group[:, -1] if name in images else group for name, group in obs.items()}

    def _fill(self, begun: np.ndarray) -> None:
        """Let all frames of stacks be the newest one, in worlds (N,) whose episode has begun."""
        for world in np.flatnonzero(begun) if self._layout.images else ():
            for name in self._layout.images:
                self._obs[name][world] = self._frames[name][world].clone()

    def _warn_of_missing_keys(self, infos: Mapping[str, Any]) -> None:
        """Warn, when the first episode has ended, of keys that its last info lacks.

        No error, as some environments tell of a success only where there is one.
        """
        given = {**infos, **infos.get("final_info", {})}
        hidden = ("final_info", "final_obs")
        known = sorted(name for name in given if name[0] != "_" and name not in hidden)
        for field, names in self._unchecked_keys.items():
            for name in names:
                if name not in given:
                    _logger.warning(
                        "env.%s: '%s' was not in the info when the first episode ended (there: "
                        "%s); it counts as 0 until an episode tells it",
                        field, name, ", ".join(known) or "nothing",
                    )  # fmt: skip
        self._unchecked_keys = {}

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
                found = np.asarray(source[key])
                try:
                    values[told] = found[told]
                except (TypeError, ValueError):
                    raise ConfigError(
                        f"'{key}' of the info is {found[told][0]!r}; expected a number: "
                        "env.success and env.metrics name numbers and flags alone"
                    ) from None
        return values


def world_seeds(origin: tuple[int, ...], count: int) -> list[int]:
    """A seed for each world: adding to one, neighbouring runs would share worlds."""
    return np.random.SeedSequence(origin).generate_state(count).tolist()


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
