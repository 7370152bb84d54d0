"""Episodes out of a live environment: takes the steps of N envs, gives each episode at its end.

Worlds may end at different times. What is kept are the frames that were acted on and, of an
episode's end, the true successor: no frame of the next episode gets into it. An invalid step (a
env that the engine gave up, a lost sensor) stays in its episode as one that must not be learned
from; invalid rows before the first valid one, as foreign resets make them, belong to none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec, Obs
from robot_rl.core.errors import DatasetError
from robot_rl.core.observation import IMAGE_PREFIX
from robot_rl.datasets.episode import Episode, Flags
from robot_rl.datasets.spec import FLAGS, DatasetSpec

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """An episode that has ended."""

    world: int
    """Index of the env."""
    episode: Episode


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One step of all envs."""

    obs: dict[str, Array]
    """Acted on, (N, D) each."""
    columns: dict[str, Array]
    """Fields of `Episode`, (N, ...) each."""
    policy_version: int
    stamp_ns: int
    """Time at which `obs` was measured."""
    states: dict[str, Array]
    """Of the simulation, (N, W) each."""


class EpisodeRecorder:
    """Puts steps together; holds no more of them than the longest unfinished episode has."""

    def __init__(self, spec: DatasetSpec, *, task: str = "", source: str = "") -> None:
        """Begin empty; `begin` must come before the first `add`. `spec` is of `spec_of`."""
        self._spec, self._task, self._source = spec, task, source
        self._rows: list[_Row] = []
        self._first: NDArray[np.int64] = np.zeros(0, np.int64)
        """Row in which each env's episode began."""
        self._obs: dict[str, Array] = {}
        self._states: dict[str, Array] = {}
        self._stamp_ns = 0

    def begin(
        self, obs: Obs, *, stamp_ns: int = 0, states: Mapping[str, Tensor] | None = None
    ) -> None:  # fmt: skip
        """New episodes begin in all envs; those that did not end are forgotten.

        Args:
            stamp_ns: When it was measured [ns]; 0 in simulation.
            states: Which the simulation is in, (N, W) each, where the spec has them.
        """
        self._rows.clear()
        self._look(obs, stamp_ns, states)
        self._first = np.zeros(len(next(iter(self._obs.values()))), np.int64)

    def add(
        self, step: EnvStep, *, stamp_ns: int = 0, policy_version: int = 0,
        states: Mapping[str, Tensor] | None = None,
    ) -> list[Recorded]:  # fmt: skip
        """Keep a step, which followed the observations of the one before; all of it is copied.

        Args:
            stamp_ns: When its observations were measured [ns]; 0 in simulation.
            states: Which the simulation is in now, resets included.

        Returns:
            The episodes that ended in it, by env.

        Raises:
            DatasetError: `begin` was not called.
        """
        if not self._obs:
            raise DatasetError("a step came before the first observation; call begin(obs) first")
        columns = _columns(step, with_terms=bool(self._spec.reward_names))
        self._rows.append(_Row(
            obs=self._obs, columns=columns, policy_version=policy_version, stamp_ns=self._stamp_ns,
            states=self._states,
        ))  # fmt: skip
        after = self._groups(step.next_obs)
        ended = columns["terminated"] | columns["truncated"]
        found = self._cut(np.flatnonzero(ended), after, stamp_ns)
        self._look(step.obs, stamp_ns, states)
        self._first[ended] = len(self._rows)
        self._forget()
        return found

    def end(self) -> list[Recorded]:
        """End the recording: episodes that are not over are truncated where they are.

        Returns:
            Those that have a step, by env; a new `begin` must come before the next `add`.
        """
        if self._rows:
            last = self._rows[-1].columns
            last["truncated"] = ~last["terminated"]
        found = self._cut(np.flatnonzero(self._first < len(self._rows)), self._obs, self._stamp_ns)
        self._rows.clear()
        self._obs = {}
        return found

    def _cut(self, worlds: Array, after: dict[str, Array], stamp_ns: int) -> list[Recorded]:
        """Episodes of envs whose last step was the newest one."""
        cut = [(int(world), self._episode(int(world), after, stamp_ns)) for world in worlds]
        return [Recorded(world=world, episode=one) for world, one in cut if one is not None]

    def _episode(self, world: int, after: dict[str, Array], stamp_ns: int) -> Episode | None:
        rows = self._rows[self._first[world] :]
        valid: Flags = np.array([row.columns["valid"][world] for row in rows])
        if not valid.any():
            return None
        rows = rows[int(np.argmax(valid)) :]
        columns: dict[str, Any] = {
            name: np.stack([row.columns[name][world] for row in rows]) for name in rows[0].columns
        }
        frames = {
            name: np.stack([*(row.obs[name][world] for row in rows), last[world]])
            for name, last in after.items()
        }
        return Episode(
            obs={name: frames[name] for name in self._spec.groups},
            images={name: frames[IMAGE_PREFIX + name] for name in self._spec.images},
            states={
                name: np.stack([row.states[name][world] for row in rows])
                for name in self._spec.states
            },
            policy_version=np.array([row.policy_version for row in rows], np.int64),
            stamp_ns=np.array([*(row.stamp_ns for row in rows), stamp_ns], np.int64),
            task=self._task,
            source=self._source,
            **{"reward_terms": None, **columns},
        )

    def _look(self, obs: Obs, stamp_ns: int, states: Mapping[str, Tensor] | None) -> None:
        self._obs, self._stamp_ns = self._groups(obs), stamp_ns
        given = states or {}
        if set(given) != set(self._spec.states):
            raise DatasetError(
                f"states of the simulation {sorted(given)} were to be recorded; expected those of "
                f"the data set, {sorted(self._spec.states)}"
            )
        self._states = {name: _copied(state) for name, state in given.items()}

    def _groups(self, obs: Obs) -> dict[str, Array]:
        vectors = {name: _copied(obs[name]) for name in self._spec.groups}
        return vectors | {
            IMAGE_PREFIX + name: _newest_frame(obs[IMAGE_PREFIX + name])
            for name in self._spec.images
        }

    def _forget(self) -> None:
        """Drop rows that no unfinished episode has."""
        old = int(self._first.min())
        del self._rows[:old]
        self._first -= old


