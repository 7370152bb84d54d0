"""Duties that a bundle states: they are found by themselves, and the runner does its part."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.bundle import SEALED_FILES, load_bundle, seal
from policies.caller import CallerSpec, TargetRamp, ValueRange
from policies.export import export_bundle
from robot_rl.core.action import ActionMap
from robot_rl.core.episodic import ClockSpec, GoalClock
from robot_rl.core.errors import BundleError, ShapeError, SpecMismatchError
from robot_rl.core.observation import RobotState, TermConfig
from robot_rl.core.robot import JointSpec, RobotSpec, SensorSpec
from robot_rl.core.robot_command import CommandKind, JointCommand, RobotCommand
from tests.policies.conftest import SmallPolicy, export_arguments

SPEEDS, DT = [1.0, 0.5], 0.1


def arm() -> RobotSpec:
    joints = [
        JointSpec(name=name, default_position=0.2, stiffness=50.0, damping=5.0)
        for name in ("shoulder", "elbow")
    ]
    sensors = {name: SensorSpec() for name in ("joint_position", "joint_velocity")}
    return RobotSpec(name="arm", joints=joints, sensors=sensors, command=CommandKind.joint)


def arm_arguments(**changes: Any) -> dict[str, Any]:
    robot = arm()
    caller = CallerSpec(
        control_dt=DT,
        loop_dt=0.01,
        target_speed_limit=SPEEDS,
        gravity_compensation=True,
        start_ranges={"joint_position": ValueRange(low=[0.1, 0.1], high=[0.3, 0.3])},
        measurement_age={"joint_position": [0.0, 0.01]},
        action_delay=[0.0, 0.02],
    )
    return export_arguments(
        policy=SmallPolicy(2 + 3 + 2, 2),
        terms=[
            TermConfig(term="joint_velocity", scale=0.1),
            TermConfig(term="goal/velocity_b"),
            TermConfig(term="goal/gait_clock"),
        ],
        robot=robot,
        action_map=ActionMap.joint_positions(robot, 1.0),
        control_dt=DT,
        goal_widths={"velocity_b": 3, "gait_clock": 2, "unread": 1},
        initial_action=[0.0, 0.0],
        clocks={"gait_clock": ClockSpec(period=0.5, moves="velocity_b")},
        caller=caller,
    ) | changes  # fmt: skip


@pytest.fixture(scope="module")
def arm_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_bundle(tmp_path_factory.mktemp("arms") / "arm", **arm_arguments())


def state(position: float, num_robots: int = 1) -> RobotState:
    shape = (num_robots, 2)
    return RobotState(
        {"joint_position": np.full(shape, position), "joint_velocity": np.zeros(shape)}
    )


def joints(command: RobotCommand) -> JointCommand:
    assert isinstance(command, JointCommand)
    return command


def goals(num_robots: int = 1) -> dict[str, np.ndarray]:
    widths = {"velocity_b": 3, "gait_clock": 2, "unread": 1}
    return {name: np.ones((num_robots, width)) for name, width in widths.items()}


def test_the_section_holds_what_was_trained_and_what_the_policy_says(arm_bundle):
    caller = load_bundle(arm_bundle).spec.caller
    assert caller is not None
    assert caller == CallerSpec(**(vars(arm_arguments()["caller"]) | {
        "arming_pose": [0.2, 0.2], "fields": caller.fields,
    }))  # fmt: skip
    # The joints' positions are no part of the observation: targets start from them.
    assert [(one.group, one.name, one.width) for one in caller.fields] == [
        ("state", "joint_position", 2), ("state", "joint_velocity", 2),
        ("goal", "velocity_b", 3), ("goal", "gait_clock", 2),
    ]  # fmt: skip
    assert "[rad/s]" in caller.fields[1].meaning
    assert caller.fields[2].meaning == "SI units, base axes"


def test_targets_move_from_the_joints_at_the_stated_speeds(arm_bundle):
    """The middle of the control period is held in it: half a way, then whole ones."""
    ramped, leaping = load_bundle(arm_bundle), load_bundle(arm_bundle, ramp=False)
    asked = joints(leaping.act(state(0.2), goals())).q
    got = [joints(ramped.act(state(0.2), goals())).q for _ in range(3)]
    way = np.sign(asked - 0.2) * SPEEDS * DT
    for step, q in enumerate(got):
        expected = 0.2 + (step + 0.5) * way
        reached = np.abs(asked - 0.2) <= np.abs(expected - 0.2)
        np.testing.assert_allclose(q, np.where(reached, asked, expected), atol=1e-6)
    np.testing.assert_array_equal(ramped.last_action, leaping.last_action)
    end = joints(ramped.command_after(DT)).q
    assert (np.abs(end - 0.2) <= 3 * np.abs(way) + 1e-6).all()
    ramped.reset()
    np.testing.assert_allclose(joints(ramped.act(state(-0.4), goals())).q, -0.4, atol=0.06)


def test_accepted_targets_under_way_are_no_other_action_and_changed_ones_are(arm_bundle):
    runner = load_bundle(arm_bundle)
    command = joints(runner.act(state(0.2), goals()))
    action = runner.last_action
    runner.accept(command)
    np.testing.assert_array_equal(runner.last_action, action)
    command.q[0, 1] = 0.7
    runner.accept(command)
    np.testing.assert_allclose(runner.last_action, [[action[0, 0], 0.5]], atol=1e-6)
    assert joints(runner.command_after(DT)).q[0, 1] == pytest.approx(0.7)


def test_a_target_that_its_limit_cut_is_no_other_action(tmp_path):
    given = arm_arguments()
    limits = [[q - 0.1, q + 0.1] for q in (0.5, -0.5)]
    mapped = replace(given["action_map"], limit=limits)
    for ramp in (False, True):
        folder = tmp_path / f"arm_{ramp}"
        runner = load_bundle(export_bundle(folder, **{**given, "action_map": mapped}), ramp=ramp)
        cut = 0
        for position in np.linspace(-1, 1, 9):
            command = joints(runner.act(state(float(position)), goals()))
            action = runner.last_action
            cut += int((np.abs(mapped.from_command(command) - action) > 1e-3).sum())
            runner.accept(command)
            np.testing.assert_array_equal(runner.last_action, action)
        assert cut
        command = joints(runner.act(state(0.2), goals()))
        moved = replace(command, q=np.array([[0.45, -0.45]]))
        runner.accept(moved)
        expected = mapped.from_command(moved)
        np.testing.assert_allclose(runner.last_action, expected, atol=1e-5)


def test_nothing_is_under_way_before_the_first_act(arm_bundle):
    with pytest.raises(SpecMismatchError, match="before the first act"):
        load_bundle(arm_bundle).command_after(0.0)


def test_ramp_has_worlds_of_its_own():
    ramp = TargetRamp([1.0], 2)
    ramp.begin(np.array([True, False]), np.array([[3.0], [4.0]]))
    np.testing.assert_allclose(ramp.at(np.array([[3.05], [-2.0]]), 0.1), [[3.05], [-0.1]])


def test_clocks_of_many_robots_begin_on_their_own_and_are_those_of_one(arm_bundle):
    runner = load_bundle(arm_bundle, num_robots=3)
    clock, single = runner.clocks()["gait_clock"], load_bundle(arm_bundle).clocks()["gait_clock"]
    goal = goals(3)
    goal["velocity_b"][2] = 0.0  # asks nobody to move
    for _ in range(2):
        clock.tick()
        single.tick()
    clock.reset(np.array([False, True, False]))
    (alone,) = single.value(goals())
    np.testing.assert_array_equal(clock.value(goal), [alone, [0.0, 1.0], [0.0, 0.0]])
    np.testing.assert_allclose(alone, [np.sin(0.8 * np.pi), np.cos(0.8 * np.pi)])
    with pytest.raises(ShapeError, match=r"expected shape \(3, width\), got \(1, 3\)"):
        clock.value(goals())
    assert isinstance(clock, GoalClock)


def reseal(folder: Path, **changes: Any) -> None:
    policy = json.loads((folder / "spec.json").read_text())["policy"]
    for name, value in changes.items():
        policy["caller"][name] = value
    files = {name: (folder / name).read_bytes() for name in SEALED_FILES}
    (folder / "spec.json").write_bytes(seal(policy, files))


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("target_speed_limit", [1.0], "expected 2 speeds > 0"),
        ("target_speed_limit", [1.0, -1.0], "expected 2 speeds > 0"),
        ("arming_pose", [], "expected 2 joint positions"),
        ("action_delay", [0.2, 0.1], r"action_delay: expected \[least, largest\]"),
        ("loop_dt", 0, "must be > 0 s"),
        ("weather", 1, "'weather' is unknown"),
    ],
)
def test_duties_that_contradict_the_robot_are_refused(arm_bundle, tmp_path, name, value, told):
    folder = Path(shutil.copytree(arm_bundle, tmp_path / "arm"))
    reseal(folder, **{name: value})
    with pytest.raises(BundleError, match=told):
        load_bundle(folder)


def test_a_bundle_without_the_section_is_as_it_was(exported, tmp_path):
    policy = json.loads((exported / "spec.json").read_text())["policy"]
    del policy["caller"]
    files = {name: (exported / name).read_bytes() for name in SEALED_FILES}
    folder = tmp_path / "old"
    folder.mkdir()
    for name, raw in (files | {"spec.json": seal(policy, files)}).items():
        (folder / name).write_bytes(raw)
    assert load_bundle(folder).spec.caller is None


class FakeArm:
    """The `robot` of the page's example: it stands where it is told to."""

    def __init__(self) -> None:
        self.spec, self.q = arm(), np.zeros((1, 2))
        self.targets: list[np.ndarray] = []

    def move_joints(self, position: list[float]) -> None:
        self.q = np.array([position])

    def read(self) -> RobotState:
        return RobotState({"joint_position": self.q, "joint_velocity": np.zeros((1, 2))})

    def write(self, command: JointCommand) -> JointCommand:
        self.q = command.q
        self.targets.append(command.q)
        return command


def test_the_example_of_the_page_is_complete(arm_bundle):
    page = (Path(__file__).parents[2] / "docs/export.md").read_text()
    code = page.split("A caller that does all of it")[1].split("```")[1]
    code = code.removeprefix("python\n").replace("runs/<run>/bundle", str(arm_bundle))
    robot, slept = FakeArm(), []
    names = {
        "robot": robot, "goal": goals(), "walking": range(20), "wait_for_next_period": slept.append
    }  # fmt: skip
    exec(code, names)
    assert slept == [DT] * 20
    first = np.abs(robot.targets[0] - 0.2)
    assert (first <= np.array(SPEEDS) * DT / 2 + 1e-6).all()
    np.testing.assert_allclose(np.hypot(*names["goal"]["gait_clock"][0]), 1.0)
