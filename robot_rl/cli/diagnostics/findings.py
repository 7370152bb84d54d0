"""A finding of the doctor: how bad it is, what it is, and what to do about it."""

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """How bad a finding is."""

    good = "ok"
    warning = "warning"
    """Deployment may go on."""
    fault = "FAULT"
    """It may not."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    what: str
    """What was found."""
    remedy: str = ""
    """What to do about it."""

    @property
    def line(self) -> str:
        """For a terminal."""
        return f"{self.level.value:8} {self.what}" + (
            f"\n         -> {self.remedy}" if self.remedy else ""
        )
