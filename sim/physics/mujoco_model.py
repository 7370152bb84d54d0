"""A robot's MJCF joined with its `RobotSpec` and a scene: mechanism, motors and surroundings.

The mechanism is the MJCF's, the motors are the spec's. A robot whose base floats has a free joint
before all others; then come the joints of the spec, in its order, those of its gripper, then those
of the scene.

Every motor takes one control, u = kp * q_target + kd * dq_target + tau, and gives the torque
u - kp * q - kd * dq, computed anew in every physics step: the PD law of `JointCommand`. It is
clipped to the effort limit, and where the spec knows the speed without load, to the torque-speed
line: |stall torque * (+-1 - speed / no-load speed)|, so that nothing is left to accelerate with at
that speed, and a motor that is driven faster brakes.

Motors without that line are affine actuators. Those with it are MuJoCo's `dcmotor` with a voltage
limit, given in units in which the motor's constant is 1: a voltage is a speed, and the resistance
is the slope of the line. The integrator `implicitfast` knows the derivatives of both kinds, so that
stiff gains stay stable at steps of milliseconds.

A delay is MuJoCo's own: controls wait in a buffer that is part of the env's state, for a whole
number of physics steps. What the gains multiply does not wait: the delay is exact for gains that
stay the same.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import difflib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import mujoco
import numpy as np
import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError, MissingExtraError, SpecMismatchError
from robot_rl.core.plugins import PACKAGE_PREFIX, package_file
from robot_rl.core.robot import JointSpec, RobotSpec
from sim.cameras.config import CameraConfig
from sim.physics.installed import PACKAGE, has_engine
from sim.physics.joint_layout import JointLayout
from sim.physics.menagerie import MENAGERIE, find_published, published_tree
from sim.physics.mujoco_scene import add_cameras, add_gripper, empty_prefix, furnish
from sim.scenes.scene import SceneConfig

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
    """MuJoCo's delays with which controls wait the nearest whole number of physics steps [s]."""
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


_LONGEST = 10.0
"""A link's length, its shapes' radius, and its radius of gyration [m]: no robot's is near it, and
the length of a finger in millimetres is beyond it."""
_HEAVIEST = 1000.0
"""A link's mass [kg]: no robot's is near it, and a kilogram in grams is."""


def check_units(model: mujoco.MjModel, owner: str, file: str) -> None:
    """Refuse links that are too long or too heavy for any robot.

    Raises:
        SpecMismatchError: A link is metres or tonnes large, as where a file is in millimetres or
            grams.
    """
    for body in range(1, model.nbody):
        name = f"{owner}: link '{model.body(body).name}' in {file}"
        mass, inertia = float(model.body_mass[body]), float(model.body_inertia[body].max())
        sizes = {
            "lies {} m from its parent": math.hypot(*model.body_pos[body]),
            "has a shape with a radius of {} m": _largest_shape(model, body),
        }
        for told, size in sizes.items():
            if size > _LONGEST:
                raise SpecMismatchError(
                    f"{name} {told.format(f'{size:.4g}')}; expected at most {_LONGEST:g} m: "
                    "is the file in millimetres?"
                )
        if mass > _HEAVIEST:
            raise SpecMismatchError(
                f"{name} has a mass of {mass:.4g} kg; expected at most {_HEAVIEST:g} kg: "
                "is the file in grams?"
            )
        spread = math.sqrt(inertia / mass) if mass > 0 else 0.0
        if spread > _LONGEST:
            raise SpecMismatchError(
                f"{name} has an inertia of {inertia:.4g} kg m^2 at a mass of {mass:.4g} kg, as if "
                f"it were spread over {spread:.4g} m; expected at most "
                f"{_LONGEST:g} m: are inertias in kg mm^2 or g mm^2?"
            )


def _largest_shape(model: mujoco.MjModel, body: int) -> float:
    first, count = model.body_geomadr[body], model.body_geomnum[body]
    return float(model.geom_rbound[first : first + count].max(initial=0.0))


ROBOTS = Path(__file__).parents[1] / "robots"
"""Folder of our own robots."""
SCENES = Path(__file__).parents[1] / "scenes"
"""Folder of our own scenes."""

_LIMIT_TOLERANCE = 1e-6
"""Largest difference between a limit in the spec and in the MJCF [rad]; they are decimals alike."""
_PROBE_HEIGHT = 10.0
"""Height of a floating base while its gains are tried, far from everything [m]."""
_PROBE_SECONDS, _PROBE_OFFSET, _PROBE_SPEED = 1.0, 0.05, 1.0
"""After this time [s] a robot that began this far from its pose [rad] must be so calm [rad/s]."""
_COSTLY = ("wrench_ee",)
"""Fields whose sensors cost an arm some percent of its speed: left out where not measured."""
_MOVING = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
_FREE_JOINT = mujoco.mjtJoint.mjJNT_FREE


