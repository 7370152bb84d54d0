"""Clutter: what a way, a touch and an arrival are worth, with numbers by hand; and its mirror."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from configs.schema import make_env
from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror
from robot_rl.core.observation import FIELD_KINDS, RobotState
from sim.env import SimEnv
from sim.robots.joint_robot import JointRandomization, PhysicsEngine
from sim.scenes.corridor import FieldConfig, FieldPoint
from sim.scenes.potential_field import FIELD, FORCES, POINTS, WAY, mirror_clutter
from sim.scenes.scene import SceneConfig
from sim.task import InitialState
from sim.tasks.legs.clutter import CLOCK, PLACE, TRAVERSE, ClutterConfig, ClutterTask
from tests.compositions import composed
from tests.fakes import CPU
from tests.robot_rl.core.test_mirror import image
from tests.sim.legs import CORRIDOR, clutter_envs, evaluate, go2
from tests.sim.legs import leg_state as state
from tests.sim.stepping import context, everyone, term
from tests.sim.test_mirror import balance_the_base, largest_difference

SPEC = go2().spec
PLACES = [1.0, 0.5, 0.0, 2.0, -0.5, 0.0, 3.0, 0.0, 0.0, 6.4, 0.0, 0.0]
LEFT = 2 * math.sqrt(1.25) + math.sqrt(2) + 3.4
"""The way through `PLACES` from the origin [m]."""


def task(**changes: Any) -> ClutterTask:
    """A second in ten steps, through `PLACES`; two places of the body are 0.2 m clear and more."""
    values: dict[str, Any] = {"episode_length": 1.0, "success_window": 0.5}
    sensors = {
        "foot_velocity_w": torch.zeros(1, 12),
        "foot_position_w": torch.tensor([[0.2, 0.1, 0.022, 0.2, -0.1, 0.022] * 2]),
        FIELD: torch.tensor([[1.0, 0.0, 0.0, 0.2, 1.0, 0.0, 0.0, 0.4]]),
        FORCES: torch.zeros(1, 48),
        WAY: torch.tensor([PLACES]),
    }
    made = ClutterTask(
        ClutterConfig(**(values | changes)),
        context(1, 0.1, robot=SPEC, sensors=sensors, evaluation=False),
    )
    made.start(everyone(1), torch.Generator().manual_seed(0))
    return made


def tilted(angle: float) -> Tensor:
    return quaternion.from_rotation_vector(torch.tensor([[0.0, angle, 0.0]]))


def test_progress_is_the_speed_towards_the_next_passage_up_to_the_pace() -> None:
    made = task(pace=0.5)
    for velocity, paid in (
        ((0.2, 0.1), 0.05**0.5), ((-0.1, 0.2), 0), ((2.0, 1.0), 0.5), ((-2.0, -1.0), -0.5),
    ):  # fmt: skip
        found = term(evaluate(made, state(velocity=velocity)), "progress")
        assert found == pytest.approx(paid, abs=1e-6)
    assert made.goal[PLACE].tolist() == [[1.0, 0.5, 0.0]]
    passed = evaluate(made, state(1.2, 0.3, velocity=(0.1, -0.1)))  # on to (2, -0.5): at 45 degrees
    assert term(passed, "progress") == pytest.approx(0.1 * math.sqrt(2))
    assert made.goal[PLACE].tolist() == [[2.0, -0.5, 0.0]]


def test_way_left_and_progress_are_told_and_nearness_is_the_mean_over_places_of_the_body():
    made = task()
    whole = float(made.state_dict()["whole_way"])
    told = evaluate(made, state()).metrics
    assert float(told["way_left"]) == pytest.approx(LEFT, abs=1e-5)
    assert float(told["progress"]) == pytest.approx(1 - LEFT / whole, abs=1e-5)
    assert float(evaluate(made, state(6.4)).metrics["progress"]) == pytest.approx(1.0)
    assert term(evaluate(task(), state()), "near") == pytest.approx(0.5 * 0.5**2)  # 0.2 of 0.4 m


def test_who_stands_at_the_goal_at_the_end_succeeds() -> None:
    made = task(radius=0.4)
    for step in range(1, 6):
        evaluate(made, state(5.0), step)  # not within the window
    assert bool(evaluate(made, state(6.4, 0.1), 6).success)
    assert bool(evaluate(made, state(6.4, 0.6), 7).success)  # mean of 0.35 m
    assert not bool(evaluate(made, state(6.4, 0.6), 8).success)  # 0.433 m
    assert term(evaluate(made, state(6.4, 0.5)), "arrived") == pytest.approx(0.5)


def test_near_the_goal_the_clock_asks_to_stand() -> None:
    made = task(radius=0.4)
    evaluate(made, state(6.1))
    made.advance(torch.tensor([1]))
    assert made.goal[TRAVERSE].tolist() == [[1.0]]
    assert float(made.goal[CLOCK].norm()) == pytest.approx(1.0)
    evaluate(made, state(6.25))
    assert made.goal[TRAVERSE].tolist() == [[0.0]]
    assert made.goal[CLOCK].tolist() == [[0.0, 0.0]]


def test_a_touch_costs_by_its_force_and_is_counted_once() -> None:
    made = task(hard_touch=100.0)
    whole = float(made.state_dict()["whole_way"])
    forces = made._sensors[FORCES]  # pyright: ignore
    forces[0, :3] = torch.tensor([30.0, 0.0, -40.0])
    forces[0, 9:12] = torch.tensor([0.0, 10.0, 0.0])
    verdict = evaluate(made, state(3.0))
    assert term(verdict, "collision") == pytest.approx(0.6)
    covered = whole - 3.4
    assert float(verdict.metrics["collisions_per_metre"]) == pytest.approx(1 / covered, abs=1e-5)
    evaluate(made, state(3.0))
    forces.zero_()
    verdict = evaluate(made, state(3.0))
    assert float(verdict.metrics["collisions_per_metre"]) == pytest.approx(1 / covered, abs=1e-5)
    assert float(verdict.metrics["touching"]) == 0.0
    forces[0, 0] = 999.0
    verdict = evaluate(made, state(3.0))
    assert term(verdict, "collision") == 1.0
    assert float(verdict.metrics["collisions_per_metre"]) == pytest.approx(2 / covered, abs=1e-5)


def test_falling_or_lying_ends_the_episode() -> None:
    made = task(max_tilt=1.0, lowest_height=0.14)
    assert not bool(evaluate(made, state(height=0.15, attitude=tilted(0.9))).terminated)
    assert bool(evaluate(made, state(attitude=tilted(1.1))).terminated)
    assert bool(evaluate(made, state(height=0.13)).terminated)


@pytest.fixture(scope="module")
def env() -> SimEnv:
    return clutter_envs(2, noise=False, randomization=JointRandomization())


def begin(env: SimEnv, start: InitialState) -> None:
    env.simulation.reset(everyone(env.spec.num_envs), start, torch.Generator())


def standing(scene: dict[str, Tensor], height: float = 0.3) -> InitialState:
    """Two robots that look along x at the origin."""
    fields = state(height=height).fields
    names = ("position_w", "orientation_w", "linear_velocity_w", "angular_velocity_b",
             "joint_position", "joint_velocity")  # fmt: skip
    robot = RobotState({name: fields[name].repeat(2, 1) for name in names})
    return InitialState(robot=robot, scene=scene)


def pose(*places: Sequence[float]) -> Tensor:
    return torch.tensor([[*place, 1.0, 0.0, 0.0, 0.0] for place in places])


def test_the_field_at_the_head_is_that_of_a_wall_ahead(env: SimEnv) -> None:
    """In one env the middle of a panel is 0.4 m ahead of the head's middle, in the other 0.2."""
    env.reset(seed=0)
    begin(env, standing({
        "obstacle_left_0": pose((0.68, 0.0, 0.3), (0.48, 0.0, 0.3)),
        "way_0": pose((0.68, 0.0, 0.0), (0.48, 0.0, 0.0)),
    }))  # fmt: skip
    head = env.simulation.privileged[FIELD][:, :4]
    # Surfaces 0.3 m and 0.1 m away: pushes of 1.5 * 0.25 and 1.5 * 0.75 against a pull of 1.
    expected = torch.tensor([[1 - 0.375, 0.0, 0.0, 0.3], [1 - 1.125, 0.0, 0.0, 0.1]])
    torch.testing.assert_close(head, expected, rtol=0, atol=1e-5)
    assert env.simulation.sensed[FIELD][:, :4].shape == head.shape


