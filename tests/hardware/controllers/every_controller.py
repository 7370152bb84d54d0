"""Every control law of the folder, ready to run, with a setpoint and states for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from configs.compose import robot_description
from hardware.controllers import rotations
from hardware.controllers.body_rates import BodyRates, BodyRatesConfig
from hardware.controllers.cartesian_impedance import CartesianImpedance
from hardware.controllers.cartesian_position import CartesianPosition
from hardware.controllers.controller import Cascade, Controller
from hardware.controllers.handover import Handover
from hardware.controllers.joint_pd import torque
from hardware.controllers.position_se3 import PositionSe3, PositionSe3Config
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import (
    BodyRateCommand,
    CommandKind,
    JointCommand,
    PoseCommand,
    RobotCommand,
    RotorCommand,
)
from tests.hardware.controllers import flying, joints
from tests.hardware.controllers.arms import EFFORT, READY, panda_chain
from tests.hardware.controllers.joint_law import JointLaw


def robot_with_joints(name: str) -> RobotSpec:
    spec = robot_description(name)
    assert spec is not None
    return spec


CHAIN = panda_chain()
PANDA = robot_with_joints("panda")
GAINS: dict[str, Any] = {"kp": [600] * 4 + [250, 150, 50], "kd": [50] * 3 + [20] * 3 + [10]}


@dataclass(frozen=True)
class Case:
    """A law, made anew by `make`, and a setpoint that it is not at."""

    make: Callable[[], Controller]
    setpoint: RobotCommand


def _arm_pose() -> PoseCommand:
    tip = CHAIN.at(READY)
    turn = rotations.multiply(
        rotations.from_rotation_vector((0.1, 0.0, 0.2)), tip.tip_orientation_b
    )
    position = tip.tip_position_b + np.array([0.02, -0.01, 0.03])
    return PoseCommand(position_w=position[None], orientation_w=np.array([turn]))


def _rates() -> BodyRates:
    return BodyRates(flying.LAYOUT, BodyRatesConfig(inertia=flying.INERTIA))


def _position(gain: float = 4.0) -> PositionSe3:
    return PositionSe3(
        PositionSe3Config(mass=flying.MASS, max_thrust=flying.LAYOUT.max_thrust, position_gain=gain)
    )


_JOINTS = joints.command(READY + 0.05, tau=0.5, **GAINS)
_RATES = BodyRateCommand(rates_b=np.array([[0.3, -0.2, 0.1]]), thrust=np.array([[0.4]]))
_PLACE = flying.pose([0.2, -0.1, 0.1], yaw=0.5)

CASES = {
    "joints in firmware": Case(lambda: JointLaw(EFFORT), _JOINTS),
    "joints in torques": Case(lambda: JointLaw(EFFORT, in_firmware=False), _JOINTS),
    "cartesian_impedance": Case(lambda: CartesianImpedance(CHAIN, EFFORT), _arm_pose()),
    "cartesian_position": Case(lambda: CartesianPosition(PANDA, CHAIN), _arm_pose()),
    "body_rates": Case(_rates, _RATES),
    "position_se3": Case(_position, _PLACE),
    "position_se3, weaker": Case(lambda: _position(1.0), _PLACE),
    "cascade": Case(lambda: Cascade(_position(), _rates()), _PLACE),
    "handover": Case(lambda: Handover(JointLaw(EFFORT)), _JOINTS),
}


def state_for(command: CommandKind) -> RobotState:
    """A robot that is not where it shall be, and moves."""
    if command is CommandKind.joint:
        return joints.state(READY, 0.1 * np.arange(7))
    lean = rotations.from_rotation_vector((0.2, -0.1, 0.3))
    return flying.Body(lean, (0.5, -0.3, 0.2)).state


def effect(command: RobotCommand, state: RobotState) -> np.ndarray:
    """What a command does to a robot: torques, rotor speeds, or rates and thrust; one row."""
    if isinstance(command, JointCommand):
        return torque(command, state.joint_position, state.joint_velocity)[0]
    if isinstance(command, RotorCommand):
        return command.speed[0]
    assert isinstance(command, BodyRateCommand)
    return np.concatenate([command.rates_b[0], command.thrust[0]])


def pairs() -> list[tuple[str, str]]:
    """All ordered pairs of different controllers that make the same kind of command."""
    kinds = {name: case.make().command for name, case in CASES.items()}
    return [(a, b) for a in CASES for b in CASES if a != b and kinds[a] is kinds[b]]
