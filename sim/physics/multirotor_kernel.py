"""Warp functions and kernels that step and settle multirotors, on CPU or CUDA.

Rigid body, rotors along +z of the body, diagonal inertia, no drag. World frame z up, quaternions
`wxyz` from body to world. The equations and the integrator (classical Runge-Kutta) are those of
Eschmann et al. 2024, "Learning to Fly in Seconds", sec. III.

The step kernel hands `lanes` neighbouring envs to one task, copies them into local arrays that
alias nothing, and runs the scalar equations in a plain loop over lanes. The compiler turns that
loop into vector instructions (16 float32 at once on AVX-512), ten times the speed of one env after
the other. CUDA threads are lanes already; there it is built with one.

Memory is column-major, one row of envs per quantity, so that both kinds load contiguous words.
Kernels are forward only; nothing here is differentiable.
"""

from functools import cache

from sim.physics.multirotor_model import (
    MEASURED_WIDTH,
    NOISE_WIDTH,
    PARAM_COLUMNS,
    PARAM_WIDTH,
    STATE_WIDTH,
)
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


CPU_LANES = 16
"""Worlds per CPU task; storage is padded to a multiple of it."""
MAX_TURN = wp.constant(1.0)
"""Rotation within one integration step that Runge-Kutta of fourth order still follows [rad]; beyond
it the gyroscopic terms grow from step to step until nothing is finite."""

_OPTIONS = {
    "enable_backward": False,
    "optimization_level": 3,
    # Below `CPU_LANES`: a loop over lanes that Warp unrolls is not vectorised.
    "max_unroll": 8,
    # Products and sums fuse across Warp's one-operation statements, as they do on CUDA.
    "cpu_compiler_flags": f"{wp.config.cpu_compiler_flags or '-march=native'} -ffp-contract=fast",
}

wp.set_module_options(_OPTIONS)

# First column of each parameter, as integers that a kernel can read.
MASS = PARAM_COLUMNS["mass"].start
INERTIA = PARAM_COLUMNS["inertia"].start
THRUST = PARAM_COLUMNS["thrust_curve"].start
TORQUE_PER_THRUST = PARAM_COLUMNS["torque_per_thrust"].start
RISE = PARAM_COLUMNS["rotor_rise_time"].start
FALL = PARAM_COLUMNS["rotor_fall_time"].start
ROTOR = PARAM_COLUMNS["rotor_position"].start
YAW = PARAM_COLUMNS["rotor_yaw_sign"].start
GRAVITY = PARAM_COLUMNS["gravity"].start
FORCE = PARAM_COLUMNS["disturbance_force"].start
TORQUE = PARAM_COLUMNS["disturbance_torque"].start
NOISE = PARAM_COLUMNS["noise_position"].start
DELAY = PARAM_COLUMNS["action_delay"].start
LATENCY = PARAM_COLUMNS["latency"].start


@wp.func
def slot_before(slot: int, steps: int, depth: int) -> int:
    """Slot of a ring that was written `steps` < `depth` control steps before `slot`."""
    return wp.where(slot < steps, slot - steps + depth, slot - steps)


