"""From the command sent last to the commands of somebody new, without a bump."""

from dataclasses import fields, replace

import numpy as np

from hardware.control.stopping import min_jerk
from robot_rl.core.robot_command import RobotCommand


class Blend:
    """Mixes every entry of the old command with the new one's, for a time after a switch."""

    def __init__(self, duration: float) -> None:
        """Take `duration` [s] for each switch."""
        self._duration = duration
        self._old: RobotCommand | None = None
        self._since = 0.0

    def start(self, now: float, last: RobotCommand | None) -> None:
        """Somebody new commands from now on."""
        self._old, self._since = last, now

    def apply(self, now: float, new: RobotCommand) -> RobotCommand:
        """The command to send. Real-time: never blocks."""
        if self._old is None or type(self._old) is not type(new):
            return new
        share = min_jerk((now - self._since) / self._duration) if self._duration > 0 else 1.0
        if share >= 1.0:
            self._old = None
            return new
        mixed = {
            entry.name: old + share * (np.asarray(getattr(new, entry.name)) - old)
            for entry in fields(new)
            if (old := getattr(self._old, entry.name)) is not None
            and getattr(new, entry.name) is not None
        }
        return replace(new, **mixed)