def spec_of(env: EnvSpec, states: Mapping[str, int] | None = None) -> DatasetSpec:
    """Spec of an environment's episodes: its vectors and cameras, and these parts of its state.

    Raises:
        DatasetError: It has none, or a group that no table can hold.
    """
    return DatasetSpec(
        groups={name: group.shape[0] for name, group in env.groups.items() if _is_vector(group)},
        action_size=env.action_size,
        control_dt=env.control_dt,
        reward_names=env.reward_names,
        robot=None if env.robot is None else env.robot.identity(),
        judges_success=env.judges_success,
        meaning=env.meaning,
        states=dict(states or {}),
        images={
            name.removeprefix(IMAGE_PREFIX): group.shape[-3:]
            for name, group in env.groups.items()
            if _is_camera(name, group)
        },
    )


def left_out(env: EnvSpec) -> Sequence[str]:
    """Groups that are not recorded: neither vectors nor images of a form that a video can have."""
    return [
        name
        for name, group in env.groups.items()
        if not _is_vector(group) and not _is_camera(name, group)
    ]


def _is_vector(group: GroupSpec) -> bool:
    return len(group.shape) == 1 and group.dtype is torch.float32


def _is_camera(name: str, group: GroupSpec) -> bool:
    """Images of one or three channels, alone or several frames at once, (S, H, W, C)."""
    fits = len(group.shape) in (3, 4) and group.shape[-1] in (1, 3) and min(group.shape[-3:-1]) > 1
    return name.startswith(IMAGE_PREFIX) and group.dtype is torch.uint8 and fits


def _columns(step: EnvStep, *, with_terms: bool) -> dict[str, Array]:
    names = ["action", "reward", *FLAGS, *(["reward_terms"] if with_terms else [])]
    given = {name: getattr(step, name) for name in names}
    columns = {name: _copied(value) for name, value in given.items() if value is not None}
    columns["truncated"] &= ~columns["terminated"]
    return columns


def _newest_frame(images: Tensor) -> Array:
    """Newest of stacked frames, (N, H, W, C): the others are in the observations before."""
    return _copied(images[:, -1] if images.ndim == 5 else images)


def _copied(values: Tensor) -> Array:
    """On the host, and of its own: the environment overwrites its tensors in the next step."""
    return values.detach().cpu().numpy().copy()
