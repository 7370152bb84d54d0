"""A robot's MJCF joined with its `RobotSpec`: mechanism from one, motors from the other.

The motor of a joint is a MuJoCo actuator whose force is control - kp * q - kd * dq, clipped to the
effort limit in every physics step. With control = kp * q_target + kd * dq_target + tau it is the PD
law of `JointCommand`; the integrator `implicitfast` knows its derivative, so that stiff gains stay
stable at steps of milliseconds.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from pathlib import Path

import mujoco

from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_parts import JointSpec

ROBOTS = Path(__file__).parents[1] / "robots"
"""Folder of our own MJCF files."""

_LIMIT_TOLERANCE = 1e-6
"""Largest difference between a limit in the spec and in the MJCF [rad]; they are decimals alike."""
_PROBE_SECONDS, _PROBE_OFFSET, _PROBE_SPEED = 1.0, 0.05, 1.0
"""After this time [s] a robot that began this far from its pose [rad] must be so calm [rad/s]."""
_MOVING = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)


def load_model(file: str, robot: RobotSpec, *, physics_dt: float) -> mujoco.MjModel:
    """Compile a robot's model with a motor at every joint of its spec.

    Args:
        file: Name in `ROBOTS`, or a path.
        robot: Joints in the order of the model, with limits and gains.
        physics_dt: Integration step [s].

    Raises:
        ConfigError: The file is missing or no MJCF, or the step is unstable with these gains.
        SpecMismatchError: Joints or limits of file and spec differ.
    """
    path = Path(file) if Path(file).is_absolute() else ROBOTS / file
    if not path.is_file():
        known = ", ".join(sorted(entry.name for entry in ROBOTS.glob("*.xml")))
        raise ConfigError(f"robot '{robot.name}': no model file {path}; known: {known}")
    try:
        tree = mujoco.MjSpec.from_file(str(path))
        _check_joints(tree, robot, path.name)
        for joint in robot.joints:
            _add_motor(tree, joint)
        tree.option.timestep = physics_dt
        model = tree.compile()
    except ValueError as error:
        if isinstance(error, (ConfigError, SpecMismatchError)):
            raise
        reason = " ".join(str(error).split())
        raise ConfigError(f"robot '{robot.name}': MuJoCo refuses {path.name}: {reason}") from error
    _check_stable(model, robot)
    return model


def _check_joints(tree: mujoco.MjSpec, robot: RobotSpec, file: str) -> None:
    strange = [joint.name for joint in tree.joints if joint.type not in _MOVING]
    if strange:
        raise SpecMismatchError(
            f"robot '{robot.name}': joint(s) {strange} in {file} neither turn nor slide about one "
            "axis; only robots on a fixed base can be simulated"
        )
    found = [joint.name for joint in tree.joints]
    if found != robot.joint_names:
        missing = [name for name in robot.joint_names if name not in found]
        what = f"lacks {missing}" if missing else "has them in another order or more of them"
        raise SpecMismatchError(
            f"robot '{robot.name}' has joints {robot.joint_names}, but {file} {what}: {found}"
        )
    for ours, theirs in zip(robot.joints, tree.joints, strict=True):
        pairs = zip(ours.position_limit, theirs.range, strict=True)
        if any(abs(a - b) > _LIMIT_TOLERANCE for a, b in pairs):
            raise SpecMismatchError(
                f"robot '{robot.name}': joint '{ours.name}' has position_limit "
                f"{ours.position_limit} in the spec and range {list(theirs.range)} in {file}; "
                "expected equal numbers in radians"
            )


def _add_motor(tree: mujoco.MjSpec, joint: JointSpec) -> None:
    motor = tree.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    motor.gaintype = mujoco.mjtGain.mjGAIN_FIXED
    motor.biastype = mujoco.mjtBias.mjBIAS_AFFINE
    motor.gainprm[0] = 1.0
    motor.biasprm[1:3] = -joint.stiffness, -joint.damping
    if joint.effort_limit < float("inf"):
        motor.forcelimited = True
        motor.forcerange = [-joint.effort_limit, joint.effort_limit]


def _check_stable(model: mujoco.MjModel, robot: RobotSpec) -> None:
    """Let one robot hold its default pose: it must come to rest."""
    data = mujoco.MjData(model)
    pose = [joint.default_position for joint in robot.joints]
    data.qpos[:] = [position + _PROBE_OFFSET for position in pose]
    data.ctrl[:] = [joint.stiffness * joint.default_position for joint in robot.joints]
    steps = max(10, round(_PROBE_SECONDS / model.opt.timestep))
    for _ in range(steps):
        mujoco.mj_step1(model, data)  # in two halves: these do not reset a bad state
        mujoco.mj_step2(model, data)
        if not abs(data.qvel).max() < 1e3:
            break
    if not abs(data.qvel).max() < _PROBE_SPEED:
        worst = max(range(model.nv), key=lambda i: abs(data.qvel[i]))
        raise ConfigError(
            f"robot '{robot.name}' does not come to rest in its default pose: joint "
            f"'{robot.joint_names[worst]}' moves at {data.qvel[worst]:.3g} rad/s after "
            f"{data.time:.3g} s; lower physics_dt ({model.opt.timestep:g} s) or the gains"
        )
