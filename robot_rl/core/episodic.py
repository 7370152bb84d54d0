"""State that a policy keeps within an episode, for thousands of envs and for one robot alike.

A queue of planned actions, the phase of a gait's clock, and the protocol by which a policy that
remembers something is told where an episode starts.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from array_api_compat import array_namespace

from robot_rl.core.env_selection import Array
from robot_rl.core.errors import ConfigError, ShapeError


@runtime_checkable
class EpisodicPolicy(Protocol):
    """Acts, and forgets: what plans ahead or recurs is one of these."""

    def __call__(self, obs: dict[str, Array]) -> Array:
        """Actions, (N, A), in [-1, 1]."""
        ...

    def begin(self, mask: Array) -> None:
        """Episodes start in the masked envs, (N,) bool."""
        ...


def begin_episodes(act: object, mask: Array) -> None:
    """Tell a policy that episodes start in the masked envs, (N,) bool, if it wants to know."""
    if isinstance(act, EpisodicPolicy):
        act.begin(mask)


def first_action(policy: object, act: Callable[[], Array], mask: Array) -> Array:
    """Action at the start of an episode, without a plan of before, and leaving none.

    Args:
        policy: Whose episodes start.
        act: Gives the action, (N, A), of that policy.
        mask: The robots whose episodes start, (N,) bool.
    """
    begin_episodes(policy, mask)
    action = act()
    begin_episodes(policy, mask)
    return action


class ChunkQueue:
    """Plans of N robots or envs; each begins its episodes and runs out of actions on its own."""

    def __init__(
        self, zeros: Array, length: int, interval: int, decay: float | None = None
    ) -> None:
        """Begin without plans.

        Args:
            zeros: Any (N, A) array of the kind and device that plans will be of.
            length: H, actions in a chunk.
            interval: Actions that are done before the next chunk is due, at most H.
            decay: Of the ensemble, per step; None does every chunk as it is.

        Raises:
            ShapeError: The interval does not lie in [1, H], or an ensemble has another than 1.
        """
        if not 1 <= interval <= length:
            raise ShapeError(
                f"a chunk of {length} actions cannot be replanned after {interval}; expected 1 to "
                f"{length}"
            )
        if decay is not None and interval != 1:
            raise ShapeError(f"an ensemble replans after 1 action, got {interval}")
        self.length, self.interval, self._decay = length, interval, decay
        xp: Any = array_namespace(zeros)
        self._xp = xp
        count = zeros.shape[0]
        self._rows: Array = xp.arange(count, device=zeros.device)
        self._plan: Array = zeros[:, None, :] + xp.zeros(
            (length, 1), dtype=zeros.dtype, device=zeros.device
        )
        self._done: Array = xp.full((count,), interval, dtype=xp.int64, device=zeros.device)
        self._weight: Array = self._plan[:, :, :1] * 0  # (N, H, 1): of what the plan is the sum of
        self._plans: Array = self._plan[:, :, :1] * 0  # (N, H, 1): how many it is the sum of

    @property
    def due(self) -> Array:
        """(N,) bool: who needs a new chunk before the next action."""
        return self._done >= self.interval

    def reset(self, mask: Array) -> None:
        """Throw the plans of the masked rows away, (N,) bool: their episodes start."""
        xp = self._xp
        self._done = xp.where(mask, self.interval, self._done)
        keep = xp.astype(~mask, self._plan.dtype)[:, None, None]
        self._plan = self._plan * keep
        self._weight, self._plans = self._weight * keep, self._plans * keep

    def put(self, chunk: Array, rows: Array | None = None) -> None:
        """Take chunks (N, H, A) for some rows, (N,) bool: those that are due if it is not said."""
        xp = self._xp
        taken: Array = self.due if rows is None else rows
        if chunk.shape != self._plan.shape:
            raise ShapeError(
                f"chunk: expected shape {tuple(self._plan.shape)} (robots, actions of a chunk, "
                f"entries), got {tuple(chunk.shape)}"
            )
        where: Array = taken[:, None, None]
        if self._decay is None:
            self._plan = xp.where(where, chunk, self._plan)
        else:
            weight = xp.where(where, xp.exp(-self._decay * self._plans), 0.0)
            self._plan = self._plan + weight * chunk
            self._weight = self._weight + weight
            self._plans = xp.where(where, self._plans + 1, self._plans)
        self._done = xp.where(taken, 0, self._done)

    def take(self, rows: Array | None = None) -> Array:
        """The next action of every row, (N, A), which is done with it.

        Args:
            rows: (N,) bool, those that do it; the others' plans stay, and their actions mean
                nothing. None takes all.
        """
        xp = self._xp
        doing: Array = self._done < self.length if rows is None else rows  # what is due was put
        action: Array = self._plan[self._rows, xp.where(doing, self._done, 0)]
        self._done = xp.where(doing, self._done + 1, self._done)
        if self._decay is not None:
            action = action / xp.where(doing[:, None], self._weight[:, 0], 1.0)
            where: Array = doing[:, None, None]
            for name in ("_plan", "_weight", "_plans"):
                values = getattr(self, name)
                shifted = xp.concat([values[:, 1:], values[:, :1] * 0], axis=1)
                setattr(self, name, xp.where(where, shifted, values))
        return action

    def state_dict(self) -> dict[str, Array]:
        """Plans, and how far they are done."""
        return {
            "plan": self._plan, "done": self._done, "weight": self._weight, "plans": self._plans,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Restore `state_dict`."""
        self._plan, self._done = state["plan"], state["done"]
        self._weight, self._plans = state["weight"], state["plans"]


@dataclass(frozen=True, kw_only=True)
class ClockSpec:
    """Sine and cosine of a phase; zeros while the other goal is zero."""

    period: float
    """Time of one cycle [s]."""
    moves: str
    """Name of the goal that asks to move with any entry that is not 0."""

    def __post_init__(self) -> None:
        if not 0 < self.period < math.inf:
            raise ConfigError(f"a clock's period must be a time > 0 s, got {self.period}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"period": self.period, "moves": self.moves}


class GoalClock:
    """One clock at work, of N robots; each begins its cycles on its own."""

    def __init__(self, spec: ClockSpec, control_dt: float, num_robots: int = 1) -> None:
        """Stand at the beginning of a cycle; `control_dt` is the time between two ticks [s]."""
        self._spec, self._step = spec, control_dt / spec.period
        self._phase = np.zeros(num_robots)

    def reset(self, mask: np.ndarray | None = None) -> None:
        """Begin a cycle in the masked robots, (N,) bool, or in all, as an episode does."""
        self._phase[slice(None) if mask is None else mask] = 0.0

    def tick(self) -> None:
        """Let a control period pass."""
        self._phase = (self._phase + self._step) % 1.0

    def value(self, goal: Mapping[str, np.ndarray]) -> np.ndarray:
        """Sine and cosine that a policy sees now, (N, 2); goals of NaN ask nobody to move.

        Args:
            goal: Goals by name, (N, width) each; the one that asks to move is read.

        Raises:
            ShapeError: It is not of as many robots.
        """
        asked = np.asarray(goal[self._spec.moves])
        if asked.ndim != 2 or len(asked) != len(self._phase):
            raise ShapeError(
                f"goal '{self._spec.moves}': expected shape ({len(self._phase)}, width), got "
                f"{asked.shape}; make the clock for as many robots as there are"
            )
        moving = np.nan_to_num(asked).any(axis=1, keepdims=True)
        angles = 2 * math.pi * self._phase
        # The C library's functions: the same bits for one robot and for many.
        waves = [[math.sin(angle), math.cos(angle)] for angle in angles]
        return np.array(waves) * moving
