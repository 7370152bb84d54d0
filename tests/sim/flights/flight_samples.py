"""Made-up flights for tests of plots and pictures: no simulation is needed."""

import numpy as np

from sim.flights.recording import FlightRecording


def spiral(flights: int = 2, steps: int = 40, *, moving_goal: bool = False) -> FlightRecording:
    """Flights that spiral into the goal; the last one is lost at half time."""
    time = np.linspace(0.0, 1.0, steps, dtype=np.float32)
    turn = 6 * time + np.arange(flights, dtype=np.float32)[:, None]  # (K, T)
    radius = 0.3 * (1 - time)
    position = np.stack([radius * np.cos(turn), radius * np.sin(turn), 0 * turn], axis=-1)
    goal = np.zeros_like(position)
    if moving_goal:
        goal[..., 0] = time
    level = np.zeros((flights, steps, 4), dtype=np.float32)
    level[..., 0] = 1.0
    length = np.full(flights, steps, dtype=np.int64)
    success = np.ones(flights, dtype=bool)
    if flights > 1:
        length[-1], success[-1] = steps // 2, False
    return FlightRecording(
        control_dt=0.01,
        position_w=(position + goal).astype(np.float32),
        orientation_w=level,
        linear_velocity_w=np.zeros_like(position),
        angular_velocity_b=np.zeros_like(position),
        rotor_speed=np.full((flights, steps, 4), 0.66, dtype=np.float32),
        action=np.full((flights, steps, 4), 0.33, dtype=np.float32),
        goal_w=goal,
        corners_w=goal[..., :0],
        length=length,
        success=success,
    )
