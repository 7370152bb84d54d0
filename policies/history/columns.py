"""Which columns of an observation are the present, and which the window that is encoded.

A term of width w and H frames takes H * w consecutive columns, oldest frame first
(`robot_rl/core/observation.py`): frame t of all encoded terms together is one row of the window.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from robot_rl.core.env import TermSpec
from robot_rl.core.errors import ConfigError, unknown_name


@dataclass(frozen=True)
class Columns:
    """Columns by their part."""

    present: list[int]
    """Newest frame of every term, in order; encoded terms of a single frame are not in it."""
    window: list[list[int]]
    """Columns of each frame that is encoded, oldest first, all of equal width; empty for none."""


def find_columns(
    terms: Sequence[TermSpec], *, frames: int, encoded: Sequence[str] | None
) -> Columns:
    """Divide an observation.

    Args:
        terms: What it consists of, in order.
        frames: Newest frames of every term that are looked at; 0 looks at all.
        encoded: Terms that are encoded; an empty list takes those with several frames, None none:
            then all frames that are looked at are the present.

    Raises:
        ConfigError: Terms are unknown, have too few frames, or different numbers of them.
    """
    starts = [sum(term.size for term in terms[:i]) for i in range(len(terms))]
    for term in terms:
        if frames > term.history > 1:
            raise ConfigError(
                f"actor.encoder.frames {frames} asks for more than term '{term.name}' has, "
                f"{term.history}; raise its history in the task"
            )

    def columns(index: int, kept: int) -> list[list[int]]:
        term, end = terms[index], starts[index] + terms[index].size
        firsts = range(end - kept * term.width, end, term.width)
        return [list(range(first, first + term.width)) for first in firsts]

    looked = [min(term.history, frames) if frames else term.history for term in terms]
    if encoded is None:
        seen = [columns(i, looked[i]) for i in range(len(terms))]
        return Columns([c for frame in seen for row in frame for c in row], [])
    picked = _picked(terms, looked, encoded)
    count = {looked[i] for i in picked}
    if len(count) > 1:
        told = ", ".join(f"{terms[i].name} {looked[i]}" for i in picked)
        raise ConfigError(
            f"actor.encoder needs terms with the same number of frames, got {told}; give them one "
            "history in the task, or actor.encoder.frames that all of them have"
        )
    left = [i for i in range(len(terms)) if i not in picked or looked[i] > 1]
    present = [c for i in left for c in columns(i, 1)[0]]
    frames_of = [columns(i, looked[i]) for i in picked]
    return Columns(present, [list(chain(*row)) for row in zip(*frames_of, strict=True)])


def _picked(terms: Sequence[TermSpec], looked: Sequence[int], encoded: Sequence[str]) -> list[int]:
    """Positions of the encoded terms."""
    names = [term.name for term in terms]
    for name in encoded:
        if name not in names:
            raise ConfigError(unknown_name("term of actor.encoder.terms", name, names))
    if not encoded:
        picked = [i for i, count in enumerate(looked) if count > 1]
        if not picked:
            raise ConfigError(
                "actor.encoder needs a history: no term of the actor's groups has more than one "
                f"frame that is looked at (terms: {', '.join(names)}); give terms a history in the "
                "task, or name what is encoded in actor.encoder.terms"
            )
        return picked
    return [i for i, name in enumerate(names) if name in encoded]
