"""Wall time of a training, and who takes how much of it."""

import time


class Clock:
    """Splits wall time into collecting, learning and the rest."""

    def __init__(self) -> None:
        """Start at no step."""
        self._spent = {"collect": 0.0, "learn": 0.0, "aside": 0.0}
        self._interval_start = self._session_mark = time.perf_counter()
        self._start_step = 0

    def start(self, step: int) -> None:
        """Begin the first interval at a step."""
        self._interval_start = self._session_mark = time.perf_counter()
        self._start_step = step

    def collecting(self) -> "_Span":
        """Steps of the worlds."""
        return _Span(self._spent, "collect")

    def learning(self) -> "_Span":
        """Updates of the learner."""
        return _Span(self._spent, "learn")

    def aside(self) -> "_Span":
        """Evaluation and saving: part of the wall time, not of steps per second."""
        return _Span(self._spent, "aside")

    @property
    def elapsed(self) -> float:
        """Wall time of the interval so far [s]."""
        return time.perf_counter() - self._interval_start

    def session_part(self) -> float:
        """Wall time since this was last asked [s]."""
        now = time.perf_counter()
        part, self._session_mark = now - self._session_mark, now
        return part

    def pop(self, step: int) -> dict[str, float]:
        """Rates of the interval; starts the next one."""
        elapsed = max(self.elapsed, 1e-9)
        working = max(elapsed - self._spent["aside"], 1e-9)
        record = {
            "time/steps_per_second": (step - self._start_step) / working,
            "time/collect_fraction": self._spent["collect"] / elapsed,
            "time/learn_fraction": self._spent["learn"] / elapsed,
        }
        self._spent.update(collect=0.0, learn=0.0, aside=0.0)
        self._interval_start, self._start_step = time.perf_counter(), step
        return record


class CheckpointSchedule:
    """When the next checkpoint is due, beside those that follow evaluations."""

    def __init__(self, interval: int, seconds: float) -> None:
        """Count from now.

        Args:
            interval: Steps between two checkpoints; 0 counts none.
            seconds: Wall time between two checkpoints [s]; 0 looks at no clock.
        """
        self.step = -1
        """Step of the last checkpoint; -1 before the first."""
        self._interval, self._seconds = interval, seconds
        self._saved_at = time.monotonic()

    def saved(self, step: int) -> None:
        """Note that there is a checkpoint of a step: one that was written, or resumed from."""
        self.step, self._saved_at = step, time.monotonic()

    def is_due(self, step: int) -> bool:
        """Whether one is due at a step. Ranks decide together: their clocks differ."""
        if self._interval and step // self._interval > max(0, self.step) // self._interval:
            return True
        return 0 < self._seconds <= time.monotonic() - self._saved_at


class _Span:
    def __init__(self, spent: dict[str, float], name: str) -> None:
        self._spent, self._name = spent, name

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._spent[self._name] += time.perf_counter() - self._start
