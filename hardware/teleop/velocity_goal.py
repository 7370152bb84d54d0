"""A person who steers a walking policy: their stick is its goal, a velocity of the base.

    stick -> goal/velocity_b (forward, left, turn) -> robot process -> channel `world` -> policy

The policy keeps the legs, and the loop stays in `POLICY`: nothing is taken over. A person who is
not heard lets the robot stand: the goal becomes zero, and stays so where their program was killed.
Only `close` gives it up; then the world's own goals count again.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hardware.control.ipc import SharedMemoryReader, SharedMemoryWriter
from hardware.control.monitors import SafetyLimits
from hardware.control.process import RobotChannels
from hardware.teleop.intent import Floats, Intent, StickConfig, shaped
from robot_rl.core.errors import ConfigError

GOAL = "goal/velocity_b"
"""Field of the channel `world`."""
_PLACES = [0, 1, 5]
"""Axes of a stick that are forward, left and turn."""


@dataclass(kw_only=True)
class VelocityGoalConfig:
    """Largest goal and its growth."""

    speed: list[float] = field(default_factory=lambda: [1.0, 0.5, 1.0])
    """At full deflection: forward and left [m/s], turn [rad/s]; within what the policy learnt."""
    time: float = 0.5
    """Time from rest to full speed, and back [s]."""
    stick: StickConfig = field(default_factory=StickConfig)
    """Response of the stick."""

    def __post_init__(self) -> None:
        if len(self.speed) != 3 or not all(0 <= one < math.inf for one in self.speed):
            raise ConfigError(f"a velocity goal needs three speeds >= 0, got {self.speed}")
        if not 0 <= self.time < math.inf:
            raise ConfigError(f"the time to full speed must be >= 0 s, got {self.time}")


class VelocityGoal:
    """The person's side. `set_intent`, `tick` and `status` are those of a `Teleoperator`."""

    def __init__(self, channels: RobotChannels, config: VelocityGoalConfig | None = None) -> None:
        """Open the channel; from now on the goal is the person's, and zero at first.

        Raises:
            ChannelBusyError: Another program steers this robot.
        """
        self.config = config or VelocityGoalConfig()
        """Largest goal and its growth."""
        self._lease = SafetyLimits().lease_late
        self._channel = SharedMemoryWriter(channels.goals, 3)
        self._intent: Intent | None = None
        self._heard = self._ticked = -math.inf
        self.velocity: Floats = np.zeros(3)
        """Goal: forward and left [m/s], turn [rad/s]."""

    def set_intent(self, intent: Mapping[str, Any] | None, now: float) -> None:
        """Take the state of the person's device; None where they let go of it.

        Raises:
            ConfigError: It is none; the robot stands until a good one comes.
        """
        self._intent = None
        if intent is not None:
            self._intent, self._heard = Intent.from_dict(intent), now

    def tick(self, now: float) -> None:
        """Send the goal of now; 50 times a second. Real-time: never blocks.

        Args:
            now: Clock of the loop [s].
        """
        config, wanted = self.config, np.zeros(3)
        if self._intent is not None and now - self._heard <= self._lease:
            wanted = shaped(self._intent, config.stick)[_PLACES] * config.speed
        dt = min(max(now - self._ticked, 0.0), 0.1) if self._ticked > 0 else 0.0
        self._ticked = now
        if config.time > 0:
            reach = np.array(config.speed) * dt / config.time
            wanted = np.clip(wanted, self.velocity - reach, self.velocity + reach)
        self.velocity = wanted
        self._channel.write(wanted, now)

    def status(self, now: float) -> dict[str, Any]:
        """Everything that a page shows, plain values."""
        return {
            "authority": "policy",
            "present": self._intent is not None and now - self._heard <= self._lease,
            "lease_left": max(0.0, self._lease - (now - self._heard)),
            "raw": [0.0] * 6 if self._intent is None else self._intent.axes.tolist(),
            "goal": self.velocity.tolist(),
        }

    def close(self) -> None:
        """Give the goal up; allowed more than once."""
        self._channel.close()


class VelocityGoalReader:
    """The robot process's side."""

    def __init__(self, channels: RobotChannels) -> None:
        self._channel = SharedMemoryReader(channels.goals, 3)
        self._lease = SafetyLimits().lease_lost

    def put_into(self, world: Mapping[str, np.ndarray], now: float) -> Mapping[str, np.ndarray]:
        """Fields of the channel `world` with the person's goal, where there is one.

        Args:
            world: By name, (1, width); without this goal they stay as they are.
            now: Clock of the loop [s].
        """
        message = self._channel.newest_message() if GOAL in world else None
        if message is None:
            return world
        heard = -0.01 < now - message.stamp <= self._lease
        velocity = message.values if heard else np.zeros(3)
        return {**world, GOAL: velocity[None]}

    def close(self) -> None:
        """Let go; allowed more than once."""
        self._channel.close()