def load_model(
    file: str,
    robot: RobotSpec,
    *,
    physics_dt: float,
    scene: SceneConfig | None = None,
    further_delay: float = 0.0,
    menagerie: str = "",
    gripper: str = "",
    passive_joints: Sequence[str] = (),
    cameras: Mapping[str, CameraConfig] | None = None,
) -> mujoco.MjModel:
    """Compile a robot's model with a motor at every joint of its spec, and its surroundings.

    Args:
        file: Name in `ROBOTS`, a path, or "menagerie" for the published mechanism.
        robot: Joints in the order of the model, with limits and gains.
        scene: What stands around the robot; None for what its own file brings.
        further_delay: Most that any world adds to the motors' delay [s].
        gripper: Name in `ROBOTS` or a path of what the arm's flange carries; empty for nothing.
        passive_joints: Joints of the file behind those of the spec, which nothing drives.
        cameras: Cameras to put into it, by name.

    Raises:
        ConfigError: A file is missing or no MJCF, or the step is unstable with these gains.
        MissingExtraError: MuJoCo is older than our engine.
        SpecMismatchError: Joints or limits of file and spec differ, or lengths and masses are those
            of no robot.
    """
    if not has_engine():
        raise MissingExtraError(PACKAGE, "sim", f"robot '{robot.name}'")
    owner = f"robot '{robot.name}'"
    tree = _robot_tree(file, robot, menagerie)
    name = Path(file).name
    if gripper:
        if robot.gripper is None:
            raise ConfigError(
                f"{owner}: robot.gripper_model={gripper} brings fingers, and robot.spec.gripper "
                "names none; name their joints in robot.spec.gripper.joints"
            )
        add_gripper(tree, _tree(gripper, ROBOTS, owner), gripper)
        name = f"{name} with {Path(gripper).name}"
    _check_joints(tree, robot, name, passive_joints)
    for sensor in list(tree.sensors):
        field = sensor.name.partition("/")[0]
        if field in _COSTLY and field not in robot.sensors:
            tree.delete(sensor)
    tree.option.timestep = physics_dt
    for joint in robot.joints:
        add_motor(tree, joint, longest_delay=joint.actuator_delay + further_delay)
    for finger in _fingers(robot):
        add_motor(tree, finger, longest_delay=0.0)
    with empty_prefix():
        alone = _compile(tree, owner, name)
    check_units(alone, owner, name)
    _check_limits(alone, robot, name)
    _check_stable(alone, robot)
    with empty_prefix():
        if scene is not None:
            furnish(tree, scene, lambda file, owner: _tree(file, SCENES, owner))
            add_cameras(tree, cameras or {})
            name = " with ".join(filter(None, (name, scene.tool, scene.file)))
        return _compile(tree, owner, name)


def _robot_tree(file: str, robot: RobotSpec, menagerie: str) -> mujoco.MjSpec:
    owner = f"robot '{robot.name}'"
    if file != MENAGERIE:
        return _tree(file, ROBOTS, owner)
    published = find_published(menagerie, owner)  # before our own file, which has less to say
    own = _tree(f"{robot.name}.xml", ROBOTS, owner)
    try:
        return published_tree(menagerie, published, own, owner=owner)
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise _refused(owner, f"{menagerie} of Menagerie", error) from error


def _tree(file: str, folder: Path, owner: str) -> mujoco.MjSpec:
    path = package_file(file) if file.startswith(PACKAGE_PREFIX) else folder / file
    if not path.is_file():
        raise ConfigError(f"{owner}: no model file {path}{_models_there(path, folder)}")
    try:
        return mujoco.MjSpec.from_file(str(path))
    except ValueError as error:
        raise _refused(owner, path.name, error) from error


def _models_there(path: Path, ours: Path) -> str:
    """The model that was meant, if one is alike, and those beside it and in our own folder."""
    beside, known = (
        sorted(entry.name for entry in folder.glob("*.xml")) for folder in (path.parent, ours)
    )
    near = difflib.get_close_matches(path.name, [*beside, *known], n=1, cutoff=0.6)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    there = "" if path.parent == ours else f"; in {path.parent}: {', '.join(beside) or 'none'}"
    return f"{hint}{there}; known: {', '.join(known) or 'none'}"


def _compile(tree: mujoco.MjSpec, owner: str, name: str) -> mujoco.MjModel:
    try:
        return tree.compile()
    except ValueError as error:
        raise _refused(owner, name, error) from error


def _refused(owner: str, name: str, error: ValueError) -> ConfigError:
    return ConfigError(f"{owner}: MuJoCo refuses {name}: {' '.join(str(error).split())}")


