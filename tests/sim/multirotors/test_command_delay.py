"""Body rates reach the inner loop of each world as late as its delay says."""

from typing import Any

import numpy as np
import pytest
import torch

from configs.compose import compose
from configs.schema import make_env
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot_command import BodyRateCommand
from sim.env import SimEnv
from sim.robots.multirotor_simulation import CommandDelay
from tests.matrices import some

CPU = torch.device("cpu")


def said(step: int, worlds: int) -> BodyRateCommand:
    return BodyRateCommand(
        rates_b=torch.full((worlds, 3), float(step)), thrust=torch.full((worlds, 1), step / 100)
    )


def test_every_world_hears_what_was_said_its_delay_ago():
    delay = torch.tensor([0.0, 1.0, 2.0])
    line = CommandDelay(3, longest=2, device=CPU)
    line.begin(EnvSelection(torch.ones(3, dtype=torch.bool)), 0.5)
    for step in range(1, 8):
        heard = line.pass_on(said(step, 3), delay)
        for world, steps in enumerate((0, 1, 2)):
            past = step - steps
            rate, thrust = (past, past / 100) if past >= 1 else (0.0, 0.5)
            np.testing.assert_allclose(heard.rates_b[world], rate)
            np.testing.assert_allclose(heard.thrust[world], thrust)


def test_an_episode_begins_with_nothing_on_its_way():
    line = CommandDelay(2, longest=1, device=CPU)
    line.pass_on(said(5, 2), torch.ones(2))
    line.begin(EnvSelection(torch.tensor([True, False])), 0.5)
    heard = line.pass_on(said(6, 2), torch.ones(2))
    np.testing.assert_allclose(heard.rates_b[:, 0], [0.0, 5.0])
    np.testing.assert_allclose(heard.thrust[:, 0], [0.5, 0.05])


def test_what_is_on_its_way_is_saved():
    line, other = (CommandDelay(2, longest=2, device=CPU) for _ in range(2))
    for step in range(4):
        line.pass_on(said(step, 2), torch.zeros(2))
    other.load_state_dict(line.state_dict())
    for step in range(4, 7):
        heard = [one.pass_on(said(step, 2), torch.tensor([1.0, 2.0])) for one in (line, other)]
        np.testing.assert_array_equal(heard[0].rates_b, heard[1].rates_b)


@pytest.mark.parametrize("action", some(["body_rates"], ["rotors"]))
def test_first_actions_move_nobody_before_their_delay(action: str):
    """Same seed, another first action: the state differs only after the delay."""

    def speeds(first: float, delay: float) -> list[Any]:
        config = compose(
            [f"robot.action={action}", f"task.randomization.action_delay=[{delay},{delay}]"]
        ).config
        env = make_env(config, num_envs=2, device=CPU, seed=3, evaluation=False)
        assert isinstance(env, SimEnv)
        env.reset(seed=3)
        actions = [torch.full((2, 4), value) for value in (first, 0.0, 0.0, 0.0)]
        found = []
        for one in actions:
            env.step(one)
            found.append(env.simulation.privileged["rotor_speed"].clone())
        return found

    for steps, delay in enumerate((0.0, 0.01, 0.02)):
        low, high = speeds(-0.5, delay), speeds(0.5, delay)
        differ = [bool((a != b).any()) for a, b in zip(low, high, strict=True)]
        assert differ == [step >= steps for step in range(4)]


@pytest.mark.parametrize("period", [0.003, -0.001, 0.02])
def test_loop_must_go_into_the_control_period(period: float):
    with pytest.raises(ConfigError, match=r"loop_dt must go into the control period of 0\.01 s"):
        compose([f"robot.loop_dt={period}"])
