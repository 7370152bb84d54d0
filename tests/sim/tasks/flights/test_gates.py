"""Gates: where they stand, their order, what is paid, what ends a flight, and what success is."""

import math

import pytest
import torch

from robot_rl.core.env_selection import EnvSelection
from sim.task import StepOutcome
from sim.tasks.flights.gates import CourseConfig, Courses, GatesConfig, GatesTask
from tests.fakes import CPU
from tests.sim.flying import STILL, flight_state
from tests.sim.rendering.shown import envs
from tests.sim.stepping import context, everyone, term

CONFIG = CourseConfig(gates=2, opening=0.5, bar=0.05)
RADIUS = 0.07


def one_gate(heading_deg: float = 0.0) -> Courses:
    """A gate at (1, 2, 3), and another far away."""
    courses = Courses(CONFIG, 1, robot_radius=RADIUS, device=CPU)
    heading = math.radians(heading_deg)
    courses.centre[:] = torch.tensor([[1.0, 2.0, 3.0], [100.0, 0.0, 0.0]])
    courses.normal[:] = torch.tensor([math.cos(heading), math.sin(heading), 0.0])
    return courses


def fly(courses: Courses, before: tuple, after: tuple) -> tuple[bool, bool]:
    """Results at the gate at (1, 2, 3); places are relative to its middle, world axes."""
    middle = torch.tensor([1.0, 2.0, 3.0])
    flown = courses.fly(middle + torch.tensor([before]), middle + torch.tensor([after]))
    assert not bool(flown.through[0, 1])
    assert not bool(flown.touched[0, 1])
    return bool(flown.through[0, 0]), bool(flown.touched[0, 0])


@pytest.mark.parametrize(
    ("before", "after", "through", "touched"),
    [
        ((-0.1, 0.0, 0.0), (0.1, 0.0, 0.0), True, False),
        ((0.1, 0.0, 0.0), (-0.1, 0.0, 0.0), False, False),  # backwards
        ((-0.2, 0.0, 0.0), (-0.1, 0.0, 0.0), False, False),  # not yet
        ((-0.3, 0.17, -0.17), (0.3, 0.17, -0.17), True, False),  # 0.18 m is the room in it
        ((-0.3, 0.19, 0.0), (0.3, 0.19, 0.0), False, True),  # no room for the robot
        ((-0.3, 0.0, 0.36), (0.3, 0.0, 0.36), False, True),  # 0.37 m is out of reach of the bar
        ((-0.3, 0.0, 0.38), (0.3, 0.0, 0.38), False, False),  # over it
        ((-0.3, 0.0, 0.0), (0.3, 0.5, 0.0), False, True),  # the crossing counts: 0.25 m to the left
        ((-0.3, 0.3, 0.0), (0.3, -0.3, 0.0), True, False),  # from corner to corner, in the middle
        ((-0.2, 0.3, 0.0), (-0.09, 0.3, 0.0), False, True),  # beside the bar, 9.5 cm are not room
        ((-0.2, 0.3, 0.0), (-0.1, 0.3, 0.0), False, False),
    ],
)
def test_a_gate_is_flown_through_or_touched(before, after, through, touched):
    assert fly(one_gate(), before, after) == (through, touched)


def test_a_gate_that_looks_along_y_is_flown_through_along_y_between_its_corners():
    courses = one_gate(heading_deg=90.0)
    assert fly(courses, (0.0, -0.1, 0.0), (0.0, 0.1, 0.0)) == (True, False)
    assert fly(courses, (-0.3, -0.2, 0.0), (0.3, -0.2, 0.0)) == (False, False)
    square = courses.corners[0, :12].reshape(4, 3)
    expected = [[0.75, 2, 3.25], [1.25, 2, 3.25], [1.25, 2, 2.75], [0.75, 2, 2.75]]
    torch.testing.assert_close(square, torch.tensor(expected), atol=1e-6, rtol=0)
    waiting = torch.tensor([100.0, CONFIG.runout, 0.0])
    torch.testing.assert_close(courses.places[0, 2], waiting, atol=1e-5, rtol=0)


