"""Targets that a person moves: from a twist to the setpoint of a control law.

While nobody moves it, a target lies where the robot is (`sync`), so that a person's first setpoint
is no jump. While a person has the robot, it is integrated from their twist (`advance`) and kept on
a leash to the measured pose: a hand that is held up by the table does not wind up a spring.
"""

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from hardware.controllers import rotations
from hardware.controllers.cartesian_impedance import clipped
from hardware.controllers.chain import KinematicChain
from hardware.controllers.inverse_kinematics import InverseKinematics
from hardware.controllers.position_se3 import heading_of
from hardware.controllers.rotations import Quaternion
from hardware.teleop.intent import Floats, MotionFrame
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind, JointCommand, PoseCommand, RobotCommand


@dataclass(kw_only=True)
class TargetConfig:
    """Speeds, leash and workspace of a target."""

    linear_speed: float = 0.1
    """Speed at full deflection [m/s]; arms under manual operation keep below 0.25 (ISO 10218)."""
    angular_speed: float = 0.6
    """[rad/s]"""
    leash: float = 0.05
    """Farthest that the target is from the measured position [m]."""
    turn_leash: float = 0.3
    """Largest turn between the target and the measured attitude [rad]."""
    lower: list[float] = field(default_factory=lambda: [-math.inf] * 3)
    """Corner of the box that the target stays in [m]."""
    upper: list[float] = field(default_factory=lambda: [math.inf] * 3)
    """Opposite corner [m]."""

    def __post_init__(self) -> None:
        for name in ("linear_speed", "angular_speed", "leash", "turn_leash"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"teleoperation: {name} must be > 0, got {getattr(self, name)}")
        ends = list(zip(self.lower, self.upper, strict=True))
        if len(ends) != 3 or not all(low < high for low, high in ends):
            raise ConfigError(f"the workspace {self.lower} .. {self.upper} has no inside")

    @classmethod
    def for_actions(cls, translation: float, rotation: float, control_dt: float) -> "TargetConfig":
        """Speeds at which a person displaces the target no further than an action of a policy can.

        Args:
            translation: Displacement of an action of 1 [m].
            rotation: Likewise [rad].
            control_dt: Time of an action [s].
        """
        return cls(linear_speed=translation / control_dt, angular_speed=rotation / control_dt)

    @classmethod
    def for_flight(cls) -> "TargetConfig":
        """Speeds and leash of a drone."""
        return cls(linear_speed=1.0, angular_speed=1.0, leash=0.8, turn_leash=1.0)


class Target(Protocol):
    """Something that a person moves."""

    kind: CommandKind
    """Kind of its setpoints."""

    def sync(self, state: RobotState, followed: RobotCommand | None) -> None:
        """Lie where the robot is: at the setpoint followed last where it is of this kind.

        Args:
            followed: Setpoint that the loop followed last; None where that is not known.
        """
        ...

    def measured(self, state: RobotState) -> tuple[Floats, Quaternion]:
        """Measured position [m] and attitude that the target is compared with."""
        ...

    def advance(self, twist: Floats, frame: MotionFrame, state: RobotState, dt: float) -> None:
        """Move for a time [s] by shares of the largest speeds, (6,), in [-1, 1]."""
        ...

    def go_to(
        self, position: Floats, orientation: Quaternion, state: RobotState, dt: float
    ) -> float:
        """Move towards a pose, no faster than at the largest speeds.

        Returns:
            Time that is left over, of `dt`: 0 before the pose is reached [s].
        """
        ...

    def turn_gripper(self, state: RobotState) -> None:
        """Close an open gripper, open a closed one."""
        ...

    def command(self) -> RobotCommand:
        """The setpoint, (1, ...)."""
        ...

    def pose(self) -> tuple[Floats, Quaternion]:
        """Position [m] and attitude of the target."""
        ...


