"""Potential fields: numbers by hand, and forces that are the slopes of their potentials."""

import math

import pytest
import torch

from sim.scenes.potential_field import pull, push, signed_distance

BOX = torch.tensor([[[1.0, 0.0, 0.5]]])  # from 0.8 to 1.2, from -0.5 to 0.5, from 0 to 1
HALF = torch.tensor([[0.2, 0.5, 0.5]])


def at(*place: float) -> torch.Tensor:
    return torch.tensor([[place]])


@pytest.mark.parametrize(
    ("place", "distance", "outward"),
    [
        ((0.5, 0.0, 0.5), 0.3, (-1.0, 0.0, 0.0)),
        ((1.5, 0.9, 0.5), 0.5, (0.6, 0.8, 0.0)),  # beyond an edge: 0.3 and 0.4
        ((1.0, 0.0, 1.25), 0.25, (0.0, 0.0, 1.0)),
        ((1.1, 0.0, 0.5), -0.1, (1.0, 0.0, 0.0)),
        ((0.95, -0.1, 0.96), -0.04, (0.0, 0.0, 1.0)),
        ((1.2, 0.1, 0.5), 0.0, (1.0, 0.0, 0.0)),  # on the surface
    ],
)
def test_distance_and_direction_from_a_box(place, distance, outward) -> None:
    found, way = signed_distance(at(*place), BOX, HALF)
    assert float(found) == pytest.approx(distance, abs=1e-6)
    assert way.flatten().tolist() == pytest.approx(outward, abs=1e-5)


def test_push_is_a_parabola_within_reach_and_adds_up() -> None:
    distance = torch.tensor([[[0.2, 0.5, -0.1]]])  # half the reach, out of reach, inside
    outward = torch.tensor([[[[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]]]])
    force = push(distance, outward, reach=0.4, strength=2.0)
    assert force.flatten().tolist() == pytest.approx([1.0, 0.0, 2.5])


WAY = torch.tensor([[[1.0, 1.0, 0.0], [4.0, 5.0, 0.0]]])  # 5 m from a passage to the goal


@pytest.mark.parametrize(
    ("place", "left", "force"),
    [
        ((1.0 - 0.6, 0.2, 0.7), 6.0, (0.6, 0.8)),  # 1 m to the passage
        ((1.0, 1.0, 0.0), 5.0, (0.6, 0.8)),  # in it: on to the goal
        ((3.94, 4.92, 0.0), 0.1, (0.12, 0.16)),  # 0.2 of `near`
        ((4.0, 5.0, 0.3), 0.0, (0.0, 0.0)),
        ((4.3, 5.4, 0.3), 0.5, (-0.6, -0.8)),  # behind the goal
    ],
)
def test_pull_follows_passages_and_fades_at_the_goal(place, left, force) -> None:
    found = pull(at(*place), WAY, near=0.5)
    assert float(found.left) == pytest.approx(left, abs=1e-5)
    assert found.force.flatten().tolist() == pytest.approx([*force, 0.0], abs=1e-5)


def test_a_way_that_leads_back_pulls_as_its_mirror_image_pulls_ahead() -> None:
    flip = torch.tensor([-1.0, 1.0, 1.0])
    points = torch.tensor([[[0.4, 0.2, 0.7], [1.0, 1.0, 0.0], [2.0, 0.0, 0.3], [4.3, 5.4, 0.3]]])
    ahead, back = pull(points, WAY, near=0.5), pull(points * flip, WAY * flip, near=0.5)
    torch.testing.assert_close(back.left, ahead.left)
    torch.testing.assert_close(back.force, ahead.force * flip)
    torch.testing.assert_close(back.place, ahead.place * flip[:2])


def test_pull_leads_to_the_next_place_and_passing_beside_its_middle_makes_no_detour():
    found = pull(torch.tensor([[[0.0, 0.0, 0.0], [1.5, 0.0, 0.0]]]), WAY, near=0.5)
    assert found.place.tolist() == [[[1.0, 1.0], [4.0, 5.0]]]
    before, after = (pull(at(x, 0.4, 0.0), WAY, near=0.5).left for x in (0.9999, 1.0001))
    assert 0 < float(before - after) < 0.6
    assert float(after) == pytest.approx(math.hypot(3.0, 4.6), abs=1e-3)


def test_forces_are_slopes_of_the_potentials_in_double_precision() -> None:
    generator = torch.Generator().manual_seed(0)
    point = torch.rand(3, 40, 3, generator=generator, dtype=torch.float64) * 3 - 0.5
    centre = torch.rand(3, 6, 3, generator=generator, dtype=torch.float64) * 2
    half = torch.rand(6, 3, generator=generator, dtype=torch.float64) * 0.4 + 0.05
    way = torch.tensor([[0.7, 0.2, 0.0], [1.5, 0.9, 0.0], [2.0, 0.4, 0.0]], dtype=torch.float64)
    way = way.expand(3, 3, 3)

    def potential(place: torch.Tensor) -> torch.Tensor:
        near = (1 - signed_distance(place, centre, half)[0] / 0.4).clamp(min=0)
        left = pull(place, way, near=0.5).left
        share = (left / 0.5).clamp(max=1)  # a parabola near the goal, then a cone
        return 0.3 * (near * near).sum(-1) + share * (left - 0.25 * share)

    away = push(*signed_distance(point, centre, half), reach=0.4, strength=1.5)
    force = away + pull(point, way, near=0.5).force
    assert bool((away.norm(dim=-1) > 0.1).any())
    step = 1e-6
    for axis in range(3):
        move = torch.zeros(3, dtype=torch.float64)
        move[axis] = step
        slope = (potential(point - move) - potential(point + move)) / (2 * step)
        torch.testing.assert_close(force[..., axis], slope, rtol=0, atol=1e-7)
