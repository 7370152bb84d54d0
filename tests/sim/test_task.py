"""Rewards are matched by name, where a task meets its weights, and nowhere by position."""

from typing import Any

import pytest
import torch

from configs.schema import component_of, make_env
from robot_rl.core.errors import ConfigError
from sim.env import SimEnv
from tests.compositions import composed
from tests.sim.flying import flight_worlds
from tests.sim.stepping import weights


def hover(**reward: Any) -> SimEnv:
    config = composed(["task=hover"]).config.task.reward
    return flight_worlds("hover", 2, reward=type(config)(**reward))


def test_a_weight_without_a_term_is_refused_when_the_task_is_built() -> None:
    with pytest.raises(ConfigError, match=r"'heding' is unknown .did you mean 'heading'"):
        hover(initial=weights("hover", heding=1.0))


def test_a_term_without_a_weight_is_refused_when_the_task_is_built() -> None:
    given = weights("hover")
    del given["smoothness"]
    with pytest.raises(ConfigError, match="no weight for the reward term 'smoothness' of HoverTas"):
        hover(initial=given)
    assert hover(initial=given, final={"smoothness": -1.0}).reward_weights[-1] == -1.0


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
