"""Flights as arrays: what a few envs did in an evaluation, for plots and pictures.

    recorder = FlightRecorder(env, flights=4)
    evaluate(env, recorder.watch(act), seed=7, on_step=recorder.on_step)
    recording = recorder.recording()

A recording is numpy only, so that it can be drawn without torch.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from robot_rl.core import quaternion
from robot_rl.core.episodic import begin_episodes
from sim.rendering.files import StoredArrays

if TYPE_CHECKING:  # whoever draws a recording needs neither torch nor the engine
    from torch import Tensor

    from robot_rl.core.env import EnvStep, Obs
    from sim.env import SimEnv

Floats = NDArray[np.float32]

FLIGHT_COLOURS = ("#0072B2", "#D55E00", "#CC79A7", "#009E73", "#E69F00", "#56B4E9")
"""One colour per flight in every picture (Okabe and Ito 2008: safe for colour-blind readers)."""


_CRAZYFLIE = np.array([[1, -1], [-1, -1], [-1, 1], [1, 1]], np.float32) * np.float32(0.028)
_YAW_SIGN = np.array([-1, 1, -1, 1], np.float32)


@dataclass(frozen=True, kw_only=True)
class FlightRecording(StoredArrays):
    """K flights of at most T control steps. Entry t is the state in which action t was chosen.

    Entries after a flight's end repeat its last one.
    """

    stored_as: ClassVar[str] = "flight recording"

    control_dt: float
    """Time between entries [s]."""
    position_w: Floats
    """(K, T, 3), [m]."""
    orientation_w: Floats
    """Unit quaternions wxyz, body to world, (K, T, 4)."""
    linear_velocity_w: Floats
    """(K, T, 3), [m/s]."""
    angular_velocity_b: Floats
    """(K, T, 3), [rad/s]."""
    rotor_speed: Floats
    """True speeds, (K, T, 4), fraction of the largest."""
    action: Floats
    """(K, T, 4), in [-1, 1]."""
    goal_w: Floats
    """Position of the goal, (K, T, 3), [m]."""
    corners_w: Floats
    """Corners of gates or of a pad, four points each, (K, T, G * 12), [m]; G = 0 for none."""
    length: NDArray[np.int64]
    """Entries of each flight that were flown, (K,)."""
    success: NDArray[np.bool_]
    """(K,): the flight met the task's success rule."""
    rotor_position: Floats = field(default_factory=lambda: _CRAZYFLIE.copy())
    """x and y of the rotors, (4, 2), [m]; a Crazyflie's in recordings that do not tell."""
    rotor_yaw_sign: Floats = field(default_factory=lambda: _YAW_SIGN.copy())
    """Turning of each about z, (4,): 1 or -1."""

    @property
    def tiles(self) -> int:
        """K."""
        return self.position_w.shape[0]

    @property
    def duration(self) -> float:
        """All T control steps [s]."""
        return self.control_dt * self.steps

    @property
    def steps(self) -> int:
        """T."""
        return self.position_w.shape[1]

    @property
    def time(self) -> Floats:
        """Time of each entry, (T,), [s]."""
        return np.arange(self.steps, dtype=np.float32) * np.float32(self.control_dt)

    @property
    def distance(self) -> Floats:
        """Distance from the goal, (K, T), [m]."""
        return np.linalg.norm(self.position_w - self.goal_w, axis=-1)

    @property
    def tilt(self) -> Floats:
        """Angle between body and world vertical, (K, T), [rad]."""
        return quaternion.tilt(self.orientation_w)

    @property
    def goal_moves(self) -> bool:
        """True where a path is to be followed, false where a place is to be held."""
        return bool(np.ptp(self.goal_w, axis=1).max() > 1e-3)


class FlightRecorder:
    """Keeps the first episode of the first K envs of a multirotor's evaluation."""

    def __init__(self, env: "SimEnv", flights: int) -> None:
        """Prepare for the first K envs of a multirotor with a goal `position_w`."""
        self._env = env
        self._flights = flights
        self._frames: list[dict[str, Tensor]] = []
        self._ended: list[Tensor] = []
        self._success: list[Tensor] = []

    def watch(self, act: "Callable[[Obs], Tensor]") -> "Callable[[Obs], Tensor]":
        """The same policy, recording the state in which it is asked and what it answers."""
        return _Watched(self, act)

    def note(self, action: "Tensor") -> None:
        """Record the present state, and the action (N, A) that was chosen in it."""
        env, k = self._env, self._flights
        true_state = env.simulation.true_state.fields
        frame = {name: true_state[name][:k].clone() for name in _STATES}
        # Privileged values are scaled to [-1, 1]; a recording keeps fractions.
        frame["rotor_speed"] = 0.5 * (env.simulation.privileged["rotor_speed"][:k] + 1)
        frame["action"] = action[:k].clamp(-1.0, 1.0)
        goal = env.task.goal
        frame["goal_w"] = goal["position_w"][:k].clone()
        corners = [values for name, values in goal.items() if name.endswith("_corners_w")]
        frame["corners_w"] = (corners or [goal["position_w"][:, :0]])[0][:k].clone()
        self._frames.append(frame)

    def on_step(self, step: "EnvStep") -> None:
        """Note whose episode ended, and how; for the evaluation's hook of that name."""
        self._ended.append(step.ended[: self._flights].clone())
        self._success.append(step.success[: self._flights].clone())

    def recording(self) -> FlightRecording:
        """All that was recorded so far. Reads the device once for all."""
        flown = len(self._ended)
        ended = _stack(self._ended).astype(bool)  # (K, T)
        first = np.where(ended.any(1), ended.argmax(1), flown - 1)
        steps = int(first.max()) + 1
        index = np.minimum(np.arange(steps), first[:, None])  # (K, T): the end is repeated
        rows = np.arange(self._flights)[:, None]
        arrays = {
            name: _stack([frame[name] for frame in self._frames[:flown]])[rows, index]
            for name in self._frames[0]
        }
        success = _stack(self._success).astype(bool)[rows[:, 0], first]
        simulation: Any = self._env.simulation  # of multirotors
        plant = simulation.config.model
        return FlightRecording(
            control_dt=self._env.spec.control_dt, length=first + 1, success=success,
            rotor_position=np.array(plant.rotor_position, np.float32),
            rotor_yaw_sign=np.array(plant.rotor_yaw_sign, np.float32), **arrays,
        )  # fmt: skip


_STATES = ("position_w", "orientation_w", "linear_velocity_w", "angular_velocity_b")


def _stack(parts: "list[Tensor]") -> NDArray:
    """T tensors (K, ...) as an array (K, T, ...)."""
    stacked = [part.float().cpu().numpy() for part in parts]
    return np.ascontiguousarray(np.stack(stacked, axis=1), dtype=np.float32)


class _Watched:
    """A policy that is recorded; one that remembers is told where episodes start."""

    def __init__(self, recorder: FlightRecorder, act: "Callable[[Obs], Tensor]") -> None:
        self._recorder, self._act = recorder, act

    def __call__(self, obs: "Obs") -> "Tensor":
        action = self._act(obs)
        self._recorder.note(action)
        return action

    def begin(self, mask: "Tensor") -> None:
        begin_episodes(self._act, mask)
