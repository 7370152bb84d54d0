"""A robot of somebody else: its URDF becomes a model file and YAML files of ours."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.core.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from robot_rl.core.robot import JointSpec, RobotSpec
    from sim.physics.urdf_import import ImportedArm
    from sim.physics.urdf_legs import ImportedLegs

ROBOT_HELP = """Imports an arm or a walking robot from its URDF: model, YAML files, what is missing.

usage: robot-rl robot import <file.urdf> [option=value ...]

options:
  out=my_configs   folder for --config-dir; it gets robot/<name>.xml and .yaml, the meshes, and
                   fitted/reach_<name>.yaml, goals of task=reach; of a robot that walks
                   fitted/velocity_<name>.yaml, heights and gait of task=velocity
  name=            of the robot; that of the URDF if empty
  feet=[]          links that a robot stands on, in an order of yours; empty for an arm
  end_effector=    link whose frame is an arm's end effector; found where only one can be

Joint limits, speeds, efforts, masses, inertias and shapes are the URDF's. What it does not say is
estimated, and printed: gains, default pose, sensors. A continuous joint without limits gets a turn
either way; one that mimics another, such as a second finger, is fixed. With feet the base is free,
and the axes of its link point forward (x) and up (z). Joints of several feet, such as a spine, stay
at 0 in the default pose.

