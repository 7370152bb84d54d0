"""Cartesian impedance control: the end effector hangs on a spring and a damper.

    tau = J' (K e - D J dq) + N (k (q_0 - q) - 2 sqrt(k) dq) + w(q, dq) + b(dq) + g(q) + c(q, dq)
    N   = 1 - J' (J J' + lambda^2)^-1 J

e = [position error [m]; rotation vector [rad]], base axes, K [N/m, N m/rad], D [N s/m, N m s/rad],
J (6, J) of the tip. N lets a weak joint spring k [N m/rad] to a resting pose q_0 act only where the
tip hardly feels it; damped, it stays finite at singular poses and still takes energy out.

Near the limit of a joint a wall w pushes it back: a spring that grows over a margin to the joint's
largest torque, damped on the way outward. A joint that nears its largest speed is braked by b,
which grows to its largest torque there: next to singular poses a tip that is no faster than it may
be turns a joint far faster. K e fades out with the joint that is nearest to a limit, but for what
leads such a joint back: a hand that pivots on something turns a wrist by the torques of all others.

Four guards, each of them on purpose:
- The error is clipped, not the target: the pull is bounded by K times the clip (20 N at 2000 N/m
  and 1 cm) however far the target is, and stiffness near the target stays.
- The attractor follows the target with a first-order lag (slerp for the attitude).
- Torques change by no more than a rate [N m/s], from the torque that was sent last.
- Torques are clipped to the joints' limits.

Source: Khatib, "A unified approach for motion and force control of robot manipulators", 1987
(operational space); guards and defaults: serl_franka_controllers (Luo et al., "SERL", 2024) at
1 kHz. Deviations: errors are clipped by length instead of per axis, so that the law is the same in
every frame; lag and rate are per second instead of per tick; no integral.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from hardware.controllers import rotations
from hardware.controllers.chain import ChainPose, KinematicChain
from hardware.controllers.controller import expect, finite
from hardware.controllers.joint_pd import not_negative, pure_torque, torque
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import CommandKind, JointCommand, PoseCommand, RobotCommand

_WALL_TIME = 0.1
"""Damping of a wall, by its stiffness [s]."""


@dataclass(kw_only=True)
class CartesianImpedanceConfig:
    """Spring, damper and guards; the defaults are those of serl_franka_controllers."""

    translational_stiffness: float = 2000.0
    """[N/m]"""
    translational_damping: float = 89.0
    """[N s/m]; 2 sqrt(stiffness) is critical for a mass of 1 kg at the tip."""
    rotational_stiffness: float = 150.0
    """[N m/rad]"""
    rotational_damping: float = 7.0
    """[N m s/rad]"""
    null_stiffness: float = 0.2
    """Joint spring to the resting pose [N m/rad]; its damping is 2 sqrt(stiffness)."""
    pseudo_inverse_damping: float = 0.2
    """lambda: singular values of the Jacobian below it count as none."""
    position_clip: float = 0.01
    """Longest position error that pulls [m]."""
    rotation_clip: float = 0.05
    """Largest rotation error that pulls [rad]."""
    attractor_time: float = 0.2
    """Time constant with which the attractor follows the target [s]; 0 for no lag."""
    limit_margin: float = 0.1
    """Way before a joint's limit over which its wall grows to the largest torque [rad]; 0: none."""
    speed_margin: float = 0.3
    """Share of a joint's largest speed, below it, over which braking grows to the largest torque;
    0: none."""
    torque_rate: float = 1000.0
    """Largest change of a joint's torque [N m/s]."""
    gravity: bool = True
    """Carry the arm's weight; false where the arm does it by itself."""
    coriolis: bool = True
    """Make up for Coriolis and centrifugal torques; likewise."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, bool) and not value >= 0:
                raise ConfigError(f"Cartesian impedance: {name} must be >= 0, got {value}")
        if self.speed_margin > 1:
            raise ConfigError(
                f"Cartesian impedance: speed_margin must lie in [0, 1], got {self.speed_margin}"
            )
        for name in ("pseudo_inverse_damping", "torque_rate"):
            if getattr(self, name) == 0:
                raise ConfigError(f"Cartesian impedance: {name} must be > 0, got 0")


class CartesianImpedance:
    """Brings the tip of an arm to a pose through torques.

    The arm's base is the origin of the world that poses are given in.
    """

    setpoint: CommandKind = CommandKind.pose
    command: CommandKind = CommandKind.joint

    def __init__(
        self,
        chain: KinematicChain,
        effort_limit: Sequence[float],
        config: CartesianImpedanceConfig | None = None,
        rest: Sequence[float] | None = None,
        position_limit: Sequence[Sequence[float]] | None = None,
        velocity_limit: Sequence[float] | None = None,
    ) -> None:
        """Describe the arm.

        Args:
            effort_limit: Largest torque of each joint, (J,), [N m]; where it is infinite, the joint
                has no wall and no brake.
            rest: Pose that spare joints are drawn to, (J,), [rad]; None for the pose at `start`.
            position_limit: Lowest and highest position of each joint [rad]; None for no walls.
            velocity_limit: Largest speed of each joint [rad/s], infinite for none; None for no
                brakes.

        Raises:
            ConfigError: A limit is negative.
        """
        self.config = config or CartesianImpedanceConfig()
        self._chain = chain
        self._effort_limit = not_negative("effort_limit", effort_limit)
        self._rest = None if rest is None else np.array(rest, dtype=np.float64)
        margin = self.config.limit_margin
        limits = position_limit if position_limit is not None and margin > 0 else ()
        low, high = np.array(limits or [(-np.inf, np.inf)] * len(effort_limit), float).T
        self._margin = max(margin, 1e-9)
        self._inner = low + margin, high - margin
        strength = np.where(np.isfinite(self._effort_limit), self._effort_limit, 0.0)
        self._wall_stiffness = strength / margin if limits else 0 * strength
        share = self.config.speed_margin
        self._free_speed = 0 * strength
        self._fading = 0 * strength  # share of driving torque lost per speed [s/rad]
        if velocity_limit is not None and share > 0:
            fastest = not_negative("velocity_limit", velocity_limit)
            limited = np.isfinite(fastest) & (fastest > 0)
            self._free_speed[limited] = (1 - share) * fastest[limited]
            self._fading[limited] = 1.0 / (share * fastest[limited])
        self._brake_damping = strength * self._fading
        self._nominal = self._rest if self._rest is not None else np.zeros(len(effort_limit))
        self._damping = pow(self.config.pseudo_inverse_damping, 2) * np.eye(6)
        self._position, self._orientation = np.zeros(3), (1.0, 0.0, 0.0, 0.0)  # attractor
        self._sent: np.ndarray | None = None  # torque of the command sent last, (J,)

    def start(self, state: RobotState, last: RobotCommand | None) -> None:
        """The attractor is where the tip is; torques go on from those of the last command."""
        q, dq = _joints(state)
        pose = self._chain.at(q)
        self._position, self._orientation = pose.tip_position_b, pose.tip_orientation_b
        self._nominal = q if self._rest is None else self._rest
        self._sent = torque(last, q, dq)[0] if isinstance(last, JointCommand) else None

    def update(self, setpoint: RobotCommand, state: RobotState, dt: float) -> JointCommand:
        """Torques of this tick, (1, J)."""
        target = expect(setpoint, PoseCommand)
        q, dq = _joints(state)
        if not finite(q, dq, target):
            return pure_torque(np.full((1, len(q)), np.nan), state, target.gripper)
        pose = self._chain.at(q)
        self._follow(target, dt)
        carried = self._feed_forward(pose, dq)
        rest = self._damper(pose, dq) + self._spare(pose.jacobian, q, dq)
        wanted = carried + self._restrained(self._spring(pose), rest, q, dq)
        wanted += self._wall(q, dq) + self._brake(dq)
        sent = carried if self._sent is None else self._sent
        reach = self.config.torque_rate * dt
        effort = np.clip(wanted, sent - reach, sent + reach)
        self._sent = np.clip(effort, -self._effort_limit, self._effort_limit)
        return pure_torque(self._sent[None], state, target.gripper)

    def _follow(self, target: PoseCommand, dt: float) -> None:
        lag = self.config.attractor_time
        share = -math.expm1(-dt / lag) if lag > 0 else 1.0
        goal = np.asarray(target.position_w[0], dtype=np.float64)
        self._position = self._position + share * (goal - self._position)
        turned = rotations.quaternion(target.orientation_w)
        self._orientation = rotations.slerp(self._orientation, turned, share)

    def _spring(self, pose: ChainPose) -> np.ndarray:
        """Joint torques that pull the tip to the attractor, (J,)."""
        config = self.config
        way = clipped(self._position - pose.tip_position_b, config.position_clip)
        back = rotations.conjugate(pose.tip_orientation_b)
        turn = np.array(rotations.rotation_vector(rotations.multiply(self._orientation, back)))
        turn = clipped(turn, config.rotation_clip)
        pull = [config.translational_stiffness * way, config.rotational_stiffness * turn]
        return pose.jacobian.T @ np.concatenate(pull)

    def _damper(self, pose: ChainPose, dq: np.ndarray) -> np.ndarray:
        """Joint torques against the motion of the tip, (J,)."""
        config, velocity = self.config, pose.jacobian @ dq
        drag = [
            config.translational_damping * velocity[:3],
            config.rotational_damping * velocity[3:],
        ]
        return -pose.jacobian.T @ np.concatenate(drag)

    def _spare(self, jacobian: np.ndarray, q: np.ndarray, dq: np.ndarray) -> np.ndarray:
        """Torques of the resting pose, where the tip hardly feels them, (J,)."""
        stiffness = self.config.null_stiffness
        wish = stiffness * (self._nominal - q) - 2 * math.sqrt(stiffness) * dq
        felt = np.linalg.solve(jacobian @ jacobian.T + self._damping, jacobian @ wish)
        return wish - jacobian.T @ felt

    def _restrained(
        self, spring: np.ndarray, rest: np.ndarray, q: np.ndarray, dq: np.ndarray
    ) -> np.ndarray:
        """Torques of the tip's spring and of all else, less what drives joints to their limits.

        What pushes a joint on fades out over the margins, so that at the limit wall and brake have
        all torque to themselves. All of the spring fades with the joint that is nearest to a limit,
        but for what leads such a joint back: where a hand pivots on something, other joints turn a
        wrist against all that its own wall and brake have.
        """
        depth = self._depth(q)
        inside = np.clip(1.0 - abs(depth) / self._margin, 0.0, 1.0)
        slow = np.clip(1.0 - (abs(dq) - self._free_speed) * self._fading, 0.0, 1.0)
        own = np.minimum(inside, slow)
        drives = ((slow < 1.0) & (spring * dq > 0)) | (spring * depth > 0)
        left = own.min()
        spring = np.where(drives, left, left + 1.0 - own) * spring  # 1 of the nearest, led back
        rest = np.where(rest * depth > 0, inside * rest, rest)
        return spring + np.where(rest * dq > 0, slow * rest, rest)

    def _wall(self, q: np.ndarray, dq: np.ndarray) -> np.ndarray:
        """Torques that keep joints from their limits, (J,)."""
        depth = self._depth(q)
        outward = np.where(depth * dq > 0, dq, 0.0)
        return -self._wall_stiffness * (depth + _WALL_TIME * outward)

    def _depth(self, q: np.ndarray) -> np.ndarray:
        """Way of each joint into the margin of a limit, with the sign of its side [rad], (J,)."""
        low, high = self._inner
        return np.maximum(q - high, 0.0) - np.maximum(low - q, 0.0)

    def _brake(self, dq: np.ndarray) -> np.ndarray:
        """Torques against joints that near their largest speeds, (J,)."""
        excess = np.maximum(abs(dq) - self._free_speed, 0.0)
        return -self._brake_damping * np.sign(dq) * excess

    def _feed_forward(self, pose: ChainPose, dq: np.ndarray) -> np.ndarray:
        """Torques that the arm itself does not carry, (J,)."""
        if self.config.gravity and self.config.coriolis:
            return pose.bias_torque(dq)
        if self.config.gravity:
            return pose.gravity_torque
        return pose.coriolis_torque(dq) if self.config.coriolis else np.zeros_like(dq)


def clipped(vector: np.ndarray, longest: float) -> np.ndarray:
    """The vector, shortened to a length where it is longer; its direction stays."""
    length = math.sqrt(vector @ vector)
    return vector * (longest / length) if length > longest else vector


def _joints(state: RobotState) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities of the only robot's joints, (J,) each."""
    q = np.array(state.joint_position[0], dtype=np.float64)
    return q, np.array(state.joint_velocity[0], dtype=np.float64)
