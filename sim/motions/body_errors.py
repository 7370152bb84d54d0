"""How a robot's bodies differ from a motion that is put where the robot stands."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.robot_state import RobotState
from sim.motions.reference import BODY_FIELDS
from sim.tasks.terms import square_sum


@dataclass(frozen=True)
class BodyErrors:
    """How the watched bodies differ from the motion."""

    distance: Tensor
    """(N, B), [m]."""
    height: Tensor
    """(N, B), [m], positive where the robot's is higher."""
    errors: dict[str, Tensor]
    """Mean squares over the bodies by the name of their reward term, (N,) each."""


def compare(
    sensors: Mapping[str, Tensor], true_state: RobotState, asked: Mapping[str, Tensor]
) -> BodyErrors:
    """The watched bodies beside the motion's, in the robot's place and heading.

    Args:
        sensors: True `BODY_FIELDS` of the worlds, (N, B * width) each.
        true_state: True state of the robots.
        asked: The motion now: fields of a `Reference`, (N, ...) each.
    """
    found = {name: sensors[name].unflatten(-1, (-1, width)) for name, width in BODY_FIELDS.items()}
    turn = quaternion.from_yaw(yaw(true_state.orientation_w) - yaw(asked["orientation_w"]))[:, None]
    arm = asked["body_position_w"] - asked["position_w"][:, None]
    anchor = torch.cat([true_state.position_w[:, :2], asked["position_w"][:, 2:]], dim=-1)
    place = anchor[:, None] + quaternion.rotate(turn, arm)
    facing = quaternion.multiply(turn.expand_as(asked["body_orientation_w"]),
                                 asked["body_orientation_w"])  # fmt: skip
    way = found["body_position_w"] - place  # (N, B, 3)
    return BodyErrors(
        distance=way.norm(dim=-1),
        height=way[..., 2],
        errors={
            "body_position": square_sum(way).mean(-1),
            "body_orientation": angle(found["body_orientation_w"], facing).square().mean(-1),
            "body_velocity": square_sum(found["body_velocity_w"] - asked["body_velocity_w"]).mean(
                -1
            ),
            "body_rates": square_sum(found["body_rates_w"] - asked["body_rates_w"]).mean(-1),
        },
    )


def angle(one: Tensor, other: Tensor) -> Tensor:
    """Angle of the rotation between unit quaternions, (..., 4) -> (...), [rad]."""
    return 2 * (one * other).sum(-1).abs().clamp(max=1.0).acos()


def yaw(orientation: Tensor) -> Tensor:
    """Heading of a base, (N, 4) -> (N,), [rad]."""
    ahead = quaternion.heading(quaternion.rotation_matrix(orientation))
    return torch.atan2(ahead[:, 1], ahead[:, 0])
