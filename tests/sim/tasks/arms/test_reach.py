"""Reach: where episodes begin, what is rewarded, and what counts as reached."""

from typing import Any

import pytest
import torch

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState
from sim.tasks.arms.reach import GOAL, ReachConfig, ReachTask
from tests.sim.arms import panda
from tests.sim.stepping import context, terms_of

WORLDS = 3
DT = 0.1


def task(config: ReachConfig | None = None, *, worlds: int = WORLDS) -> ReachTask:
    """A second in ten steps, judged over its last half."""
    made = ReachTask(
        config or ReachConfig(episode_length=1.0, success_window=0.5),
        context(worlds, DT, robot=panda().spec),
    )  # fmt: skip
    everyone = EnvSelection(torch.ones(worlds, dtype=torch.bool))
    made.start(everyone, torch.Generator().manual_seed(0))
    return made


def state(task: ReachTask, distance: list[float], speed: float = 0.0) -> RobotState:
    """End effectors beside their goals, along y."""
    away = torch.zeros(len(distance), 3)
    away[:, 1] = torch.tensor(distance)
    return RobotState({
        GOAL: task.goal[GOAL] + away,
        "joint_velocity": torch.full((len(distance), 7), speed),
    })  # fmt: skip


def evaluate(task: ReachTask, step: int, distance: list[float]) -> Any:
    still = torch.zeros(len(distance), 7)
    return task.evaluate(state(task, distance), still, still, torch.full((len(distance),), step))


def test_success_is_the_mean_distance_over_the_window_at_the_end() -> None:
    made = task()
    for step in range(1, 6):
        evaluate(made, step, [1.0, 0.0, 0.0])  # before the window: does not count
    for step in range(6, 10):
        evaluate(made, step, [0.019, 0.021, 0.0])
    verdict = evaluate(made, 10, [0.019, 0.021, 0.09])  # a jump at the last step: mean 0.018
    assert verdict.success.tolist() == [True, False, True]
    assert verdict.metrics["mean_distance"].tolist() == pytest.approx([0.019, 0.021, 0.018])


def test_reward_terms_by_hand():
    made = task(ReachConfig(close=0.05), worlds=1)
    action, last = torch.full((1, 7), 0.3), torch.full((1, 7), 0.1)
    verdict = made.evaluate(state(made, [0.1], speed=2.0), action, last, torch.ones(1))
    terms = terms_of(verdict)
    assert terms == pytest.approx({
        "alive": 1.0, "closeness": 1 / (1 + 4), "distance": 0.1, "speed": 7 * 4.0,
        "overspeed": 0.0, "smoothness": 7 * 0.04,
    }, rel=1e-5)  # fmt: skip


def test_an_end_effector_near_the_floor_ends_the_episode() -> None:
    made = task(ReachConfig(lowest_height=0.1))
    true_state = state(made, [0.0] * WORLDS)
    true_state.end_effector_position_b[:, 2] = torch.tensor([0.09, 0.11, -0.2])
    still = torch.zeros(WORLDS, 7)
    verdict = made.evaluate(true_state, still, still, torch.ones(WORLDS))
    assert verdict.terminated.tolist() == [True, False, True]


def test_goals_fill_their_box_and_starts_stay_around_the_default_pose_within_limits() -> None:
    config = ReachConfig(start_position=3.0)
    made = task(config, worlds=2000)
    everyone = EnvSelection(torch.ones(2000, dtype=torch.bool))
    start = made.start(everyone, torch.Generator().manual_seed(3)).robot
    goal = made.goal[GOAL]
    for axis, (low, high) in enumerate(zip(config.goal_low, config.goal_high, strict=True)):
        assert low <= float(goal[:, axis].min()) < low + 0.01
        assert high - 0.01 < float(goal[:, axis].max()) <= high
    for i, joint in enumerate(panda().spec.joints):
        column = start.joint_position[:, i]
        assert float(column.min()) >= joint.position_limit[0] - 1e-6  # float32
        assert float(column.max()) <= joint.position_limit[1] + 1e-6
    assert not start.joint_velocity.any()
