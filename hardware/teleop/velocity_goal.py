"""A person who steers a walking policy: their stick is its goal, a velocity of the base.

    stick -> goal/velocity_b (forward, left, turn) -> robot process or bridge -> policy

The policy keeps the legs, and the loop stays in `POLICY`: to take over is to say from now on where
the policy walks. A person who is not heard lets the robot stand: the goal becomes zero, and stays
so where their program was killed. Only who gives it back lets other goals count again; a program
that ends without that lets the robot hold.
"""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hardware.control.ipc import (
    ChannelBusyError,
    SharedMemoryReader,
    SharedMemoryWriter,
    StatusSubscriber,
)
from hardware.control.monitors import SafetyLimits
from hardware.control.process import RobotChannels
from hardware.control.request_socket import NoRobotError, send_request
from hardware.control.robot_loop import silence_of
from hardware.control.safety import Condition, SafetyState
from hardware.teleop.intent import Floats, Intent, StickConfig, shaped
from hardware.teleop.intervention import SegmentKind
from robot_rl.core.errors import ConfigError

GOAL = "goal/velocity_b"
"""Field of the channel `world`."""
_PLACES = [0, 1, 5]
"""Axes of a stick that are forward, left and turn."""


@dataclass(kw_only=True)
class VelocityGoalConfig:
    """Largest goal and its growth."""

    ranges: list[list[float]] = field(
        default_factory=lambda: [[-0.6, 0.6], [-0.3, 0.3], [-0.6, 0.6]]
    )
    """At full deflection to either side: forward and left [m/s], turn [rad/s]; those of the goals
    that the policy was trained with."""
    time: float = 0.5
    """Time from rest to full speed, and back [s]."""
    stick: StickConfig = field(default_factory=StickConfig)
    """Response of the stick."""

    def __post_init__(self) -> None:
        if len(self.ranges) != 3 or not all(
            len(one) == 2 and -math.inf < one[0] <= 0 <= one[1] < math.inf for one in self.ranges
        ):
            raise ConfigError(
                f"a velocity goal needs three ranges around 0, [low, high] each, got {self.ranges}"
            )
        if not 0 <= self.time < math.inf:
            raise ConfigError(f"the time to full speed must be >= 0 s, got {self.time}")