class PoseTarget:
    """The pose of an arm's end effector, which stands on a fixed base: for `CartesianImpedance`."""

    kind: CommandKind = CommandKind.pose

    def __init__(self, config: TargetConfig | None = None) -> None:
        self.config = config or TargetConfig()
        """Limits of the motion."""
        self.position: Floats = np.zeros(3)
        """[m], base axes."""
        self.orientation: Quaternion = (1.0, 0.0, 0.0, 0.0)
        """wxyz, base axes."""
        self.gripper: float | None = None
        """Opening that is asked for, in [0, 1]; None leaves the gripper as it is."""

    def measured(self, state: RobotState) -> tuple[Floats, Quaternion]:
        """Pose that the target is compared with."""
        place = np.array(state.end_effector_position_b[0], dtype=np.float64)
        return place, rotations.quaternion(state.end_effector_orientation_b)

    def sync(self, state: RobotState, followed: RobotCommand | None) -> None:
        """Lie at the pose followed last, within the leash; at the measured one without it.

        The gripper is left as it is: fingers that hold something stay at a force, not at a place.
        """
        self.position, self.orientation = self.measured(state)
        self.gripper = None
        if isinstance(followed, PoseCommand):
            self.position = np.array(followed.position_w[0], dtype=np.float64)
            self.orientation = rotations.quaternion(followed.orientation_w)
            self._restrain(state)

    def advance(self, twist: Floats, frame: MotionFrame, state: RobotState, dt: float) -> None:
        """Integrate a twist for a time [s]."""
        step = self.config.linear_speed * dt * clipped(twist[:3], 1.0)
        turn = self.config.angular_speed * dt * clipped(twist[3:], 1.0)
        if frame is MotionFrame.tool:
            axes = self._tool_axes()
            step = np.array(rotations.rotate(axes, rotations.vector(step)))
            turn = np.array(rotations.rotate(axes, rotations.vector(turn)))
        self._move(step, turn)
        self._restrain(state)

    def go_to(
        self, position: Floats, orientation: Quaternion, state: RobotState, dt: float
    ) -> float:
        """Move towards a pose at the largest speeds; the leash may hold it up.

        Of a pose outside the box, which its measurement may be, the nearest place inside is meant.
        """
        step = np.clip(position, self.config.lower, self.config.upper) - self.position
        back = rotations.conjugate(self.orientation)
        turn = np.array(rotations.rotation_vector(rotations.multiply(orientation, back)))
        needed = max(
            float(np.linalg.norm(step)) / self.config.linear_speed,
            float(np.linalg.norm(turn)) / self.config.angular_speed,
        )
        share = 1.0 if needed <= dt else dt / needed
        before = self.position + share * step
        self._move(share * step, share * turn)
        self._restrain(state)
        held = not np.allclose(before, self.position, rtol=0.0, atol=1e-6)
        return 0.0 if held or share < 1 else dt - needed

    def turn_gripper(self, state: RobotState) -> None:
        """Turn the asked opening over; a gripper that nobody asked yet, by its measured one."""
        if self.gripper is None and "gripper_opening" in state.fields:
            self.gripper = float(state.gripper_opening[0, 0])
        if self.gripper is not None:
            self.gripper = 0.0 if self.gripper > 0.5 else 1.0

    def command(self) -> RobotCommand:
        """The pose, (1, ...)."""
        grip = None if self.gripper is None else np.array([[self.gripper]])
        return PoseCommand(
            position_w=self.position[None].copy(),
            orientation_w=np.array([self.orientation]),
            gripper=grip,
        )

    def pose(self) -> tuple[Floats, Quaternion]:
        """Position [m] and attitude of the target."""
        return self.position, self.orientation

    def _tool_axes(self) -> Quaternion:
        return self.orientation

    def _move(self, step: Floats, turn: Floats) -> None:
        spin = rotations.from_rotation_vector(rotations.vector(turn))
        self.position = self.position + step
        self.orientation = rotations.unit(rotations.multiply(spin, self.orientation))

    def _restrain(self, state: RobotState) -> None:
        """Keep to the leash, then to the box: of both, the box is what must hold."""
        config, (place, attitude) = self.config, self.measured(state)
        way = clipped(self.position - place, config.leash)
        self.position = np.clip(place + way, config.lower, config.upper)
        back = rotations.conjugate(attitude)
        turn = rotations.rotation_vector(rotations.multiply(self.orientation, back))
        size = math.hypot(*turn)
        if size > config.turn_leash:
            share = config.turn_leash / size
            self.orientation = rotations.slerp(attitude, self.orientation, share)