def _check_joints(tree: mujoco.MjSpec, robot: RobotSpec, file: str, passive: Sequence[str]) -> None:
    joints = list(tree.joints)
    if joints and joints[0].type == _FREE_JOINT:
        joints = joints[1:]  # the base
    strange = [joint.name for joint in joints if joint.type not in _MOVING]
    if strange:
        raise SpecMismatchError(
            f"robot '{robot.name}': joint(s) {strange} in {file} neither turn nor slide about one "
            "axis; only the first joint may be free, that of a floating base"
        )
    found = [joint.name for joint in joints]
    asked = [*(joint.name for joint in [*robot.joints, *_fingers(robot)]), *passive]
    if found != asked:
        missing = [name for name in asked if name not in found]
        what = f"lacks {missing}" if missing else "has them in another order or more of them"
        raise SpecMismatchError(
            f"robot '{robot.name}' has joints {asked}, but {file} {what}: {found}"
        )


def _check_limits(model: mujoco.MjModel, robot: RobotSpec, file: str) -> None:
    """Compare with limits as compiled, whatever unit the file has its angles in."""
    for finger in _fingers(robot):
        low, high = finger.position_limit
        theirs = model.joint(finger.name).range.tolist()
        if low < theirs[0] - _LIMIT_TOLERANCE or high > theirs[1] + _LIMIT_TOLERANCE:
            raise SpecMismatchError(
                f"robot '{robot.name}': finger '{finger.name}' goes from {low} to {high} in the "
                f"spec, beyond its range {theirs} in {file}"
            )
    for ours in robot.joints:
        theirs = model.joint(ours.name).range.tolist()
        pairs = list(zip(ours.position_limit, theirs, strict=True))
        if any(abs(a - b) > _LIMIT_TOLERANCE for a, b in pairs):
            unit = ""
            if all(math.isclose(a, math.degrees(b), rel_tol=0.01) for a, b in pairs):
                unit = f": is the spec in degrees, or does {file} take radians for degrees?"
            elif all(math.isclose(math.degrees(a), b, rel_tol=0.01) for a, b in pairs):
                unit = f": does {file} take degrees for radians (<compiler angle=...>)?"
            raise SpecMismatchError(
                f"robot '{robot.name}': joint '{ours.name}' has position_limit "
                f"{ours.position_limit} in the spec and range {theirs} in {file}; "
                f"expected equal numbers in radians{unit}"
            )


def _fingers(robot: RobotSpec) -> list[JointSpec]:
    """Fingers as the joints that they are in the model; their motors hold them open at first."""
    hand = robot.gripper
    if hand is None:
        return []
    return [
        JointSpec(
            name=name,
            position_limit=sorted((hand.closed, hand.open)),
            effort_limit=hand.force_limit,
            default_position=hand.open,
            stiffness=hand.stiffness,
            damping=hand.damping,
        )
        for name in hand.joints
    ]


def held(model: mujoco.MjModel, robot: RobotSpec, *, offset: float = 0.0) -> mujoco.MjData:
    """A robot whose motors hold its default pose.

    Args:
        model: From `load_model`, of the robot alone.
        robot: Its motors.
        offset: Of its joints from that pose [rad] or [m].
    """
    data, fingers = mujoco.MjData(model), _fingers(robot)
    layout = JointLayout.of(model, robot.num_joints, len(fingers))
    data.qpos[layout.position] = [joint.default_position + offset for joint in robot.joints]
    data.qpos[layout.fingers] = [finger.default_position for finger in fingers]
    motors = [*robot.joints, *fingers]
    data.ctrl[:] = [joint.stiffness * joint.default_position for joint in motors]
    return data


def _check_stable(model: mujoco.MjModel, robot: RobotSpec) -> None:
    """Let one robot hold its default pose, a floating one without weight: it must come to rest."""
    data = held(model, robot, offset=_PROBE_OFFSET)
    layout = JointLayout.of(model, robot.num_joints, len(_fingers(robot)))
    gravity = model.opt.gravity.copy()
    if layout.floating:
        model.opt.gravity[:] = 0
        data.qpos[2] = _PROBE_HEIGHT
    steps = max(10, round(_PROBE_SECONDS / model.opt.timestep))
    for _ in range(steps):
        mujoco.mj_step1(model, data)  # in two halves: these do not reset a bad state
        mujoco.mj_step2(model, data)
        if not abs(data.qvel).max() < 1e3:
            break
    model.opt.gravity[:] = gravity
    speeds = data.qvel[layout.velocity]
    if not abs(speeds).max() < _PROBE_SPEED:
        worst = max(range(robot.num_joints), key=lambda i: abs(speeds[i]))
        raise ConfigError(
            f"robot '{robot.name}' does not come to rest in its default pose: joint "
            f"'{robot.joint_names[worst]}' moves at {speeds[worst]:.3g} rad/s after "
            f"{data.time:.3g} s; lower physics_dt ({model.opt.timestep:g} s) or the gains"
        )
