"""What people and other processes tell the loop between two ticks; any thread may."""

import math
from collections import deque

from hardware.control.safety import ACTS, Condition
from robot_rl.core.errors import ConfigError


class Acts:
    """Acts since the last tick, the person's heartbeat, and how many send commands.

    Real-time on both sides: appending, popping and assigning are atomic in Python, so nobody waits.
    """

    def __init__(self) -> None:
        """Nobody there, one sender."""
        self._asked: deque[Condition] = deque(maxlen=64)
        self.heartbeat = -math.inf
        """When the person was heard last, clock of the loop [s]."""
        self.publishers = 1
        """How many send commands to this robot."""
        self.estop_down = False
        """Whether an emergency button is held down."""

    def ask(self, act: Condition) -> None:
        """Ask for an act in the next tick."""
        if act not in ACTS:
            known = ", ".join(sorted(known.value for known in ACTS))
            raise ConfigError(f"'{act.value}' cannot be asked for; known: {known}")
        self._asked.append(act)

    def take(self) -> set[Condition]:
        """Acts of this tick."""
        taken = {self._asked.popleft() for _ in range(len(self._asked))}
        return taken | {Condition.ESTOP_PRESSED} if self.estop_down else taken
