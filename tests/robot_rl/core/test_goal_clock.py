"""The clock that a robot's own side runs is the one of training."""

import numpy as np
import pytest
import torch

from configs.compose import compose
from configs.twin_builder import build_twin
from robot_rl.core.episodic import ClockSpec, GoalClock
from robot_rl.core.errors import ConfigError
from sim.task import clocks_of

WALKS = {"velocity_b": np.array([[0.3, 0.0, 0.0]])}
STANDS = {"velocity_b": np.zeros((1, 3))}


def test_it_runs_as_the_task_of_training():
    twin = build_twin(compose(["task=velocity", "robot=go2"]).config, seed=0)
    twin.connect()
    task = twin.task
    (name, spec), *others = clocks_of(task).items()
    assert (name, others) == ("clock", [])
    task.load_state_dict(  # an episode that begins with its cycle, and is asked to walk
        task.state_dict()
        | {"first_phase": torch.zeros(1), "phase": torch.zeros(1), "goal": torch.ones(1, 3)}
        | {"goals": torch.ones_like(task.state_dict()["goals"])}
    )
    clock = GoalClock(spec, twin.control_dt)
    for step in range(60):
        np.testing.assert_allclose(clock.value(WALKS), task.goal["clock"].numpy(), atol=1e-5)
        clock.tick()
        task.advance(torch.tensor([step + 1]))


def test_who_stands_has_no_clock_and_goes_on_where_it_is():
    clock = GoalClock(ClockSpec(period=0.5, moves="velocity_b"), 0.02)
    for _ in range(7):
        clock.tick()
    assert not clock.value(STANDS).any()
    assert not clock.value({"velocity_b": np.full((1, 3), np.nan)}).any(), "nobody has asked yet"
    angle = 2 * np.pi * 7 * 0.02 / 0.5
    np.testing.assert_allclose(clock.value(WALKS), [[np.sin(angle), np.cos(angle)]])
    clock.reset()
    np.testing.assert_allclose(clock.value(WALKS), [[0.0, 1.0]], atol=1e-12)


@pytest.mark.parametrize("period", [0.0, -1.0, float("nan"), float("inf")])
def test_cycles_without_extent_are_refused(period):
    with pytest.raises(ConfigError, match="period must be a time > 0 s"):
        ClockSpec(period=period, moves="velocity_b")