def test_whoever_leans_on_a_pillar_feels_it(env: SimEnv) -> None:
    env.reset(seed=0)
    begin(env, standing({"obstacle_pillar_0": pose((0.455, 0.0, 0.3), (1.0, 0.0, 0.3))}))
    # The head, a ball of 6 cm 0.28 m ahead, is 1 cm in the one and far from the other.
    force = env.simulation.privileged[FORCES].unflatten(-1, (-1, 3)).norm(dim=-1)
    pillar = CORRIDOR.obstacles.index("obstacle_pillar_0")
    assert float(force[0, pillar]) > 10.0
    assert float(force.sum()) == pytest.approx(float(force[0, pillar]))


@pytest.mark.full
def test_both_engines_see_and_feel_the_same_corridor() -> None:
    seen = []
    for engine in PhysicsEngine:
        one = clutter_envs(2, noise=False, engine=engine, randomization=JointRandomization())
        one.reset(seed=5)
        found = one.simulation.privileged
        seen.append([found[name].clone() for name in (FIELD, WAY, POINTS)])
        begin(one, standing({"obstacle_pillar_0": pose((0.455, 0.0, 0.3), (0.05, 0.17, 0.635))}))
        seen[-1].append(found[FORCES].clone())
    # In single and in double precision; the solver ends before it has converged.
    (*c, force), (*warp, other) = seen
    torch.testing.assert_close(warp, c, rtol=0, atol=1e-4)
    assert bool((force.norm(dim=-1) > 10.0).all())
    torch.testing.assert_close(other, force, rtol=0.02, atol=1.0)


