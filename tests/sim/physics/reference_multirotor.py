"""A multirotor in float64 numpy, one world, written from the equations and not from the kernel.

All 17 numbers are integrated together by the textbook Runge-Kutta step; vectors are turned by a
rotation matrix and torques are sums of cross products, as in Eschmann et al. 2024, "Learning to Fly
in Seconds", sec. III.
"""

import numpy as np
from numpy.typing import NDArray

from sim.physics.multirotor_model import MultirotorModel

Vector = NDArray[np.floating]

PLANT_A = MultirotorModel(
    mass=0.027,
    inertia=[3.85e-6, 3.85e-6, 5.9675e-6],
    # 3.16e-10 N per squared rpm, largest speed 21702 rpm.
    thrust_curve=[0.0, 0.0, 3.16e-10 * 21702.0**2],
    torque_per_thrust=0.005964552,
    rotor_rise_time=0.15,
    rotor_fall_time=0.15,
    rotor_position=[[0.028, -0.028], [-0.028, -0.028], [-0.028, 0.028], [0.028, 0.028]],
    rotor_yaw_sign=[-1.0, 1.0, -1.0, 1.0],
)
"""Crazyflie of the paper's own simulator: pure quadratic thrust, one time constant."""

PLANT_B = MultirotorModel(
    mass=0.0306,
    inertia=[9.4166e-6, 9.6441e-6, 1.74595e-5],
    thrust_curve=[0.00352526, 0.01437313, 0.09223048],
    torque_per_thrust=4.665e-3,
    rotor_rise_time=0.05545,
    rotor_fall_time=0.24939,
    rotor_position=[[0.028, -0.028], [-0.028, -0.028], [-0.028, 0.028], [0.028, 0.028]],
    rotor_yaw_sign=[-1.0, 1.0, -1.0, 1.0],
)
"""Crazyflie as identified later: full thrust polynomial, rotors rise faster than they fall."""


def rotation(q: Vector) -> Vector:
    """Matrix body -> world of a quaternion wxyz."""
    w, v = q[0], q[1:]
    skew = np.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])
    return np.eye(3) + 2.0 * w * skew + 2.0 * skew @ skew


def derivative(x: Vector, setpoint: Vector, model: MultirotorModel) -> Vector:
    """Time derivative of position 3, quaternion 4, velocity 3, body rates 3, rotor speeds 4."""
    q, velocity, rate, rotor = x[3:7], x[7:10], x[10:13], x[13:17]
    c0, c1, c2 = model.thrust_curve
    thrust = c0 + c1 * rotor + c2 * rotor**2
    torque = np.array(model.disturbance_torque)
    for (px, py), sign, force in zip(
        model.rotor_position, model.rotor_yaw_sign, thrust, strict=True
    ):
        torque = torque + np.cross([px, py, 0.0], [0.0, 0.0, force])
        torque = torque + np.array([0.0, 0.0, sign * model.torque_per_thrust * force])
    force_w = rotation(q) @ np.array([0.0, 0.0, thrust.sum()]) + np.array(model.disturbance_force)
    inertia = np.diag(model.inertia)
    dq = 0.5 * np.concatenate([[-q[1:] @ rate], q[0] * rate + np.cross(q[1:], rate)])
    tau = np.where(setpoint > rotor, model.rotor_rise_time, model.rotor_fall_time)
    return np.concatenate(
        [
            velocity,
            dq,
            force_w / model.mass - np.array([0.0, 0.0, model.gravity]),
            np.linalg.solve(inertia, torque - np.cross(rate, inertia @ rate)),
            (setpoint - rotor) / tau,
        ]
    )


def step(x: Vector, setpoint: Vector, model: MultirotorModel, dt: float) -> Vector:
    """One Runge-Kutta step, unit quaternion, rotor speeds within [0, 1]."""
    k1 = derivative(x, setpoint, model)
    k2 = derivative(x + 0.5 * dt * k1, setpoint, model)
    k3 = derivative(x + 0.5 * dt * k2, setpoint, model)
    k4 = derivative(x + dt * k3, setpoint, model)
    x = x + dt / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
    x[3:7] /= np.linalg.norm(x[3:7])
    x[13:17] = np.clip(x[13:17], 0.0, 1.0)
    return x
