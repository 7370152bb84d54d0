"""Options of `robot-rl collect`; loads neither torch nor a simulator."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from robot_rl.core.errors import ConfigError


@dataclass(kw_only=True)
class CollectOptions:
    """Options of the command beside the fields of a run."""

    out: str = ""
    """Folder of the data set."""
    expert: str = "scripted"
    """scripted, random, zero, the folder of a run, of one of its checkpoints or of a bundle; or
    several with shares, as scripted:0.5,random:0.5."""
    episodes: int = 50
    """That are to be in the data set by this command, those of before included."""
    only_successes: bool = False
    """Leave out episodes that did not meet the task's success rule."""
    attempts: int = 0
    """Episodes to play at most for successes; 0 for ten times as many as are wanted."""
    noise: float = 0.1
    """Standard deviation of the Gaussian noise on actions; random actions have enough of their
    own."""
    bursts: float = 0.0
    """Chance per step that a random action begins, which is held for `burst_steps`."""
    burst_steps: int = 5
    """Control steps that such an action is held."""
    noise_seconds: float = 1.0
    """Time from an episode's beginning in which actions are disturbed [s]; inf for all of it."""
    starts: str = "evaluation"
    """evaluation or training: where episodes begin."""
    states: bool = False
    """Store the states of the simulation too, for training.snapshots."""
    words: str = ""
    """Task in words, stored with every episode; the task's name if empty."""
    append: bool = False
    """Go on with the data set if it exists."""

    def __post_init__(self) -> None:
        """Refuse what cannot be collected."""
        for name, lowest in (("episodes", 1), ("attempts", 0), ("burst_steps", 1)):
            if getattr(self, name) < lowest:
                raise ConfigError(f"{name} must be at least {lowest}, got {getattr(self, name)}")
        if not 0 <= self.noise < math.inf:
            raise ConfigError(f"noise must be 0 or more, got {self.noise:g}")
        if not 0 <= self.bursts <= 1:
            raise ConfigError(f"bursts must lie in [0, 1], got {self.bursts:g}")
        if not self.noise_seconds >= 0:
            raise ConfigError(f"noise_seconds must be 0 or more, got {self.noise_seconds:g}")
        if self.starts not in ("evaluation", "training"):
            raise ConfigError(f"starts must be evaluation or training, got '{self.starts}'")
        read_shares(self.expert)

    @property
    def most_attempts(self) -> int:
        """Episodes to play at most."""
        return self.attempts or 10 * self.episodes


@dataclass(frozen=True)
class Share:
    """A part of the episodes."""

    expert: str
    """Expert that plays them."""
    share: float


def read_shares(text: str) -> list[Share]:
    """Experts and the share of the episodes that each plays.

    Args:
        text: A single name, or names with shares: `scripted:0.5,random:0.5`.

    Raises:
        ConfigError: A share is missing, or they are not of one whole.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1 and _share(parts[0]) is None:
        return [Share(_named(parts[0], text), 1.0)]
    found: list[Share] = []
    for part in parts:
        share = _share(part)
        if share is None:
            raise ConfigError(
                f"expert '{text}': '{part}' has no share; expected a number above 0 behind a colon "
                "for each, as scripted:0.5,random:0.5"
            )
        found.append(Share(_named(part.rpartition(":")[0], text), share))
    total = sum(one.share for one in found)
    if abs(total - 1) > 1e-6:
        raise ConfigError(f"the shares of expert '{text}' add up to {total:g}; expected 1")
    if len({one.expert for one in found}) < len(found):
        raise ConfigError(f"expert '{text}' names one twice; expected each once")
    return found


def quoted(arguments: Sequence[str]) -> list[str]:
    """A command line whose experts may have commas, which would else ask for a sweep."""
    return [
        f'expert="{text.partition("=")[2]}"'
        if text.startswith("expert=") and not text.startswith(('expert="', "expert='"))
        else text
        for text in arguments
    ]


def _share(part: str) -> float | None:
    name, colon, number = part.rpartition(":")
    try:
        share = float(number) if colon and name else 0.0
    except ValueError:
        return None
    return share if 0 < share < math.inf else None


def _named(name: str, text: str) -> str:
    if not name:
        raise ConfigError(f"expert '{text}' names nobody; expected scripted, random, zero, or a "
                          "folder")  # fmt: skip
    return name
