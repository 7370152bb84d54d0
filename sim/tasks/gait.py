"""How a robot's feet meet the ground: contacts, air times and slip, per world and foot."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.rows import Rows


class Gait:
    """Follows the feet of N robots from step to step."""

    def __init__(
        self, num_worlds: int, num_feet: int, *, control_dt: float, touch: float,
        device: torch.device,
    ) -> None:  # fmt: skip
        """Begin with every foot on the ground.

        Args:
            num_worlds: N.
            num_feet: F.
            control_dt: Time between two calls of `follow` [s].
            touch: Normal force from which a foot counts as standing [N].
            device: Where the feet are counted.
        """
        self._control_dt = control_dt
        self._touch = touch
        self.contact = torch.ones(num_worlds, num_feet, dtype=torch.bool, device=device)
        """(N, F): the foot stands."""
        self.landed = ~self.contact
        """(N, F): it stands since this step."""
        self.air_time = torch.zeros(num_worlds, num_feet, device=device)
        """(N, F), [s]: how long it has been in the air; in the step of landing, how long it was."""

    def follow(self, foot_force: Tensor) -> None:
        """Take the normal forces of a step, (N, F), [N]."""
        before = self.contact
        self.contact = foot_force > self._touch
        self.landed = self.contact & ~before
        in_air = torch.where(before, 0.0, self.air_time) + self._control_dt
        self.air_time = torch.where(self.contact & before, 0.0, in_air)

    def air_reward(self, target: float) -> Tensor:
        """(N,), [s]: air time of landing feet beyond a target time, shorter steps cost."""
        return ((self.air_time - target).clamp(max=target) * self.landed).sum(-1)

    def slip(self, foot_velocity_w: Tensor) -> Tensor:
        """(N,), [m^2/s^2]: squared horizontal speed of standing feet.

        Args:
            foot_velocity_w: (N, F * 3), [m/s], world axes.
        """
        velocity = foot_velocity_w.unflatten(-1, (-1, 3))[..., :2]  # (N, F, 2)
        return ((velocity * velocity).sum(-1) * self.contact).sum(-1)

    def clear(self, rows: Rows) -> None:
        """Put every foot of the picked worlds on the ground."""
        rows.put(self.contact, True)
        rows.put(self.landed, False)
        rows.put(self.air_time, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Contacts and air times."""
        return {"contact": self.contact.clone(), "air_time": self.air_time.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.contact = state["contact"].to(self.contact.device, copy=True)
        self.air_time = state["air_time"].to(self.air_time.device, copy=True)
