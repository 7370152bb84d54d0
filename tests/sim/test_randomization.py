"""Curricula that follow success, and pushes."""

from typing import Any

import pytest
import torch

from sim.randomization import (
    LEVEL,
    CurriculumConfig,
    PushConfig,
    Pushes,
    RangeCurriculum,
    WorldLevels,
)
from sim.robots.joint_simulation import MujocoSimulation
from sim.task import TaskContext
from sim.tasks.arms.reach import ReachTask
from tests.fakes import CPU
from tests.sim.arms import STEPS, arm_envs


def curriculum(**config: Any) -> RangeCurriculum:
    values = {"start": 0.2, "grow": 0.3, "success": 0.75, "window": 4}
    return RangeCurriculum(CurriculumConfig(**(values | config)), CPU)


def episodes(followed: RangeCurriculum, outcomes: list[bool | None]) -> float:
    """One step of as many worlds: True succeeds, False fails, None goes on."""
    ended = torch.tensor([outcome is not None for outcome in outcomes])
    followed.follow(ended, torch.tensor([outcome is True for outcome in outcomes]))
    return round(float(followed.level), 6)


def test_ranges_widen_when_a_window_holds_enough_successes_up_to_the_whole_range():
    followed = curriculum()
    assert episodes(followed, [True, True, None]) == 0.2  # half a window
    assert episodes(followed, [None, None, None]) == 0.2
    assert episodes(followed, [True, False, None]) == 0.5  # three of four
    assert episodes(followed, [True, True, None]) == 0.5  # counted anew
    assert episodes(followed, [False, False, None]) == 0.5  # two of four
    followed = curriculum()
    assert [episodes(followed, [True] * 4) for _ in range(4)] == [0.5, 0.8, 1.0, 1.0]


def test_ranges_shrink_on_failure_only_where_asked_and_not_below_the_start() -> None:
    for shrink, expected in ((0.0, [0.5, 0.5, 0.5]), (0.2, [0.5, 0.3, 0.2])):
        followed = curriculum(shrink=shrink)
        levels = [episodes(followed, [True] * 4)]
        levels += [episodes(followed, [False] * 4) for _ in range(2)]
        assert levels == expected


def test_a_success_of_a_world_that_goes_on_does_not_count_and_a_restored_one_counts_on():
    followed = curriculum(window=2)
    followed.follow(torch.tensor([True, True, False]), torch.tensor([True, False, True]))
    assert float(followed.level) == pytest.approx(0.2)
    one, two = curriculum(), curriculum()
    episodes(one, [True] * 4)
    episodes(one, [True, True, None])
    two.load_state_dict(one.state_dict())
    for each in (one, two):
        assert episodes(each, [True, True, None]) == 0.8


def test_worlds_climb_and_fall_one_level_at_a_time_on_their_own() -> None:
    levels = WorldLevels(4, 3, CPU)
    levels.level.fill_(1)
    ended = torch.tensor([True, True, False, True])
    success = torch.tensor([True, False, True, False])
    levels.follow(ended, success)
    assert levels.level.tolist() == [2, 0, 1, 0]
    levels.follow(ended, success)
    assert levels.level.tolist() == [2, 0, 1, 0]  # nobody leaves the levels


@pytest.mark.slow
def test_training_worlds_widen_as_they_succeed_and_evaluation_has_the_whole_ranges() -> None:
    config = CurriculumConfig(start=0.25, grow=0.25, success=0.5, failure=0.1, window=3)
    easy = {"curriculum": config, "success_distance": 9.0, "lowest_height": -9.0}
    env, other = (arm_envs(6, evaluation=False, **easy) for _ in range(2))
    env.reset(seed=0)
    assert LEVEL in env.spec.metric_names
    levels: list[float] = []
    for _ in range(2 * STEPS):
        step = env.step(torch.zeros(6, 7))
        levels.append(float(step.metrics[LEVEL][0]))
    assert levels[-1] > levels[0] == 0.25
    payload = drawn(env)["payload"]
    assert float(payload.max()) <= levels[-1]
    other.reset(state=env.state_dict())
    assert float(other.step(torch.zeros(6, 7)).metrics[LEVEL][0]) >= levels[-1]
    evaluation = arm_envs(40, curriculum=config)
    evaluation.reset(seed=0)
    assert LEVEL not in evaluation.spec.metric_names
    assert float(drawn(evaluation)["payload"].max()) > 0.9


class ClimbingReach(ReachTask):
    """Reach with a level for every world."""

    def __init__(self, config: Any, context: TaskContext) -> None:
        super().__init__(config, context)
        self.curriculum = WorldLevels(context.num_envs, 5, CPU)
        self.curriculum.level.fill_(2)


@pytest.mark.parametrize(("success_distance", "level"), [(9.0, 3), (1e-9, 1)])
def test_a_task_with_levels_of_its_own_hears_of_every_end(success_distance, level):
    env = arm_envs(
        3, make_task=ClimbingReach, success_distance=success_distance, lowest_height=-9.0
    )
    task = env.task
    levels = task.curriculum
    assert isinstance(levels, WorldLevels)
    env.reset(seed=0)
    for _ in range(STEPS):
        assert levels.level.tolist() == [2, 2, 2]
        env.step(torch.zeros(3, 7))
    assert levels.level.tolist() == [level] * 3


def drawn(env: Any) -> dict[str, torch.Tensor]:
    assert isinstance(env.simulation, MujocoSimulation)
    return env.simulation.drawn_parameters()


WORLDS = 500


def pushes(**changes: Any) -> Pushes:
    config = PushConfig(**{"speed": 0.5, "turn": 0.2, "interval": [0.5, 1.0], **changes})
    return Pushes(config, num_worlds=WORLDS, control_dt=0.1, seed=3, device=CPU)


def test_every_world_is_pushed_within_its_interval_and_never_harder_than_said() -> None:
    kicks, counts, seen = pushes(), torch.zeros(WORLDS), []
    for _ in range(100):  # 10 s
        velocity = torch.ones(WORLDS, 6, dtype=torch.float64)
        kicks.push(velocity)
        velocity -= 1  # pushes are added
        counts += velocity.any(-1)
        seen.append(velocity[velocity.any(-1), :2].sign())
        assert velocity[:, :2].norm(dim=-1).max() <= 0.5
        assert not velocity[:, 2].any()  # nobody is lifted
        assert velocity[:, 3:].abs().max() <= 0.2
    assert counts.min() >= 9  # at most a second, and up to a step, between two
    assert counts.max() <= 20
    quarters = torch.cat(seen).unique(dim=0, return_counts=True)[1]
    assert len(quarters) == 4
    assert bool((quarters > 0.2 * quarters.sum()).all())


def test_pushes_are_as_hard_as_the_part_that_the_curriculum_gives() -> None:
    whole, part = pushes(), pushes()
    part.level = torch.tensor(0.25)
    for _ in range(12):
        hard, soft = (torch.zeros(WORLDS, 6, dtype=torch.float64) for _ in range(2))
        whole.push(hard)
        part.push(soft)
        assert torch.equal(soft, 0.25 * hard)
    part.level.fill_(1.0)  # live
    hard, soft = (torch.zeros(WORLDS, 6, dtype=torch.float64) for _ in range(2))
    whole.push(hard)
    part.push(soft)
    assert hard.any()
    assert torch.equal(soft, hard)
