"""Rewards are matched by name, where a task meets its weights, and nowhere by position."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from configs.builders import build_env
from configs.schema import component_of, make_env
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import TermConfig
from sim.env import SimEnv
from sim.robots.multirotor_simulation import MultirotorSimulation
from sim.tasks.flights.flight import RewardWeightsConfig
from tests.compositions import composed
from tests.sim.flight_worlds import CPU
from tests.sim.flying import flight_worlds, robot_config
from tests.sim.stepping import weights


def hover(**reward: Any) -> SimEnv:
    config = composed(["task=hover"]).config.task.reward
    return flight_worlds("hover", 2, reward=type(config)(**reward))


def test_weights_and_terms_that_do_not_fit_are_refused_when_the_task_is_built():
    with pytest.raises(ConfigError, match=r"'heding' is unknown .did you mean 'heading'"):
        hover(initial=weights("hover", heding=1.0))
    given = weights("hover")
    del given["smoothness"]
    with pytest.raises(ConfigError, match="no weight for the reward term 'smoothness' of HoverTas"):
        hover(initial=given)
    env = hover(initial=given, final={"smoothness": -1.0})
    env.reset(seed=0)
    weights_now = env.step(torch.zeros(2, 4)).reward_weights
    assert weights_now is not None
    assert weights_now[-1] == -1.0


@pytest.mark.parametrize("task", ["hover", "reach"])
def test_the_order_of_weights_in_a_file_changes_nothing(task: str) -> None:
    config = composed([f"task={task}"]).config
    reward = config.task.reward
    named = reward if isinstance(reward, dict) else reward.initial
    found = []
    for turn in (False, True):
        if turn:
            for name in sorted(named):
                named[name] = named.pop(name)
        env = make_env(config, num_envs=2, device=torch.device("cpu"), seed=0, evaluation=True)
        env.reset(seed=0)
        found.append((env.spec.reward_names, env.step(torch.zeros(2, env.spec.action_size)).reward))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])
    assert component_of(config.task).name == task


def test_learning_the_names_of_a_task_leaves_no_trace() -> None:
    env = flight_worlds("tracking", 3)
    state = env.task.state_dict()
    torch.testing.assert_close(state["record"]["sums"], torch.zeros(3, 4))


OUT_OF_TREE = '''
from dataclasses import dataclass

import torch
from torch import Tensor
from sim.task import InitialState, StepOutcome, Task
from sim.tasks.flights.flight import FlightTaskConfig


@dataclass(kw_only=True)
class ClimbConfig(FlightTaskConfig):
    """Fly up."""


class ClimbTask(Task):
    """Fly up as fast as 1 m/s."""

    def start(self, rows, generator):
        return InitialState(robot=self.config.start.draw(rows.count, generator))

    def reward_weights(self, env_steps):
        return self.config.reward.at(env_steps) | {"position": 0.0, "rates": 0.0}

    def evaluate(self, true_state, action, last_action, episode_step):
        climb = true_state.linear_velocity_w[:, 2]
        return StepOutcome(
            reward_terms={
                "climb": climb.clamp(max=1.0), "rates": torch.zeros_like(climb),
                "position": torch.zeros_like(climb), "smoothness": smoothness(action, last_action),
            },
            terminated=torch.zeros_like(climb, dtype=torch.bool),
            success=climb > 0,
            metrics={"climb": climb.clone()},
        )


def smoothness(action: Tensor, last_action: Tensor) -> Tensor:
    """Squared change of the action, summed, (N,)."""
    return (action - last_action).square().sum(-1)
'''


def test_a_task_and_its_terms_out_of_tree_are_stepped(tmp_path: Path) -> None:
    (tmp_path / "climbing.py").write_text(OUT_OF_TREE)
    spec = importlib.util.spec_from_file_location("climbing", tmp_path / "climbing.py")
    assert spec is not None
    assert spec.loader is not None
    climbing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(climbing)
    env = build_env(
        climbing.ClimbConfig(
            actor=[TermConfig(term="linear_velocity_w")],
            reward=RewardWeightsConfig(initial={"smoothness": -1.0, "climb": 2.0}),
        ),
        robot_config(), make_task=climbing.ClimbTask, make_simulation=MultirotorSimulation,
        num_envs=3, device=CPU, seed=0, evaluation=True,
    )  # fmt: skip
    env.reset(seed=0)
    step = env.step(torch.zeros(3, 4))
    assert env.spec.reward_names == ("climb", "rates", "position", "smoothness")
    assert env.spec.metric_names == ("climb",)
    torch.testing.assert_close(step.reward, 2 * step.metrics["climb"])  # the last action was 0, too