def test_gates_stand_within_their_ranges_of_each_other():
    config = CourseConfig(gates=6, spacing=[1.0, 1.5], turn_deg=40.0, climb=0.2, skew_deg=10.0)
    courses = Courses(config, 400, robot_radius=RADIUS, device=CPU)
    courses.draw(everyone(400), torch.Generator().manual_seed(1))
    first = torch.zeros(400, 1, 3)
    way = torch.cat([first, courses.centre], dim=1).diff(dim=1)
    level = way[..., :2].norm(dim=-1)
    assert (level.min() >= 1.0 - 1e-5, level.max() <= 1.5 + 1e-5) == (True, True)
    assert level.max() - level.min() > 0.49
    assert 0.19 < way[..., 2].abs().max() <= 0.2 + 1e-6
    direction = torch.cat([torch.tensor([[[1.0, 0.0]]]).expand(400, 1, 2),
                           way[..., :2] / level[..., None]], dim=1)  # fmt: skip
    turn = (direction[:, 1:] * direction[:, :-1]).sum(-1).clamp(-1, 1).acos().rad2deg()
    assert 39 < turn.max() < 40.1
    skew = (courses.normal[..., :2] * direction[:, 1:]).sum(-1).clamp(-1, 1).acos().rad2deg()
    assert 9.8 < skew.max() < 10.1


STRAIGHT = CourseConfig(gates=2, spacing=[1.0, 1.0], turn_deg=0, climb=0, skew_deg=0, runout=0.5)
"""Gates at 1 and 2 m, and the place to wait at 2.5 m."""


def make_task(num_worlds: int = 1, **config) -> GatesTask:
    task = GatesTask(
        GatesConfig(course=STRAIGHT, start=STILL, **config),
        context(num_worlds, 0.1, hover_action=[0.0] * 4, evaluation=False),
    )
    task.start(everyone(num_worlds), torch.Generator().manual_seed(0))
    return task


def move(task: GatesTask, *place: float, rate: float = 0.0) -> StepOutcome:
    """The verdict on a step that ends there, in every env."""
    count = len(task.goal["position_w"])
    state = flight_state(place, rates=(0.0, 0.0, rate), count=count)
    steps = torch.ones(count, dtype=torch.int64)
    task.advance(steps)
    return task.evaluate(state, torch.zeros(count, 4), torch.zeros(count, 4), steps)


