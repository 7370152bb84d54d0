"""Geometric controllers of multirotors: the ceiling for learned policies, and a yardstick.

Geometric position and attitude control (Lee, Leok and McClamroch 2010; Mellinger and Kumar 2011).
`MultirotorExpert` has the true state and the world's own mass, inertia, thrust curve, rotor lag and
disturbances. A learned policy sees none of these; starts that it cannot save are out of reach.
`NominalController` has what an engineer has: the measured state, and the numbers of the plant that
the robot's description names, the same in all worlds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from sim.physics.multirotor_model import PARAM_COLUMNS
from sim.robots.multirotor_robot import START_SPEED, FlightAction
from sim.robots.multirotor_simulation import MultirotorSimulation

_TINY = 1e-9
"""Thrust differences below this are none [N]."""


@dataclass(frozen=True, kw_only=True)
class Gains:
    """Gains of a geometric controller."""

    position: float
    """Acceleration per position error [1/s^2]."""
    velocity: float
    """Acceleration per velocity error [1/s]."""
    integral: float = 0.0
    """Acceleration per integral of the position error [1/s^3]."""
    lean: float
    """Angular acceleration per angle between wanted and actual thrust direction [1/s^2]."""
    lean_damping: float
    """Angular acceleration per body rate about x and y [1/s]."""
    lean_integral: float = 0.0
    """Angular acceleration per integral of that angle [1/s^3]."""
    heading: float
    """Angular acceleration per heading error [1/s^2]."""
    heading_damping: float
    """Angular acceleration per body rate about z [1/s]."""
    lag: float = 1.0
    """Share of the rotors' lag that is inverted, in [0, 1]."""


# Found by random search over starts of hover and of Eschmann et al. 2024, both plants. The gain of
# position is low on purpose: it makes a wish to be near the goal yield to the wish to stop and
# stand upright, which saves the starts that are hardest to save.
EXPERT_GAINS = Gains(
    position=3.2, velocity=3.0, lean=270.0, lean_damping=30.0, heading=10.0, heading_damping=6.0
)
# Found by random search, 20 draws around a guess, over 64 starts with everything drawn that
# `configs/robustness/multirotor.yaml` names together.
NOMINAL_GAINS = Gains(
    position=8.0, velocity=4.0, integral=5.3, lean=150.0, lean_damping=24.0, lean_integral=94.0,
    heading=10.0, heading_damping=10.0, lag=0.7,
)  # fmt: skip
_LARGEST_LEAN = 56.0
"""Largest tilt of the wanted thrust [deg]."""
_LEAST_LIFT = 0.42
"""Smallest wanted vertical thrust, fraction of the weight."""
_ALLOCATION_HORIZON = 0.04
"""Time within which the rotors must be able to reach what is allocated [s]."""
_LARGEST_INTEGRAL = 1.5
"""Of the position error [m s] and of the lean [rad s], per axis."""
_INTEGRATED_ERROR, _INTEGRATED_LEAN = 1.0, 0.5
"""Error [m] and lean [rad] beyond which nothing is integrated: a recovery is no offset."""


class MultirotorExpert:
    """Flies every world of a `MultirotorSimulation` to a goal."""

    def __init__(self, simulation: MultirotorSimulation) -> None:
        """Read the worlds; nothing of them is changed.

        Raises:
            ConfigError: The worlds' actions are not rotor speeds.
        """
        _check_rotors(simulation)
        self._simulation = simulation

    def act(self, goal: Mapping[str, Tensor] | None = None) -> Tensor:
        """Actions that fly each world to its goal, (N, 4), in [-1, 1].

        Args:
            goal: A flight task's goal: `position_w` (N, 3), [m], and where the goal moves
                `linear_velocity_w` (N, 3), [m/s]. None hovers over the origin.
        """
        simulation = self._simulation
        plant = _Plant(simulation.engine.params, simulation.rotor_speed)
        law = _Law(EXPERT_GAINS, plant, simulation.true_state)
        return 2 * law.setpoint(goal or {}, simulation.control_dt) - 1