class VelocityGoal:
    """The person's side, with the methods of a `Teleoperator`."""

    def __init__(self, channels: RobotChannels, config: VelocityGoalConfig | None = None) -> None:
        """Look at the robot; the goal stays another's until `take_over`."""
        self.config = config or VelocityGoalConfig()
        """Largest goal and its growth."""
        self._low, self._high = np.array(self.config.ranges, dtype=np.float64).T
        self._lease = SafetyLimits().lease_late
        self._name, self._operator = channels.goals, channels.operator
        self._status = StatusSubscriber(channels.status)
        self._channel: SharedMemoryWriter | None = None
        self._intent: Intent | None = None
        self._heard = self._ticked = -math.inf
        self._refusal = ""
        self.velocity: Floats = np.zeros(3)
        """Goal: forward and left [m/s], turn [rad/s]."""

    @property
    def leads(self) -> bool:
        """True while the goal is the person's."""
        return self._channel is not None

    def set_intent(self, intent: Mapping[str, Any] | None, now: float) -> None:
        """Take the state of the person's device; None where they let go of it.

        Raises:
            ConfigError: It is none; the robot stands until a good one comes.
        """
        self._intent = None
        if intent is not None:
            self._intent, self._heard = Intent.from_dict(intent), now

    def take_over(self, now: float) -> None:
        """Let the goal be the person's, zero at first; `status` says why not."""
        status = self._status.newest()
        silence = "no robot process is running" if status is None else silence_of(status, now)
        if self.leads:
            return
        if status is None or silence:
            self._refusal = silence
        elif status.safety is not SafetyState.POLICY:
            self._refusal = (
                f"a robot in '{status.safety.value}' follows no goal: hand it to its policy first"
            )
        elif not self._present(now):
            self._refusal = "the robot was not taken over: no device is heard"
        else:
            self._open(now)

    def give_back(self, now: float) -> None:
        """Let other goals count again; refused while the policy is not in charge."""
        status = self._status.newest()
        if self.leads and status is not None and status.safety is not SafetyState.POLICY:
            self._refusal = (
                f"the goal stays yours in '{status.safety.value}': hand the robot to its policy, "
                "then give the goal back"
            )
            return
        self._refusal = ""
        self._give_up()

    def rewind(self, seconds: float, now: float) -> None:
        """Refuse: nobody walks backwards along a path."""
        self._refusal = "a robot on legs is steered, and goes no way back by itself"

    def forget_path(self) -> None:
        """Nothing: no path is kept."""

    def mark(self, kind: SegmentKind, now: float) -> None:
        """Refuse: the policy acts on, and nothing is learned from a goal."""
        self._refusal = "a robot that is steered follows its policy: there is nothing to mark"

    def tick(self, now: float) -> None:
        """Send the goal of now; 50 times a second. Real-time: never blocks.

        Args:
            now: Clock of the loop [s].
        """
        config, wanted = self.config, np.zeros(3)
        if self._channel is None:
            return
        if self._intent is not None and self._present(now):
            stick = shaped(self._intent, config.stick)[_PLACES]
            wanted = stick * np.where(stick < 0, -self._low, self._high)
        dt = min(max(now - self._ticked, 0.0), 0.1) if self._ticked > 0 else 0.0
        self._ticked = now
        if config.time > 0:
            reach = np.maximum(-self._low, self._high) * dt / config.time
            wanted = np.clip(wanted, self.velocity - reach, self.velocity + reach)
        self.velocity = wanted
        self._channel.write(wanted, now)

    def status(self, now: float) -> dict[str, Any]:
        """Everything that a page shows, plain values."""
        return {
            "authority": "policy",
            "leads": self.leads,
            "steers": True,
            "present": self._present(now),
            "lease_left": max(0.0, self._lease - (now - self._heard)),
            "refusal": self._refusal,
            "asking": "",
            "handover": 1.0,
            "rewinding": False,
            "raw": [0.0] * 6 if self._intent is None else self._intent.axes.tolist(),
            "goal": self.velocity.tolist(),
        }

    def close(self) -> None:
        """Give the goal up, and let the robot hold if it was steered; allowed more than once."""
        if self.leads:
            with contextlib.suppress(NoRobotError):
                send_request(self._operator, Condition.HOLD)
        self._give_up()
        self._status.close()

    def _present(self, now: float) -> bool:
        return self._intent is not None and now - self._heard <= self._lease

    def _open(self, now: float) -> None:
        try:
            self._channel = SharedMemoryWriter(self._name, 3)
        except ChannelBusyError:
            self._refusal = "another person steers this robot"
            return
        self._refusal, self.velocity, self._ticked = "", np.zeros(3), now
        self._channel.write(self.velocity, now)

    def _give_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel, self.velocity = None, np.zeros(3)


class VelocityGoalReader:
    """The robot's side: of its process where that tells the goals, else of its bridge."""

    def __init__(self, channels: RobotChannels) -> None:
        self._channel = SharedMemoryReader(channels.goals, 3)
        self._lease = SafetyLimits().lease_lost

    def velocity(self, now: float) -> np.ndarray | None:
        """Goal of the person, (1, 3); zero where they are not heard, None where nobody steers.

        Args:
            now: Clock of the loop [s].
        """
        message = self._channel.newest_message()
        if message is None:
            return None
        heard = -0.01 < now - message.stamp <= self._lease
        return message.values[None] if heard else np.zeros((1, 3))

    def put_into(self, world: Mapping[str, np.ndarray], now: float) -> Mapping[str, np.ndarray]:
        """Fields of the channel `world` with the person's goal, where there is one.

        Args:
            world: By name, (1, width); without this goal they stay as they are.
            now: Clock of the loop [s].
        """
        velocity = self.velocity(now) if GOAL in world else None
        return world if velocity is None else {**world, GOAL: velocity}

    def close(self) -> None:
        """Let go; allowed more than once."""
        self._channel.close()
