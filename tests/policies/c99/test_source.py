"""A policy in C does step for step what its runner does, and says so when it does not."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.bundle import load_bundle
from policies.c99.observation import ENTRIES, inputs_of
from policies.c99.source import write_c99
from policies.export import export_bundle
from policies.golden import GOLDEN_WORLDS, draw_inputs
from robot_rl.core import observation
from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError, StorageError
from robot_rl.core.observation import TERMS, RobotState, TermConfig
from robot_rl.core.robot import GripperSpec, JointSpec, SensorSpec
from robot_rl.core.robot_command import CommandKind
from tests.policies.conftest import SmallPolicy, export_arguments, make_robot
from tests.policies.test_bundle import reseal

SelfTest = Callable[[Path], subprocess.CompletedProcess[str]]

TOLERANCE = 1e-5
CORE_TERMS = [t for t, f in TERMS.items() if f.__module__ == observation.__name__]
SIZES = {
    "orientation_matrix": 9, "goal_orientation_b": 9, "preview_w": 6, "gate_offsets": 6,
    "joint_position": 2, "joint_velocity": 2,
}  # fmt: skip


def check_against_the_runner(bundle: Path, folder: Path, c_policy: Any) -> None:
    write_c99(bundle, folder)
    runner = load_bundle(bundle, num_robots=GOLDEN_WORLDS)
    spec = runner.spec
    widths = (spec.robot.state_widths, spec.goal_widths, spec.sensed_widths)
    parts = [draw_inputs(*widths, seed) for seed in range(4)]
    inputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    in_c = c_policy(folder, "policy", count=GOLDEN_WORLDS)
    span = np.subtract(spec.action_map.high, spec.action_map.low)
    order, size = inputs_of(spec), spec.observation_size
    for step, starting in enumerate(inputs["reset"]):
        runner.reset(starting)
        for i in np.flatnonzero(starting):
            in_c.reset(i)
        now = {name: value[step] for name, value in inputs.items()}
        in_c.inputs[:] = np.concatenate([now[f"{one.group}/{one.name}"] for one in order], axis=1)
        state, goal, sensed = (
            {name.partition("/")[2]: now[name] for name in now if name.startswith(f"{group}/")}
            for group in ("state", "goal", "sensed")
        )
        command = runner.act(RobotState(state), goal, sensed)
        assert [in_c.step(i) for i in range(GOLDEN_WORLDS)] == [0] * GOLDEN_WORLDS
        expected = np.concatenate([v for v in vars(command).values() if v is not None], axis=1)
        unit = span if span.size == expected.shape[1] else 1.0  # the arm's ranges are 1
        assert (np.abs(in_c.commands - expected) <= TOLERANCE * unit).all()
        actions = in_c.states[:, size : size + span.size]
        np.testing.assert_allclose(actions, runner.last_action, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(
            in_c.states[:, :size], runner.last_observation, rtol=TOLERANCE, atol=TOLERANCE
        )
        if step % 3 == 0:  # a person moved the setpoints
            in_c.commands += 0.1
            runner.accept(type(command)(**_named(in_c.commands, vars(command))))
            for i in range(GOLDEN_WORLDS):
                in_c.accept(i)


def _named(values: np.ndarray, like: dict[str, Any]) -> dict[str, Any]:
    """Fields of a command from its entries in order."""
    widths = [0 if value is None else value.shape[1] for value in like.values()]
    parts = np.split(values, np.cumsum(widths)[:-1], axis=1)
    return {name: part if part.size else None for name, part in zip(like, parts, strict=True)}


def kite_bundle(path: Path) -> Path:
    """Every kind of term, with histories, averages, scales and clips; body rates."""
    plain = ("position_w", "orientation_w", "linear_velocity_w", "angular_velocity_b",
             "joint_position", "joint_velocity", "joint_effort", "end_effector_position_b",
             "wrench_ee")  # fmt: skip
    names = [*CORE_TERMS, "state/joint_effort", "goal/yaw", "sensed/scan", "offset/tip", "gap/tip"]
    terms = [
        TermConfig(
            term=name, scale=[1.0, 0.5, -2.0][i % 3], history=1 + i % 4, clip=[None, 0.7][i % 2]
        )
        for i, name in enumerate(names)
    ]
    terms.append(TermConfig(term="position_error_w", scale=3.0, clip=0.9, average=7))
    widths = SIZES | {"last_action": 4, "state/joint_effort": 2, "goal/yaw": 1, "sensed/scan": 5}
    size = sum(widths.get(term.term, 3) * term.history for term in terms)
    goals = {
        "position_w": 3, "linear_velocity_w": 3, "end_effector_position_b": 3, "preview_w": 6,
        "gate_normals_w": 6, "orientation_matrix_w": 9, "yaw": 1,
        "tip": 3,
    }  # fmt: skip
    return export_bundle(
        path,
        **export_arguments(
            policy=SmallPolicy(size, 4),
            terms=terms,
            robot=make_robot(
                command=CommandKind.body_rates, sensors={n: SensorSpec() for n in plain}
            ),
            action_map=ActionMap(
                kind=CommandKind.body_rates, low=[-6, -6, -3, 0], high=[6, 6, 3, 0.9]
            ),
            goal_widths=goals,
            sensed_widths={"scan": 5, "tip": 3},
        ),
    )


def arm_bundle(path: Path) -> Path:
    """Joint targets that leave the limits, gains, a gripper, and a recurrent state."""
    joints = [
        JointSpec(name=name, position_limit=[-0.2, 0.4], default_position=0.1, stiffness=40.0,
                  damping=damping)
        for name, damping in (("pan", 2.0), ("tilt", 3.0))
    ]  # fmt: skip
    arm = make_robot(
        joints=joints, rotors=[], command=CommandKind.joint,
        gripper=GripperSpec(joints=["finger"]),
    )  # fmt: skip
    return export_bundle(
        path,
        **export_arguments(
            policy=SmallPolicy(29 - 2, 3, memory=5),
            robot=arm,
            action_map=ActionMap.joint_positions(arm, scale=0.5, gripper=True),
            initial_action=[0.0, 0.1, -0.2],
            initial_state=[0.1, 0.2, 0.3, 0.4, 0.5],
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize("make", [kite_bundle, arm_bundle])
def test_every_term_and_command_follows_the_runner(make, tmp_path, c_policy, self_test):
    bundle = make(tmp_path / "bundle")
    check_against_the_runner(bundle, tmp_path / "c", c_policy)
    done = self_test(tmp_path / "c" / "policy.c")
    assert done.returncode == 0, done.stdout


def test_every_term_of_the_core_has_a_form():
    assert set(ENTRIES) == set(CORE_TERMS)


@pytest.mark.slow
def test_header_names_units_and_constants(exported, tmp_path):
    header, source = write_c99(exported, tmp_path, "kite_hover")
    text = header.read_text()
    assert "float linear_velocity_w[3]; /* velocity of the base, [m/s], world axes */" in text
    assert "angular_velocity_b" not in text, "no term reads it"
    assert "float speed[4]; /* fraction of the largest rotor speed, in [0, 1]" in text
    assert "#define KITE_HOVER_PERIOD 0.01f" in text
    assert '#define KITE_HOVER_ROBOT "kite"' in text
    assert "void kite_hover_reset(kite_hover_state *s);" in text
    assert '"front",\n    "left",' in source.read_text()
    includes = re.findall(r"#include .*", source.read_text())
    assert includes == ['#include "kite_hover.h"', "#include <math.h>", "#include <stdio.h>"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("array", "told"),
    [
        ("golden_command_speed", "command speed, entry 0: step 0 of sequence 0: got "),
        ("golden_state_orientation_w", "observation term 'orientation_matrix', entry 1: step 0"),
        ("w_out_weights", "action, entry 0: step 1 of sequence 0: got "),
    ],
)
def test_self_test_passes_and_finds_a_changed_number(array, told, exported, tmp_path, self_test):
    _, source = write_c99(exported, tmp_path)
    if array == "w_out_weights":
        good = self_test(source)
        assert good.returncode == 0
        assert good.stdout.startswith("96 steps in 4 sequences agree; the largest difference is 0.")
    first = rf"(static const float {array}\[.*\n\s*\{{?)\S+f"
    text, changed = re.subn(first, r"\g<1>0.0123f", source.read_text())
    assert changed == 1
    source.write_text(text)
    done = self_test(source)
    assert done.returncode == 1
    assert told in done.stdout


def test_nan_is_answered_and_the_command_left_alone(exported, tmp_path, c_policy):
    write_c99(exported, tmp_path)
    in_c = c_policy(tmp_path, "policy", count=1)
    in_c.reset(0)
    in_c.inputs[0, 4] = np.nan  # of the attitude
    in_c.commands[:] = 0.25
    assert in_c.step(0) == 1
    assert (in_c.commands == 0.25).all()
    in_c.inputs[0, 3:7] = 1, 0, 0, 0
    in_c.reset(0)
    assert in_c.step(0) == 0


def test_fast_math_is_refused(exported, tmp_path, compile_c):
    _, source = write_c99(exported, tmp_path)
    with pytest.raises(AssertionError, match="compile without -ffast-math"):
        compile_c(source, "-ffast-math", "-c")


def test_name_and_folder_are_checked(exported, tmp_path):
    with pytest.raises(ConfigError, match="the policy's name 'my-policy' cannot be a name in C"):
        write_c99(exported, tmp_path, "my-policy")
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError, match="taken cannot be written"):
        write_c99(exported, tmp_path / "taken")


def test_term_of_a_task_is_named_and_leaves_no_file(bundle, tmp_path, monkeypatch):
    monkeypatch.setitem(TERMS, "kite_line", TERMS["position_error_w"])
    reseal(bundle, lambda policy: policy["groups"]["actor"][0].update(term="kite_line"))
    with pytest.raises(ConfigError, match="term 'kite_line' has no form in C99 here; known: pos"):
        write_c99(bundle, tmp_path / "c")
    assert not (tmp_path / "c").exists()