class NominalController:
    """Flies every world by what is measured and by the plant that the robot's description names.

    Remembers integrals and where it believes the rotors to be.
    """

    def __init__(self, simulation: MultirotorSimulation, gains: Gains = NOMINAL_GAINS) -> None:
        """Begin without a past.

        Raises:
            ConfigError: The worlds' actions are not rotor speeds.
        """
        _check_rotors(simulation)
        self._simulation, self._gains = simulation, gains
        count, device = simulation.num_worlds, simulation.device
        self._params = simulation.config.model.row().to(device).expand(count, -1)
        self._speed = torch.full((count, 4), START_SPEED, device=device)
        self._position = torch.zeros(count, 3, device=device)  # [m s]
        self._lean = torch.zeros(count, 2, device=device)  # [rad s]

    def begin(self, mask: Tensor) -> None:
        """Episodes begin in the masked worlds, (N,) bool."""
        self._speed[mask] = START_SPEED
        self._position[mask] = 0.0
        self._lean[mask] = 0.0

    def act(self, goal: Mapping[str, Tensor] | None = None) -> Tensor:
        """Actions that fly each world to its goal, (N, 4), in [-1, 1]; `MultirotorExpert.act`."""
        dt = self._simulation.control_dt
        plant = _Plant(self._params, self._speed)
        law = _Law(self._gains, plant, self._simulation.measured, self._position, self._lean)
        setpoint = law.setpoint(goal or {}, dt)
        _integrate(self._position, law.error, dt, within=_INTEGRATED_ERROR)
        _integrate(self._lean, law.tilt, dt, within=_INTEGRATED_LEAN)
        self._speed += plant.share_in(setpoint, dt) * (setpoint - self._speed)
        return 2 * setpoint - 1


def _check_rotors(simulation: MultirotorSimulation) -> None:
    action = simulation.config.action
    if action is not FlightAction.rotors:
        raise ConfigError(
            f"the expert acts by rotor speeds, but robot.action={action.value}; use "
            "robot.action=rotors"
        )


def _integrate(integral: Tensor, value: Tensor, dt: float, *, within: float) -> None:
    """Add values of which all entries are small, (N, K)."""
    small = value.norm(dim=-1, keepdim=True) < within
    integral.add_(dt * value * small).clamp_(-_LARGEST_INTEGRAL, _LARGEST_INTEGRAL)


