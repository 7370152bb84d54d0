"""Equations of motion of a multirotor as Warp functions of one world.

Rigid body, rotors along +z of the body, diagonal inertia, no drag. World frame z up, quaternions
`wxyz` from body to world. The equations and the integrator (classical Runge-Kutta) are those of
Eschmann et al. 2024, "Learning to Fly in Seconds", sec. III. `kernel.py` runs them.
"""

from sim.physics.warp_start import wp


@wp.struct
class State:
    """True state of one world, in the column order of the packed state."""

    position: wp.vec3  # world [m]
    orientation: wp.vec4  # wxyz, body to world
    velocity: wp.vec3  # world [m/s]
    rate: wp.vec3  # body [rad/s]
    rotor: wp.vec4  # fraction of the maximum speed


@wp.struct
class Plant:
    """Constants of one world that the equations need; units as in `MultirotorModel`."""

    mass: wp.float32
    inertia: wp.vec3
    thrust_curve: wp.vec3
    torque_per_thrust: wp.float32
    rise_time: wp.float32
    fall_time: wp.float32
    rotor_x: wp.vec4
    rotor_y: wp.vec4
    yaw_sign: wp.vec4
    gravity: wp.float32
    force_w: wp.vec3
    torque_b: wp.vec3


@wp.func
def quaternion_derivative(q: wp.vec4, rate: wp.vec3) -> wp.vec4:
    """Half the product q * (0, rate)."""
    return 0.5 * wp.vec4(
        -q[1] * rate[0] - q[2] * rate[1] - q[3] * rate[2],
        q[0] * rate[0] + q[2] * rate[2] - q[3] * rate[1],
        q[0] * rate[1] + q[3] * rate[0] - q[1] * rate[2],
        q[0] * rate[2] + q[1] * rate[1] - q[2] * rate[0],
    )


@wp.func
def normalized(q: wp.vec4) -> wp.vec4:
    """Scale to unit length."""
    return q * (1.0 / wp.sqrt(wp.dot(q, q)))


@wp.func
def turned(q: wp.vec4, angles: wp.vec3) -> wp.vec4:
    """Attitude turned by a small rotation vector [rad] of the body frame (exact to third order)."""
    return normalized(q + quaternion_derivative(q, angles))


@wp.func
def rotor_thrust(plant: Plant, speed: wp.vec4) -> wp.vec4:
    """Thrust of each rotor [N]: c0 + c1 u + c2 u^2."""
    c = plant.thrust_curve
    return wp.vec4(c[0]) + wp.cw_mul(speed, wp.vec4(c[1]) + c[2] * speed)


@wp.func
def lift(plant: Plant, inverse_mass: wp.float32, q: wp.vec4, thrust: wp.vec4) -> wp.vec3:
    """Acceleration by thrust, in the world frame [m/s^2]; the third column of R(q) carries it."""
    size = inverse_mass * (thrust[0] + thrust[1] + thrust[2] + thrust[3])
    twice = 2.0 * size
    return wp.vec3(
        twice * (q[1] * q[3] + q[0] * q[2]),
        twice * (q[2] * q[3] - q[0] * q[1]),
        size - twice * (q[1] * q[1] + q[2] * q[2]),
    )


@wp.func
def angular_acceleration(
    plant: Plant, inverse_inertia: wp.vec3, rate: wp.vec3, thrust: wp.vec4
) -> wp.vec3:
    """Euler's equation in the body frame [rad/s^2], diagonal inertia."""
    inertia = plant.inertia
    torque = plant.torque_b + wp.vec3(
        wp.dot(plant.rotor_y, thrust) - (inertia[2] - inertia[1]) * rate[1] * rate[2],
        -wp.dot(plant.rotor_x, thrust) - (inertia[0] - inertia[2]) * rate[2] * rate[0],
        plant.torque_per_thrust * wp.dot(plant.yaw_sign, thrust)
        - (inertia[1] - inertia[0]) * rate[0] * rate[1],
    )
    return wp.cw_mul(torque, inverse_inertia)


