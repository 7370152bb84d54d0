"""What Gymnasium says of its planar MuJoCo worlds: numbers, and the few rules that use them.

Source: pages and code of HalfCheetah-v5, Hopper-v5, Walker2d-v5, Swimmer-v5, InvertedPendulum-v5 in
Gymnasium 1.4 (`gymnasium/envs/mujoco`, MIT licence). Ant and the Humanoids are missing: what they
observe of contacts is left over inside the integrator, where no stepping of many worlds shows it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

INFINITE = float("inf")


@dataclass(frozen=True, kw_only=True)
class PlanarWorld:
    """One world; its first position is the way it has come."""

    model: str
    """File in Gymnasium's folder of models."""
    frame_skip: int
    """Integration steps per action."""
    hidden: int = 1
    """Leading positions that are not observed."""
    velocity_bound: float = INFINITE
    """Observed velocities are clipped to it; in units of each joint."""
    weights: Mapping[str, float]
    """Reward terms, keys of `TERMS`, with their weights."""
    healthy: Mapping[int, tuple[float, float]] = field(
        default_factory=dict[int, tuple[float, float]]
    )
    """Open range of a position by its column; an episode ends outside. Empty: it never ends."""
    state_bound: float = INFINITE
    """The same for the size of every velocity, and of every position but the first two."""
    position_noise: float
    """An episode's positions begin this close to the model's own, uniformly."""
    velocity_noise: float
    """Its velocities likewise, or with this standard deviation."""
    normal_velocity: bool = False
    """Velocities begin normally distributed instead of uniformly."""
    infos: tuple[str, ...]
    """Keys of `INFOS` and `reward_<term>`, that Gymnasium tells in every step."""
    episode_steps: int = 1000
    """Actions until time is up."""


@dataclass(frozen=True, kw_only=True)
class Motion:
    """What one step did, float64."""

    velocity: Tensor
    """Mean of the first two velocities during the step, (N, 2), not what they are at its end."""
    position: Tensor
    """Positions after it, (N, nq)."""
    start: Tensor
    """Positions of the model at rest, (nq,)."""
    action: Tensor
    """In the actuators' own range, (N, nu), float32."""
    healthy: Tensor
    """(N,) bool."""


TERMS: Mapping[str, Callable[[Motion], Tensor]] = {
    "forward": lambda motion: motion.velocity[:, 0],
    "ctrl": lambda motion: -motion.action.square().sum(-1),
    "survive": lambda motion: motion.healthy,
}
"""Terms of the rewards by Gymnasium's names, (N,)."""

INFOS: Mapping[str, Callable[[Motion], Tensor]] = {
    "x_position": lambda motion: motion.position[:, 0],
    "y_position": lambda motion: motion.position[:, 1],
    "z_distance_from_origin": lambda motion: motion.position[:, 1] - motion.start[1],
    "distance_from_origin": lambda motion: motion.position[:, :2].norm(dim=-1),
    "x_velocity": lambda motion: motion.velocity[:, 0],
    "y_velocity": lambda motion: motion.velocity[:, 1],
}
"""What else is told of a step, (N,)."""

WORLDS: Mapping[str, PlanarWorld] = {
    "HalfCheetah-v5": PlanarWorld(
        model="half_cheetah.xml",
        frame_skip=5,
        weights={"forward": 1.0, "ctrl": 0.1},
        position_noise=0.1,
        velocity_noise=0.1,
        normal_velocity=True,
        infos=("x_position", "x_velocity", "reward_forward", "reward_ctrl"),
    ),
    "Hopper-v5": PlanarWorld(
        model="hopper.xml",
        frame_skip=4,
        velocity_bound=10.0,
        weights={"forward": 1.0, "ctrl": 1e-3, "survive": 1.0},
        healthy={1: (0.7, INFINITE), 2: (-0.2, 0.2)},
        state_bound=100.0,
        position_noise=5e-3,
        velocity_noise=5e-3,
        infos=(
            "x_position", "z_distance_from_origin", "x_velocity", "reward_forward", "reward_ctrl",
            "reward_survive",
        ),
    ),
    "InvertedPendulum-v5": PlanarWorld(
        model="inverted_pendulum.xml",
        frame_skip=2,
        hidden=0,
        weights={"survive": 1.0},
        healthy={1: (-0.2, 0.2)},
        position_noise=0.01,
        velocity_noise=0.01,
        infos=("reward_survive",),
    ),
    "Swimmer-v5": PlanarWorld(
        model="swimmer.xml",
        frame_skip=4,
        hidden=2,
        weights={"forward": 1.0, "ctrl": 1e-4},
        position_noise=0.1,
        velocity_noise=0.1,
        infos=(
            "x_position", "y_position", "distance_from_origin", "x_velocity", "y_velocity",
            "reward_forward", "reward_ctrl",
        ),
    ),
    "Walker2d-v5": PlanarWorld(
        model="walker2d_v5.xml",
        frame_skip=4,
        velocity_bound=10.0,
        weights={"forward": 1.0, "ctrl": 1e-3, "survive": 1.0},
        healthy={1: (0.8, 2.0), 2: (-1.0, 1.0)},
        position_noise=5e-3,
        velocity_noise=5e-3,
        infos=(
            "x_position", "z_distance_from_origin", "x_velocity", "reward_forward", "reward_ctrl",
            "reward_survive",
        ),
    ),
}  # fmt: skip
"""By Gymnasium's id."""


def is_healthy(world: PlanarWorld, position: Tensor, velocity: Tensor) -> Tensor:
    """Where the episode goes on, (N,) bool."""
    healthy = torch.ones(len(position), dtype=torch.bool)
    for column, (low, high) in world.healthy.items():
        place = position[:, column]
        healthy &= (place > low) & (place < high)
    if world.state_bound < INFINITE:
        healthy &= position[:, 2:].abs().amax(-1) < world.state_bound
        healthy &= velocity.abs().amax(-1) < world.state_bound
    return healthy
