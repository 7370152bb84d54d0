"""Goals as marks in a scene, read from their names.

An entry of a task's goal is drawn by what its name says: `position` and `preview` are points,
`corners` are squares, four points each, `velocity` is an arrow; the ending `_b` means the robot's
base frame, anything else the world's.
What a name does not say is not drawn.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

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
    outline: Floats | None = None
    """Corners of a closed line around `start`, (P, 3), world frame [m]; None for others."""


def goal_marks(
    goal: Mapping[str, Any],
    base_position: Floats,
    base_rotation: Floats,
    *,
    top: float,
    arrow_time: float,
) -> list[Mark]:
    """Marks of one world.

    Args:
        goal: Entries (width,).
        base_position: Of the robot, (3,), world frame [m].
        base_rotation: Base to world, (3, 3).
        top: Height from which arrows in the base frame begin, above the robot [m].
        arrow_time: A velocity is drawn as the way that it covers in this time [s].
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
        elif "corners" in name and not in_base and len(values) % 12 == 0:
            for i, square in enumerate(values.reshape(-1, 4, 3)):
                marks.append(Mark(name=f"{name}/{i}", start=square.mean(axis=0), outline=square))
        elif "velocity" in name and "angular" not in name and len(values) in (2, 3):
            arrow = np.zeros(3)
            linear = values[:2] if is_planar(name, len(values)) else values
            arrow[: len(linear)] = arrow_time * linear
            foot = np.array([*base_position[:2], top])
            if not in_base:
                foot = np.asarray(goal.get("position_w", foot), dtype=np.float64)
            tip = foot + (base_rotation @ arrow if in_base else arrow)
            marks.append(Mark(name=name, start=foot, end=tip))
    return marks


def is_planar(name: str, width: int) -> bool:
    """True for a velocity over the ground: forward, to the left, turning."""
    return "velocity" in name and "linear" not in name and width == 3


def is_adjustable(name: str, width: int) -> bool:
    """True for what a person can set entry by entry; a preview or a clock follows by itself."""
    return width <= 3 and ("position" in name or "velocity" in name)
