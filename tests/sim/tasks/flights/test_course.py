"""Courses: where gates may stand, and what it is to fly through one or into its frame."""

import math

import pytest
import torch

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from sim.tasks.flights.course import CourseConfig, Courses

CPU = torch.device("cpu")
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
    """What happens at the gate at (1, 2, 3); places are relative to its middle, world axes."""
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


def test_a_gate_that_looks_along_y_is_flown_through_along_y():
    courses = one_gate(heading_deg=90.0)
    assert fly(courses, (0.0, -0.1, 0.0), (0.0, 0.1, 0.0)) == (True, False)
    assert fly(courses, (-0.3, -0.2, 0.0), (0.3, -0.2, 0.0)) == (False, False)


def test_corners_lie_around_the_opening_and_the_waiting_place_behind_the_last_gate():
    courses = one_gate(heading_deg=90.0)
    square = courses.corners[0, :12].reshape(4, 3)
    expected = [[0.75, 2, 3.25], [1.25, 2, 3.25], [1.25, 2, 2.75], [0.75, 2, 2.75]]
    torch.testing.assert_close(square, torch.tensor(expected), atol=1e-6, rtol=0)
    waiting = torch.tensor([100.0, CONFIG.runout, 0.0])
    torch.testing.assert_close(courses.places[0, 2], waiting, atol=1e-5, rtol=0)


def test_gates_stand_within_their_ranges_of_each_other():
    config = CourseConfig(gates=6, spacing=[1.0, 1.5], turn_deg=40.0, climb=0.2, skew_deg=10.0)
    courses = Courses(config, 400, robot_radius=RADIUS, device=CPU)
    courses.draw(EnvSelection(torch.ones(400, dtype=torch.bool)), torch.Generator().manual_seed(1))
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


def test_new_courses_leave_the_others_alone():
    courses = one_gate()
    wide = Courses(CONFIG, 2, robot_radius=RADIUS, device=CPU)
    wide.load_state_dict({k: v.expand(2, -1, -1) for k, v in courses.state_dict().items()})
    wide.draw(EnvSelection(torch.tensor([True, False])), torch.Generator().manual_seed(0))
    assert torch.equal(wide.centre[1], courses.centre[0])
    assert not torch.equal(wide.centre[0], courses.centre[0])


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"gates": 0}, "gates"), ({"opening": 0.0}, "opening"), ({"bar": -0.1}, "bar"),
        ({"spacing": [2.0, 1.0]}, "spacing"), ({"spacing": [0.5, 1.0]}, "wider than a gate"),
        ({"turn_deg": 90.0}, "turn_deg"), ({"skew_deg": -1.0}, "skew_deg"),
        ({"climb": -0.1}, "climb"), ({"runout": 0.0}, "runout"),
    ],
)  # fmt: skip
def test_courses_that_cannot_be_flown_are_refused_by_name(bad, said):
    with pytest.raises(ConfigError, match=said):
        CourseConfig(**bad)
