"""Corrections: judgements of people about steps that are recorded already; docs/link.md."""

from dataclasses import dataclass

KINDS = ("success", "fail", "discard", "undiscard", "reward", "segment", "undo")
"""Kinds of corrections."""


@dataclass(frozen=True, kw_only=True)
class Correction:
    """A judgement about an episode, applied once, whenever it comes."""

    id: str
    """32 hexadecimal digits."""
    session: str
    """Session of the episode."""
    episode: int
    kind: str
    """One of `KINDS`."""
    index: int = 0
    """First step that is meant; of success and fail the step that ends the episode."""
    until: int = -1
    """Step behind the last that is meant; -1 means all to the end."""
    value: float = 0.0
    """Reward of the step or steps (success, fail, reward)."""
    text: str = ""
    """Name of the segment, id of the correction of this episode that is undone, or a reason."""
    operator: str = ""
    """Person who judged."""
    time: float = 0.0
    """Time of the key press [unix s]; a later judgement overrides an earlier one."""
