"""Counts what was played, and says it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from robot_rl.cli.collection.rounds import Attempt
from robot_rl.datasets.episode import Episode
from robot_rl.training.reporting.console import format_number, format_percent
from robot_rl.training.reporting.statistics import wilson_interval


@dataclass
class Tally:
    """Episodes of one expert."""

    name: str
    successes: int = 0
    returns: list[float] = field(default_factory=list[float])
    lengths: list[int] = field(default_factory=list[int])

    @property
    def count(self) -> int:
        """Episodes."""
        return len(self.lengths)

    def add(self, episode: Episode) -> None:
        """Count an episode."""
        self.successes += int(episode.success[-1])
        self.returns.append(float(episode.reward.sum(dtype=np.float64)))
        self.lengths.append(episode.num_steps)

    def line(self, width: int, *, control_dt: float, judged: bool) -> str:
        """What came of it."""
        if not self.count:
            return f"{self.name:<{width}} played none"
        low, high = wilson_interval(self.successes, self.count)
        rate = self.successes / self.count
        success = (
            f"{self.successes} of {self.count} succeeded, {format_percent(rate)} "
            f"(95 % interval {format_percent(low)} to {format_percent(high)})"
            if judged
            else f"{self.count} episodes, success is not judged"
        )
        spread = format_number(float(np.std(self.returns)))
        shortest, longest = (
            f"{n * control_dt:.2f}" for n in (min(self.lengths), max(self.lengths))
        )
        seconds = shortest if shortest == longest else f"{shortest} to {longest}"
        return (
            f"{self.name:<{width}} {success}; return {format_number(float(np.mean(self.returns)))} "
            f"(deviation {spread}); {seconds} s"
        )


class Tallies:
    """Of all experts."""

    def __init__(self, names: Sequence[str]) -> None:
        """Begin empty."""
        self.each = [Tally(name) for name in names]
        self.given_up = 0
        """Episodes in which the engine gave the world up."""

    @property
    def played(self) -> int:
        """Episodes, those given up included."""
        return sum(one.count for one in self.each) + self.given_up

    @property
    def steps(self) -> int:
        """Transitions of all episodes."""
        return sum(sum(one.lengths) for one in self.each)

    @property
    def successes(self) -> int:
        """Of all experts."""
        return sum(one.successes for one in self.each)

    def add(self, attempt: Attempt) -> None:
        """Count an episode."""
        if attempt.episode is None:
            self.given_up += 1
        else:
            self.each[attempt.expert].add(attempt.episode)

    def lines(self, *, control_dt: float, judged: bool) -> list[str]:
        """What a person reads in the end."""
        width = max(8, *(len(one.name) for one in self.each))
        lines = [one.line(width, control_dt=control_dt, judged=judged) for one in self.each]
        if self.given_up:
            lines.append(f"{'left out':<{width}} {self.given_up}: the engine gave their worlds up")
        return lines