@cache
def step_kernel(lanes: int) -> wp.Kernel:
    """Kernel of one control step; a task holds a block of `lanes` worlds, 1 or `CPU_LANES`."""
    row = wp.types.vector(length=lanes, dtype=wp.float32)
    flags = wp.types.vector(length=lanes, dtype=wp.uint8)
    setpoint_input = wp.types.vector(length=4 * lanes, dtype=wp.float32)
    noise_input = wp.types.vector(length=NOISE_WIDTH * lanes, dtype=wp.float32)
    # Local arrays of a task: a row per quantity, a column per lane.
    state_block = wp.types.matrix(shape=(STATE_WIDTH, lanes), dtype=wp.float32)
    param_block = wp.types.matrix(shape=(PARAM_WIDTH, lanes), dtype=wp.float32)
    measured_block = wp.types.matrix(shape=(MEASURED_WIDTH, lanes), dtype=wp.float32)
    noise_block = wp.types.matrix(shape=(NOISE_WIDTH, lanes), dtype=wp.float32)
    setpoint_block = wp.types.matrix(shape=(4, lanes), dtype=wp.float32)
    # lanes = outer * inner, both below max_unroll: inputs are transposed with constant indices.
    outer, inner = (4, lanes // 4) if lanes > 1 else (1, 1)

    @wp.kernel(module="unique", module_options=_OPTIONS)
    def multirotor_step(
        setpoint: wp.array2d(dtype=setpoint_input),
        noise: wp.array2d(dtype=noise_input),
        noisy: wp.bool,
        setpoint_slot: int,
        measured_slot: int,
        dt: wp.float32,
        decimation: int,
        state: wp.array2d(dtype=row),
        params: wp.array2d(dtype=row),
        setpoint_ring: wp.array3d(dtype=row),
        measured_ring: wp.array3d(dtype=row),
        measured: wp.array2d(dtype=row),
        fault: wp.array2d(dtype=flags),
    ) -> None:
        block = wp.tid()
        ones = wp.vec3(1.0)
        x = state_block()
        p = param_block()
        newest = setpoint_block()
        u = setpoint_block()  # obeyed in this physics step
        m = measured_block()
        z = noise_block()
        sums = row()  # of the new state: finite exactly if the state is
        for i in range(STATE_WIDTH):
            x[i] = state[i, block]
        for i in range(PARAM_WIDTH):
            p[i] = params[i, block]

        commands = setpoint[block, 0]
        for i in range(4):
            for a in range(outer):
                for b in range(inner):
                    newest[i, inner * a + b] = commands[4 * (inner * a + b) + i]
        depth = setpoint_ring.shape[0]
        if depth > 1:
            for i in range(4):
                setpoint_ring[setpoint_slot, i, block] = newest[i]

        for k in range(decimation):
            for i in range(4):
                u[i] = newest[i]
            for steps in range(1, depth):
                # In this share of physics step k a setpoint still holds that is as many control
                # steps old, or older; the rotors follow the mean over the step.
                since = float((steps - 1) * decimation + k)
                slot = slot_before(setpoint_slot, steps, depth)
                for i in range(4):
                    older = setpoint_ring[slot, i, block]
                    for lane in range(lanes):
                        share = wp.clamp(p[DELAY, lane] - since, 0.0, 1.0)
                        u[i, lane] = share * older[lane] + (1.0 - share) * u[i, lane]
            for lane in range(lanes):
                plant = Plant()
                plant.mass = p[MASS, lane]
                plant.torque_per_thrust = p[TORQUE_PER_THRUST, lane]
                plant.rise_time = p[RISE, lane]
                plant.fall_time = p[FALL, lane]
                plant.gravity = p[GRAVITY, lane]
                for i in range(3):
                    plant.inertia[i] = p[INERTIA + i, lane]
                    plant.thrust_curve[i] = p[THRUST + i, lane]
                    plant.force_w[i] = p[FORCE + i, lane]
                    plant.torque_b[i] = p[TORQUE + i, lane]
                for i in range(4):
                    plant.rotor_x[i] = p[ROTOR + 2 * i, lane]
                    plant.rotor_y[i] = p[ROTOR + 2 * i + 1, lane]
                    plant.yaw_sign[i] = p[YAW + i, lane]
                target = wp.vec4()
                s = State()
                for i in range(3):
                    s.position[i] = x[i, lane]
                    s.velocity[i] = x[7 + i, lane]
                    s.rate[i] = x[10 + i, lane]
                for i in range(4):
                    s.orientation[i] = x[3 + i, lane]
                    s.rotor[i] = x[13 + i, lane]
                    target[i] = u[i, lane]
                s = runge_kutta(s, plant, target, dt)
                # A rotor speed that is not finite has made velocity so as well.
                sums[lane] = (
                    wp.dot(s.position, ones) + wp.dot(s.velocity, ones) + wp.dot(s.rate, ones)
                ) + (s.orientation[0] + s.orientation[1] + s.orientation[2] + s.orientation[3])
                # Turning further than the integrator can follow is as bad as not being finite.
                angle = dt * wp.length(s.rate)
                sums[lane] = wp.where(angle <= MAX_TURN, sums[lane], wp.nan)
                for i in range(3):
                    x[i, lane] = s.position[i]
                    x[7 + i, lane] = s.velocity[i]
                    x[10 + i, lane] = s.rate[i]
                for i in range(4):
                    x[3 + i, lane] = s.orientation[i]
                    x[13 + i, lane] = wp.clamp(s.rotor[i], 0.0, 1.0)

        # A world that would leave the finite numbers, or the integrator's reach, keeps its state.
        raised = fault[block, 0]
        for lane in range(lanes):
            raised[lane] = wp.where(sums[lane] - sums[lane] == 0.0, raised[lane], wp.uint8(1))
        fault[block, 0] = raised
        for i in range(STATE_WIDTH):
            last = state[i, block]
            for lane in range(lanes):
                x[i, lane] = wp.where(sums[lane] - sums[lane] == 0.0, x[i, lane], last[lane])
            state[i, block] = x[i]

        for i in range(MEASURED_WIDTH):
            m[i] = x[i]
        depth = measured_ring.shape[0]
        if depth > 1:
            for i in range(MEASURED_WIDTH):
                measured_ring[measured_slot, i, block] = x[i]
        for steps in range(1, depth):
            slot = slot_before(measured_slot, steps, depth)
            for i in range(MEASURED_WIDTH):
                older = measured_ring[slot, i, block]
                for lane in range(lanes):
                    late = p[LATENCY, lane] > float(steps) - 0.5
                    m[i, lane] = wp.where(late, older[lane], m[i, lane])

        if noisy:
            draws = noise[block, 0]
            for i in range(4):
                for a in range(outer):
                    for b in range(inner):
                        z[i, inner * a + b] = draws[NOISE_WIDTH * (inner * a + b) + i]
                        z[4 + i, inner * a + b] = draws[NOISE_WIDTH * (inner * a + b) + 4 + i]
                        z[8 + i, inner * a + b] = draws[NOISE_WIDTH * (inner * a + b) + 8 + i]
            for lane in range(lanes):
                q = wp.vec4(m[3, lane], m[4, lane], m[5, lane], m[6, lane])
                turn = p[NOISE + 1, lane] * wp.vec3(z[3, lane], z[4, lane], z[5, lane])
                q = turned(q, turn)
                for i in range(3):
                    m[i, lane] += p[NOISE, lane] * z[i, lane]
                    m[7 + i, lane] += p[NOISE + 2, lane] * z[6 + i, lane]
                    m[10 + i, lane] += p[NOISE + 3, lane] * z[9 + i, lane]
                for i in range(4):
                    m[3 + i, lane] = q[i]
        for i in range(MEASURED_WIDTH):
            measured[i, block] = m[i]

    return multirotor_step


@wp.kernel
def settle_kernel(
    setpoint: wp.array2d(dtype=wp.float32),
    noise: wp.array2d(dtype=wp.float32),
    noisy: wp.bool,
    mask: wp.array(dtype=wp.bool),
    state: wp.array2d(dtype=wp.float32),
    params: wp.array2d(dtype=wp.float32),
    setpoint_ring: wp.array3d(dtype=wp.float32),
    measured_ring: wp.array3d(dtype=wp.float32),
    measured: wp.array2d(dtype=wp.float32),
) -> None:
    """Fill the past of masked worlds with their present and measure it; one world per task."""
    world = wp.tid()
    if not mask[world]:
        return
    for slot in range(setpoint_ring.shape[0]):
        for i in range(4):
            setpoint_ring[slot, i, world] = setpoint[world, i]
    for i in range(MEASURED_WIDTH):
        measured[i, world] = state[i, world]
        for slot in range(measured_ring.shape[0]):
            measured_ring[slot, i, world] = state[i, world]
    if not noisy:
        return
    for i in range(3):
        measured[i, world] += params[NOISE, world] * noise[world, i]
        measured[7 + i, world] += params[NOISE + 2, world] * noise[world, 6 + i]
        measured[10 + i, world] += params[NOISE + 3, world] * noise[world, 9 + i]
    q = wp.vec4(state[3, world], state[4, world], state[5, world], state[6, world])
    q = turned(
        q, params[NOISE + 1, world] * wp.vec3(noise[world, 3], noise[world, 4], noise[world, 5])
    )
    for i in range(4):
        measured[3 + i, world] = q[i]
