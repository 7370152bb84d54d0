"""Mixing of thrust and torques to the rotors of N multirotors, with priorities.

The same law, with the same source, as `hardware/controllers/body_rates.py`, here for many at
once: roll and pitch first, then the collective thrust, and yaw with what is left.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from sim.physics.multirotor_engine.model import MultirotorModel

_TINY = 1e-12
"""Thrust differences below it are none [N]."""


class Mixed(NamedTuple):
    """What rotors are told, and the torques that they will give of it."""

    speed: Tensor
    """(N, 4), fraction of the largest speed."""
    torque: Tensor
    """(N, 3), [N m], body axes."""


class RotorMixing:
    """Allocation for bodies with the rotors of one plant."""

    def __init__(self, plant: MultirotorModel, device: torch.device) -> None:
        """Invert the plant's layout.

        Args:
            plant: Places, signs and thrust curve of the rotors.
            device: Where the worlds live.
        """
        x, y = torch.tensor(plant.rotor_position, dtype=torch.float64).T
        yaw = plant.torque_per_thrust * torch.tensor(plant.rotor_yaw_sign, dtype=torch.float64)
        mix = torch.stack([torch.ones_like(x), y, -x, yaw])  # (4, R), as the mixer's B
        part, *turns = torch.linalg.pinv(mix).T
        self._part = part.to(device)  # (R,)
        self._lean = (torch.stack(turns[:2]) / part).to(device)  # (2, R)
        self._yaw = turns[2].to(device)  # (R,)
        self._arms = mix[1:].T.contiguous().to(device)  # (R, 3)
        least, most = plant.thrust_curve[0], sum(plant.thrust_curve)
        self._bounds = least, most  # of a rotor's thrust [N]
        self._low, self._high = least / self._part, most / self._part  # of the sum, by each rotor
        self._room = self._high[:, None] - self._low  # (R, R)
        self._curve = plant.thrust_curve

    def mix(self, thrust: Tensor, torque: Tensor) -> Mixed:
        """Rotor speeds.

        Args:
            thrust: Wanted collective thrust, (N, 1), [N]; 0 or less stops all rotors.
            torque: Wanted torques, (N, 3), [N m], body axes.
        """
        lean = torque[:, :2] @ self._lean  # (N, R), newtons of the sum
        apart = lean[:, :, None] - lean[:, None]
        share = torch.where(apart > _TINY, self._room / apart, 1.0).amin((1, 2))
        lean = share.clamp(0.0, 1.0)[:, None] * lean
        low = (self._low - lean).amax(1, keepdim=True)
        high = (self._high - lean).amin(1, keepdim=True)
        force = (lean + torch.minimum(torch.maximum(thrust, low), high)) * self._part
        force = self._with_yaw(force, torque[:, 2:])
        force = torch.where(thrust > 0, force, self._bounds[0])
        return Mixed(self._speed(force), force @ self._arms)

    def _with_yaw(self, force: Tensor, torque: Tensor) -> Tensor:
        """Thrusts with as much yaw as their bounds allow, (N, R)."""
        least, most = self._bounds
        turn = self._yaw * torque
        space = torch.where(turn > 0, most - force, force - least)
        share = torch.where(turn.abs() > _TINY, space / turn.abs(), 1.0).amin(1, keepdim=True)
        return (force + share.clamp(0.0, 1.0) * turn).clamp(least, most)

    def _speed(self, force: Tensor) -> Tensor:
        """Speeds at which rotors give these thrusts, in [0, 1]."""
        least, linear, square = self._curve
        lift = force - least
        root = (linear * linear + 4 * square * lift.clamp_min(0.0)).sqrt()
        speed = (2 * lift / (linear + root)).clamp_max(1.0)
        return torch.where(lift > 0, speed, 0.0)
