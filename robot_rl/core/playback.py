"""Goals that follow each other in time, as those of a clip: played where a policy runs.

In training the task moves such goals on; on a robot nobody else has them. A message that brings
one of them takes its place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError

MOST_NUMBERS = 2_000_000
"""Of all goals together: ten minutes of a humanoid's joints, their speeds and its attitude."""


@dataclass(frozen=True, kw_only=True)
class PlaybackSpec:
    """A table of goals, one row per control period, from where the policy takes charge."""

    goals: dict[str, list[list[float]]]
    """Rows (T, width) by goal; a goal of one row is constant."""
    facing: str = ""
    """Goal that is a rotation matrix (9,), row-major, from the base to the world: turned about the
    vertical so that it looks where the robot looks as the table begins. Empty for none."""
    repeats: bool = False
    """True if the table begins anew behind its end; otherwise its last row is held."""
    turn: float = 0.0
    """Angle about the vertical by which `facing` is turned more in every round [rad]."""

    @property
    def length(self) -> int:
        """T: rows of the longest goal."""
        return max(map(len, self.goals.values()), default=0)

    def check(self, goal_widths: Mapping[str, int]) -> None:
        """Refuse a table that does not fit a policy's goals.

        Raises:
            ConfigError: A goal is unknown, has no row or one of another width, or is as long as
                no other; or there is too much of it.
        """
        for name, rows in self.goals.items():
            sizes = {len(row) for row in rows}
            if sizes != {goal_widths.get(name)}:
                got = f"{len(rows)} rows of {sorted(sizes)} numbers"
                raise ConfigError(
                    f"policy.playback: goal '{name}': expected rows of its width, got {got}; "
                    f"goals: {dict(goal_widths)}"
                )
            if len(rows) not in (1, self.length):
                raise ConfigError(
                    f"policy.playback: goal '{name}' has {len(rows)} rows; expected 1 or "
                    f"{self.length}, as the longest"
                )
        if self.facing and (self.facing not in self.goals or goal_widths[self.facing] != 9):
            raise ConfigError(
                f"policy.playback: facing '{self.facing}' must be a goal of 9 numbers in the "
                f"table; it has {list(self.goals)}"
            )
        count = sum(len(rows) * goal_widths[name] for name, rows in self.goals.items())
        if count > MOST_NUMBERS:
            raise ConfigError(
                f"policy.playback: {count} numbers, expected up to {MOST_NUMBERS}; take a shorter "
                "clip"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dict(vars(self))


class Playback:
    """A table being played for one robot."""

    def __init__(self, spec: PlaybackSpec) -> None:
        """Stand at the first row."""
        self._spec = spec
        self._rows = {name: np.array(rows, dtype=np.float64) for name, rows in spec.goals.items()}
        self._row, self._heading = 0, 0.0

    @property
    def goals(self) -> tuple[str, ...]:
        """Names of the goals that it gives."""
        return tuple(self._rows)

    def reset(self, state: Mapping[str, np.ndarray]) -> None:
        """Begin at the first row, from where a robot looks.

        Args:
            state: Its fields of `RobotState`; `orientation_w`, (1, 4), is read where a goal faces
                somewhere. One that is not known yet, NaN, counts as straight ahead.
        """
        self._row, self._heading = 0, 0.0
        if self._spec.facing:
            own = quaternion.rotation_matrix(state["orientation_w"].astype(np.float64))
            first = self._rows[self._spec.facing][:1]
            turn = quaternion.yaw(own) - quaternion.yaw(first)
            self._heading = float(np.nan_to_num(turn)[0])

    def tick(self) -> None:
        """Let a control period pass."""
        if self._row + 1 < self._spec.length:
            self._row += 1
        elif self._spec.repeats:
            self._row = 0
            self._heading += self._spec.turn

    def value(self, name: str) -> np.ndarray:
        """A goal as a policy sees it now, (1, width)."""
        rows = self._rows[name]
        row = rows[min(self._row, len(rows) - 1)][None]
        if name != self._spec.facing:
            return row.copy()
        turn = quaternion.rotation_matrix(quaternion.from_yaw(np.array([self._heading])))
        return (turn.reshape(3, 3) @ row.reshape(3, 3)).reshape(1, 9)