examples:
  robot-rl robot import my_arm.urdf
  robot-rl train --config-dir my_configs task=reach robot=my_arm
  robot-rl robot import my_dog.urdf feet=[FL_foot,FR_foot,RL_foot,RR_foot]
  robot-rl train --config-dir my_configs task=velocity robot=my_dog"""

_STEPS = (0.005, 0.002, 0.001)
"""Integration steps [s], the first that is stable counts."""
_ARM_DT, _LEGS_DT = 0.04, 0.02
"""Control steps [s]."""
_SINKS = 0.9
"""A robot that settles below this share of its height has soft gains."""
_TOUCH = 0.15
"""Share of its part of the weight from which on a foot counts as standing."""


@dataclass(kw_only=True)
class ImportOptions:
    """Options of `robot-rl robot import`."""

    out: str = "my_configs"
    """Folder for `--config-dir`."""
    name: str = ""
    """Name of the robot; that of the URDF if empty."""
    end_effector: str = ""
    """Link whose frame is the end effector; empty finds it."""
    feet: list[str] = field(default_factory=list[str])
    """Links that the robot stands on; empty for an arm."""

    def __post_init__(self) -> None:
        if self.feet and self.end_effector:
            raise ConfigError("name the feet of a robot that walks or an end_effector, not both")


def run_robot(words: Sequence[str]) -> None:
    """Import what the command line says."""
    from configs.compose import read_only_options

    if words[:1] != ["import"]:
        raise ConfigError(
            unknown_name("robot", words[0], ["import"]) if words
            else "what shall be imported? robot-rl robot import <file.urdf>"
        )  # fmt: skip
    files = [word for word in words[1:] if "=" not in word]
    if len(files) != 1:
        raise ConfigError(
            f"expected one file, robot-rl robot import <file.urdf>, got {files or 'none'}"
        )
    options = read_only_options(ImportOptions, [word for word in words[1:] if "=" in word])
    for line in import_robot(Path(files[0]), options):
        print(line)


def import_robot(file: Path, options: ImportOptions) -> list[str]:
    """Write model, YAML files and meshes; returns the report.

    Raises:
        ConfigError: The URDF cannot be imported, the name is taken, or the robot cannot be
            simulated.
        StorageError: A file cannot be written.
    """
    from robot_rl.training.storage.durable import storage_errors
    from sim.physics.urdf_file import read_urdf
    from sim.physics.urdf_import import import_urdf
    from sim.physics.urdf_legs import import_legs

    folder = Path(options.out)
    name = options.name or re.sub(r"\W+", "_", read_urdf(file).get("name", "")).strip("_").lower()
    _check_name(name, folder, file)
    meshes = f"{name}_meshes"
    robot: ImportedArm | ImportedLegs
    if options.feet:
        robot = legs = import_legs(file, name=name, feet=options.feet, mesh_folder=meshes)
        write = partial(_legs, name, file, legs)
    else:
        end = options.end_effector
        robot = arm = import_urdf(file, name=name, end_effector=end, mesh_folder=meshes)
        write = partial(_arm, name, file, arm)
    home, fitted = folder / "robot", folder / "fitted"
    model = home / f"{name}.xml"
    made = [folder, home, fitted]
    fresh = [path for path in made if not path.exists()]
    with storage_errors("write the robot into", folder):
        for path in made:
            path.mkdir(parents=True, exist_ok=True)
        if robot.meshes:
            (home / meshes).mkdir()
        for called, source in robot.meshes.items():
            shutil.copyfile(source, home / meshes / called)
        model.write_text(robot.mjcf, encoding="utf-8")
    try:
        found = write(model)
    except Exception:
        model.unlink()
        shutil.rmtree(home / meshes, ignore_errors=True)
        for path in reversed(fresh):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        raise
    numbers = fitted / f"{found.task}_{name}.yaml"
    with storage_errors("write the robot into", folder):
        (home / f"{name}.yaml").write_text(found.robot_yaml, encoding="utf-8")
        numbers.write_text(found.task_yaml, encoding="utf-8")
    chosen = f"--config-dir {folder} task={found.task} robot={name}"
    return [
        f"robot        {home / f'{name}.yaml'}: {found.told}",
        f"model        {model}",
        f"numbers      {numbers}: {found.numbers}",
        "not in the URDF, and estimated or left out:",
        *(f"  - {line}" for line in [*robot.missing, *found.missing]),
        f"look at it   robot-rl view {chosen}",
        f"train        robot-rl train {chosen}",
    ]


@dataclass(frozen=True, kw_only=True)
class _Written:
    """Files of a robot, and what is said of them."""

    robot_yaml: str
    task: str
    task_yaml: str
    told: str
    numbers: str
    missing: list[str] = field(default_factory=list[str])
    """Facts that were found in simulation, beside those of the import."""


def _arm(name: str, file: Path, arm: "ImportedArm", model: Path) -> _Written:
    dt = _stable(model, _spec(name, arm.joints, []))
    return _Written(
        robot_yaml=_robot_yaml(name, file, arm, dt), task="reach", task_yaml=_reach_yaml(arm),
        told=f"{len(arm.joints)} joints, end effector '{arm.end_effector}', {arm.mass:.3g} kg that "
        f"move, reach {arm.reach:.2f} m",
        numbers="goals around the default pose",
    )  # fmt: skip


def _legs(name: str, file: Path, robot: "ImportedLegs", model: Path) -> _Written:
    from sim.physics.urdf_legs import stands

    spec = _spec(name, robot.joints, robot.feet)
    dt = _stable(model, spec)
    rest = stands(str(model.absolute()), spec, physics_dt=dt, height=robot.height + 0.01)
    estimated = ""
    if rest is None:
        estimated = "the pose does not stand: held by these gains the robot falls"
    elif rest < _SINKS * robot.height:
        estimated = f"the gains are soft: the base sinks from {robot.height:.2f} to {rest:.2f} m"
    told = f"{len(robot.joints)} joints, {len(robot.feet)} feet, {robot.mass:.3g} kg"
    return _Written(
        robot_yaml=_legs_yaml(name, file, robot, dt), task="velocity",
        task_yaml=_velocity_yaml(robot, rest), numbers="heights and gait",
        told=told if rest is None else f"{told}; it stands, its base at {rest:.2f} m",
        missing=[estimated] if estimated else [],
    )  # fmt: skip


def _spec(name: str, joints: "list[JointSpec]", feet: list[str]) -> "RobotSpec":
    from robot_rl.core.robot import CommandKind, RobotSpec

    return RobotSpec(name=name, joints=joints, feet=feet, command=CommandKind.joint)


def _stable(model: Path, robot: "RobotSpec") -> float:
    """The largest step with which the motors come to rest [s]."""
    from sim.physics.mujoco_model import load_model

    for step in _STEPS[:-1]:
        try:
            load_model(str(model.absolute()), robot, physics_dt=step)
        except ConfigError as error:
            if "does not come to rest" not in str(error):
                raise
        else:
            return step
    load_model(str(model.absolute()), robot, physics_dt=_STEPS[-1])
    return _STEPS[-1]


def _check_name(name: str, folder: Path, file: Path) -> None:
    from configs.catalog import config_file

    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(
            f"'{name}' is no name of a robot, from {file}; choose one of small letters, digits and "
            "_ with name=..."
        )
    taken = folder / "robot" / f"{name}.yaml"
    if taken.exists():
        raise ConfigError(f"{taken} exists already; remove it first, or choose another name=...")
    if config_file("robot", name) is not None:
        raise ConfigError(f"there is a robot '{name}' already; choose another name with name=...")


def _robot_yaml(name: str, file: Path, arm: "ImportedArm", dt: float) -> str:
    return "\n".join([
        f"# {name}: arm with {len(arm.joints)} joints on a fixed base, from {file.name}.",
        *_joint_lines(name, arm.joints, []),
        "  sensors: # rates and noise are assumptions",
        "    joint_position: {rate_hz: 500, noise: 0.0002}",
        "    joint_velocity: {rate_hz: 500, noise: 0.01}",
        "    end_effector_position_b: {rate_hz: 500, noise: 0.0005}",
        "    end_effector_orientation_b: {rate_hz: 500, noise: 0.001}",
        "",
        *_model_lines(name, dt, _ARM_DT),
        "action_scale: 1.0",
        "limit_target_speed: true # actions leap over more than a joint can move in a step",
        f"payload_body: {_quoted(arm.payload_body)}",
        "",
    ])  # fmt: skip


def _joint_lines(name: str, joints: "list[JointSpec]", further: list[str]) -> list[str]:
    lines = [
        "defaults:",
        "  - joint_robot_schema",
        "  - _self_",
        "",
        "spec:",
        f"  name: {name}",
        "  version: 1",
        "  command: joint",
        *further,
        "  # Limits: the URDF's. Estimates of the import: default pose, gains, armature.",
        "  joints:",
    ]
    for joint in joints:
        low, high = joint.position_limit
        lines.append(
            f"    - {{name: {_quoted(joint.name)}, position_limit: [{low!r}, {high!r}], "
            f"velocity_limit: {joint.velocity_limit!r}, effort_limit: {joint.effort_limit!r}, "
            f"default_position: {joint.default_position!r}, stiffness: {joint.stiffness!r}, "
            f"damping: {joint.damping!r}, armature: {joint.armature!r}}}"
        )
    return lines


def _model_lines(name: str, dt: float, control_dt: float) -> list[str]:
    return [
        f"model: {name}.xml",
        f"physics_dt: {dt}",
        f"decimation: {round(control_dt / dt)} # {1 / control_dt:.0f} Hz",
    ]


def _legs_yaml(name: str, file: Path, robot: "ImportedLegs", dt: float) -> str:
    feet = [f"  feet: [{', '.join(map(_quoted, robot.feet))}]"]
    if mirror := robot.mirror:
        swap = ", ".join(f"{left}: {right}" for left, right in mirror.swap.items())
        turned = ", ".join(map(_quoted, mirror.reversed))
        feet.append(f"  mirror: {{swap: {{{swap}}}, reversed: [{turned}]}}")
    return "\n".join([
        f"# {name}: {len(robot.feet)} feet, {len(robot.joints)} joints, from {file.name}.",
        *_joint_lines(name, robot.joints, feet),
        "  # Rates and noise are assumptions, as of a Go2: its low-level state, and no measurement",
        "  # of the base's position or velocity.",
        "  sensors:",
        "    joint_position: {rate_hz: 500, noise: 0.005}",
        "    joint_velocity: {rate_hz: 500, noise: 0.2}",
        "    joint_effort: {rate_hz: 500, noise: 0.5}",
        "    orientation_w: {rate_hz: 500, noise: 0.01}",
        "    angular_velocity_b: {rate_hz: 500, noise: 0.05}",
        "    linear_acceleration_b: {rate_hz: 500, noise: 0.2}",
        "",
        *_model_lines(name, dt, _LEGS_DT),
        "action_scale: 0.5",
        f"payload_body: {_quoted(robot.payload_body)}",
        "",
    ])  # fmt: skip


def _velocity_yaml(robot: "ImportedLegs", rest: float | None) -> str:
    """Heights of the base, as simulated or else as built, and a gait for the robot's size."""
    height, two = rest or robot.height, len(robot.feet) == 2
    touch = min(10.0 if two else 5.0, _TOUCH * 9.81 * robot.mass / len(robot.feet))
    gait = {
        "offsets": f"[{', '.join(map(str, robot.offsets))}]",
        "foot_radius": f"{robot.foot_height:.4f}",
        "swing_height": f"{(0.13 if two else 0.27) * height:.3f}",
        "touch": f"{touch:.3g}",
    } | ({"period": "0.8", "duty": "0.6"} if two else {})
    simulated = "simulated" if rest else "built, as it falls"
    lines = [
        "# @package _global_",
        f"# Height in the default pose, {simulated}. Steps, touch and payload are a Go2's or a",
        "# G1's for this size; goals and weights of rewards are theirs.",
        "task:",
        f"  height: {height:.3f}",
        f"  start_height: {robot.height + 0.03:.3f}",
        f"  lowest_height: {0.5 * height:.3f}",
        f"  gait: {{{', '.join(f'{key}: {value}' for key, value in gait.items())}}}",
        f"  randomization: {{payload: [{-0.03 * robot.mass:.3g}, {0.1 * robot.mass:.3g}]}}",
    ]
    if two:
        lines += [
            "  # On two feet hips and turn sway in every step.",
            "  success_error: 0.25",
            "  success_turn_error: 0.45",
            "  start_velocity: 0.2",
            "  close: 0.5",
            "  reward: {velocity: 2.0, turn: 1.0, gait: 1.0, pose: -0.3, sway: -0.05, tilt: -3.0}",
        ]
    return "\n".join([*lines, ""])


def _reach_yaml(arm: "ImportedArm") -> str:
    """Goals around the end effector in the default pose, and a payload that the arm can bear."""
    half = 0.2 * arm.reach
    low = [value - half for value in arm.tip.tolist()]
    high = [value + half for value in arm.tip.tolist()]
    low[2] = min(max(low[2], 0.06), high[2] - 0.01)  # above the height at which an episode ends
    box = {"goal_low": low, "goal_high": high}
    corners = [f"  {name}: [{', '.join(f'{v:.3f}' for v in at)}]" for name, at in box.items()]
    payload = f"{min(0.5, 0.05 * arm.mass):.3f}"
    return "\n".join([
        "# @package _global_",
        "# Goals around the arm's default pose, within a fifth of its reach; no goal was tried.",
        "task:",
        *corners,
        "  # A twentieth of the mass that moves, 0.5 kg at most.",
        f"  randomization: {{payload: [0.0, {payload}]}}",
        "",
    ])  # fmt: skip


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z][\w-]*", name) else f"'{name}'"
