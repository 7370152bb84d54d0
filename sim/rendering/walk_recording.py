"""Walks as arrays: how fast a few robots went, how fast they should, and which feet stood.

recorder = WalkRecorder(env, walks=2)
evaluate(env, policy, seed=7, on_step=recorder.on_step)
recording = recorder.recording()
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from robot_rl.core import quaternion
from sim.tasks.legs.gait import heading_velocity
from sim.tasks.legs.velocity import GOAL

if TYPE_CHECKING:
    from robot_rl.core.env import EnvStep
    from sim.env import SimEnv

Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class WalkRecording:
    """K walks of T control steps; entries after a walk's end are NaN, or false."""

    control_dt: float
    """Time between entries [s]."""
    feet: list[str]
    """Names of the F feet."""
    velocity: Floats
    """Forward and to the left in the heading frame [m/s], turning rate [rad/s], (K, T, 3)."""
    goal: Floats
    """Goals, likewise, (K, T, 3)."""
    foot_force: Floats
    """Normal forces, (K, T, F), [N]."""

    @property
    def time(self) -> Floats:
        """Time of each entry, (T,), [s]."""
        return np.arange(self.velocity.shape[1], dtype=np.float32) * np.float32(self.control_dt)


class WalkRecorder:
    """Watches the first episodes of the first envs, step by step."""

    def __init__(self, env: "SimEnv", walks: int) -> None:
        """Prepare for the first K envs of the velocity task."""
        self._env, self._feet = env, env.simulation.robot.feet
        self._walks = min(walks, env.spec.num_envs)
        self._rows: list[dict[str, Floats]] = []
        self._over = torch.zeros(self._walks, dtype=torch.bool)

    def on_step(self, step: "EnvStep") -> None:
        """Take a step; an env that has begun its next episode is not watched any more.

        The true state is that after the step, of the next episode where one ended: such a step is
        left out.
        """
        if bool(self._over.all()):
            return
        count = self._walks
        ended = step.ended[:count].cpu()
        self._over |= ended
        true_state = self._env.simulation.true_state
        rotation = quaternion.rotation_matrix(true_state.orientation_w[:count])
        velocity = heading_velocity(rotation, true_state.linear_velocity_w[:count])
        turn = true_state.angular_velocity_b[:count, 2:]
        row = {
            "velocity": torch.cat([velocity, turn], dim=-1),
            "goal": self._env.task.goal[GOAL][:count],
            "foot_force": true_state.foot_force[:count],
        }
        gone = self._over[:, None]
        self._rows.append({
            name: torch.where(gone, torch.nan, value.cpu()).float().numpy()
            for name, value in row.items()
        })  # fmt: skip

    def recording(self) -> WalkRecording:
        """All that was recorded so far."""
        stacked = {
            name: np.stack([row[name] for row in self._rows], axis=1) for name in self._rows[0]
        }
        return WalkRecording(
            control_dt=self._env.spec.control_dt,
            feet=list(self._feet),
            **stacked,
        )
