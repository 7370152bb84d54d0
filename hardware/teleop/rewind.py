"""The robot's recent path, and the way back along it at limited speed."""

from collections import deque
from dataclasses import dataclass

from hardware.controllers.rotations import Quaternion
from hardware.teleop.intent import Floats
from hardware.teleop.targets import Target
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState


@dataclass(frozen=True)
class PathPoint:
    """Place on the path."""

    time: float
    """Along the path: pauses and what was gone back over take none of it [s]."""
    position: Floats
    """(3,), [m]."""
    orientation: Quaternion
    """wxyz."""


class Rewind:
    """A ring of poses, replayed backwards from the newest.

    While the robot goes back, nothing is remembered; what was gone back over is forgotten, so that
    a second rewind goes on from there and does not come back.
    """

    def __init__(self, seconds: float = 20.0, period: float = 0.02) -> None:
        """Make room.

        Args:
            seconds: Length of the path that is remembered [s].
            period: Least time between two of its points [s].
        """
        if not 0 < period < seconds:
            raise ConfigError(f"a path of {seconds} s in steps of {period} s has no points")
        self._path: deque[PathPoint] = deque(maxlen=int(seconds / period))
        self._period = period
        self._until: float | None = None
        self._begun_at = 0.0
        self._seen = 0.0

    @property
    def active(self) -> bool:
        """True while the robot goes back."""
        return self._until is not None

    @property
    def seconds(self) -> float:
        """Length of the path that is remembered [s]."""
        return self._path[-1].time - self._path[0].time if self._path else 0.0

    @property
    def progress(self) -> float:
        """Share of the way back that is done, in time along the path, in [0, 1]."""
        if self._until is None or not self._path:
            return 1.0
        whole = self._begun_at - self._until
        return 1.0 if whole <= 0 else min(max((self._begun_at - self._path[-1].time) / whole, 0), 1)

    def remember(self, now: float, position: Floats, orientation: Quaternion) -> None:
        """Take a pose of the robot at a time of any clock [s]; not while it goes back."""
        since = now - self._seen
        if self.active or (self._path and since < self._period - 1e-9):
            return
        time = self._path[-1].time + min(since, 2 * self._period) if self._path else 0.0
        self._path.append(PathPoint(time, position.copy(), orientation))
        self._seen = now

    def forget(self) -> None:
        """Begin anew: the robot was put elsewhere, as a reset does."""
        self._path.clear()
        self._until = None

    def begin(self, seconds: float) -> str:
        """Go back by a time along the path [s]; returns why that is impossible, or empty."""
        if not seconds > 0:
            return f"a rewind needs a time > 0 s, got {seconds}"
        if len(self._path) < 2:
            return "there is no path to go back along yet"
        self._begun_at = self._path[-1].time
        self._until = self._begun_at - seconds
        return ""

    def cancel(self) -> None:
        """Stay where the robot is."""
        self._until = None

    def advance(self, target: Target, state: RobotState, dt: float) -> None:
        """Move a target backwards for a time [s], at its largest speeds at most.

        Where the leash holds the target up, the path waits for the robot.
        """
        while self._until is not None and dt > 0:
            if not self._path or self._path[-1].time < self._until:
                self._until = None
                return
            point = self._path[-1]
            dt = target.go_to(point.position, point.orientation, state, dt)
            if dt > 0:  # reached
                self._path.pop()