def test_gates_are_passed_one_by_one_and_the_goal_moves_on():
    task = make_task()
    assert task.goal["position_w"].tolist() == [[1.0, 0.0, 0.0]]
    assert task.goal["preview_w"].tolist() == [[2.0, 0.0, 0.0]]
    verdict = move(task, 1.1, 0.0, 0.0)
    assert term(verdict, "passed") == 1.0
    assert float(verdict.metrics["gates_passed"]) == 0.5
    assert not bool(verdict.success)
    assert task.goal["position_w"].tolist() == [[2.0, 0.0, 0.0]]
    assert task.goal["preview_w"].tolist() == [[2.5, 0.0, 0.0]]
    assert task.goal["gate_normals_w"].tolist() == [[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    verdict = move(task, 2.1, 0.0, 0.0)
    assert bool(verdict.success)
    assert task.goal["position_w"].tolist() == task.goal["preview_w"].tolist() == [[2.5, 0.0, 0.0]]
    assert task.goal["gate_normals_w"].abs().max() == 0
    assert float(task.goal["gates_ahead"]) == 0.0


def test_a_gate_out_of_turn_does_not_count_and_a_passed_one_is_not_paid_twice():
    task = make_task()
    move(task, 1.5, 2.0, 0.0)  # around the first gate
    verdict = move(task, 2.1, -0.4, 0.0)  # crosses the second one's plane in its middle
    assert term(verdict, "passed") == 0.0
    assert float(verdict.metrics["gates_passed"]) == 0.0
    task = make_task()
    move(task, 1.1, 0.0, 0.0)
    move(task, 0.9, 0.0, 0.0)
    assert term(move(task, 1.1, 0.0, 0.0), "passed") == 0.0


def test_progress_is_the_speed_towards_the_gate_that_was_next_and_haste_is_not_paid():
    task = make_task(pace=10.0)
    assert term(move(task, 0.3, 0.0, 0.0), "progress") == pytest.approx(3.0)
    assert term(move(task, 0.2, 0.0, 0.0), "progress") == pytest.approx(-1.0)
    # Through the first gate, 0.1 m behind it: 0.7 m nearer to it, and nothing for the next yet.
    assert term(move(task, 1.1, 0.0, 0.0), "progress") == pytest.approx(7.0, rel=1e-5)
    assert term(move(task, 1.3, 0.0, 0.0), "progress") == pytest.approx(2.0, rel=1e-5)
    task = make_task(pace=1.5)
    assert term(move(task, 0.3, 0.0, 0.0), "progress") == 1.5
    assert term(move(task, 0.0, 0.0, 0.0), "progress") == pytest.approx(-3.0)


def test_waiting_is_paid_only_behind_the_last_gate():
    task = make_task(close=0.2)
    assert term(move(task, 0.9, 0.0, 0.0), "waiting") == 0.0
    move(task, 1.1, 0.0, 0.0)
    move(task, 2.1, 0.0, 0.0)
    assert term(move(task, 2.3, 0.0, 0.0), "waiting") == pytest.approx(0.5)
    assert term(move(task, 2.5, 0.0, 0.0), "waiting") == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("place", "rate", "ends"),
    [
        ((0.9, 0.0, 0.0), 0.0, False),
        ((1.1, 0.3, 0.0), 0.0, True),  # through the left bar
        ((-1.9, 0.0, 0.0), 0.0, False),
        ((-2.1, 0.0, 0.0), 0.0, True),  # 3.1 m from the gate
        ((0.9, 0.0, 0.0), 39.0, False),
        ((0.9, 0.0, 0.0), -41.0, True),
    ],
)
def test_flight_ends_in_a_frame_far_away_or_tumbling(place, rate, ends):
    verdict = move(make_task(), *place, rate=rate)
    assert bool(verdict.terminated) is ends
    assert term(verdict, "crash") == ends


def test_new_episodes_begin_with_the_first_gate_and_the_others_go_on():
    task = make_task(2, pace=10.0)
    move(task, 1.1, 0.0, 0.0)
    task.start(EnvSelection(torch.tensor([True, False])), torch.Generator().manual_seed(4))
    assert task.goal["position_w"].tolist() == [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]]
    # The first env was put back to the origin: 0.3 m are 3 m/s, not a jump from behind the gate.
    assert term(move(task, 0.3, 0.0, 0.0), "progress") == pytest.approx(3.0)


@pytest.mark.slow
def test_what_the_robot_sees_of_a_course_in_the_mirror_is_the_mirrored_course():
    env = envs("gates", 3, "task.evaluation_start.position=0")  # in the mirror's plane
    mirror = env.mirror().groups["critic"]
    obs = env.reset(seed=0)["critic"].clone()
    flip, state = torch.tensor([1.0, -1.0, 1.0]), env.task.state_dict()
    parts = {**state["courses"], **state["goal"]}
    for name in ("centre", "normal", "position_w", "preview_w", "gate_normals_w"):
        parts[name].copy_((parts[name].reshape(-1, 3) * flip).reshape(parts[name].shape))
    env.task.load_state_dict(state)
    other = env.reset(state=env.state_dict())["critic"]
    seen = slice(0, 19)  # errors, preview, offsets, normals, gates ahead; not the robot's motion
    expected = obs[:, list(mirror.source)] * torch.tensor(mirror.sign)
    assert mirror.width == obs.shape[1]
    torch.testing.assert_close(other[:, seen], expected[:, seen], atol=1e-6, rtol=0)
    assert (other[:, seen] - obs[:, seen]).abs().max() > 0.1
