"""Control laws of a robot's loop, for setpoints that its driver does not take itself.

end effector of an arm   pose -> Cartesian impedance -> torques
                         pose -> inverse kinematics -> joint targets
multirotor               body rates -> rotors; pose of a person -> SE(3) position -> body rates
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hardware.control.limits import PoseLimiter, PoseLimits, body_rate_limiter
from hardware.control.pipeline import ControllerSet
from hardware.controllers.body_rates import BodyRates, BodyRatesConfig, RotorLayout
from hardware.controllers.cartesian_impedance import CartesianImpedance, CartesianImpedanceConfig
from hardware.controllers.cartesian_position import CartesianPosition
from hardware.controllers.chain import KinematicChain
from hardware.controllers.controller import Cascade
from hardware.controllers.position_se3 import PositionSe3, PositionSe3Config
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind, RobotCommand

if TYPE_CHECKING:
    from sim.twin import Twin

_TIP = "end_effector"
"""Site of the end effector in every arm's model."""
_FLIGHT_SPEED = 2.0
"""Fastest that the target of a drone that a person flies moves [m/s]."""


def default_arm_law() -> CartesianImpedanceConfig:
    """Law of an arm that carries its own weight, as a Franka does.

    The attractor's lag is 0.05 s instead of SERL's 0.2 s: the end effector trails a target that
    moves at 0.125 m/s by 13 instead of 27 mm, stable at 200 Hz with the sensors' noise.
    """
    return CartesianImpedanceConfig(
        gravity=False, attractor_time=0.05, position_clip=0.02, rotation_clip=0.1
    )


@dataclass(frozen=True, kw_only=True)
class PoseControl:
    """Law of an arm whose end effector is led: torques, or joint targets."""

    robot: RobotSpec
    """Limits and gains of the joints."""
    chain: KinematicChain
    """Links of the arm."""
    law: CartesianImpedanceConfig | None
    """Gains and guards of a law that makes torques; None for joint targets by inverse kinematics,
    which are what nodes of ROS 2 take."""
    speed: float
    """Largest speed of the target [m/s]."""
    rest: tuple[float, ...] = ()
    """Pose that spare joints are drawn to by inverse kinematics [rad]; empty for the middle of
    their ranges."""

    @property
    def torques(self) -> bool:
        """The motors are told torques, not positions."""
        return self.law is not None

    def make_law(self) -> CartesianImpedance | CartesianPosition:
        """The controller itself."""
        joints = self.robot.joints
        if self.law is None:
            return CartesianPosition(self.robot, self.chain, rest=self.rest or None)
        return CartesianImpedance(
            self.chain, [joint.effort_limit for joint in joints], self.law,
            position_limit=[(one.position_limit[0], one.position_limit[1]) for one in joints],
            velocity_limit=[one.velocity_limit for one in joints],
        )  # fmt: skip

    def controllers(
        self, on_setpoint: Callable[[RobotCommand], None] | None = None
    ) -> ControllerSet:
        """Controllers of a loop that follows poses."""
        return ControllerSet(
            by_kind={CommandKind.pose: self.make_law()}, on_setpoint=on_setpoint,
            limiters={CommandKind.pose: PoseLimiter(PoseLimits(speed=self.speed))},
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Part of it that a bundle keeps; the links are the robot's."""
        law = None if self.law is None else asdict(self.law)
        return {"law": law, "speed": self.speed, "rest": [*self.rest]}

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], robot: RobotSpec, chain: KinematicChain
    ) -> "PoseControl":
        """Rebuild from `to_dict`."""
        told = values["law"]
        return cls(
            robot=robot, chain=chain, speed=float(values["speed"]),
            law=None if told is None else CartesianImpedanceConfig(**told),
            rest=tuple(map(float, values.get("rest", ()))),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RotorControl:
    """Plant of a drone for its controllers."""

    layout: RotorLayout
    gains: BodyRatesConfig
    hover_thrust: float
    """Share of the largest thrust that carries it."""
    mass: float
    """Take-off mass [kg]."""

    @classmethod
    def of(cls, robot: Any) -> "RotorControl":
        """Plant of a configured multirotor."""
        plant = robot.model
        layout = RotorLayout(
            rotor_position=plant.rotor_position, rotor_yaw_sign=plant.rotor_yaw_sign,
            thrust_curve=plant.thrust_curve, torque_per_thrust=plant.torque_per_thrust,
        )  # fmt: skip
        gains = BodyRatesConfig(inertia=plant.inertia, **robot.rate_loop.gains(plant))
        return cls(layout=layout, gains=gains, hover_thrust=plant.hover_thrust, mass=plant.mass)

    def controllers(
        self, on_setpoint: Callable[[RobotCommand], None] | None = None
    ) -> ControllerSet:
        """Body rates of a policy, the pose that a person flies to, and the stop.

        Nothing is blended: a mixture of a command with one of before would fly nobody's law.
        """
        position = PositionSe3(PositionSe3Config(mass=self.mass, max_thrust=self.layout.max_thrust))
        return ControllerSet(
            by_kind={
                CommandKind.body_rates: BodyRates(self.layout, self.gains),
                CommandKind.pose: Cascade(position, BodyRates(self.layout, self.gains)),
            },
            limiters={
                CommandKind.body_rates: body_rate_limiter(),
                CommandKind.pose: PoseLimiter(PoseLimits(speed=_FLIGHT_SPEED)),
            },
            stop=BodyRates(self.layout, self.gains), blend_time=0.0, on_setpoint=on_setpoint,
        )  # fmt: skip


def chain_of(twin: "Twin") -> KinematicChain:
    """Links of a simulated arm with what its task puts into its hand, for a real one's laws.

    Raises:
        ConfigError: The robot is no arm that MuJoCo simulates.
    """
    from sim.physics.arm_model import arm_model
    from sim.robots.joint_simulation import MujocoSimulation

    simulation, spec = twin.simulation, twin.spec
    if (
        not isinstance(simulation, MujocoSimulation)
        or "end_effector_position_b" not in spec.sensors
    ):
        raise ConfigError(
            f"'{spec.name}' was to be led by its end effector, but it is no arm; it measures "
            f"{[*spec.sensors]}"
        )
    return KinematicChain(**arm_model(simulation.engine.model, spec.joint_names, _TIP))
