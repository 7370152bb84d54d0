"""Robot files: they narrow, say what they narrow, and refuse whatever would widen."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.catalog import choices
from configs.compose import robot_description
from hardware.control.limits import JointBounds
from hardware.control.monitors import SafetyLimits
from hardware.robot_file import (
    RobotFile,
    differences,
    excess,
    load_robot_file,
    shipped_robot_file,
)
from policies.runner import PolicySpec
from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot import RobotSpec, SensorSpec
from robot_rl.core.robot_command import CommandKind
from tests.hardware.control.robots import multirotor, two_joints

MEASURED = {name: SensorSpec() for name in ("wrench_ee", "end_effector_position_b")}
SPEC = replace(two_joints(), sensors={**two_joints().sensors, **MEASURED})


def file(**values) -> RobotFile:
    return RobotFile(path="f.yaml", robot="two_joints", **values)


def narrowed(**values):
    return file(**values).narrow(SPEC, SafetyLimits())


def policy(scale: float = 0.3, robot: RobotSpec = SPEC) -> PolicySpec:
    return PolicySpec(
        robot=robot, control_dt=0.02, terms=[], widths=[], goal_widths={}, sensed_widths={},
        action_map=ActionMap.joint_positions(robot, scale), initial_action=[0.0, 0.0],
        initial_state=[],
    )  # fmt: skip


NO_PRODUCTS = {"cartpole", "cup"}


@pytest.mark.parametrize("name", sorted(choices("robot").keys() - NO_PRODUCTS))
def test_every_shipped_robot_has_a_file_that_fits_it(name):
    spec, found = robot_description(name), shipped_robot_file(name)
    assert spec is not None
    assert found is not None
    after, limits, said = found.narrow(spec, SafetyLimits.for_policy(spec, 0.02, 0.005))
    assert [joint.position_limit for joint in after.joints] == [
        joint.position_limit for joint in spec.joints
    ]
    assert limits.joints is not None
    assert all(error < 1.0 for error in limits.joints.tracking_error), "narrower than for all"
    assert bool(said) is bool(spec.joints)
    assert shipped_robot_file("nobody") is None


def test_bounds_of_joints_are_taken_by_name_and_for_all(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "robot: two_joints\n"
        "joints:\n"
        "  all: {velocity_limit: 3, tracking_error: 0.4, tracking_time: 0.3}\n"
        "  hip: {position_limit: [-0.5, 0.6], effort_limit: 4, stiffness: 50, damping: 3}\n"
        "  knee: {torque_rate: 20}\n"
        "limits: {external_force: 20, workspace_lower: [0, -1, 0], tracking_error: 0.8}\n"
    )
    spec, limits, said = load_robot_file(path).narrow(SPEC, SafetyLimits())
    hip, knee = spec.joints
    assert (hip.position_limit, knee.position_limit) == ([-0.5, 0.6], [-2.0, 0.5])
    assert (hip.velocity_limit, knee.velocity_limit) == (2.0, 3)
    assert (hip.effort_limit, knee.effort_limit) == (4, 5.0)
    assert limits.joints == JointBounds(
        stiffness=(50, 40.0), damping=(3, 4.0), torque_rate=(80.0, 20),
        tracking_error=(0.4, 0.4), tracking_time=(0.3, 0.3),
    )  # fmt: skip
    assert (limits.external_force, limits.tracking_error) == (20.0, 0.8)
    assert limits.workspace_lower == (0.0, -1.0, 0.0)
    for told in (
        "velocity_limit knee 3 of 4", "position_limit hip [-0.5, 0.6] of [-1, 1]",
        "tracking_error every joint 0.4", "torque_rate knee 20 of 80", "external_force 20",
        "tracking_error 0.8 of 1",
    ):  # fmt: skip
        assert f"{path}: {told}" in said


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"joints": {"hip": {"position_limit": [-1.5, 0.5]}}},
         "joints.hip.position_limit [-1.5, 0.5] is wider than the robot's [-1, 1]"),
        ({"joints": {"knee": {"velocity_limit": 5}}}, "velocity_limit 5 is wider than the robot's"),
        ({"joints": {"knee": {"stiffness": 41}}}, "knee.stiffness 41 is wider than the robot's 40"),
        ({"joints": {"all": {"effort_limit": 11}}}, "all.effort_limit 11 is wider than"),
        ({"limits": {"command_late": 1}}, "limits.command_late 1 is wider than the robot's 0.04"),
        ({"limits": {"workspace_upper": [1, 1, 0], "workspace_lower": [0, 0, 1]}}, "has no inside"),
        ({"limits": {"overrun_ticks": 2.7}}, "limits.overrun_ticks is a whole number, got 2.7"),
        ({"joints": {"hop": {"velocity_limit": 1}}}, "'hop' is unknown (did you mean 'hip'?)"),
        ({"joints": {"hip": {"position_limit": [-0.5, 0.1]}}},
         "the default pose of hip, 0.2, lies outside [-0.5, 0.1]"),
        ({"joints": {"hip": {"position_limit": [0.5, 0.1]}}}, "hip has no range left: [0.5, 0.1]"),
    ],
)  # fmt: skip
def test_file_that_would_widen_or_does_not_fit_is_refused_with_both_numbers(values, told):
    with pytest.raises(ConfigError) as refused:
        narrowed(**values)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("limits", "sensor"),
    [({"external_force": 20}, "wrench_ee"), ({"workspace_lower": [0, 0, 0]}, "end_effector_posit")],
)
def test_a_bound_of_what_is_not_measured_is_refused(limits, sensor):
    with pytest.raises(ConfigError, match=rf"limits\.\w+ is kept by the sensor '{sensor}"):
        file(limits=limits).narrow(two_joints(), SafetyLimits())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("robot: a\nros2: {topics: {joint_states: 3}}", "ros2.topics holds names in text"),
        ("robot: a\nros2: {topics: {joint_states: }}", "ros2.topics holds names in text"),
        ("robot: a\nros2: {joints: [1, 2]}", "ros2.joints holds names in text, got [1, 2]"),
        ("robot: a\njoints: {1: {velocity_limit: 1}}", "joints are named in text, got 1"),
        ("robot: [", "cannot be read"),
        ("just words", "expected names with values, got 'just words'"),
        ("joints: {}", "expected robot: <name>"),
        ("robot: a\nclip: maybe", "clip: 'maybe'"),
        ("robot: a\njoint: {}", "entry 'joint' is unknown (did you mean 'joints'?)"),
        ("robot: a\njoints: [1]", "joints must be names with values, got [1]"),
        ("robot: a\njoints: {x: 3}", "joints.x: expected names with values, got 3"),
        ("robot: a\njoints: {x: {velocity: 3}}", "(did you mean 'velocity_limit'?)"),
        ("robot: a\njoints: {x: {velocity_limit: fast}}", "must be a number >= 0, got 'fast'"),
        ("robot: a\njoints: {x: {velocity_limit: 0}}", "joints.x.velocity_limit must be > 0"),
        ("robot: a\njoints: {x: {position_limit: 3}}", "must be 2 numbers, got 3"),
        ("robot: a\nlimits: {tilt: -1}", "limits.tilt must be a number >= 0, got -1"),
        ("robot: a\nlimits: {tild: 1}", "limits: entry 'tild' is unknown (did you mean 'tilt'?)"),
        ("robot: a\nlimits: {joints: 1}", "limits: entry 'joints' is unknown"),
        ("robot: a\nlimits: {workspace_lower: [1, .nan, 2]}", "must be 3 numbers"),
        ("robot: a\nros2: {topics: joint_states}", "ros2.topics must be a dict"),
    ],
)
def test_file_with_a_mistake_is_refused_in_a_sentence(tmp_path, text, told):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_robot_file(path)
    assert told in str(refused.value)
    assert str(path) in str(refused.value)


def test_file_that_is_not_there_or_of_another_robot_is_refused():
    with pytest.raises(ConfigError, match=r"nowhere.yaml cannot be read: .*No such file"):
        load_robot_file(Path("nowhere.yaml"))
    with pytest.raises(SpecMismatchError, match="'other', but the robot at hand is 'two_joints'"):
        replace(file(), robot="other").narrow(SPEC, SafetyLimits())


def test_pose_outside_is_moved_to_the_limit_where_the_file_says_clip():
    values = {"joints": {"hip": {"position_limit": [-0.5, 0.1]}}}
    spec, _, said = narrowed(clip=True, **values)
    assert spec.joints[0].default_position == 0.1
    assert any("lies outside [-0.5, 0.1] and is moved to the limit" in line for line in said)


numbers = st.floats(0.01, 20.0)
bounds = st.fixed_dictionaries(
    {},
    optional={
        "velocity_limit": numbers, "effort_limit": numbers, "stiffness": numbers,
        "damping": numbers, "torque_rate": numbers, "tracking_error": numbers,
        "tracking_time": numbers,
        "position_limit": st.tuples(st.floats(-3, 0), st.floats(0.3, 3)).map(list),
    },
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["all", "hip", "knee"]), bounds), numbers)
def test_whatever_a_file_says_it_never_widens(joints, force):
    limits = SafetyLimits(external_force=10.0)
    try:
        spec, after, _ = file(joints=joints, limits={"external_force": force}, clip=True).narrow(
            SPEC, limits
        )
    except ConfigError:
        return
    before, own = JointBounds.of(SPEC), after.joints
    assert own is not None
    assert after.external_force <= 10.0
    for was, now in zip(SPEC.joints, spec.joints, strict=True):
        assert was.position_limit[0] <= now.position_limit[0] < now.position_limit[1]
        assert now.position_limit[1] <= was.position_limit[1]
        assert now.position_limit[0] <= now.default_position <= now.position_limit[1]
        assert now.velocity_limit <= was.velocity_limit
        assert now.effort_limit <= was.effort_limit
    for name in ("stiffness", "damping", "torque_rate", "tracking_error"):
        assert np.all(np.array(getattr(own, name)) <= getattr(before, name))


def test_policy_that_needs_more_than_the_robot_allows_is_told_with_both_numbers():
    spec, limits, _ = narrowed(
        joints={"hip": {"position_limit": [-0.05, 0.4], "velocity_limit": 1, "stiffness": 30}}
    )
    assert limits.joints is not None
    assert list(excess(policy(), spec, limits.joints)) == [
        "hip is sent to [-0.1, 0.5], allowed is [-0.05, 0.4]",
        "hip has stiffness 40, allowed is 30",
        "hip was trained with velocity_limit 2, allowed is 1",
    ]
    assert list(excess(policy(), SPEC, JointBounds.of(SPEC))) == []
    # Ranges end at the limits of the training, however far an action reaches.
    assert list(excess(policy(9.0), SPEC, JointBounds.of(SPEC))) == []


def test_body_rates_beyond_those_that_the_loop_lets_through_are_refused():
    """They were clipped without a word."""
    drone = multirotor()

    def asking(*rates: float) -> list[str]:
        low, high = [*(-rate for rate in rates), 0.0], [*rates, 1.0]
        action = ActionMap(kind=CommandKind.body_rates, low=low, high=high)
        asked = replace(policy(), robot=drone, action_map=action, initial_action=[0.0] * 4)
        return list(excess(asked, drone, JointBounds.of(drone)))

    assert asking(10.0, 10.0, 5.0) == []
    assert asking(20.0, 10.0, 6.5) == [
        "the body rate about x is up to 20 rad/s, allowed is 10",
        "the body rate about z is up to 6.5 rad/s, allowed is 6",
    ]


def test_what_was_otherwise_in_the_training_is_said():
    wide = replace(SPEC.joints[0], position_limit=[-100.0, 100.0], effort_limit=math.inf)
    trained = replace(SPEC, joints=[wide, SPEC.joints[1]])
    assert list(differences(trained, SPEC)) == [
        "the robot's own position_limit counts: hip [-1, 1], trained with [-100, 100]",
        "the robot's own effort_limit counts: hip 10, trained with inf",
    ]
    assert list(differences(SPEC, SPEC)) == []


class TestStopButton:
    def test_a_stop_button_is_read_and_checked(self, tmp_path):
        path = tmp_path / "panda.yaml"
        path.write_text(
            "robot: panda\nestop: {device: /dev/input/by-id/usb-button, button: KEY_ENTER}\n"
        )
        device = load_robot_file(path).estop_device
        assert device is not None
        assert (device.device, device.button) == ("/dev/input/by-id/usb-button", "KEY_ENTER")
        assert RobotFile(path="x", robot="panda").estop_device is None

    @pytest.mark.parametrize(
        ("estop", "said"),
        [
            ("{device: /dev/input/event1}", "estop needs device and button"),
            ("{device: /dev/input/event1, button: 1, key: 2}", "'key' is unknown"),
            ("{device: event1, button: 1}", "must be a path"),
            ("{device: /dev/input/event1, button: KEY_TEA}", "button 'KEY_TEA' is unknown"),
            ("yes", "estop must be names with values"),
        ],
    )
    def test_a_stop_button_that_cannot_be_is_refused_with_the_file(self, tmp_path, estop, said):
        path = tmp_path / "panda.yaml"
        path.write_text(f"robot: panda\nestop: {estop}\n")
        with pytest.raises(ConfigError, match=said) as error:
            load_robot_file(path)
        assert str(path) in str(error.value)


def test_cameras_are_names_with_topics(tmp_path):
    path = tmp_path / "robot.yaml"
    path.write_text("robot: two_joints\ncameras: {wrist: {topic: /wrist/image_raw}}\n")
    assert load_robot_file(path).camera_topics == {"wrist": "/wrist/image_raw"}
    for text, why in (
        ("{wrist: {}}", "cameras.wrist needs topic: <name of its topic>, got None"),
        ("{wrist: {topc: /x}}", "cameras.wrist: entry 'topc' is unknown .did you mean 'topic'"),
        ("{wrist: /x}", "cameras.wrist: expected names with values, got '/x'"),
        ("[wrist]", "cameras must be names with values"),
    ):
        path.write_text(f"robot: two_joints\ncameras: {text}\n")
        with pytest.raises(ConfigError, match=why):
            load_robot_file(path)