def test_mirrored_robots_among_mirrored_obstacles_see_and_do_the_mirror_image(env: SimEnv) -> None:
    env.reset(seed=3)
    balance_the_base(env)
    mirror = RobotMirror(env.simulation.robot)
    flip = torch.tensor([1.0, -1.0, 1.0])
    # A pillar hangs over the back, to the left, and presses on it by 2 cm.
    obstacles = {"obstacle_pillar_0": (0.05, 0.17, 0.635), "obstacle_right_1": (0.3, -1.05, 0.3)}
    way = {"way_0": (0.9, -0.3, 0.0), "way_1": (1.5, 0.2, 0.0), "way_2": (4.8, 0.1, 0.0)}
    scene = {}
    for name, place in (obstacles | way).items():
        other = name.replace("right", "left")
        here, there = torch.tensor(place), torch.tensor(place) * flip
        away = torch.tensor([0.0, 0.0, -5.0])
        first, second = (here, there) if other == name else (here, away)
        scene[name] = pose(first.tolist(), second.tolist())
        if other != name:
            scene[other] = pose(away.tolist(), there.tolist())
    start = standing(scene)
    start.robot.fields["linear_velocity_w"][0] = torch.tensor([0.3, 0.1, 0.0])
    for name, values in start.robot.fields.items():
        kind = mirror.kind(FIELD_KINDS[name], values.shape[-1])
        values[1] = image(kind, values[0])
    begin(env, start)
    saved = env.task.state_dict()
    for name in ("first_phase", "phase"):  # a trot is itself half a cycle later
        saved[name][1] = (saved[name][0] + 0.5) % 1.0
    saved["whole_way"][1] = saved["whole_way"][0]
    saved["goal"][PLACE][1] = saved["goal"][PLACE][0] * flip
    env.task.load_state_dict(saved)
    found = env.mirror()
    seen, paid = largest_difference(env, found, steps=11)  # an episode has 12
    assert env.task.state_dict()["touches"]["count"].min() >= 1
    assert seen < 2e-5
    assert paid < 2e-5


def test_a_place_without_a_counterpart_has_no_mirror() -> None:
    lopsided = replace(CORRIDOR, field=FieldConfig(points=[FieldPoint(body="FL_calf")]))
    with pytest.raises(ConfigError, match=r"'FL_calf' at .* has no counterpart 'FR_calf'"):
        mirror_clutter(lopsided, RobotMirror(SPEC))


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["go2", pytest.param("g1", marks=pytest.mark.full)])
def test_both_robots_know_their_bodies_and_their_mirror(robot: str) -> None:
    config = composed(["task=clutter", f"robot={robot}"]).config
    env = make_env(config, num_envs=2, device=CPU, seed=0, evaluation=False)
    assert isinstance(env, SimEnv)
    width = 4 * len(config.task.scene.clutter.field.points)
    assert env.sensed[FIELD].shape == (2, width)
    field = mirror_clutter(config.task.scene.clutter, RobotMirror(config.robot.spec))[FIELD]
    assert env.mirror().groups["actor"].source[:width] == field.source


@pytest.mark.parametrize(
    ("points", "told"),
    [([], "points is empty; name places"), ([FieldPoint(body="bas")], "body 'bas' is unknown")],
)
def test_fields_that_nobody_feels_are_refused(points: list[FieldPoint], told: str) -> None:
    clutter = replace(CORRIDOR, field=FieldConfig(points=points))
    with pytest.raises(ConfigError, match=told):
        clutter_envs(1, scene=SceneConfig(clutter=clutter))
