"""Climb: where steps stand, what standing on top is, what each term pays; and the step itself."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.mirror import RobotMirror
from robot_rl.core.observation import FIELD_KINDS, RobotState
from sim.env import SimEnv
from sim.robots.joint_robot import JointRandomization, PhysicsEngine
from sim.robots.joint_simulation import MujocoSimulation
from sim.scenes.scene import SceneConfig
from sim.task import InitialState
from sim.tasks.legs.climb import EDGE, GOAL, STEP, ClimbConfig, ClimbTask
from tests.robot_rl.core.test_mirror import image
from tests.sim.legs import climb_envs, evaluate, go2
from tests.sim.legs import leg_state as state
from tests.sim.stepping import context, everyone, term
from tests.sim.test_mirror import balance_the_base, largest_difference

SPEC = go2().spec
TOP = 0.3
"""Height of the step in `task`, whose edge is at 1 m and whose goal at 1.7 m."""


def feet(x: float, height: float) -> Tensor:
    """All four feet at one place, (1, 12)."""
    return torch.tensor([[x, 0.1, height, x, -0.1, height] * 2])


def task(envs: int = 1, *, evaluation: bool = False, **changes: Any) -> ClimbTask:
    """A second in ten steps, three of which the robot must stand on top; feet on the floor."""
    values: dict[str, Any] = {"episode_length": 1.0, "success_window": 0.3}
    sensors = {
        "foot_velocity_w": torch.zeros(1, 12), "foot_position_w": feet(0.0, 0.022),
        "body_contact": torch.zeros(1, 9),
        EDGE: torch.tensor([[1.0, 0.0, TOP]]), GOAL: torch.tensor([[1.7, 0.0, TOP]]),
    }  # fmt: skip
    made = ClimbTask(
        ClimbConfig(**(values | changes)),
        context(envs, 0.1, robot=SPEC, sensors=sensors, evaluation=evaluation),
    )
    made.start(everyone(envs), torch.Generator().manual_seed(0))
    return made


def put_feet(made: ClimbTask, where: Tensor) -> None:
    made._sensors["foot_position_w"].copy_(where)  # pyright: ignore[reportPrivateUsage]


def tilted(angle: float) -> Tensor:
    return quaternion.from_rotation_vector(torch.tensor([[0.0, angle, 0.0]]))


def up(**changes: Any) -> RobotState:
    """A robot that stands on top, but for the changes."""
    values: dict[str, Any] = {"x": 1.6, "height": 0.58}
    return state(**(values | changes))


def heights(made: ClimbTask, envs: int, seed: int = 0) -> Tensor:
    start = made.start(everyone(envs), torch.Generator().manual_seed(seed))
    return start.scene[STEP][:, 2]


def test_evaluation_draws_any_height_and_training_begins_near_the_floor() -> None:
    drawn = heights(task(2000, evaluation=True, step_height=[0.1, 0.35]), 2000)
    assert 0.1 <= float(drawn.min()) < 0.102
    assert 0.348 < float(drawn.max()) <= 0.35
    assert float(drawn.mean()) == pytest.approx(0.225, abs=0.005)
    made = task(2000, step_height=[0.1, 0.35], levels=7)
    drawn = heights(made, 2000)
    assert float(drawn.min()) < 0.001
    assert 0.049 < float(drawn.max()) <= 0.05
    everybody = torch.ones(2000, dtype=torch.bool)
    for _ in range(6):
        assert made.curriculum is not None
        made.curriculum.follow(everybody, everybody)
    drawn = heights(made, 2000)
    assert 0.3 <= float(drawn.min()) < 0.301
    assert 0.349 < float(drawn.max()) <= 0.35


def test_robots_begin_on_the_floor_before_the_edge_and_look_at_it() -> None:
    made = task(1000, distance=[0.6, 1.0], start_side=0.2, start_turn=0.3)
    start = made.start(everyone(1000), torch.Generator().manual_seed(0))
    edge, base = start.scene[STEP], start.robot.position_w
    assert 0.6 <= float(edge[:, 0].min()) < 0.61
    assert 0.99 < float(edge[:, 0].max()) <= 1.0
    assert not edge[:, 1].any()
    assert 0.19 < float(base[:, 1].abs().max()) <= 0.2
    assert (base[:, 2] == 0.32).all()
    rotation = quaternion.rotation_matrix(start.robot.orientation_w)
    heading = torch.atan2(rotation[:, 3], rotation[:, 0])
    assert 0.29 < float(heading.abs().max()) <= 0.3 + 1e-6


def test_progress_is_the_speed_towards_the_goal_up_to_the_pace() -> None:
    made = task(pace=0.6, near=0.3)
    for x, velocity, paid in (
        (0.0, (0.4, 0.3), 0.4), (0.0, (2.0, 0.0), 0.6), (0.0, (-2.0, 0.0), -0.6),
        (1.6, (0.3, 0.0), 0.1), (2.7, (0.3, 0.0), -0.3),
    ):  # fmt: skip
        found = term(evaluate(made, state(x, velocity=velocity)), "progress")
        assert found == pytest.approx(paid, abs=1e-6)


def test_rising_pays_by_the_share_of_the_step_as_far_as_the_trunk_is_over_it() -> None:
    for x, height, paid in (
        (1.3, 0.28, 0.0), (1.3, 0.43, 0.5), (1.3, 0.58, 1.0), (1.3, 0.7, 1.0), (1.3, 0.2, 0.0),
        (1.0, 0.43, 0.25), (1.125, 0.58, 0.75), (0.7, 0.58, 0.0),
    ):  # fmt: skip
        assert term(evaluate(task(), state(x, height=height)), "rise") == pytest.approx(paid)


def test_height_is_that_above_the_mean_of_the_ground_below_the_trunk() -> None:
    for x, ground in ((0.7, 0.0), (0.75, 0.0), (1.0, 0.15), (1.125, 0.225), (1.3, 0.3)):
        found = term(evaluate(task(), state(x, height=0.38 + ground)), "height")
        assert found == pytest.approx(0.1**2, abs=1e-6)
    made = task(lowest_height=0.1)
    assert not bool(evaluate(made, state(1.3, height=0.41)).terminated)
    assert bool(evaluate(made, state(1.3, height=0.39)).terminated)


def test_half_way_up_a_robot_may_lean_and_bend_its_legs() -> None:
    for x, share in ((0.7, 1.0), (1.0, 0.0), (1.125, 0.25), (1.3, 1.0)):
        bent = state(x, height=0.58, attitude=tilted(-0.5))
        bent.joint_position.add_(0.2)
        outcome = evaluate(task(), bent)
        assert term(outcome, "tilt") == pytest.approx(share * math.sin(0.5) ** 2, abs=1e-5)
        assert term(outcome, "pose") == pytest.approx(share * 12 * 0.04, abs=1e-5)


@pytest.mark.parametrize(
    ("x", "height", "counts"),
    [
        (1.01, 0.322, True), (0.99, 0.322, False), (1.01, 0.29, False), (1.01, 0.39, True),
        (1.01, 0.41, False), (0.5, 0.022, False),
    ],
)  # fmt: skip
def test_a_foot_is_on_top_behind_the_edge_and_close_above_the_surface(
    x: float, height: float, *, counts: bool
) -> None:
    made = task()
    where = feet(0.0, 0.022)
    where[0, :3] = torch.tensor([x, 0.1, height])
    put_feet(made, where)
    outcome = evaluate(made, state())
    assert float(outcome.metrics["feet_on_top"]) == float(counts)
    assert term(outcome, "on_top") == counts / 4


@pytest.mark.parametrize(
    ("changes", "stands"),
    [
        ({}, True), ({"attitude": tilted(0.29)}, True), ({"attitude": tilted(0.31)}, False),
        ({"height": 0.51}, True), ({"height": 0.49}, False), ({"height": 0.67}, False),
        ({"velocity": (0.0, 0.29)}, True), ({"velocity": (0.0, 0.31)}, False),
    ],
)  # fmt: skip
def test_standing_on_top_is_upright_high_and_still(changes: dict, *, stands: bool) -> None:
    made = task()
    put_feet(made, feet(1.5, 0.322))
    outcome = evaluate(made, up(**changes))
    assert (float(outcome.metrics["stood"]) > 0) is stands


def test_standing_pays_with_all_feet_on_top_alone_and_by_how_near_it_is() -> None:
    made = task(standing_tilt=0.3, height_tolerance=0.08, calm=0.3)
    assert term(evaluate(made, up()), "stand") == 0.0
    put_feet(made, feet(1.5, 0.322))
    for changes, paid in (
        ({}, 1.0), ({"height": 0.66}, 0.5), ({"velocity": (0.3, 0.0)}, 0.75),
        ({"attitude": tilted(0.3), "height": 0.5}, 0.25),
    ):  # fmt: skip
        found = term(evaluate(made, up(**changes)), "stand")
        assert found == pytest.approx(paid, abs=1e-4)


def test_success_is_standing_on_top_through_the_whole_window() -> None:
    made = task()
    assert not any(bool(evaluate(made, up()).success) for _ in range(4))  # feet are below
    put_feet(made, feet(1.5, 0.322))
    assert [bool(evaluate(made, up()).success) for _ in range(4)] == [False, False, True, True]
    assert not bool(evaluate(made, up(velocity=(0.5, 0.0))).success)
    assert [bool(evaluate(made, up()).success) for _ in range(3)] == [False, False, True]
    made.start(EnvSelection(torch.tensor([True])), torch.Generator().manual_seed(0))
    assert not bool(evaluate(made, up()).success)


def test_rearing_up_is_no_fall_and_rolling_over_is() -> None:
    made = task(max_tilt=1.3)
    assert not bool(evaluate(made, state(0.8, height=0.4, attitude=tilted(-1.25))).terminated)
    assert bool(evaluate(made, state(0.8, height=0.4, attitude=tilted(-1.35))).terminated)


def test_without_a_step_it_is_said_what_is_missing() -> None:
    with pytest.raises(SpecMismatchError, match="sensor 'edge_position_w' is unknown"):
        climb_envs(1, scene=SceneConfig())


@pytest.fixture(scope="module")
def env() -> SimEnv:
    return climb_envs(2, noise=False, randomization=JointRandomization())


def begin(env: SimEnv, base: Tensor, height: float, edge: float) -> None:
    """Both robots upright at rest, base at (x, y, z), before or on steps of one height."""
    fields = state().fields
    names = ("position_w", "orientation_w", "linear_velocity_w", "angular_velocity_b",
             "joint_position", "joint_velocity")  # fmt: skip
    robot = RobotState({name: fields[name].repeat(2, 1) for name in names})
    robot.fields["position_w"].copy_(base)
    step = torch.tensor([[edge, 0.0, height, 1.0, 0.0, 0.0, 0.0]]).repeat(2, 1)
    start = InitialState(robot=robot, scene={STEP: step})
    env.simulation.reset(everyone(env.spec.num_envs), start, torch.Generator())


def test_edge_and_goal_are_seen_from_the_base(env: SimEnv) -> None:
    env.reset(seed=0)
    begin(env, torch.tensor([[0.1, 0.2, 0.32]]), 0.25, 0.9)
    for found in (env.simulation.privileged, env.simulation.sensed):
        for name, x in (("edge_position_b", 0.8), ("goal_position_b", 1.5)):
            expected = torch.tensor([[x, -0.2, -0.07]]).repeat(2, 1)
            torch.testing.assert_close(found[name], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "engine", [PhysicsEngine.batch, pytest.param(PhysicsEngine.warp, marks=pytest.mark.full)]
)
def test_who_is_put_on_top_stands_there_and_succeeds(engine: PhysicsEngine) -> None:
    env = climb_envs(
        2, noise=False, engine=engine, randomization=JointRandomization(), episode_length=1.0,
        success_window=0.3,
    )  # fmt: skip
    env.reset(seed=0)
    begin(env, torch.tensor([[1.5, 0.0, 0.6], [0.3, 0.0, 0.3]]), 0.3, 0.8)
    for _ in range(49):
        env.step(torch.zeros(2, 12))
    step = env.step(torch.zeros(2, 12))
    assert step.truncated.tolist() == [True, True]  # the second stands on the floor before it
    assert step.success.tolist() == [True, False]
    assert step.metrics["feet_on_top"].tolist() == [4.0, 0.0]


def test_nobody_walks_through_the_front_of_a_step(env: SimEnv) -> None:
    env.reset(seed=0)
    begin(env, torch.tensor([[0.0, 0.0, 0.3]]), 0.3, 0.38)  # 4 cm before the head's ball
    assert isinstance(env.simulation, MujocoSimulation)
    for _ in range(10):
        env.simulation.engine.qvel[:, 0] = 1.0
        assert not env.step(torch.zeros(2, 12)).terminated.any()
    assert float(env.simulation.true_state.position_w[:, 0].max()) < 0.06


def test_mirrored_robots_at_a_step_see_and_do_the_mirror_image(env: SimEnv) -> None:
    env.reset(seed=3)
    balance_the_base(env)
    mirror = RobotMirror(env.simulation.robot)
    begin(env, torch.tensor([[0.1, 0.15, 0.3]]), 0.15, 0.4)
    fields = {name: value.clone() for name, value in env.simulation.true_state.fields.items()}
    names = ("position_w", "orientation_w", "linear_velocity_w", "angular_velocity_b",
             "joint_position", "joint_velocity")  # fmt: skip
    fields["linear_velocity_w"][0] = torch.tensor([0.5, 0.2, 0.0])
    robot = {}
    for name in names:
        kind = mirror.kind(FIELD_KINDS[name], fields[name].shape[-1])
        robot[name] = torch.stack([fields[name][0], image(kind, fields[name][0])])
    step = torch.tensor([[0.4, 0.0, 0.15, 1.0, 0.0, 0.0, 0.0]]).repeat(2, 1)
    start = InitialState(robot=RobotState(robot), scene={STEP: step})
    env.simulation.reset(everyone(2), start, torch.Generator())
    seen, paid = largest_difference(env, env.mirror(), steps=11)  # an episode has 12
    assert seen < 2e-5
    assert paid < 2e-5