@wp.func
def runge_kutta(s: State, plant: Plant, setpoint: wp.vec4, dt: wp.float32) -> State:
    """One classical fourth-order step of length `dt` [s]; rotor speeds are not clamped.

    Rotor speed feels nothing but its setpoint, y' = (setpoint - y) / tau, so that its four stages
    have the closed form y + w (setpoint - y) with w a polynomial in z = dt / tau.
    """
    # Divisions cost ten multiplications: each is made once a step.
    inverse_mass = 1.0 / plant.mass
    inverse_inertia = wp.cw_div(wp.vec3(1.0), plant.inertia)
    z_rise = dt / plant.rise_time
    z_fall = dt / plant.fall_time
    half = 0.5 * dt
    sixth = dt / 6.0

    one = wp.vec4(1.0)
    error = setpoint - s.rotor
    z = wp.vec4()
    for i in range(4):
        z[i] = wp.where(error[i] > 0.0, z_rise, z_fall)
    travel = wp.cw_mul(z, error)
    shrink = one - 0.5 * z
    thrust_1 = rotor_thrust(plant, s.rotor)
    thrust_2 = rotor_thrust(plant, s.rotor + 0.5 * travel)
    thrust_3 = rotor_thrust(plant, s.rotor + 0.5 * wp.cw_mul(travel, shrink))
    thrust_4 = rotor_thrust(plant, s.rotor + wp.cw_mul(travel, one - 0.5 * wp.cw_mul(z, shrink)))
    series = one - 0.5 * wp.cw_mul(z, one - (1.0 / 3.0) * wp.cw_mul(z, one - 0.25 * z))

    q_1 = s.orientation
    rate_1 = s.rate
    dq_1 = quaternion_derivative(q_1, rate_1)
    drate_1 = angular_acceleration(plant, inverse_inertia, rate_1, thrust_1)
    lift_1 = lift(plant, inverse_mass, q_1, thrust_1)

    q_2 = q_1 + half * dq_1
    rate_2 = rate_1 + half * drate_1
    dq_2 = quaternion_derivative(q_2, rate_2)
    drate_2 = angular_acceleration(plant, inverse_inertia, rate_2, thrust_2)
    lift_2 = lift(plant, inverse_mass, q_2, thrust_2)

    q_3 = q_1 + half * dq_2
    rate_3 = rate_1 + half * drate_2
    dq_3 = quaternion_derivative(q_3, rate_3)
    drate_3 = angular_acceleration(plant, inverse_inertia, rate_3, thrust_3)
    lift_3 = lift(plant, inverse_mass, q_3, thrust_3)

    q_4 = q_1 + dt * dq_3
    rate_4 = rate_1 + dt * drate_3
    dq_4 = quaternion_derivative(q_4, rate_4)
    drate_4 = angular_acceleration(plant, inverse_inertia, rate_4, thrust_4)
    lift_4 = lift(plant, inverse_mass, q_4, thrust_4)

    n = State()
    # Gravity and the disturbance are the same in all stages; position's stages are velocity's.
    constant = inverse_mass * plant.force_w - wp.vec3(0.0, 0.0, plant.gravity)
    lift_23 = lift_2 + lift_3
    n.position = s.position + dt * (s.velocity + half * constant + sixth * (lift_1 + lift_23))
    n.velocity = s.velocity + dt * constant + sixth * (lift_1 + 2.0 * lift_23 + lift_4)
    n.orientation = normalized(q_1 + sixth * (dq_1 + 2.0 * (dq_2 + dq_3) + dq_4))
    n.rate = rate_1 + sixth * (drate_1 + 2.0 * (drate_2 + drate_3) + drate_4)
    n.rotor = s.rotor + wp.cw_mul(travel, series)
    return n