class _Law:
    """The control law in one step of N worlds."""

    def __init__(
        self,
        gains: Gains,
        plant: "_Plant",
        state: RobotState,
        position_integral: Tensor | float = 0.0,
        lean_integral: Tensor | float = 0.0,
    ) -> None:
        self._gains, self._plant, self._state = gains, plant, state
        self._position_integral, self._lean_integral = position_integral, lean_integral
        self.error = state.position_w
        """Of the position, (N, 3), [m], world; of the goal as soon as it is known."""
        self.tilt = state.angular_velocity_b[:, :2]
        """Rotation about x and y that the thrust lacks, (N, 2), [rad]; known with the setpoint."""

    def setpoint(self, goal: Mapping[str, Tensor], dt: float) -> Tensor:
        """Rotor setpoints, (N, 4), in [0, 1]."""
        plant = self._plant
        force_w = self._wanted_force(goal)
        torque_b = self._wanted_torque(force_w)
        lift = quaternion.rotate_inverse(self._state.orientation_w, force_w)[:, 2]
        low, high = plant.reachable_thrust(_ALLOCATION_HORIZON)
        mixer = mixing_matrix(plant.arms, plant.yaw_sign, plant.torque_per_thrust)
        wanted = torch.cat([lift[:, None], torque_b], dim=-1)
        thrust = allocate(wanted, torch.linalg.inv(mixer), low, high)
        speed = plant.speed_for(thrust)
        return torch.lerp(speed, plant.setpoint_for(speed, dt), self._gains.lag)

    def _wanted_force(self, goal: Mapping[str, Tensor]) -> Tensor:
        """Thrust vector that pulls to the goal, (N, 3), [N], world: within the leaning cone."""
        plant, gains = self._plant, self._gains
        self.error = self._state.position_w - goal.get("position_w", 0.0)
        drift = self._state.linear_velocity_w - goal.get("linear_velocity_w", 0.0)
        pull = -gains.position * self.error - gains.velocity * drift  # [m/s^2]
        pull = pull - gains.integral * self._position_integral
        force = plant.mass * pull - plant.force_w
        weight = plant.mass[:, 0] * plant.gravity
        up = (force[:, 2] + weight).clamp(min=_LEAST_LIFT * weight, max=plant.max_thrust)
        # Height first: what is left of the thrust may push sideways.
        spare = (plant.max_thrust**2 - up * up).clamp_min(0.0).sqrt()
        side_limit = torch.minimum(spare, math.tan(math.radians(_LARGEST_LEAN)) * up)
        side = force[:, :2]
        length = side.norm(dim=-1).clamp_min(1e-9)
        side = side * (side_limit / length).clamp(max=1.0)[:, None]
        return torch.cat([side, up[:, None]], dim=-1)

    def _wanted_torque(self, force_w: Tensor) -> Tensor:
        """Torque that turns body z along the force and heading to zero, (N, 3), [N m], body.

        Thrust direction and heading are apart (reduced attitude): a large heading error must not
        bend the way on which the thrust gets up.
        """
        plant, gains = self._plant, self._gains
        attitude, rates = self._state.orientation_w, self._state.angular_velocity_b
        wanted = quaternion.rotate_inverse(attitude, force_w / force_w.norm(dim=-1, keepdim=True))
        # Rotation vector from body z to the wanted direction: angle along z x wanted.
        side = torch.stack([-wanted[:, 1], wanted[:, 0]], dim=-1)
        sine = side.norm(dim=-1, keepdim=True)
        angle = torch.atan2(sine, wanted[:, 2:])
        self.tilt = side * (angle / sine.clamp_min(1e-6))
        heading = 2 * torch.atan2(attitude[:, 3], attitude[:, 0])  # twist about body z
        heading = torch.atan2(heading.sin(), heading.cos())
        lean = gains.lean * self.tilt - gains.lean_damping * rates[:, :2]  # 2
        lean = lean + gains.lean_integral * self._lean_integral
        turn = -gains.heading * heading - gains.heading_damping * rates[:, 2]
        acceleration = torch.cat([lean, turn[:, None]], dim=-1)
        spin = torch.linalg.cross(rates, plant.inertia * rates)
        return plant.inertia * acceleration + spin - plant.torque_b


def mixing_matrix(arms: Tensor, yaw_sign: Tensor, torque_per_thrust: Tensor) -> Tensor:
    """Rows thrust, torque x, y, z of what one newton of each rotor gives, (N, 4, 4).

    Args:
        arms: Rotor axes x, y in the body frame, (N, 4, 2), [m].
        yaw_sign: Sign of each reaction torque, (N, 4).
        torque_per_thrust: Reaction torque per newton, (N, 1), [m].
    """
    x, y = arms.unbind(-1)
    return torch.stack([torch.ones_like(x), y, -x, yaw_sign * torque_per_thrust], dim=1)


