"""Joint position targets of a walking policy, drawn out between its ticks.

    command(t) = previous + (target - previous) * min((t - t_0) / T, 1)      first-order hold

The policy speaks every T seconds (50 Hz), the motors listen at 200-1000 Hz: a target held in steps
kicks the legs at every tick of the policy, a ramp does not. The price is a delay of T / 2 on the
way and T to the end; T = 0 holds in steps, as policies are usually trained. All of a command's
entries ramp: position [rad], velocity, feed-forward and gains; the gripper's opening does not.

Targets themselves, q_d = q_default + scale * action, are made by `robot_rl/core/action.py`, and the
motors run the law of `joint_pd`. Time is counted, ticks are not: the command at a given time is
the same at every rate of the loop. Source: Franklin, Powell and Workman, "Digital Control of
Dynamic Systems", 1998: first-order hold, in its causal (delayed) form.
"""

from dataclasses import replace

import numpy as np

from hardware.controllers.controller import expect, finite
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import CommandKind, JointCommand, RobotCommand

_FIELDS = ("q", "dq", "tau", "kp", "kd")


class LeggedTargets:
    """First-order hold of joint commands for a driver of MIT-mode motors."""

    setpoint: CommandKind = CommandKind.joint
    command: CommandKind = CommandKind.joint

    def __init__(self, hold_time: float = 0.02, *, speed_limit: float = np.inf) -> None:
        """Describe the ramp.

        Args:
            hold_time: T, the policy's period [s]; 0 holds in steps.
            speed_limit: Largest speed of a position target [rad/s]: a longer way takes longer.

        Raises:
            ConfigError: A number is out of range.
        """
        if not 0 <= hold_time < np.inf:
            raise ConfigError(f"hold_time must be a finite time >= 0 [s], got {hold_time}")
        if not speed_limit > 0:
            raise ConfigError(f"speed_limit must be > 0, got {speed_limit}")
        self._hold_time = hold_time
        self._speed_limit = speed_limit
        self._before = self._target = np.zeros((5, 1, 0))  # rows of _FIELDS
        self._begun = self._held = False
        self._elapsed = self._duration = 0.0

    def start(self, state: RobotState, last: RobotCommand | None) -> None:
        """The ramp begins at the last command, or where the joints are."""
        self._held = isinstance(last, JointCommand)
        known = last if isinstance(last, JointCommand) else None
        self._before = _rows(known) if known else _resting(state)
        self._begun = False

    def update(self, setpoint: RobotCommand, state: RobotState, dt: float) -> JointCommand:
        """The command at this tick, (1, J) each."""
        newest = expect(setpoint, JointCommand)
        target = _rows(newest)
        if not finite(target):
            return newest
        if not self._begun:
            self._begin(target)
        else:
            self._elapsed += dt
            if not np.array_equal(target, self._target):
                self._before = self._now()
                self._turn_to(target)
        values = dict(zip(_FIELDS, self._now(), strict=True))
        return replace(newest, **values)

    def _begin(self, target: np.ndarray) -> None:
        """The first target after `start`; without a command before, gains are there at once."""
        if not self._held:
            self._before = np.concatenate([self._before[:3], target[3:]])
        self._begun = True
        self._turn_to(target)

    def _turn_to(self, target: np.ndarray) -> None:
        way = float(np.abs(target[0] - self._before[0]).max(initial=0.0))
        self._target = target
        self._elapsed = 0.0
        self._duration = max(self._hold_time, way / self._speed_limit)

    def _now(self) -> np.ndarray:
        """Entries at this time, (5, 1, J)."""
        if self._elapsed >= self._duration:
            return self._target.copy()
        share = self._elapsed / self._duration
        return self._before + share * (self._target - self._before)


def _rows(command: JointCommand) -> np.ndarray:
    """Entries of a command, (5, 1, J)."""
    return np.array([getattr(command, name) for name in _FIELDS], dtype=np.float64)


def _resting(state: RobotState) -> np.ndarray:
    """A command that asks for the measured positions, its gains 0, (5, 1, J)."""
    q = np.asarray(state.joint_position, dtype=np.float64)
    return np.concatenate([q[None], np.zeros((4, *q.shape))])
