"""Steps of a reset: where they lead, how fast, what they wait for, and what they refuse."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hardware.control.robot_loop import Executed
from hardware.control.safety import SafetyState
from hardware.control.world import WorldOutcome
from hardware.learning.port import Readings
from hardware.learning.reset import (
    Reset,
    ResetConfig,
    ResetContext,
    ResetProgress,
    TaskReset,
    reset_step,
)
from hardware.learning.setpoints import standing
from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.pose_target import rotation_between
from robot_rl.core.quaternion import from_rotation_vector
from robot_rl.core.robot import GripperSpec, JointSpec, RobotSpec, SensorSpec
from robot_rl.core.robot_command import CommandKind, JointCommand, PoseCommand

DT = 0.1
ARM = RobotSpec(
    name="arm", command=CommandKind.joint, gripper=GripperSpec(joints=["finger"]),
    joints=[JointSpec(name=name, stiffness=10.0, damping=1.0) for name in "ab"],
    sensors={name: SensorSpec() for name in (
        "joint_position", "gripper_opening", "end_effector_position_b",
        "end_effector_orientation_b",
    )},
)  # fmt: skip
JOINTS = ActionMap.joint_positions(ARM, scale=0.5, gripper=True)
POSES = ActionMap.end_effector(translation=0.01, rotation=0.1, gripper=True)


def at(q=(0.0, 0.0), place=(0.5, 0.0, 0.3), turn=(0.0, 0.0, 0.0), opening=0.5) -> Readings:
    return Readings(now=0.0, state_stamp=0.0, state=RobotState({
        "joint_position": np.array([q], float), "gripper_opening": np.array([[opening]]),
        "end_effector_position_b": np.array([place], float),
        "end_effector_orientation_b": from_rotation_vector(np.array([turn], float)),
    }))  # fmt: skip


def reset_of(*steps: dict[str, Any], action_map: ActionMap = JOINTS) -> Reset:
    made = [reset_step(values) for values in steps]
    for step in made:
        step.check(ARM, action_map)
    readings = at()
    assert readings.state is not None
    context = ResetContext(
        readings=readings, hold=standing(action_map, readings.state), action_map=action_map, dt=DT,
        speed=0.1, turn_speed=0.5, begin_world=lambda: 1,
    )  # fmt: skip
    return Reset(made, context)


def led(reset: Reset, count: int, readings: Readings | None = None) -> list[Any]:
    return [reset.advance(readings or at()) for _ in range(count)]


def test_joints_are_led_in_the_time_that_was_asked_for_and_not_faster_than_allowed():
    reset = reset_of({"move_joints": {"position": [0.1, 0.0], "seconds": 1.0}})
    way = np.array([one.q[0, 0] for one in led(reset, 10)])
    assert way[-1] == pytest.approx(0.1)
    assert way[4] == pytest.approx(0.05)  # minimum jerk: half of the way in half of the time
    assert reset.progress == pytest.approx(1.0)
    reset = reset_of({"move_joints": {"position": [1.0, 0.0], "seconds": 1.0}})
    way = np.array([0.0, *(one.q[0, 0] for one in led(reset, 38))])
    assert way[-1] == pytest.approx(1.0)
    assert way[-2] < 1.0
    assert np.diff(way).max() <= 0.5 * DT + 1e-9  # 0.5 rad/s
    assert not reset.done


def test_a_hand_that_presses_on_something_is_let_go_where_it_is():
    reset = reset_of({"relax": {"seconds": 0.3}}, {"wait": {"seconds": 0.1}}, action_map=POSES)
    reset.context.hold = led(reset_of({"wait": {"seconds": 1.0}}, action_map=POSES), 1)[0]
    moved = [reset.advance(at(place=(0.5, 0.0, 0.3 + 0.01 * i))) for i in range(3)]
    places = [one.position_w[0, 2] for one in moved if isinstance(one, PoseCommand)]
    assert places == pytest.approx([0.3, 0.31, 0.32])
    (held,) = led(reset, 1, at(place=(0.5, 0.0, 0.4)))
    assert held.position_w[0, 2] == pytest.approx(0.32), "what was measured last is held"
    assert held.gripper.tolist() == [[0.5]]


def test_a_step_waits_until_the_robot_is_there_and_says_what_is_left():
    reset = reset_of({"move_joints": {"position": [0.1, 0.0], "seconds": 0.2, "tolerance": 0.02}})
    led(reset, 10)
    assert not reset.done
    assert "0.10 rad are left" in reset.context.prompt
    hold = reset.advance(at(q=(0.09, 0.0)))
    assert reset.done
    assert reset.context.prompt == ""
    assert isinstance(hold, JointCommand)
    assert hold.q[0, 0] == pytest.approx(0.1)  # what is held is the target


STUCK = {"move_joints": {"position": [0.1, 0.0], "seconds": 0.2, "tolerance": 0.02}}


def test_a_move_that_does_not_arrive_lets_go_after_a_while_and_asks_a_person():
    """It pressed on whatever was in the way for ever, and nobody was asked."""
    reset = reset_of(STUCK)
    blocked = at(q=(0.04, 0.0), opening=1.0)
    way = led(reset, 4 + 100, blocked)  # 0.5 rad/s at most: 0.375 s instead of 0.2 s
    assert way[-1].q[0, 0] == pytest.approx(0.1)
    assert reset.present is not None
    assert (reset.present.asks, reset.present.may_skip) == (False, False)
    stands = led(reset, 20, blocked)
    assert {one.q[0, 0] for one in stands} == {0.04}
    assert {one.gripper.item() for one in stands} == {0.5}, "what it holds is not let go"
    assert "not there after 10 s: 0 mm and 0.06 rad are left" in reset.context.prompt
    assert reset.present.seconds == pytest.approx(12.4)
    assert (reset.present.asks, reset.present.may_skip) == (True, True)
    reset.context.confirmed = True
    again = led(reset, 2, blocked)
    assert 0.04 < again[0].q[0, 0] < again[1].q[0, 0]
    assert reset.context.prompt == ""
    assert not reset.present.asks
    led(reset, 2, at(q=(0.1, 0.0)))
    assert reset.done


def test_a_move_that_did_not_arrive_and_times_to_wait_can_be_skipped_and_moves_cannot():
    reset = reset_of(STUCK, {"wait": {"seconds": 5.0}}, {"confirm": {"prompt": "put it back"}})
    led(reset, 2)
    with pytest.raises(ConfigError, match="step 'move_joints' of the reset cannot be skipped now"):
        reset.skip()
    led(reset, 103)
    reset.skip()
    (stands,) = led(reset, 1)
    assert stands.q[0, 0] == 0.0, "it goes on from where it stood"
    assert reset.present == ResetProgress("wait", 2, 3, DT, asks=False, may_skip=True)
    reset.skip()
    led(reset, 4)
    assert reset.present == ResetProgress("confirm", 3, 3, 4 * DT, asks=True, may_skip=False)
    with pytest.raises(ConfigError, match=r"step 'confirm' .* confirm what it asks for"):
        reset.skip()
    reset.context.confirmed = True
    led(reset, 1)
    assert reset.present is None
    with pytest.raises(ConfigError, match="none to skip"):
        reset.skip()


def test_a_step_that_is_interrupted_neither_asks_nor_can_be_skipped():
    reset = reset_of({"wait": {"seconds": 5.0}})
    led(reset, 3)
    reset.interrupt(at())
    assert reset.present == ResetProgress("wait", 1, 1, 0.0, asks=False, may_skip=False)
    with pytest.raises(ConfigError, match="cannot be skipped now"):
        reset.skip()


def test_the_end_effector_is_led_turned_and_drawn_back():
    turned = from_rotation_vector(np.array([[0.0, 0.0, 0.2]]))[0].tolist()
    goal = {"position": [0.5, 0.1, 0.3], "orientation": turned, "seconds": 0.5}
    reset = reset_of(
        {"move_end_effector": goal},
        {"move_end_effector": {"position": [0.0, 0.0, 0.05], "relative": True, "seconds": 0.5}},
        action_map=POSES,
    )
    there = at(place=(0.5, 0.1, 0.3), turn=(0.0, 0.0, 0.2))
    way = led(reset, 19, there)  # 0.1 m at 0.1 m/s at most: 1.875 s instead of 0.5 s
    assert np.diff([one.position_w[0, 1] for one in way]).max() <= 0.1 * DT + 1e-9
    np.testing.assert_allclose(way[-1].position_w, [[0.5, 0.1, 0.3]])
    np.testing.assert_allclose(
        rotation_between(np.eye(1, 4), way[-1].orientation_w), [[0, 0, 0.2]], atol=1e-9
    )
    back = led(reset, 10, there)[-1]
    np.testing.assert_allclose(back.position_w, [[0.5, 0.1, 0.35]])
    reset.advance(at(place=(0.5, 0.1, 0.35), turn=(0.0, 0.0, 0.2)))
    assert reset.done


def test_a_gripper_gets_its_time_and_whatever_comes_next_keeps_its_opening():
    reset = reset_of({"move_gripper": {"opening": 0.0, "seconds": 0.3}}, {"wait": {"seconds": 0.2}})
    assert [one.gripper.item() for one in led(reset, 5)] == [0.0] * 5
    assert not reset.done
    reset.advance(at())
    assert reset.done


def test_a_person_is_asked_and_only_an_answer_after_the_question_counts():
    reset = reset_of({"confirm": {"prompt": "put the peg back"}})
    reset.context.confirmed = True  # before it was asked for
    led(reset, 3)
    assert reset.context.prompt == "put the peg back"
    assert not reset.done
    reset.context.confirmed = True
    led(reset, 1)
    assert reset.done


def test_a_step_that_was_interrupted_begins_again_where_the_robot_is():
    reset = reset_of({"move_joints": {"position": [0.1, 0.0], "seconds": 0.4}})
    led(reset, 2)
    hold = reset.interrupt(at(q=(-0.2, 0.0)))
    assert isinstance(hold, JointCommand)
    np.testing.assert_array_equal(hold.q, [[-0.2, 0.0]])
    assert hold.gripper is not None
    again = led(reset, 20)
    assert -0.2 < again[0].q[0, 0] < -0.15
    assert again[-1].q[0, 0] == pytest.approx(0.1)


def test_a_person_who_leads_the_robot_away_while_they_are_asked_does_not_move_the_start():
    """The episode began where they had left the arm, as only the question was asked again."""
    reset = reset_of(
        {"move_joints": {"position": [0.1, 0.0], "seconds": 0.2}},
        {"move_gripper": {"opening": 0.25, "seconds": 0.2}},
        {"confirm": {"prompt": "put the peg in"}},
    )
    led(reset, 8, at(q=(0.1, 0.0)))
    assert reset.context.prompt == "put the peg in"
    reset.context.confirmed = True
    away = at(q=(0.4, 0.0))
    assert away.state is not None
    closes = standing(JOINTS, away.state, opening=0.0)  # they close it on the peg
    held = Executed(time=0.0, safety=SafetyState.HUMAN, setpoint=closes)
    away = replace(away, executed=held)
    for _ in range(3):
        reset.interrupt(away)
    back = led(reset, 30, away)
    assert 0.35 < back[0].q[0, 0] < 0.4
    assert back[-1].q[0, 0] == pytest.approx(0.1)
    assert back[-1].gripper.item() == 0.0, "the peg is not let go"
    assert not reset.done
    led(reset, 2, at(q=(0.1, 0.0)))
    assert reset.context.prompt == "put the peg in"
    reset.context.confirmed = True
    led(reset, 1, at(q=(0.1, 0.0)))
    assert reset.done
    reset.interrupt(away)  # it waited for a sensor
    assert not reset.done


def test_a_simulated_world_that_a_person_led_away_from_its_start_begins_again():
    asked = []
    reset = reset_of({"begin_world": {}}, {"wait": {"seconds": 0.5}})
    reset.context.begin_world = lambda: asked.append(1) or len(asked)
    begun = replace(at(), state_stamp=1.0, outcome=WorldOutcome(begun=1, since=0.5))
    led(reset, 3, begun)
    assert len(asked) == 1
    reset.interrupt(at(q=(0.4, 0.0)))
    led(reset, 3, at(q=(0.4, 0.0)))
    assert len(asked) == 2


def test_a_simulated_world_that_does_not_answer_is_asked_again():
    asked = []
    reset = reset_of({"begin_world": {}})
    reset.context.begin_world = lambda: asked.append(1) or len(asked)
    led(reset, 25)
    assert len(asked) == 3
    assert "does not answer" in reset.context.prompt


@pytest.mark.parametrize(
    ("step", "action_map", "match"),
    [
        ({"jump": {}}, JOINTS, "step of a reset 'jump' is unknown"),
        ({"wait": {}, "confirm": {}}, JOINTS, "one name with its fields"),
        ({"wait": {"minutes": 1.0}}, JOINTS, "step 'wait' of a reset.*minutes"),
        ({"wait": {"seconds": 0.0}}, JOINTS, "wait.seconds must be a number > 0"),
        ({"confirm": {"prompt": ""}}, JOINTS, "needs a prompt"),
        ({"move_joints": {"position": [0.0]}}, JOINTS, "has 2 joints, got 1"),
        ({"move_joints": {"position": [0.0, 9.0]}}, JOINTS, "outside the limits of b"),
        ({"move_joints": {"position": [0.0, 0.0]}}, POSES, "use move_end_effector"),
        ({"move_end_effector": {"position": [0.0, 0.0, 0.0]}}, JOINTS, "use move_joints"),
        ({"move_end_effector": {"position": [0.0]}}, POSES, "takes 3 positions"),
        ({"move_end_effector": {"position": [0, 0, 0], "orientation": [1, 1, 0, 0]}}, POSES,
         "no unit quaternion"),
        ({"move_gripper": {"opening": 2.0}}, JOINTS, "must lie in"),
    ],
)  # fmt: skip
def test_steps_that_make_no_sense_are_refused(step, action_map, match):
    with pytest.raises(ConfigError, match=match):
        reset_of(step, action_map=action_map)


def test_tasks_need_distinct_names():
    with pytest.raises(ConfigError, match="distinct names"):
        ResetConfig(tasks=[TaskReset(name="a"), TaskReset(name="a")])
    with pytest.raises(ConfigError, match="speed must be a number > 0"):
        ResetConfig(speed=0.0)
