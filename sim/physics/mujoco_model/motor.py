"""The motors of a `RobotSpec` as MuJoCo actuators, and where their parameters stand in the model.

Every motor takes one control, u = kp * q_target + kd * dq_target + tau, and gives the torque
u - kp * q - kd * dq, computed anew in every physics step: the PD law of `JointCommand`. It is
clipped to the effort limit, and where the spec knows the speed without load, to the torque-speed
line: |stall torque * (+-1 - speed / no-load speed)|, so that nothing is left to accelerate with at
that speed, and a motor that is driven faster brakes.

Motors without that line are affine actuators. Those with it are MuJoCo's `dcmotor` with a voltage
limit, given in units in which the motor's constant is 1: a voltage is a speed, and the resistance
is the slope of the line. The integrator `implicitfast` knows the derivatives of both kinds, so that
stiff gains stay stable at steps of milliseconds.

A delay is MuJoCo's own: controls wait in a buffer that is part of the world's state, for a whole
number of physics steps. What the gains multiply does not wait: the delay is exact for gains that
stay the same.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import math

import mujoco
import numpy as np
import torch
from torch import Tensor

from robot_rl.core.robot import JointSpec

AFFINE_GAINS = ("actuator_biasprm", (1, 2))
"""Field and columns of stiffness and damping of a motor without torque-speed line, negative."""
DC_GAINS = ("actuator_gainprm", (4, 6))
"""Field and columns of stiffness and damping of a motor with torque-speed line."""
RESISTANCE = 0
"""Column of `actuator_gainprm`: no-load speed / stall torque of a motor with torque-speed line."""


def add_motor(tree: mujoco.MjSpec, joint: JointSpec, *, longest_delay: float) -> None:
    """Put a joint's motor and its friction into a model that is being built.

    Args:
        tree: Has the joint and the integration step already.
        joint: Its description.
        longest_delay: Of all worlds [s].
    """
    motor = tree.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    if joint.has_speed_line:
        top, stall = joint.no_load_speed, joint.stall_effort
        limit = joint.effort_limit if joint.effort_limit < float("inf") else 0.0  # 0: none
        motor.set_to_dcmotor(
            [0, 0], 0, nominal=[top, stall, top], saturation=[limit, 0, 0],
            controller=[joint.stiffness, 0, joint.damping, 0, 0, top],
            ctrlspec=int(mujoco.mjtCtrlInput.mjINPUT_FF),
        )  # fmt: skip
    else:
        motor.gaintype = mujoco.mjtGain.mjGAIN_FIXED
        motor.biastype = mujoco.mjtBias.mjBIAS_AFFINE
        motor.gainprm[0] = 1.0
        motor.biasprm[1:3] = -joint.stiffness, -joint.damping
        if joint.effort_limit < float("inf"):
            motor.forcelimited = True
            motor.forcerange = [-joint.effort_limit, joint.effort_limit]
    if longest_delay > 0:
        dt = tree.option.timestep
        motor.nsample = math.ceil(longest_delay / dt)
        motor.delay = float(delay_times(torch.tensor(joint.actuator_delay).double(), dt))
    found = tree.joint(joint.name)
    if joint.armature is not None:
        found.armature = joint.armature
    if joint.viscous_friction is not None:
        found.damping[0] = joint.viscous_friction
    if joint.friction is not None:
        found.frictionloss = joint.friction


def delay_times(delay: Tensor, physics_dt: float) -> Tensor:
    """What MuJoCo is told so that controls wait the nearest whole number of physics steps [s]."""
    # Halfway between two steps no rounding of sums tips it over.
    return ((delay / physics_dt).round() - 0.5).clamp_min(0.0) * physics_dt


def waiting_columns(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Columns of `history` where controls wait, and the control that waits in each."""
    columns, controls = [], []
    for i, control in enumerate(model.actuator_ctrladr):
        samples, start = int(model.actuator_history[i, 0]), int(model.actuator_historyadr[i])
        if samples:  # the buffer: two numbers of its own, the times, the values
            columns += range(start + 2 + samples, start + 2 + 2 * samples)
            controls += [int(control)] * samples
    return np.array(columns, dtype=np.int64), np.array(controls, dtype=np.int64)