def allocate(wanted: Tensor, unmixer: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Rotor thrusts within bounds: tilt torques first, then the sum of thrust, then heading.

    Where the bounds allow all of `wanted`, it is met exactly. Turning the thrust towards the goal
    matters more than its size, and its size more than the heading (Faessler et al. 2017, "Thrust
    mixing, saturation, and body-rate control", sec. III).

    Args:
        wanted: Sum of thrust [N] and torque about body x, y, z [N m], (N, 4).
        unmixer: Inverse of `mixing_matrix`, (N, 4, 4).
        low: Least thrust of each rotor, (N, 4), [N].
        high: Greatest thrust of each rotor, (N, 4), [N].
    """
    part = unmixer[:, :, 0]  # each rotor's part of one newton
    tilt = (unmixer[:, :, 1:3] @ wanted[:, 1:3, None])[..., 0] / part
    least, most = low / part, high / part  # (N, 4), in newtons of the sum
    # Largest share of the tilt torques for which some sum of thrust fits all four rotors.
    gap = tilt[:, :, None] - tilt[:, None, :]  # rotor i above rotor j
    room = most[:, :, None] - least[:, None, :]
    share = torch.where(gap > _TINY, room / gap.clamp_min(_TINY), 1.0).amin(dim=(1, 2))
    tilt = tilt * share.clamp(0.0, 1.0)[:, None]
    total = torch.maximum(wanted[:, 0], (least - tilt).amax(-1))
    total = torch.minimum(total, (most - tilt).amin(-1))
    thrust = (tilt + total[:, None]) * part

    turn = unmixer[:, :, 3] * wanted[:, 3:]
    space = torch.where(turn > 0, high - thrust, thrust - low)
    share = torch.where(turn.abs() > _TINY, space / turn.abs().clamp_min(_TINY), 1.0).amin(-1)
    return (thrust + turn * share.clamp(0.0, 1.0)[:, None]).clamp(low, high)


class _Plant:
    """Named views of every world's physical parameters, and its rotors' laws."""

    def __init__(self, params: Tensor, rotor_speed: Tensor) -> None:
        """Take parameters, (N, P), and rotor speeds, (N, 4), fractions of the largest."""
        values = {name: params[:, columns] for name, columns in PARAM_COLUMNS.items()}
        count = len(params)
        self.mass = values["mass"]  # (N, 1) [kg]
        self.gravity = values["gravity"][:, 0]  # (N,) [m/s^2]
        self.inertia = values["inertia"]  # (N, 3) [kg m^2]
        self.force_w = values["disturbance_force"]  # (N, 3) [N]
        self.torque_b = values["disturbance_torque"]  # (N, 3) [N m]
        self.arms = values["rotor_position"].reshape(count, 4, 2)  # [m]
        self.yaw_sign = values["rotor_yaw_sign"]  # (N, 4)
        self.torque_per_thrust = values["torque_per_thrust"]  # (N, 1) [m]
        self._curve = values["thrust_curve"]  # (N, 3) [N]
        self._rise = values["rotor_rise_time"]  # (N, 1) [s]
        self._fall = values["rotor_fall_time"]  # (N, 1) [s]
        self._speed = rotor_speed
        self.max_thrust = 4 * self._curve.sum(-1)  # (N,) [N]

    def reachable_thrust(self, horizon: float) -> tuple[Tensor, Tensor]:
        """Least and greatest thrust of each rotor after a time [s], (N, 4), [N]."""
        slowest = self._speed * torch.exp(-horizon / self._fall)
        fastest = 1 - (1 - self._speed) * torch.exp(-horizon / self._rise)
        return self._thrust(slowest), self._thrust(fastest)

    def speed_for(self, thrust: Tensor) -> Tensor:
        """Rotor speeds that give thrusts, (N, 4), [N] -> fractions of the largest."""
        c0, c1, c2 = self._curve.split(1, dim=-1)
        root = (c1 * c1 + 4 * c2 * (thrust - c0)).clamp_min(0.0).sqrt()
        return ((root - c1) / (2 * c2)).clamp(0.0, 1.0)

    def setpoint_for(self, speed: Tensor, dt: float) -> Tensor:
        """Setpoints that bring the rotors to speeds within `dt` [s], clipped: lag inverted.

        For dt much shorter than the lag this is speed + lag * (change of speed) / dt.
        """
        change = (speed - self._speed) / self.share_in(speed, dt)
        return (self._speed + change).clamp(0.0, 1.0)

    def share_in(self, setpoint: Tensor, dt: float) -> Tensor:
        """Share of the way to a setpoint that rotors make in `dt` [s], (N, 4)."""
        lag = torch.where(setpoint > self._speed, self._rise, self._fall)
        return -torch.expm1(-dt / lag)

    def _thrust(self, speed: Tensor) -> Tensor:
        c0, c1, c2 = self._curve.split(1, dim=-1)
        return c0 + speed * (c1 + speed * c2)