class FlightTarget(PoseTarget):
    """Position and heading of a drone: for `PositionSe3`. Roll and pitch are not asked for."""

    def __init__(self, config: TargetConfig | None = None) -> None:
        super().__init__(config or TargetConfig.for_flight())

    def measured(self, state: RobotState) -> tuple[Floats, Quaternion]:
        """Position and heading; how the drone leans is the control law's."""
        heading = heading_of(rotations.quaternion(state.orientation_w))
        level = rotations.from_rotation_vector((0.0, 0.0, heading))
        return np.array(state.position_w[0], dtype=np.float64), level

    def advance(self, twist: Floats, frame: MotionFrame, state: RobotState, dt: float) -> None:
        """Integrate velocity and turn about the vertical for a time [s]."""
        level = np.concatenate([twist[:3], [0.0, 0.0, twist[5]]])
        super().advance(level, frame, state, dt)


class JointTarget(PoseTarget):
    """A pose that is reached by joint targets: for robots that take nothing else."""

    kind: CommandKind = CommandKind.joint

    def __init__(
        self, spec: RobotSpec, chain: KinematicChain, config: TargetConfig | None = None
    ) -> None:
        """Describe the arm."""
        super().__init__(config)
        lower, upper = zip(*(joint.position_limit for joint in spec.joints), strict=True)
        self._inverse = InverseKinematics(chain, lower=lower, upper=upper)
        self._gains = (
            np.array([[joint.stiffness for joint in spec.joints]]),
            np.array([[joint.damping for joint in spec.joints]]),
        )
        self._speed = np.array([joint.velocity_limit for joint in spec.joints])
        self._q: Floats = np.zeros(len(spec.joints))

    def sync(self, state: RobotState, followed: RobotCommand | None) -> None:
        """Take the joint targets followed last, or the measured joints, and their pose.

        The former hold the arm against its weight; the measured ones would let it sag.
        """
        super().sync(state, None)
        self._q = np.array(state.joint_position[0], dtype=np.float64)
        if isinstance(followed, JointCommand) and bool(np.all(followed.kp > 0)):
            self._q = np.array(followed.q[0], dtype=np.float64)
        self.position, self.orientation = self._inverse.pose(self._q)

    def command(self) -> RobotCommand:
        """Joint targets with the robot's gains, (1, J)."""
        still, (kp, kd) = np.zeros((1, len(self._q))), self._gains
        grip = None if self.gripper is None else np.array([[self.gripper]])
        return JointCommand(q=self._q[None].copy(), dq=still, tau=still, kp=kp, kd=kd, gripper=grip)

    def advance(self, twist: Floats, frame: MotionFrame, state: RobotState, dt: float) -> None:
        """Integrate a twist, then follow it with the joints as far as they go."""
        super().advance(twist, frame, state, dt)
        self._follow(dt)

    def go_to(
        self, position: Floats, orientation: Quaternion, state: RobotState, dt: float
    ) -> float:
        """Move towards a pose, then follow it with the joints as far as they go."""
        left = super().go_to(position, orientation, state, dt)
        return left if self._follow(dt) else 0.0

    def _follow(self, dt: float) -> bool:
        """Solve for the pose; one that the joints do not get to in time is pulled back to theirs.

        Returns:
            Whether they got there.
        """
        wanted = self._inverse.solve(self._q, self.position, self.orientation)
        reach = self._speed * dt
        q = np.clip(wanted, self._q - reach, self._q + reach)
        self._q = q
        place, attitude = self._inverse.pose(q)
        there = float(np.linalg.norm(place - self.position)) < 1e-3
        if not there:
            self.position, self.orientation = place, attitude
        return there
