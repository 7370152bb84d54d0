"""Manager-based and direct vector environments on torch tensors as a `BatchEnv`.

What differs between packages (who resets when, where the last observation is) is behind
`TorchWorlds`; groups, actions, ends, logs, faults and random generators are read here, once.
mjlab has spaces of its own, Isaac Lab has Gymnasium's; both say `shape`, bounds and, where a group
is a dict of terms, `spaces`.

mjlab and Isaac Lab draw from torch's, NumPy's and Python's global generators and seed them on
reset. Left alone, an evaluation would seed training anew, the same way every time: each environment
has global generators of its own, put in place while it works.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec, Obs
from robot_rl.core.errors import ConfigError, ShapeError, SpecMismatchError, unknown_name
from robot_rl.core.observation import IMAGE_PREFIX
from sim.adapters.spaces import ActionBounds, GroupLayout, leaves_of, part_of
from sim.adapters.torch_envs.config import TorchWorldsConfig
from sim.env import FaultFlags


@dataclass(frozen=True, kw_only=True)
class WorldStep:
    """One step of N worlds, some of which ended and began anew.

    Observations are the package's own: group -> (N, ...), or group -> term -> (N, ...), and may be
    overwritten by the next step.
    """

    stayed: Mapping[str, Any]
    """Observations of envs whose episode continues; other rows mean nothing."""
    final: Mapping[str, Any] | None
    """Last observations of envs whose episode ended; other rows mean nothing. None if lost."""
    begun: Mapping[str, Any]
    """First observations of envs that were reset; other rows mean nothing."""
    reward: Tensor
    """(N,)."""
    terminated: Tensor
    """(N,) bool."""
    truncated: Tensor
    """(N,) bool; may be set together with `terminated`."""
    log: Mapping[str, Any]
    """Log of the task in this step: numbers, or tensors () or (N,)."""
    stepped: bool = True
    """False if all worlds only began anew."""


class TorchWorlds(Protocol):
    """N worlds of a package; whoever calls sees to the global random generators."""

    num_envs: int
    """N."""
    env: Any
    """The package's environment itself."""

    @property
    def steps(self) -> int:
        """Steps since the run began, which the task's schedules follow."""
        ...

    @steps.setter
    def steps(self, value: int) -> None: ...

    def reset(self, seed: int | None, ids: Tensor | None) -> Mapping[str, Any]:
        """Begin new episodes.

        Args:
            seed: Of all that is random; None goes on.
            ids: Worlds, int64; None for all.

        Returns:
            Observations; rows of other worlds mean nothing.
        """
        ...

    def step(self, action: Tensor) -> WorldStep:
        """Apply actions (N, A), in the task's own units."""
        ...

    def term(self, name: str) -> Tensor | None:
        """(N,) bool: a termination term in the last step; None where there are no such terms."""
        ...

    def close(self) -> None:
        """Release the worlds; allowed more than once."""
        ...


_POLICY_GROUPS = ("actor", "policy")
"""Names of the policy's group in mjlab and Isaac Lab."""
_CHANNELS = (1, 3)
"""Numbers of channels of a picture."""
_ROUNDING = 1e-3
"""Distance from [0, 1] that numbers of pictures may have."""


