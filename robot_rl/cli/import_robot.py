"""Brings a robot of somebody else in: its URDF becomes a model file and a YAML file of ours."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.core.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from robot_rl.core.robot import JointSpec
    from sim.physics.urdf_import import ImportedArm

ROBOT_HELP = """Imports an arm from its URDF: a model, a robot's YAML file and what is missing.

usage: robot-rl robot import <file.urdf> [option=value ...]

options:
  out=my_configs   folder for --config-dir; it gets robot/<name>.xml and .yaml, the meshes, and
                   fitted/reach_<name>.yaml, which places the goals of task=reach
  name=            of the robot; that of the URDF if empty
  end_effector=    link whose frame is the end effector; found where only one can be

Joint limits, speeds, efforts, masses, inertias and shapes are the URDF's. What it does not say is
estimated, and printed: gains, default pose, sensors. A continuous joint without limits gets a turn
either way; one that mimics another, such as a second finger, is fixed. Robots on a floating base
are refused.

examples:
  robot-rl robot import my_arm.urdf
  robot-rl train --config-dir my_configs task=reach robot=my_arm"""

_STEPS = ((0.005, 8), (0.002, 20), (0.001, 40))
"""Integration steps [s] and how many of them a control step has, at 25 Hz."""


@dataclass(kw_only=True)
class ImportOptions:
    """Options of `robot-rl robot import`."""

    out: str = "my_configs"
    """Folder for `--config-dir`."""
    name: str = ""
    """Name of the robot; that of the URDF if empty."""
    end_effector: str = ""
    """Link whose frame is the end effector; empty finds it."""


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
        ConfigError: The URDF cannot be imported, the name is taken, or the arm cannot be simulated.
        StorageError: A file cannot be written.
    """
    from robot_rl.training.storage.durable import storage_errors
    from sim.physics.mujoco_model import load_model
    from sim.physics.urdf_import import import_urdf, read_urdf

    folder = Path(options.out)
    name = options.name or re.sub(r"\W+", "_", read_urdf(file).get("name", "")).strip("_").lower()
    _check_name(name, folder, file)
    meshes = f"{name}_meshes"
    arm = import_urdf(file, name=name, end_effector=options.end_effector, mesh_folder=meshes)
    home, fitted = folder / "robot", folder / "fitted"
    model = home / f"{name}.xml"
    made = [folder, home, fitted]
    fresh = [path for path in made if not path.exists()]
    with storage_errors("write the robot into", folder):
        for path in made:
            path.mkdir(parents=True, exist_ok=True)
        if arm.meshes:
            (home / meshes).mkdir()
        for called, source in arm.meshes.items():
            shutil.copyfile(source, home / meshes / called)
        model.write_text(arm.mjcf, encoding="utf-8")
    try:
        spec, step = _spec(name, arm.joints), _STEPS[-1]
        for step in _STEPS:
            try:
                load_model(str(model.absolute()), spec, physics_dt=step[0])
                break
            except ConfigError as error:
                if step == _STEPS[-1] or "does not come to rest" not in str(error):
                    raise
    except Exception:
        model.unlink()
        shutil.rmtree(home / meshes, ignore_errors=True)
        for path in reversed(fresh):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        raise
    with storage_errors("write the robot into", folder):
        (home / f"{name}.yaml").write_text(_robot_yaml(name, file, arm, *step), encoding="utf-8")
        (fitted / f"reach_{name}.yaml").write_text(_reach_yaml(arm), encoding="utf-8")
    chosen = f"--config-dir {folder} task=reach robot={name}"
    return [
        f"robot        {home / f'{name}.yaml'}: {len(arm.joints)} joints, end effector "
        f"'{arm.end_effector}', {arm.mass:.3g} kg that move, reach {arm.reach:.2f} m",
        f"model        {model}",
        f"goals        {fitted / f'reach_{name}.yaml'}, around the default pose",
        "not in the URDF, and estimated or left out:",
        *(f"  - {line}" for line in arm.missing),
        f"look at it   robot-rl view {chosen}",
        f"train        robot-rl train {chosen}",
    ]


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


def _spec(name: str, joints: "list[JointSpec]"):  # noqa: ANN202 - the class is imported when needed
    from robot_rl.core.robot import CommandKind, RobotSpec

    return RobotSpec(name=name, joints=joints, command=CommandKind.joint)


def _robot_yaml(name: str, file: Path, arm: "ImportedArm", dt: float, decimation: int) -> str:
    lines = [
        f"# {name}: arm with {len(arm.joints)} joints on a fixed base, from {file.name}.",
        "defaults:",
        "  - joint_robot_schema",
        "  - _self_",
        "",
        "spec:",
        f"  name: {name}",
        "  version: 1",
        "  command: joint",
        "  # Limits: the URDF's. Estimates of the import: default pose, gains, armature.",
        "  joints:",
    ]
    for joint in arm.joints:
        low, high = joint.position_limit
        lines.append(
            f"    - {{name: {_quoted(joint.name)}, position_limit: [{low!r}, {high!r}], "
            f"velocity_limit: {joint.velocity_limit!r}, effort_limit: {joint.effort_limit!r}, "
            f"default_position: {joint.default_position!r}, stiffness: {joint.stiffness!r}, "
            f"damping: {joint.damping!r}, armature: {joint.armature!r}}}"
        )
    return "\n".join([
        *lines,
        "  sensors: # rates and noise are assumptions",
        "    joint_position: {rate_hz: 500, noise: 0.0002}",
        "    joint_velocity: {rate_hz: 500, noise: 0.01}",
        "    end_effector_position_b: {rate_hz: 500, noise: 0.0005}",
        "    end_effector_orientation_b: {rate_hz: 500, noise: 0.001}",
        "",
        f"model: {name}.xml",
        f"physics_dt: {dt}",
        f"decimation: {decimation} # 25 Hz",
        "action_scale: 1.0",
        "limit_target_speed: true # actions leap over more than a joint can move in a step",
        f"payload_body: {_quoted(arm.payload_body)}",
        "",
    ])  # fmt: skip


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
