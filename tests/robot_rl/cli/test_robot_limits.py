"""Limits that count in a deployment: the robot's own, narrowed by its file, not the bundle's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from configs.twin_builder import build_twin
from hardware.control.limits import JointBounds
from robot_rl.cli.deployment import plan as plan_module
from robot_rl.cli.deployment.diagnostics import Level, examine
from robot_rl.cli.deployment.options import DeployOptions, DoctorOptions
from robot_rl.cli.deployment.plan import Deployment
from robot_rl.core.errors import ConfigError, SpecMismatchError
from scripts.bench.deployment.scripted import (
    Linear,
    observed_size,
    write_bundle,
    write_constant_policy,
    write_rates_policy,
)
from tests.compositions import composed
from tests.matrices import some

pytestmark = pytest.mark.slow


def deployment(bundle: Path, **options: Any) -> Deployment[DeployOptions]:
    return Deployment(DeployOptions(bundle=str(bundle), **options))


def robot_file(folder: Path, text: str, robot: str = "panda") -> str:
    path = folder / "mine.yaml"
    path.write_text(f"robot: {robot}\n{text}\n")
    return str(path)


@pytest.fixture(scope="module")
def panda(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("panda") / "bundle"
    return write_constant_policy(folder, 0.0, "task=reach", "robot=panda")


@pytest.mark.parametrize("robot", some(["panda"], ["ur5e", "go2", "crazyflie"]))
def test_limits_of_time_follow_from_the_period_of_a_default_deployment(tmp_path, robot):
    """At 25 Hz the usual 40 ms are one period: arms stopped within a second and a half."""
    if robot == "crazyflie":
        bundle = write_rates_policy(tmp_path / "b")
    else:
        task = "velocity" if robot == "go2" else "reach"
        bundle = write_constant_policy(tmp_path / "b", 0.0, f"task={task}", f"robot={robot}")
    parts = deployment(bundle).parts()
    late, lost = {
        "panda": (0.1, 0.2), "ur5e": (0.1, 0.2), "go2": (0.06, 0.12), "crazyflie": (0.1, 0.5),
    }[robot]  # fmt: skip
    assert (parts.limits.command_late, parts.limits.command_lost) == pytest.approx((late, lost))
    assert parts.limits.command_late > parts.control_dt + 3 * parts.period
    options = DoctorOptions(bundle=str(bundle), domain=99, listen=0.1)
    found = [one for one in examine(Deployment(options), listen=0.1) if "pauses at" in one.what]
    assert [one.level for one in found] == [Level.good]
    assert f"the robot pauses at {1e3 * late:.0f} ms" in found[0].what


def test_shipped_file_bounds_tracking_and_is_said(panda):
    plan = deployment(panda)
    parts = plan.parts()
    assert parts.limits.joints is not None
    assert parts.limits.joints.tracking_error == (0.3,) * 7
    assert "hardware/robots/panda.yaml: tracking_error every joint 0.3" in plan.remarks


def test_bundle_with_limits_of_its_own_is_not_obeyed_and_this_is_said(tmp_path):
    """A re-sealed bundle with limits of 100 rad was."""
    config = composed(["task=reach", "robot=panda"]).config
    own = config.robot.spec
    twin = build_twin(config, seed=0)
    twin.connect()
    wide = [replace(joint, position_limit=[-100.0, 100.0]) for joint in own.joints]
    twin.spec = replace(own, joints=wide)
    config.robot = replace(config.robot, spec=twin.spec)
    size = config.robot.action_map(config.task).size
    zeros = torch.zeros(observed_size(config, twin), size).numpy()
    bundle = write_bundle(tmp_path / "b", config, twin, Linear(zeros, [0.0] * size))
    # Its actions reach a radian from the default pose, beyond the own limits of joint 4.
    with pytest.raises(SpecMismatchError, match=r"joint4 is sent to \[-3\.35619, -1\.35619\], al"):
        deployment(bundle).parts()
    plan = deployment(bundle, clip=True)
    parts = plan.parts()
    assert parts.robot.joints == own.joints
    assert any(
        line.startswith("the robot's own position_limit counts: joint1 [-2.8973, 2.8973], trained")
        for line in plan.remarks
    )
    assert any(line.startswith("the policy is clipped: joint4 is sent") for line in plan.remarks)


def test_description_that_was_narrowed_after_the_training_counts(panda, monkeypatch):
    own = composed(["task=reach", "robot=panda"]).config.robot.spec
    joints = [replace(own.joints[0], velocity_limit=1.0), *own.joints[1:]]
    narrow = replace(own, joints=joints)
    monkeypatch.setattr(plan_module, "robot_description", lambda name: narrow)
    with pytest.raises(SpecMismatchError, match=r"velocity_limit 2\.175, allowed is 1;.*clip=true"):
        deployment(panda).parts()
    plan = deployment(panda, clip=True)
    assert plan.parts().robot.joints[0].velocity_limit == 1.0
    assert "the robot's own velocity_limit counts: joint1 1, trained with 2.175" in plan.remarks
    assert plan.make_twin().spec == own, "the twin is the world of the training"


def test_robot_without_a_description_here_is_what_its_bundle_says(panda, monkeypatch):
    monkeypatch.setattr(plan_module, "robot_description", lambda name: None)
    plan = deployment(panda)
    assert (
        plan.parts().robot.joints
        == composed(["robot=panda", "task=reach"]).config.robot.spec.joints
    )
    assert "'panda' has no description on this computer: its bundle's counts" in plan.remarks


def test_robot_file_narrows_what_the_loop_obeys(panda, tmp_path):
    text = "joints: {joint2: {effort_limit: 40}}\nlimits: {workspace_upper: [0.8, 0.5, 0.9]}\n"
    path = robot_file(tmp_path, text)
    with pytest.raises(SpecMismatchError, match="joint2 was trained with effort_limit 87, allowed"):
        deployment(panda, robot_file=path).parts()
    plan = deployment(panda, robot_file=robot_file(tmp_path, f"{text}clip: true"))
    parts = plan.parts()
    assert parts.robot.joints[1].effort_limit == 40
    assert parts.limits.workspace_upper == (0.8, 0.5, 0.9)
    bounds = parts.limits.joints
    assert bounds is not None
    assert bounds.tracking_error == JointBounds.of(parts.robot).tracking_error, "no shipped file"
    for wrong in ("x", "15"):  # no number; and no sensor that would keep it
        text = f"limits: {{external_force: {wrong}}}"
        with pytest.raises(ConfigError, match="external_force"):
            deployment(panda, robot_file=robot_file(tmp_path, text)).parts()


def test_robot_file_wires_somebody_elses_node_and_options_come_first(panda, tmp_path):
    names = [*(f"joint{number}" for number in range(1, 8)), "gripper"]
    options = f"source: /arm, command: trajectory, joints: [{', '.join(names)}]"
    text = f"ros2: {{{options}, topics: {{joint_states: motors}}}}"
    file = robot_file(tmp_path, text)
    wiring = deployment(panda, robot_file=file, driver="ros2", clip=True).wiring
    assert (wiring.form, wiring.topics["joint_states"]) == ("trajectory", "/arm/motors")
    chosen = deployment(panda, robot_file=file, driver="ros2", source="/other", clip=True).wiring
    assert chosen.topics["joint_states"] == "/other/motors"
