"""Drawer: what counts as open, what is rewarded, and a drawer that stays where it is left."""

from typing import Any

import pytest
import torch

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState
from sim.tasks.arms.drawer import DrawerConfig, DrawerTask
from tests.sim.arms import panda
from tests.sim.hands import hand_worlds
from tests.sim.stepping import context, terms_of

DT = 0.1


def task(worlds: int, **changes: Any) -> tuple[DrawerTask, dict[str, torch.Tensor]]:
    """A second in ten steps, judged over its last half; and the sensors, to be written."""
    sensors = {"hand_position": torch.zeros(worlds, 3), "drawer_opening": torch.zeros(worlds, 1)}
    made = DrawerTask(
        DrawerConfig(**{"episode_length": 1.0, "success_window": 0.5, **changes}),
        context(worlds, DT, robot=panda().spec, sensors=sensors),
    )  # fmt: skip
    made.start(EnvSelection(torch.ones(worlds, dtype=torch.bool)), torch.Generator().manual_seed(0))
    return made, sensors


def evaluate(made: DrawerTask, worlds: int, step: int) -> Any:
    true_state = RobotState({
        "end_effector_position_b": torch.full((worlds, 3), 0.3),
        "joint_velocity": torch.zeros(worlds, 7),
    })  # fmt: skip
    still = torch.zeros(worlds, 7)
    return made.evaluate(true_state, still, still, torch.full((worlds,), step))


def test_success_is_a_drawer_that_is_open_in_every_step_of_the_window() -> None:
    made, sensors = task(3)
    verdict: Any = None
    for step in range(1, 11):
        shut_again = 0.19 if step == 9 else 0.25
        sensors["drawer_opening"][:, 0] = torch.tensor([0.201, 0.199, shut_again])
        verdict = evaluate(made, 3, step)
    assert verdict.success.tolist() == [True, False, False]


def test_reward_terms_by_hand() -> None:
    made, sensors = task(2, close=0.05, success_opening=0.2)
    sensors["hand_position"][:] = torch.tensor([[0.03, 0.0, 0.04], [0.0, 0.0, 0.0]])
    sensors["drawer_opening"][:, 0] = torch.tensor([0.05, 0.24])
    outcome = evaluate(made, 2, 1)
    costs = {"speed": 0.0, "overspeed": 0.0, "smoothness": 0.0}
    half = {"alive": 1.0, "approach": 0.5, "open": 0.25, "opened": 0.0}
    assert terms_of(outcome, 0) == pytest.approx(half | costs)
    assert terms_of(outcome, 1) == pytest.approx(dict.fromkeys(half, 1.0) | costs)


def test_cabinets_stand_closed_in_their_rectangle() -> None:
    env = hand_worlds("drawer", 200)
    env.reset(seed=0)
    place, sensors = env.simulation.engine.fixtures[0][:, 0], env.simulation.sensors
    config = env.task.config
    for i in (0, 1):
        low, high = config.cabinet_low[i], config.cabinet_high[i]
        assert low - 1e-6 <= float(place[:, i].min()) < low + 0.01
        assert high - 0.01 < float(place[:, i].max()) <= high + 1e-6
    assert not sensors["drawer_opening"].any()
    # The place for the fingers is 19.5 mm before the panel, on the way that the drawer takes.
    offset = sensors["handle_position"].double() - place
    torch.testing.assert_close(offset[:, :2].norm(dim=-1), torch.full((200,), 0.0195).double())


def test_friction_keeps_a_drawer_where_it_is_left() -> None:
    env = hand_worlds("drawer", 1)
    env.reset(seed=0)
    layout, engine = env.simulation.layout, env.simulation.engine
    engine.qpos[0, layout.scene["drawer"]] = 0.1
    for _ in range(10):
        env.step(torch.zeros(1, 7))
    assert float(env.simulation.sensors["drawer_opening"]) == pytest.approx(0.1, abs=1e-3)
