"""A small quadrotor as rigid body with lagging rotors, in numpy, for the tests."""

import numpy as np

from hardware.controllers import rotations
from hardware.controllers.body_rates import RotorLayout
from robot_rl.core import quaternion
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import PoseCommand

LAYOUT = RotorLayout(
    rotor_position=[[0.028, -0.028], [-0.028, -0.028], [-0.028, 0.028], [0.028, 0.028]],
    rotor_yaw_sign=[-1.0, 1.0, -1.0, 1.0],
    thrust_curve=[0.0, 0.0, 0.14882867],
    torque_per_thrust=0.005964552,
)
"""The Crazyflie's rotors, plant "paper"."""
MASS = 0.027
INERTIA = [3.85e-6, 3.85e-6, 5.9675e-6]
UPRIGHT = (1.0, 0.0, 0.0, 0.0)


class Body:
    """Position, attitude, velocities and rotors; semi-implicit steps."""

    def __init__(self, attitude=UPRIGHT, rates=(0.0, 0.0, 0.0), rotor_time: float = 0.04) -> None:
        self.position, self.velocity = np.zeros(3), np.zeros(3)
        self.attitude, self.rates = np.array(attitude), np.array(rates)
        self.speed = np.full(4, LAYOUT.speed(MASS * 9.81 / 4))
        self.torque = np.zeros(3)
        self._rotor_time = rotor_time
        self._mix = LAYOUT.matrix()
        self._inertia = np.array(INERTIA)

    @property
    def state(self) -> RobotState:
        return RobotState(
            {
                "position_w": self.position[None].copy(),
                "orientation_w": self.attitude[None].copy(),
                "linear_velocity_w": self.velocity[None].copy(),
                "angular_velocity_b": self.rates[None].copy(),
            }
        )

    @property
    def tilt(self) -> float:
        return float(quaternion.tilt(self.attitude))

    def step(self, setpoint: np.ndarray, dt: float) -> None:
        """Fly on with rotor speed setpoints, (4,), and the disturbance `torque` [N m]."""
        self.speed += (setpoint - self.speed) * -np.expm1(-dt / self._rotor_time)
        lift, *turn = self._mix @ [LAYOUT.thrust(u) for u in self.speed]
        moment = np.array(turn) + self.torque
        moment -= np.cross(self.rates, self._inertia * self.rates)
        self.rates = self.rates + dt * moment / self._inertia
        x, y, z = dt * self.rates
        now = rotations.quaternion(self.attitude)
        push = np.array(rotations.vertical(now)) * lift / MASS
        self.velocity = self.velocity + dt * (push - [0.0, 0.0, 9.81])
        self.position = self.position + dt * self.velocity
        self.attitude = np.array(rotations.multiply(now, rotations.from_rotation_vector((x, y, z))))


def pose(position=(0.0, 0.0, 0.0), yaw: float = 0.0) -> PoseCommand:
    return PoseCommand(
        position_w=np.array([position]), orientation_w=quaternion.from_yaw(np.array([yaw]))
    )
