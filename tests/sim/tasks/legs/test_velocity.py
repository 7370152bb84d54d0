"""Velocity: what is asked, when a walk succeeds, when it is over, with numbers by hand."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError, SpecMismatchError
from sim.randomization import PushConfig
from sim.robots.joint_robot import JointRandomization
from sim.tasks.legs.gait import Gait, GaitConfig, heading_velocity
from sim.tasks.legs.velocity import CLOCK, GOAL, VelocityConfig, VelocityTask
from tests.fakes import CPU
from tests.sim.arms import arms
from tests.sim.legs import evaluate, go2
from tests.sim.legs import leg_state as state
from tests.sim.stepping import context, everyone, term

DT = 0.1
SPEC = go2().spec
SENSORS = {
    "foot_velocity_w": torch.zeros(1, 12),
    "foot_position_w": torch.tensor([[0.2, 0.1, 0.022, 0.2, -0.1, 0.022] * 2]),
    "body_contact": torch.zeros(1, 10),
}


def task(envs: int = 1, **changes: Any) -> VelocityTask:
    """A second in ten steps, with two goals."""
    values: dict[str, Any] = {"episode_length": 1.0, "goal_time": 0.5}
    config = VelocityConfig(**(values | changes))
    sensors = {name: value.repeat(envs, 1) for name, value in SENSORS.items()}
    made = VelocityTask(config, context(envs, DT, robot=SPEC, sensors=sensors))
    made.start(everyone(envs), torch.Generator().manual_seed(0))
    return made


def test_a_perfect_walk_pays_fully_and_an_error_of_close_pays_half() -> None:
    made = task()
    made.goal[GOAL][:] = torch.tensor([[0.4, -0.2, 0.3]])
    made.advance(torch.zeros(1, dtype=torch.int64))  # a step that follows it
    perfect = evaluate(made, state(velocity=(0.4, -0.2), turn=0.3))
    assert term(perfect, "velocity") == pytest.approx(1.0)
    assert term(perfect, "turn") == pytest.approx(1.0)
    paying = ("alive", "velocity", "turn", "gait", "swing")
    for name in perfect.reward_terms.keys() - paying:
        assert term(perfect, name) == pytest.approx(0.0, abs=1e-6)
    half = evaluate(
        made, state(velocity=(0.4 + 0.15, -0.2 + 0.2), turn=0.3 - 0.25)
    )  # errors 0.25 and 0.25
    assert term(half, "velocity") == pytest.approx(0.5)
    assert term(half, "turn") == pytest.approx(0.5)


def test_velocities_are_those_of_the_heading_and_leaning_changes_nothing() -> None:
    yaw = quaternion.from_yaw(torch.tensor([math.pi / 2]))  # looks along y
    lean = quaternion.from_rotation_vector(torch.tensor([[0.0, 0.5, 0.0]]))
    rotation = quaternion.rotation_matrix(quaternion.multiply(yaw, lean))
    moved = heading_velocity(rotation, torch.tensor([[0.3, 2.0, 9.0]]))
    torch.testing.assert_close(moved, torch.tensor([[2.0, -0.3]]))


def test_success_is_the_mean_error_over_the_whole_episode() -> None:
    made = task(success_error=0.15, success_turn_error=0.2)
    made.goal[GOAL].zero_()
    verdict = evaluate(made, state(velocity=(0.1, 0.0)), 1)
    for step in range(2, 10):
        verdict = evaluate(made, state(velocity=(0.1, 0.0)), step)
    assert bool(verdict.success)
    # (9 * 0.1 + 0.7) / 10 = 0.16
    assert not bool(evaluate(made, state(velocity=(0.7, 0.0)), 10).success)
    turning = task(success_error=0.15, success_turn_error=0.2)
    turning.goal[GOAL].zero_()
    assert not bool(evaluate(turning, state(turn=0.21)).success)
    assert bool(evaluate(turning, state(turn=0.15), 2).success)  # the mean is 0.18


@pytest.mark.parametrize(
    ("tilt", "height", "fallen"),
    [(0.0, 0.28, False), (0.9, 0.28, False), (1.1, 0.28, True), (0.0, 0.1, True)],
)
def test_a_fall_is_a_tilt_or_a_low_base(tilt: float, height: float, fallen: bool) -> None:
    lean = quaternion.from_rotation_vector(torch.tensor([[tilt, 0.0, 0.0]]))
    verdict = evaluate(task(), state(height=height, attitude=lean))
    assert bool(verdict.terminated) is fallen
    assert term(verdict, "tilt") == pytest.approx(math.sin(tilt) ** 2, abs=1e-6)


def test_costs_by_hand() -> None:
    made = task()
    true_state = state(velocity=(0.0, 0.0), height=0.25)
    true_state.fields["linear_velocity_w"][0, 2] = -0.5
    true_state.fields["angular_velocity_b"][0, :2] = torch.tensor([0.3, 0.4])
    true_state.fields["joint_effort"][0, 2] = 45.43 / 2  # a calf
    true_state.fields["joint_position"][0, 0] += 0.2
    made._sensors["body_contact"][0, :2] = 1.0  # pyright: ignore[reportPrivateUsage]
    made._sensors["foot_velocity_w"][0, 3] = 0.6  # pyright: ignore[reportPrivateUsage]
    action, last = torch.full((1, 12), 0.5), torch.zeros(1, 12)
    verdict = made.evaluate(true_state, action, last, torch.tensor([1]))
    expected = {
        "bounce": 0.25, "sway": 0.25, "height": 0.03**2, "effort": 0.25, "smoothness": 3.0,
        "slip": 0.36, "pose": 0.04, "collision": 2.0, "alive": 1.0,
    }  # fmt: skip
    for name, value in expected.items():
        assert term(verdict, name) == pytest.approx(value, rel=1e-4), name


def test_joints_count_in_the_pose_as_their_names_are_weighed() -> None:
    true_state = state(velocity=(0.0, 0.0), height=0.28)
    true_state.fields["joint_position"][:] += 0.1
    now, rest = torch.zeros(1, 12), torch.tensor([1])
    weights = {"hip": 3.0, "FL_hip": 0.0, "calf": 0.5}  # 3 hips of 3, one of 0, 4 of 1, 4 of 0.5
    made = task(pose_weights=weights)
    assert term(made.evaluate(true_state, now, now, rest), "pose") == pytest.approx(0.15, rel=1e-4)
    with pytest.raises(ConfigError, match=r"task\.pose_weights: joint 'knee' is unknown"):
        task(pose_weights={"knee": 1.0})
    with pytest.raises(ConfigError, match=r"task\.pose_weights\.calf is -1\.0; expected 0 or more"):
        task(pose_weights={"calf": -1.0})


def test_who_stands_still_keeps_all_feet_down_and_sees_no_clock() -> None:
    made = task(standing=1.0)
    made.advance(torch.tensor([3]))
    assert not made.goal[CLOCK].any()
    verdict = evaluate(made, state())
    assert term(verdict, "gait") == 1.0
    assert term(verdict, "swing") == 0.0


def test_power_and_speed_are_means_of_the_whole_episode() -> None:
    made, true_state = task(standing=0.0), state()
    joints = true_state.joint_effort.shape[1]
    true_state.joint_velocity[:] = 2.0

    def metrics_after(step: int, effort: float) -> Mapping[str, torch.Tensor]:
        made.advance(torch.tensor([step]))
        true_state.joint_effort[:] = effort
        true_state.linear_velocity_w[:] = torch.tensor([0.3 * step, 0.0, 9.0])
        return evaluate(made, true_state, step).metrics

    metrics_after(1, 3.0)
    metrics = metrics_after(2, -1.0)
    assert float(metrics["mean_power"]) == pytest.approx(joints * (6.0 + 2.0) / 2)
    assert float(metrics["mean_speed"]) == pytest.approx(0.45)


def test_the_gait_that_was_kept_is_told_of_the_whole_episode() -> None:
    made = task(standing=0.0)
    told = []
    for step in range(1, 6):
        made.advance(torch.tensor([step]))
        told.append(evaluate(made, state(), step))
    paid = [term(one, "gait") for one in told]
    assert set(paid) == {0.5, 1.0}
    assert float(told[-1].metrics["gait_kept"]) == pytest.approx(sum(paid) / 5)
    saved = made.state_dict()
    other = task(standing=0.0)
    other.load_state_dict(saved)
    assert float(other.state_dict()["kept"]) == pytest.approx(sum(paid))
    other.load_state_dict({name: value for name, value in saved.items() if name != "kept"})
    assert float(other.state_dict()["kept"]) == 0.0, "of a checkpoint from before"


def test_evaluated_cycles_begin_with_the_episode_as_those_of_a_deployed_policy_do() -> None:
    generator = torch.Generator().manual_seed(0)
    gait, size = Gait(GaitConfig(), num_feet=4, device=CPU), 1000
    trained = gait.begin(size, generator, evaluation=False)
    assert trained.histc(10, 0.0, 1.0).min() > 50, "anywhere in the cycle"
    assert not gait.begin(size, generator, evaluation=True).any()
    again = torch.Generator().manual_seed(0)
    for evaluation in (True, False):  # draws as many numbers, so that starts are the same
        gait.begin(size, again, evaluation=evaluation)
    assert generator.get_state().equal(again.get_state())


def test_the_clock_goes_round_once_a_period_and_pays_for_the_feet_it_asks_for() -> None:
    made = task(standing=0.0)  # ten steps of 0.1 s are two cycles
    first = made.goal[CLOCK].clone()
    made.advance(torch.tensor([5]))
    torch.testing.assert_close(made.goal[CLOCK], first)
    made.advance(torch.tensor([2]))
    angle = 2 * math.pi * 2 / 5
    turned = torch.tensor(
        [[
            first[0, 0] * math.cos(angle) + first[0, 1] * math.sin(angle),
            first[0, 1] * math.cos(angle) - first[0, 0] * math.sin(angle),
        ]]
    )  # fmt: skip
    torch.testing.assert_close(made.goal[CLOCK], turned)
    paid = []
    for step in range(1, 6):
        made.advance(torch.tensor([step]))
        paid.append(term(evaluate(made, state(), step), "gait"))
    # All feet are down; with a duty of 0.55 in five steps a pair should be up in two or three.
    assert set(paid) <= {0.5, 1.0}
    assert 4 <= paid.count(0.5) <= 5


def test_goals_fill_their_ranges_some_ask_to_stand_and_change_on_time() -> None:
    made = task(4000, standing=0.2)
    first = made.goal[GOAL].clone()
    made.advance(torch.full((4000,), 4))
    assert torch.equal(made.goal[GOAL], first)
    made.advance(torch.full((4000,), 5))
    assert (made.goal[GOAL] != first).any(-1).float().mean() > 0.9
    standing = (first == 0).all(-1)
    assert 0.17 < float(standing.float().mean()) < 0.23
    for axis, (low, high) in enumerate(((-0.6, 0.6), (-0.3, 0.3), (-0.6, 0.6))):
        assert low <= float(first[:, axis].min()) < 0.98 * low
        assert 0.98 * high < float(first[:, axis].max()) <= high


def test_the_step_in_which_the_goal_changes_is_judged_by_the_one_that_was_followed() -> None:
    made = task(standing=0.0)
    first = made.goal[GOAL].clone()
    for step in (4, 5, 6):
        followed = made.goal[GOAL].clone()
        made.advance(torch.full((1,), step))
        ahead, sideways, turn = followed[0].tolist()
        outcome = evaluate(made, state(velocity=(ahead, sideways), turn=turn), step)
        assert float(outcome.metrics["velocity_error"]) == pytest.approx(0.0, abs=1e-6)
    assert not torch.equal(made.goal[GOAL], first)


def test_robots_that_cannot_walk_or_be_pushed_are_refused() -> None:
    with pytest.raises(SpecMismatchError, match="'go2': sensor 'foot_velocity_w' is unknown"):
        VelocityTask(VelocityConfig(), context(1, DT, robot=SPEC))
    pushed = JointRandomization(pushes=PushConfig(speed=1.0))
    with pytest.raises(ConfigError, match="base of robot 'panda', which is fixed"):
        arms(1, randomization=pushed)