class TorchLayout(GroupLayout):
    """Reads our groups from observations that are tensors."""

    def __init__(
        self,
        space: Any,
        groups: Mapping[str, Sequence[str]],
        orders: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Lay out the groups.

        Args:
            space: Observations of one world, group -> space or dict of spaces.
            groups: Ours -> theirs; empty finds actor and critic by their usual names, and makes a
                group of every picture.
            orders: Part -> its columns in another order.

        Raises:
            ConfigError: A part is no vector of numbers and no picture, or is unknown.
        """
        self._channels_first: set[str] = set()
        """Groups whose pictures come as channels, height, width."""
        self._looked_at: set[str] = set()
        """Groups whose numbers were seen to be from 0 to 1."""
        super().__init__(space, groups or self._usual(space))
        self._orders = {
            path: torch.as_tensor(order)
            for path, order in (orders or {}).items()
            if path in self._widths
        }

    def is_image(self, space: Any) -> bool:
        """True for what is no vector of numbers."""
        return len(space.shape) > 2 or "uint8" in str(space.dtype)

    def read_pictures(self, observation: Mapping[str, Any], group: str) -> Tensor:
        """The newest frame of a group of pictures, (N, 1, height, width, C) uint8.

        Numbers are looked at once; later ones beyond [0, 1] are brought to its ends, NaN to 0.

        Raises:
            ShapeError: They have another shape, or the first are numbers outside [0, 1].
        """
        (path,), size = self._parts[group], self.images[group]
        value = part_of(observation, path)
        pictures = value.permute(0, 2, 3, 1) if group in self._channels_first else value
        pictures = pictures.reshape(len(value), *size) if pictures.ndim < 4 else pictures
        if tuple(pictures.shape[1:]) != size:
            raise ShapeError(
                f"pictures of the observation '{path}' have the shape {tuple(value.shape[1:])}; "
                f"expected those of its space, {size} as height, width, channels"
            )
        if pictures.dtype is not torch.uint8:
            if group not in self._looked_at:
                self._looked_at.add(group)
                _check_range(pictures, path)
            shares = pictures.nan_to_num(0.0).clamp(0.0, 1.0)
            pictures = (shares * 255).round().to(torch.uint8)
        return pictures.unsqueeze(1).contiguous()

    def sums(self, observation: Mapping[str, Any]) -> dict[str, Tensor]:
        """Sums of pictures that are numbers, (N, 1) each: finite if the pictures are."""
        found: dict[str, Tensor] = {}
        for group in self.images:
            value = part_of(observation, self._parts[group][0])
            if value.dtype is not torch.uint8:
                found[group] = value.flatten(1).sum(-1, keepdim=True)
        return found

    def _picture(
        self, group: str, paths: Sequence[str], leaves: Mapping[str, Any]
    ) -> tuple[int, int, int]:
        """Height, width and channels of pictures with the channels first or last."""
        shape = tuple(leaves[paths[0]].shape)
        size = _size(shape)
        if size is None or len(paths) > 1:
            raise ConfigError(
                f"the group '{group}' is {', '.join(paths)} of shape {shape}; expected one "
                "picture, height x width x channels or the channels first, with 1 or 3 of them"
            )
        if size != shape:
            self._channels_first.add(group)
        return size

    def _usual(self, space: Any) -> dict[str, list[str]]:
        """Actor and critic by their usual names, and every picture as a group."""
        leaves = leaves_of(space)
        pictures = [path for path, leaf in leaves.items() if _size(leaf.shape) is not None]

        def vectors(name: str) -> list[str]:
            below = (path for path in leaves if path.partition("/")[0] == name)
            return [path for path in below if path not in pictures]

        actor = next((name for name in _POLICY_GROUPS if name in space.spaces), None)
        if actor is None:
            raise ConfigError(
                f"the task has no observation group called {' or '.join(_POLICY_GROUPS)}; say "
                "which group is what the policy sees: env.groups.actor=[...], known: "
                f"{', '.join(space.spaces)}"
            )
        found = {"actor": vectors(actor), "critic": vectors("critic")}
        # What only the critic sees must be asked for: policies see all cameras that there are.
        seen = (path for path in pictures if path.partition("/")[0] != "critic")
        found |= {IMAGE_PREFIX + path: [path] for path in seen}
        return {name: paths for name, paths in found.items() if paths}

    def read(self, observation: Mapping[str, Any], group: str) -> Tensor:
        """One of our groups, (N, width) float32, in memory of its own.

        Raises:
            ShapeError: An observation is wider or narrower than its space says.
        """
        parts: list[Tensor] = []
        for path in self._parts[group]:
            value = part_of(observation, path)
            value = value.reshape(len(value), -1)
            if value.shape[1] != self._widths[path]:
                raise ShapeError(
                    f"the observation '{path}' is {value.shape[1]} wide; its space says "
                    f"{self._widths[path]}"
                )
            order = self._orders.get(path)
            parts.append(value if order is None else value[:, order.to(value.device)])
        return torch.cat(parts, dim=-1).to(torch.float32, copy=len(parts) == 1)


def _check_range(pictures: Tensor, path: str) -> None:
    low, high = (float(end) for end in pictures.aminmax())
    if not (low >= -_ROUNDING and high <= 1.0 + _ROUNDING):
        raise ShapeError(
            f"pictures of the observation '{path}' go from {low:.3g} to {high:.3g}; expected "
            "bytes, or numbers from 0 to 1: switch off what normalises them, or leave them out "
            "with env.groups"
        )


def _size(shape: Sequence[int]) -> tuple[int, int, int] | None:
    """Height, width and channels of a picture, these first or last; None for anything else."""
    if len(shape) != 3:
        return None
    first, middle, last = shape
    if last in _CHANNELS:
        return first, middle, last
    return (middle, last, first) if first in _CHANNELS else None


class ActionRange(ActionBounds):
    """From [-1, 1] to what a task takes; where it has no bound, to the same."""

    def __init__(
        self, space: Any, low: Sequence[float], high: Sequence[float], device: torch.device
    ) -> None:
        """Find the bounds, as `ActionBounds`."""
        super().__init__(space, low, high, missing=(-1.0, 1.0))
        middle, half = 0.5 * (self.low + self.high), 0.5 * (self.high - self.low)
        self._middle, self._half = (
            torch.from_numpy(part).to(device, torch.float32) for part in (middle, half)
        )

    def to_native(self, action: Tensor) -> Tensor:
        """Actions (N, A), in [-1, 1], as the task takes them (N, ...)."""
        return (self._middle + self._half * action).reshape(-1, *self._shape)


class RandomStreams:
    """Global generators of an environment's own: put in place while it works, taken out after."""

    def __init__(self, device: torch.device) -> None:
        """Begin with the generators as they are.

        Args:
            device: Whose generator of torch is used beside the CPU's.
        """
        self._cuda = device if device.type == "cuda" else None
        self._own = self._read()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """While this lasts, the global generators are the environment's."""
        outside = self._read()
        self._write(self._own)
        try:
            yield
        finally:
            self._own = self._read()
            self._write(outside)

    def _read(self) -> tuple[Any, ...]:
        cuda = None if self._cuda is None else torch.cuda.get_rng_state(self._cuda)
        return torch.get_rng_state(), cuda, np.random.get_state(), random.getstate()

    def _write(self, states: tuple[Any, ...]) -> None:
        cpu, cuda, numpy, python = states
        torch.set_rng_state(cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state(cuda, self._cuda)
        np.random.set_state(numpy)
        random.setstate(python)


class TorchWorldsEnv:
    """N worlds of another package; their state cannot be saved (`spec.resumable`)."""

    def __init__(
        self,
        worlds: TorchWorlds,
        layout: TorchLayout,
        config: TorchWorldsConfig,
        *,
        device: torch.device,
        seed: int,
        stagger: bool,
        streams: RandomStreams,
    ) -> None:
        """Describe the worlds and begin their first episodes.

        Args:
            stagger: End first episodes at different times, so that the worlds do not reset
                all at once.

        Raises:
            ConfigError: Actions cannot be learned from, or a name of the config is unknown.
        """
        env = worlds.env
        self._worlds, self._layout = worlds, layout
        self._streams, self._stagger = streams, stagger
        self._range = ActionRange(
            env.single_action_space, config.action_low, config.action_high, device
        )
        self._finite = bool(getattr(env.cfg, "is_finite_horizon", False))
        self._success = tuple(config.success)
        manager = getattr(env, "termination_manager", None)
        for name in self._success:
            if manager is not None and name not in manager.active_terms:
                raise ConfigError(
                    unknown_name("termination term of env.success", name, manager.active_terms)
                )
        count = worlds.num_envs
        self.spec = EnvSpec(
            num_envs=count,
            device=device,
            groups={
                **{name: GroupSpec(shape=(size,)) for name, size in layout.sizes.items()},
                **{
                    name: GroupSpec(shape=(1, *size), dtype=torch.uint8)
                    for name, size in layout.images.items()
                },
            },
            action_size=self._range.size,
            control_dt=float(env.step_dt),
            metric_names=tuple(config.metrics),
            judges_success=bool(config.success),
            resumable=False,
        )
        self._none = torch.zeros(count, dtype=torch.bool, device=device)
        self._metrics = {
            name: torch.full((count,), float("nan"), device=device) for name in config.metrics
        }
        self._logged: set[str] = set()
        """Keys of the task's log that were seen."""
        self._flags = FaultFlags(count, device)
        self._seed, self._obs = seed, Obs()
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
        if seed is not None:
            self._seed = seed
        native = None if seed is None else _native_seed(seed)
        if mask is None or bool(mask.all()):
            self._begin(native)
        elif native is not None:
            raise SpecMismatchError(
                "reset was asked to seed some of the worlds; their random streams are common: seed "
                "all of them, or none"
            )
        elif bool(mask.any()):
            with self._streams.entered():
                begun = self._worlds.reset(None, mask.nonzero()[:, 0])
                self._obs = self._where(mask, self._read(begun), self._obs)
        return self._obs

    def step(self, action: Tensor) -> EnvStep:
        """Apply actions for one control period and begin anew where an episode ended."""
        self.spec.check_action(action)
        asked, before = action, self._obs
        action = torch.nan_to_num(asked, nan=0.0).clamp(-1.0, 1.0)  # `check` tells of a NaN
        with self._streams.entered():
            step = self._worlds.step(self._range.to_native(action))
            terminated = step.terminated.bool().clone()
            truncated = step.truncated.bool() & ~terminated
            if self._finite:  # what the time limit ends has no future value
                terminated, truncated = terminated | truncated, self._none
            ended = terminated | truncated
            stayed = self._read(step.stayed)
            # Lost, it is the one before: no value is bootstrapped from it where the task ended.
            final = self._obs
            if step.final is not None:
                final = stayed if step.final is step.stayed else self._read(step.final)
            begun = stayed if step.begun is step.stayed else self._read(step.begun)
            next_obs = self._where(ended, final, stayed)
            self._obs = self._where(ended, begun, stayed)
            success = self._none
            if step.stepped:
                success = self._succeeded(step.log) & ended
            else:
                self._stagger_ends()
        lost = truncated if step.final is None else self._none
        if not step.stepped:
            lost = ~self._none
        reward = step.reward.float().clone()
        # NaN also where the step began with what is no number: nobody else looks at first obs.
        numbers = {name: next_obs[name] + before[name] * 0.0 for name in self._layout.sizes}
        numbers |= self._layout.sums(step.stayed)
        if step.final is not None and step.final is not step.stayed:
            for name, sums in self._layout.sums(step.final).items():
                numbers[name] = torch.where(ended[:, None], sums, numbers[name])
        watched = {**numbers, "reward": reward[:, None], "action": asked}
        valid = self._flags.watch(watched, excused=lost)
        self._note(step.log)
        return EnvStep(
            obs=self._obs,
            next_obs=next_obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            success=success,
            valid=valid,
            action=action,
            intervened=self._none,
            metrics=self._metrics,
        )

    def check(self) -> None:
        """Raise NonFiniteError for what was no number, ConfigError for a metric never told."""
        columns = {name: self._layout.column_names(name) for name in self._layout.sizes}
        columns |= {name: [name] for name in self._layout.images}
        columns["reward"] = ["reward"]
        columns["action"] = [f"entry {i}" for i in range(self.spec.action_size)]
        self._flags.check(columns)
        for name in self._metrics:
            if name not in self._logged:
                raise ConfigError(unknown_name("key of env.metrics", name, self._logged))

    def state_dict(self) -> dict[str, Any]:
        """Seed and steps that choose unseen starts; the envs' own state is out of reach."""
        return {"seed": self._seed, "steps": self._worlds.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin new episodes in all worlds, the same ones for the same state.

        Schedules over the steps of a run go on; what a curriculum keeps per world begins anew.
        """
        self._seed = int(state["seed"])
        self._worlds.steps = int(state["steps"])
        self._begin(_native_seed(self._seed, int(state["steps"])))

    def close(self) -> None:
        """Close the worlds."""
        self._worlds.close()

    def _begin(self, seed: int | None) -> None:
        with self._streams.entered():
            self._obs = self._read(self._worlds.reset(seed, None))
            self._stagger_ends()
        self._note(getattr(self._worlds.env, "extras", {}).get("log", {}))

    def _stagger_ends(self) -> None:
        if self._stagger:
            ages = self._worlds.env.episode_length_buf
            ages[:] = torch.randint_like(ages, max(1, self._worlds.env.max_episode_length))

    def _read(self, observation: Mapping[str, Any]) -> Obs:
        """Our groups, in memory of their own: the package may overwrite its buffers."""
        layout = self._layout
        read = {name: layout.read(observation, name) for name in layout.sizes}
        read |= {name: layout.read_pictures(observation, name) for name in layout.images}
        for name, group in read.items():
            if len(group) != self.spec.num_envs:
                raise ShapeError(
                    f"the observations of group '{name}' are of {len(group)} worlds; expected "
                    f"{self.spec.num_envs}"
                )
        return read

    def _where(self, mask: Tensor, one: Obs, other: Obs) -> Obs:
        return {
            name: torch.where(mask.view(-1, *[1] * (group.ndim - 1)), one[name], group)
            for name, group in other.items()
        }

    def _succeeded(self, log: Mapping[str, Any]) -> Tensor:
        """(N,) bool: a term of success is true; direct tasks say so in their log."""
        found = self._none
        for name in self._success:
            told = self._worlds.term(name)
            told = log.get(name) if told is None else told
            if not isinstance(told, Tensor) or told.shape != self._none.shape:
                raise ConfigError(
                    f"env.success has '{name}', which the task's log does not tell for each of "
                    f"{self.spec.num_envs} worlds; known: {', '.join(log) or 'nothing'}"
                )
            found = found | told.bool()
        return found

    def _note(self, log: Mapping[str, Any]) -> None:
        """Keep what the task logged: the last value of every metric, in all worlds."""
        self._logged.update(log)
        for name, kept in self._metrics.items():
            if name in log:
                told = log[name]
                kept.copy_(told) if isinstance(told, Tensor) else kept.fill_(float(told))


def _native_seed(*origin: int) -> int:
    """A seed that NumPy's old generator takes."""
    return int(np.random.SeedSequence(origin).generate_state(1)[0] >> 1)
