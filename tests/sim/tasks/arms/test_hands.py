"""Lift, peg, drawer: where episodes begin, what is rewarded, and what counts as done."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

from typing import Any

import mujoco
import pytest
import torch

from robot_rl.core.observation import RobotState
from sim.experts import PegExpert
from sim.tasks.arms.arm import RewardKind
from sim.tasks.arms.drawer import DrawerConfig, DrawerTask
from sim.tasks.arms.lift import GOAL, HALF_EDGE, LiftConfig, LiftTask
from sim.tasks.arms.peg import HOLE_DEPTH, PegConfig, PegTask
from tests.sim.arms import panda
from tests.sim.hands import hand_envs
from tests.sim.stepping import context, everyone, terms_of

COSTS = {"speed": 0.0, "overspeed": 0.0, "smoothness": 0.0}
TASKS = {
    "lift": (LiftConfig, LiftTask, {"cube_position": 3}),
    "peg": (PegConfig, PegTask, {"peg_position": 3}),
    "drawer": (DrawerConfig, DrawerTask, {"hand_position": 3, "drawer_opening": 1}),
}


def task(name: str, count: int, **changes: Any) -> tuple[Any, Any]:
    """A second in ten steps, judged over its last half; and the sensors, to be written."""
    config, make, widths = TASKS[name]
    sensors = {sensor: torch.zeros(count, width) for sensor, width in widths.items()}
    made = make(
        config(**{"episode_length": 1.0, "success_window": 0.5, **changes}),
        context(count, 0.1, robot=panda().spec, sensors=sensors),
    )
    made.start(everyone(count), torch.Generator().manual_seed(0))
    return made, sensors if len(sensors) > 1 else next(iter(sensors.values()))


def evaluate(
    made: Any, hand: torch.Tensor, step: int = 1, orientation: torch.Tensor | None = None
) -> Any:
    """The hand rests with its gripper a quarter open."""
    count = len(hand)
    true_state = RobotState({
        "end_effector_position_b": hand,
        "joint_velocity": torch.zeros(count, 7),
        "joint_effort": torch.zeros(count, 7),
        "gripper_opening": torch.full((count, 1), 0.25),
        **({} if orientation is None else {"end_effector_orientation_b": orientation}),
    })  # fmt: skip
    still = torch.zeros(count, 7)
    return made.evaluate(true_state, still, still, torch.full((count,), step))


def test_lift_succeeds_with_a_cube_that_is_held_near_its_goal_through_the_window() -> None:
    made, cube = task("lift", 5)
    goal = made.goal[GOAL]
    verdict: Any = None
    beside = torch.zeros(5, 3)
    beside[4, 0] = 0.031  # nobody holds the cube
    for step in range(1, 11):
        cube[:] = goal  # env 0: there all the time
        cube[1] += torch.tensor([0.06, 0.0, 0.0])  # held, but 6 cm away
        cube[2] += torch.tensor([0.03 if step != 7 else 0.04, 0.0, 0.0])
        if step == 8:
            cube[3, 2] = 0.09  # one step below the line
        verdict = evaluate(made, cube + beside, step)
    assert verdict.success.tolist() == [True, False, True, False, False]
    assert float(verdict.metrics["mean_distance"][2]) == pytest.approx(0.032, abs=1e-6)
    assert float(verdict.metrics["held"][4]) == 0.0


def test_peg_succeeds_with_a_tip_deep_in_the_hole_in_every_step_of_the_window() -> None:
    made, tip = task("peg", 5)
    verdict: Any = None
    for step in range(1, 11):
        tip[:] = torch.tensor([
            [0.0, 0.0, -0.031],
            [0.0, 0.0, -0.029],  # not deep enough
            [0.002, 0.0, -0.035],  # deep, but beside the hole: under the block's edge
            [0.0, 0.0, -0.031 if step > 5 else 0.05],  # from the window's first step
            [0.0, 0.0, -0.031 if step > 6 else 0.05],  # one step late
        ])  # fmt: skip
        verdict = evaluate(made, torch.full((5, 3), 0.3), step)
    assert verdict.success.tolist() == [True, False, False, True, False]


def test_drawer_succeeds_when_open_in_every_step_of_the_window() -> None:
    made, sensors = task("drawer", 3)
    verdict: Any = None
    for step in range(1, 11):
        shut_again = 0.19 if step == 9 else 0.25
        sensors["drawer_opening"][:, 0] = torch.tensor([0.201, 0.199, shut_again])
        verdict = evaluate(made, torch.full((3, 3), 0.3), step)
    assert verdict.success.tolist() == [True, False, False]


def test_reward_terms_of_lift_by_hand() -> None:
    made, cube = task("lift", 1, close=0.05, far=0.2, line=0.1225)
    cube[:] = torch.tensor([made.goal[GOAL][0, 0], made.goal[GOAL][0, 1], HALF_EDGE + 0.05])
    terms = terms_of(evaluate(made, cube + torch.tensor([0.025, 0.0, 0.0])))
    # Half way between floor and line, so not held yet; 25 mm are a half of `close`.
    expected = {"alive": 1.0, "approach": 0.8, "grasp": 0.75, "lift": 0.5}
    expected |= {"carry": 0.0, "hold": 0.0} | COSTS
    assert terms == pytest.approx(expected, abs=1e-5)


def test_fingers_along_the_faces_of_the_cube_are_paid_where_a_config_asks_for_it() -> None:
    degrees = torch.tensor([0.0, 90.0, 45.0, 22.5, -22.5, 10.0])
    sensors = {"cube_position": torch.zeros(6, 3), "cube_axis": torch.zeros(6, 3)}
    made = LiftTask(
        LiftConfig(reward={"align": 1.0}), context(6, 0.1, robot=panda().spec, sensors=sensors)
    )
    made.start(everyone(6), torch.Generator().manual_seed(0))
    turn = torch.deg2rad(degrees)
    sensors["cube_axis"][:, 0], sensors["cube_axis"][:, 1] = turn.cos(), turn.sin()
    # All hands point down, turned by 10 degrees at last, and are 20 cm away: a half of `far`.
    half = torch.deg2rad(torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 10.0])) / 2
    down = torch.stack([0 * half, half.cos(), half.sin(), 0 * half], dim=-1)
    outcome = evaluate(made, torch.tensor([[0.2, 0.0, 0.0]]).repeat(6, 1), orientation=down)
    expected = torch.tensor([1.0, 1.0, 0.0, 0.5, 0.5, 1.0]) / 2
    torch.testing.assert_close(outcome.reward_terms["align"], expected)


def test_a_held_cube_is_paid_for_its_way_to_the_goal_from_afar_and_more_near_it() -> None:
    made, cube = task("lift", 4, close=0.05, far=0.2, line=0.1)
    way = torch.tensor([0.0, 0.05, 0.2, 0.2])
    cube[:] = made.goal[GOAL]
    cube[:, 1] += way  # level with the goal, above the line
    hand = cube.clone()
    hand[3, 0] += 0.031  # nobody holds the last one
    outcome = evaluate(made, hand)
    carry, hold = (outcome.reward_terms[name] for name in ("carry", "hold"))
    torch.testing.assert_close(carry, torch.tensor([1.0, 1 / 1.0625, 0.5, 0.0]))
    torch.testing.assert_close(hold, torch.tensor([1.0, 0.5, 1 / 17, 0.0]))
    assert outcome.reward_terms["lift"].tolist() == [1.0, 1.0, 1.0, 0.0]


def test_reward_terms_of_peg_by_hand_of_which_a_sparse_reward_pays_the_insertion_alone() -> None:
    made, tip = task("peg", 2, close=0.03, aligned=0.002, success_depth=0.03)
    tip[:] = torch.tensor([[0.001, 0.0, -0.015], [0.0, 0.03, 0.02]])
    outcome = evaluate(made, torch.full((2, 3), 0.3))
    first, second = (list(terms_of(outcome, env).values()) for env in (0, 1))
    near = 1 / (1 + (0.001**2 + 0.025**2) / 0.03**2)
    assert first[:4] == pytest.approx([0.0, near, 0.8, 0.5], rel=1e-5)
    far = 1 / (1 + (0.03**2 + (0.02 + HOLE_DEPTH) ** 2) / 0.03**2)
    assert second[:4] == pytest.approx([0.0, far, 0.0, 0.0], rel=1e-5)
    weights = {"inserted": 2.0, "approach": 0.5, "speed": -0.1}
    sparse = task("peg", 1, reward=weights, kind=RewardKind.sparse)[0].reward_weights(0)
    assert sparse == {"inserted": 2.0, "approach": 0.0, "speed": 0.0}


def test_reward_terms_of_drawer_by_hand() -> None:
    made, sensors = task("drawer", 2, close=0.05, success_opening=0.2)
    sensors["hand_position"][:] = torch.tensor([[0.03, 0.0, 0.04], [0.0, 0.0, 0.0]])
    sensors["drawer_opening"][:, 0] = torch.tensor([0.05, 0.24])
    outcome = evaluate(made, torch.full((2, 3), 0.3))
    half = {"alive": 1.0, "approach": 0.5, "open": 0.25, "opened": 0.0, "effort": 0.0}
    assert terms_of(outcome, 0) == pytest.approx(half | COSTS)
    done = dict.fromkeys(half, 1.0) | {"effort": 0.0}
    assert terms_of(outcome, 1) == pytest.approx(done | COSTS)


def test_a_lost_cube_and_a_hand_in_the_floor_end_the_episode() -> None:
    made, cube = task("lift", 3, farthest=0.3, lowest_height=0.004)
    cube[:] = torch.tensor([[0.47, 0.29, 0.02], [0.47, -0.31, 0.02], [0.47, 0.0, 0.003]])
    assert evaluate(made, cube.clone()).terminated.tolist() == [False, True, True]


def fills(place: torch.Tensor, low: list[float], high: list[float]) -> bool:
    """True if x and y of all places lie in a rectangle and come within 2 cm of its sides."""
    least, most = (
        place[:, :2].amin(0) - torch.tensor(low),
        torch.tensor(high) - place[:, :2].amax(0),
    )
    return all(-1e-6 < float(gap) < 0.02 for gap in (*least, *most))


@pytest.mark.slow
def test_cubes_lie_still_on_the_floor_within_their_rectangle() -> None:
    env = hand_envs("lift", 100)
    env.reset(seed=0)
    cube, axis = env.simulation.sensors["cube_position"], env.simulation.sensors["cube_axis"]
    assert fills(cube, env.task.config.cube_low, env.task.config.cube_high)
    torch.testing.assert_close(cube[:, 2], torch.full((100,), HALF_EDGE))
    yaw = torch.atan2(axis[:, 1], axis[:, 0])
    assert 0.75 < float(yaw.abs().max()) <= torch.pi / 4 + 1e-6
    before = cube.clone()
    for _ in range(10):
        env.step(torch.zeros(100, 8))
    torch.testing.assert_close(cube, before, atol=2e-4, rtol=0)


@pytest.mark.slow
def test_holes_stand_in_their_rectangle_and_the_peg_begins_above_them() -> None:
    env = hand_envs("peg", 100)
    env.reset(seed=0)
    hole, tip = (env.simulation.sensors[name] for name in ("hole_position", "peg_position"))
    assert fills(hole, env.task.config.hole_low, env.task.config.hole_high)
    torch.testing.assert_close(hole[:, 2], torch.full((100,), 0.1))
    assert float(tip[:, 2].min()) > 0.005
    assert float(env.simulation.true_state.gripper_opening.sub(0.253).abs().max()) < 1e-6


@pytest.mark.slow
def test_cabinets_stand_closed_in_their_rectangle_and_friction_keeps_a_drawer_where_it_is_left():
    env = hand_envs("drawer", 100)
    env.reset(seed=0)
    engine, sensors = env.simulation.engine, env.simulation.sensors
    place = engine.fixtures[0][:, 0]
    assert fills(place.float(), env.task.config.cabinet_low, env.task.config.cabinet_high)
    assert not sensors["drawer_opening"].any()
    # The place for the fingers is 19.5 mm before the panel, on the way that the drawer takes.
    offset = sensors["handle_position"].double() - place
    torch.testing.assert_close(offset[:, :2].norm(dim=-1), torch.full((100,), 0.0195).double())
    engine.qpos[0, env.simulation.layout.scene["drawer"]] = 0.1
    for _ in range(10):
        env.step(torch.zeros(100, 7))
    assert float(sensors["drawer_opening"][0]) == pytest.approx(0.1, abs=1e-3)


def inserted() -> tuple[mujoco.MjModel, mujoco.MjData]:
    """A peg that the expert put into the hole, as one world of plain MuJoCo."""
    env = hand_envs("peg", 1, start_position=0.0)
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
