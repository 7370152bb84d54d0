"""Robots with joints as they run on an accelerator: rows by masks, the host never waits."""

from typing import Any

import pytest
import torch

from configs.schema import make_env
from robot_rl.core.env import BatchEnv, EnvStep
from tests.accelerators import as_on_an_accelerator, nothing_waits
from tests.compositions import composed
from tests.matrices import some

pytestmark = pytest.mark.slow
WORLDS = 6
TASKS = (
    "peg", "clutter robot=go2", "reach robot=panda", "velocity robot=go2",
    "velocity_rough robot=go2", "stand_up robot=go2", "motion robot=go2", "climb robot=go2",
)  # fmt: skip


def worlds(task: str) -> Any:
    config = composed([f"task={part}" if i == 0 else part for i, part in enumerate(task.split())]
                      + ["robot.engine=warp"]).config  # fmt: skip
    return make_env(config, num_envs=WORLDS, device=torch.device("cpu"), seed=0, evaluation=False)


def played(env: BatchEnv, actions: torch.Tensor) -> list[EnvStep]:
    steps = []
    for action in actions:
        step = env.step(action)
        kept = {name: value.clone() for name, value in step.next_obs.items()}
        steps.append(EnvStep(**{**vars(step), "next_obs": kept, "reward": step.reward.clone()}))
    return steps


@pytest.mark.parametrize("task", some(TASKS[:1], TASKS[1:]))
def test_no_step_and_no_beginning_waits_for_the_device(task, monkeypatch):
    as_on_an_accelerator(monkeypatch)
    env = worlds(task)
    env.reset(seed=1)
    draw = torch.Generator().manual_seed(0)
    actions = 2 * torch.rand(6, WORLDS, env.spec.action_size, generator=draw) - 1
    env.check()
    for i, action in enumerate(actions):
        env.reset(mask=torch.arange(WORLDS) == i)
        if i == 0:
            continue  # what was dropped by the check is drawn again
        with nothing_waits():
            step = env.step(action)
            env.reset(mask=step.terminated | (torch.arange(WORLDS) == 0))
        assert all(values.isfinite().all() for values in step.next_obs.values())


@pytest.mark.parametrize("task", some(["velocity robot=go2"], ["reach robot=panda"]))
def test_worlds_that_go_on_do_so_as_where_rows_are_picked(task, monkeypatch):
    picked = worlds(task)
    picked.reset(seed=1)
    state = picked.state_dict()
    draw = torch.Generator().manual_seed(0)
    actions = 0.1 * torch.randn(4, WORLDS, picked.spec.action_size, generator=draw)
    expected = played(picked, actions)
    as_on_an_accelerator(monkeypatch)
    masked = worlds(task)
    masked.reset(state=state)
    for found, wanted in zip(played(masked, actions), expected, strict=True):
        assert not (wanted.terminated | wanted.truncated).any(), "nobody begins anew"
        torch.testing.assert_close(found.next_obs, wanted.next_obs, rtol=0, atol=0)
        torch.testing.assert_close(found.reward, wanted.reward, rtol=0, atol=0)


def test_a_world_that_begins_on_an_accelerator_gets_a_plant_of_the_stock_and_others_keep_theirs(
    monkeypatch,
):
    as_on_an_accelerator(monkeypatch)
    env = worlds("reach robot=panda")
    env.reset(seed=1)
    simulation = env.simulation
    before = {name: part.clone() for name, part in simulation.drawn_parameters().items()}
    mass = simulation.engine.model_field("body_mass").clone()
    env.reset(mask=torch.arange(WORLDS) == 2)
    after, others = simulation.drawn_parameters(), torch.arange(WORLDS) != 2
    assert before
    for name, part in after.items():
        assert torch.equal(part[others], before[name][others]), name
    factor = after["link_mass"]
    assert not torch.equal(factor[2], before["link_mass"][2])
    masses = simulation.engine.model_field("body_mass")
    assert torch.equal(masses[others], mass[others])
    arm = slice(1, 7)  # without the hand, which carries a payload
    nominal = torch.tensor(simulation.engine.model.body_mass[arm])
    torch.testing.assert_close(masses[2, arm].double(), factor[2, :6] * nominal)
