"""Peg: what counts as inserted, what is rewarded, and walls that hold."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

from typing import Any

import mujoco
import pytest
import torch

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState
from sim.experts.arms import PegExpert
from sim.tasks.arms.peg import HOLE_DEPTH, PegConfig, PegTask, RewardKind
from tests.sim.arms import panda
from tests.sim.hands import hand_worlds
from tests.sim.stepping import context, terms_of

DT = 0.1


def task(worlds: int, **changes: Any) -> tuple[PegTask, torch.Tensor]:
    """A second in ten steps, judged over its last half; and the tip's position, to be written."""
    tip = torch.zeros(worlds, 3)
    made = PegTask(
        PegConfig(**{"episode_length": 1.0, "success_window": 0.5, **changes}),
        context(worlds, DT, robot=panda().spec, sensors={"peg_position": tip}),
    )  # fmt: skip
    made.start(EnvSelection(torch.ones(worlds, dtype=torch.bool)), torch.Generator().manual_seed(0))
    return made, tip


def evaluate(made: PegTask, count: int, step: int) -> Any:
    true_state = RobotState({
        "end_effector_position_b": torch.full((count, 3), 0.3),
        "joint_velocity": torch.zeros(count, 7),
    })  # fmt: skip
    still = torch.zeros(count, 7)
    return made.evaluate(true_state, still, still, torch.full((count,), step))


def test_success_is_a_tip_deep_in_the_hole_in_every_step_of_the_window() -> None:
    made, tip = task(5)
    verdict: Any = None
    for step in range(1, 11):
        tip[:] = torch.tensor([
            [0.0, 0.0, -0.031],
            [0.0, 0.0, -0.029],  # not deep enough
            [0.002, 0.0, -0.035],  # deep, but beside the hole: under the block's edge
            [0.0, 0.0, -0.031 if step > 5 else 0.05],  # from the window's first step
            [0.0, 0.0, -0.031 if step > 6 else 0.05],  # one step late
        ])  # fmt: skip
        verdict = evaluate(made, 5, step)
    assert verdict.success.tolist() == [True, False, False, True, False]


def test_reward_terms_by_hand() -> None:
    made, tip = task(2, close=0.03, aligned=0.002, success_depth=0.03)
    tip[0] = torch.tensor([0.001, 0.0, -0.015])
    tip[1] = torch.tensor([0.0, 0.03, 0.02])
    outcome = evaluate(made, 2, 1)
    first, second = (list(terms_of(outcome, env).values()) for env in (0, 1))
    near = 1 / (1 + (0.001**2 + 0.025**2) / 0.03**2)
    assert first[:4] == pytest.approx([0.0, near, 0.8, 0.5], rel=1e-5)
    far = 1 / (1 + (0.03**2 + (0.02 + HOLE_DEPTH) ** 2) / 0.03**2)
    assert second[:4] == pytest.approx([0.0, far, 0.0, 0.0], rel=1e-5)


def test_a_sparse_reward_pays_the_insertion_alone() -> None:
    weights = {"inserted": 2.0, "approach": 0.5, "speed": -0.1}
    shaped = task(1, reward=weights)[0].reward_weights(0)
    sparse = task(1, reward=weights, kind=RewardKind.sparse)[0].reward_weights(0)
    assert shaped == weights
    assert sparse == {"inserted": 2.0, "approach": 0.0, "speed": 0.0}


def test_holes_stand_in_their_rectangle_and_the_peg_begins_above_them() -> None:
    env = hand_worlds("peg", 200)
    env.reset(seed=0)
    hole, tip = (env.simulation.sensors[name] for name in ("hole_position", "peg_position"))
    config = env.task.config
    for i in (0, 1):
        assert config.hole_low[i] - 1e-6 <= float(hole[:, i].min()) < config.hole_low[i] + 0.005
        assert config.hole_high[i] - 0.005 < float(hole[:, i].max()) <= config.hole_high[i] + 1e-6
    torch.testing.assert_close(hole[:, 2], torch.full((200,), 0.1))
    assert float(tip[:, 2].min()) > 0.005
    assert float(env.simulation.true_state.gripper_opening.sub(0.253).abs().max()) < 1e-6
    # Fixtures of worlds that go on stay where they are.
    before = hole.clone()
    mask = torch.arange(200) < 3
    env.reset(mask=mask)
    assert (hole != before).any(-1).tolist() == mask.tolist()


def inserted() -> tuple[mujoco.MjModel, mujoco.MjData]:
    """A peg that the expert put into the hole, as one world of plain MuJoCo."""
    env = hand_worlds("peg", 1, start_position=0.0)
    env.reset(seed=0)
    expert = PegExpert(env.simulation, env.task, env.action_map)
    for _ in range(60):
        env.step(expert.act())
    engine = env.simulation.engine
    model, data = engine.model, mujoco.MjData(engine.model)
    data.qpos[:], data.ctrl[:] = engine.qpos[0], engine.control[0]
    data.mocap_pos[:], data.mocap_quat[:] = engine.fixtures[0][0], engine.fixtures[1][0]
    for _ in range(200):
        mujoco.mj_step(model, data)
    return model, data


@pytest.mark.slow
def test_the_clearance_is_half_a_millimetre_on_every_side_and_walls_hold_fifty_newtons() -> None:
    model, data = inserted()
    tip = data.sensor("peg_position").data
    assert tip[2] < -0.03
    peg = model.body("peg").id
    turn = data.body("hole").xmat.reshape(3, 3)
    for axis in (0, 1):
        for sign in (-1.0, 1.0):
            push = sign * 50.0 * turn[:, axis]
            data.xfrc_applied[peg, :3] = push
            for _ in range(300):
                mujoco.mj_step(model, data)
            deepest = -min(0.0, *(contact.dist for contact in data.contact[: data.ncon]))
            assert 1e-7 < deepest < 0.0002
            # The tip went as far as the wall, and not into it.
            assert abs(float(tip[axis])) == pytest.approx(0.0005, abs=0.0002)
