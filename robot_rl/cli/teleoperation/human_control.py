"""Control laws that follow a person, by kind of robot: what they send, and what flies or moves it.

arm that measures its end effector   pose -> Cartesian impedance -> torques
multirotor                           pose -> position on SE(3) -> body rates -> rotors
legs                                 no setpoint: a person steers the policy's goal instead
"""

from collections.abc import Callable
from dataclasses import dataclass

from configs.schema import RunConfig
from hardware.control.limits import Limiter, PoseLimiter, PoseLimits
from hardware.control.pipeline import ControllerSet
from hardware.controllers.body_rates import BodyRates, BodyRatesConfig, RotorLayout
from hardware.controllers.cartesian_impedance import CartesianImpedance, CartesianImpedanceConfig
from hardware.controllers.chain import KinematicChain
from hardware.controllers.controller import Cascade, Controller
from hardware.controllers.position_se3 import PositionSe3, PositionSe3Config
from hardware.teleop.targets import FlightTarget, PoseTarget, Target
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot_command import CommandKind, RobotCommand
from sim.physics.arm_model import arm_model
from sim.robots.joint_simulation import MujocoSimulation
from sim.twin import Twin

_TIP = "end_effector"
"""Site of the end effector in every arm's model."""
_FLIGHT_SPEED = 2.0
"""Fastest that the target of a drone moves [m/s]."""


@dataclass(frozen=True, kw_only=True)
class HumanControl:
    """Parts that let a person lead a robot."""

    setpoint: CommandKind
    """Kind of a person's commands: the robot process's `human_setpoint`."""
    target: Callable[[], Target]
    """Makes what the person moves."""
    controller: Controller
    """Follows the person's setpoints."""
    limiter: Limiter
    """Limits them before."""
    stop: Controller | None = None
    """Follows what stops the robot; None where its driver takes that itself."""
    blend_time: float = 0.4
    """Time of a hand-over [s]."""

    def controllers(
        self, on_setpoint: Callable[[RobotCommand], None] | None = None
    ) -> ControllerSet:
        """Controllers of a loop whose policies send what the driver takes."""
        return ControllerSet(
            by_kind={self.setpoint: self.controller}, stop=self.stop,
            limiters={self.setpoint: self.limiter}, blend_time=self.blend_time,
            on_setpoint=on_setpoint,
        )  # fmt: skip


def chain_of(twin: Twin) -> KinematicChain:
    """Rigid-body model of a simulated arm, for the control laws of a real one.

    Raises:
        ConfigError: The robot is no arm that MuJoCo simulates.
    """
    if not isinstance(twin.simulation, MujocoSimulation):
        raise ConfigError(f"a chain of links was asked for, but '{twin.spec.name}' is no arm")
    model = twin.simulation.engine.model
    return KinematicChain(**arm_model(model, twin.spec.joint_names, _TIP))


def human_control(config: RunConfig, twin: Twin) -> HumanControl:
    """Control of a simulated robot by a person.

    Raises:
        ConfigError: No setpoint of a person leads this robot.
    """
    spec = twin.spec
    if spec.rotors:
        return _flight(config)
    if spec.feet or "end_effector_position_b" not in spec.sensors:
        raise ConfigError(
            f"'{spec.name}' has no pose that a person can lead; on legs a person steers the "
            "policy's goal (hardware/teleop/velocity_goal.py)"
        )
    efforts = [joint.effort_limit for joint in spec.joints]
    # The arm carries its own weight, as a Franka does.
    law = CartesianImpedanceConfig(gravity=False, coriolis=False)
    return HumanControl(
        setpoint=CommandKind.pose, target=PoseTarget, limiter=PoseLimiter(PoseLimits()),
        controller=CartesianImpedance(chain_of(twin), efforts, law),
    )  # fmt: skip


def _flight(config: RunConfig) -> HumanControl:
    plant = config.robot.model
    layout = RotorLayout(
        rotor_position=plant.rotor_position, rotor_yaw_sign=plant.rotor_yaw_sign,
        thrust_curve=plant.thrust_curve, torque_per_thrust=plant.torque_per_thrust,
    )  # fmt: skip
    rates = BodyRatesConfig(inertia=plant.inertia, **config.robot.rate_loop.gains(plant))
    position = PositionSe3(PositionSe3Config(mass=plant.mass, max_thrust=layout.max_thrust))
    return HumanControl(
        setpoint=CommandKind.pose, target=FlightTarget,
        limiter=PoseLimiter(PoseLimits(speed=_FLIGHT_SPEED)),
        controller=Cascade(position, BodyRates(layout, rates)), stop=BodyRates(layout, rates),
        blend_time=0.0,  # a mixture of two commands would fly nobody's law
    )  # fmt: skip
