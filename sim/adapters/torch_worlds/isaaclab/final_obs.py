"""Last observations of environments of Isaac Lab that do not tell them.

A step computes rewards and ends, calls `_reset_idx` for the worlds that ended, and then computes
the observations that it returns. Here they are computed once more, as `_reset_idx` is called.
Commands are then those that the last action was chosen by, not yet drawn or turned anew.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor


class FinalCapture:
    """Observations of all worlds as a step is about to reset some."""

    def __init__(self, env: Any) -> None:
        """Put itself in front of the environment's `_reset_idx`."""
        self._env, self._reset_idx = env, env._reset_idx
        self._armed, self._seen = False, None
        env._reset_idx = self

    def __call__(self, env_ids: Any) -> Any:
        """Look, then reset."""
        if self._armed and self._seen is None:
            self._seen = copied(self._look())
        return self._reset_idx(env_ids)

    def arm(self) -> None:
        """A step begins: its reset is to be looked at."""
        self._armed, self._seen = True, None

    def disarm(self) -> Mapping[str, Any] | None:
        """What was seen in the step; None if nothing was reset."""
        self._armed = False
        return self._seen

    def _look(self) -> Mapping[str, Any]:
        manager = getattr(self._env, "observation_manager", None)
        if manager is None:
            return self._noisy(self._env._get_observations())
        memory = ObservationMemory(manager)
        seen = copied(manager.compute(update_history=True))
        memory.restore()
        return seen

    def _noisy(self, obs: Mapping[str, Any]) -> Mapping[str, Any]:
        """With the noise that a direct environment adds to what its policy sees."""
        model = getattr(self._env, "_observation_noise_model", None)
        if model is None:
            return obs
        add = model if callable(model) else model.apply  # the latter before 2.1
        return {**obs, "policy": add(obs["policy"])}


class ObservationMemory:
    """Histories, filters and noise of an observation manager, kept so that a look changes none."""

    def __init__(self, manager: Any) -> None:
        """Keep copies of what the manager remembers now."""
        buffers = getattr(manager, "_group_obs_term_history_buffer", {})
        filters = getattr(manager, "_group_obs_class_instances", [])
        histories = [buffer for group in buffers.values() for buffer in group.values()]
        self._kept = [
            (one, axis, {name: _copy(value) for name, value in vars(one).items()})
            for remembering, axis in ((histories, 1), (filters, 0))
            for one in remembering
        ]
        self._count = int(manager.num_envs)

    def restore(self, but: Tensor | None = None) -> None:
        """Put everything back.

        Args:
            but: Worlds, int64, that keep what they have now.
        """
        for one, axis, kept in self._kept:
            now = vars(one)
            for name, before in kept.items():
                after = now[name]
                if but is not None and isinstance(after, Tensor):
                    if before is None:  # the first frame ever
                        continue
                    rows = _rows_of(before, self._count, but, axis)
                    if rows is not None:
                        before[rows] = after[rows]
                now[name] = before


def copied(obs: Any) -> Any:
    """Observations in memory of their own."""
    if isinstance(obs, Mapping):
        return {name: copied(part) for name, part in obs.items()}
    return obs.clone()


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _rows_of(value: Tensor, count: int, ids: Tensor, axis: int) -> Any:
    """Index of some worlds' rows, on the axis of a history (frames, N, ...), or on the first."""
    if axis < value.ndim and value.shape[axis] == count:
        return (slice(None),) * axis + (ids,)
    return ids if value.ndim and value.shape[0] == count else None
