"""Goals as marks in a scene, read from their names.

An entry of a task's goal is drawn by what its name says: `position` and `preview` are points,
`velocity` is an arrow; the ending `_b` means the robot's base frame, anything else the world's.
What a name does not say is not drawn.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ARROW_TIME = 0.2
"""A velocity is drawn as the way that it covers in this time [s]."""
_AHEAD = 0.55
"""Size of the points of a preview, where the goal will be, relative to the goal."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Something to see in the world."""

    name: str
    """Entry of the goal, with the number of the point."""
    start: Floats
    """Place of a point, or foot of an arrow, (3,), world frame [m]."""
    end: Floats | None = None
    """Tip of an arrow, (3,), world frame [m]; None for a point."""
    share: float = 1.0
    """Size of a point relative to others."""


def goal_marks(goal: Mapping[str, Any], base_position: Floats, base_rotation: Floats) -> list[Mark]:
    """Marks of one world.

    Args:
        goal: Entries (width,).
        base_position: Of the robot, (3,), world frame [m].
        base_rotation: Base to world, (3, 3).
    """
    marks: list[Mark] = []
    for name, entry in goal.items():
        values = np.asarray(entry, dtype=np.float64)
        in_base = name.endswith("_b")
        if ("position" in name or "preview" in name) and len(values) % 3 == 0:
            share = 1.0 if "position" in name else _AHEAD
            for i, point in enumerate(values.reshape(-1, 3)):
                place = base_position + base_rotation @ point if in_base else point
                marks.append(Mark(name=f"{name}/{i}", start=place, share=share))
        elif "velocity" in name and "angular" not in name and len(values) in (2, 3):
            linear = values if _is_linear(name, values) else values[:2]
            arrow = np.zeros(3)
            arrow[: len(linear)] = ARROW_TIME * linear
            foot = base_position if in_base else np.asarray(goal.get("position_w", base_position))
            tip = foot + (base_rotation @ arrow if in_base else arrow)
            marks.append(Mark(name=name, start=foot.astype(np.float64), end=tip))
    return marks


def _is_linear(name: str, values: Floats) -> bool:
    """False for a planar velocity command: forward, left, turning."""
    return "linear" in name or len(values) != 3
