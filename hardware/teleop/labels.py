"""Steps that late keys mean: a person presses 0.3 to 1 s after the event.

A success is attributed to the step at which the reward rule saw it, not to the step under the key;
everything else to the last step that had begun when the event was latest. So a key that comes
during a reset, or just after the next episode has begun, still means the episode before.

Pure bookkeeping: times are arguments, and nothing is stored or sent here.
"""

from collections import deque
from dataclasses import dataclass

_REMEMBERED = 20_000
_EARLIEST = 0.3
"""A key is pressed at least so long after its event [s]."""
_LATEST = 1.0
"""And at most so long [s]."""


@dataclass(frozen=True, slots=True)
class _Step:
    episode: int
    index: int
    begin: float
    end: float
    succeeded: bool
    intervened: bool


class StepTimes:
    """The newest steps of a session, in order, to find those that keys mean."""

    def __init__(self) -> None:
        """Begin without steps."""
        self._steps: deque[_Step] = deque(maxlen=_REMEMBERED)

    def add(
        self, episode: int, index: int, begin: float, end: float, *, succeeded: bool,
        intervened: bool,
    ) -> None:  # fmt: skip
        """A step is over.

        Args:
            episode: Its number.
            index: Place of the step in it.
            begin: Time at which the step began [unix s].
            end: Time of the measurement that it led to [unix s].
            succeeded: Whether the reward rule saw success in it.
            intervened: Whether a person led.
        """
        self._steps.append(_Step(episode, index, begin, end, succeeded, intervened))

    def success(self, pressed: float) -> tuple[int, int] | None:
        """Episode and step that a key for success means; None where no step had begun.

        The first step of the newest run of steps in which the reward rule saw success, if a step of
        that run ended within the time in which the event can have been; else as `event`.

        Args:
            pressed: Time of the key [unix s].
        """
        found: _Step | None = None
        for step in reversed(self._steps):
            if found is not None:
                if step.episode != found.episode or not step.succeeded:
                    break
                found = step
            elif step.begin > pressed:
                continue
            elif step.end < pressed - _LATEST:
                break
            elif step.succeeded:
                found = step
        return self.event(pressed) if found is None else (found.episode, found.index)

    def event(self, pressed: float) -> tuple[int, int] | None:
        """Episode and step under way when the event behind a key was latest.

        Args:
            pressed: Time of the key [unix s].

        Returns:
            The first step where the key came right after it; None where none had begun.
        """
        first: _Step | None = None
        for step in reversed(self._steps):
            if step.begin <= pressed - _EARLIEST:
                return step.episode, step.index
            first = step
        return None if first is None or first.begin > pressed else (first.episode, first.index)

    def intervention(self) -> tuple[int, int, int] | None:
        """The newest part of a person: episode, first step, step behind the last."""
        newest: tuple[int, int, int] | None = None
        for step in reversed(self._steps):
            if newest is None:
                newest = (step.episode, step.index, step.index + 1) if step.intervened else None
            elif step.intervened and step.episode == newest[0]:
                newest = (step.episode, step.index, newest[2])
            else:
                break
        return newest
