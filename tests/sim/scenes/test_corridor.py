"""Corridors: everybody of the stated size comes through, and levels mean what they say."""

import math

import pytest
import torch

from robot_rl.core.errors import ConfigError
from sim.scenes.corridor import BEAM_HEIGHT, CorridorConfig, Corridors, Layout
from sim.scenes.potential_field import pull, push, signed_distance
from tests.compositions import composed
from tests.fakes import CPU

COUNT = 400


def drawn(config: CorridorConfig, level: int, seed: int = 0, count: int = COUNT) -> Layout:
    levels = torch.full((count,), level, dtype=torch.int64)
    corridors = Corridors(config, num_envs=1, device=CPU, evaluation=False)
    return corridors.draw(levels, torch.Generator().manual_seed(seed))


def passes(config: CorridorConfig, obstacles: torch.Tensor) -> torch.Tensor:
    """Where a box of the hardest sizes comes through, (count, S, Y): found by trying places.

    It is as wide as the hardest gap, reaches from the hardest hurdle to the hardest bar, and is
    moved straight through a station, at any y within the walls.
    """
    half_width = config.gap[1] / 2
    room = config.width / 2 - half_width
    tried = torch.linspace(-room, room, 401)
    low, high = config.hurdle[1], config.bar[1]
    size = torch.tensor(config.obstacle_sizes).unflatten(0, (config.stations, 4))  # (S, 4, 3)
    box = obstacles.unflatten(1, (config.stations, 4))  # (count, S, 4, 3)
    beside = (box[..., 1, None] - tried).abs() - size[..., 1, None] - half_width
    above = box[..., 2] - size[..., 2] - high
    below = low - box[..., 2] - size[..., 2]
    clear = 1e-3  # the grid of places is this coarse, and so is float32
    free = (beside > -2 * room / 400 - clear) | ((above > -clear) | (below > -clear))[..., None]
    return free.all(2)


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["go2", pytest.param("g1", marks=pytest.mark.full)])
def test_every_corridor_of_every_level_has_a_passage_of_the_stated_size(robot: str) -> None:
    config = composed(["task=clutter", f"robot={robot}"]).config.task.scene.clutter
    assert config is not None
    size = torch.tensor(config.obstacle_sizes).unflatten(0, (config.stations, 4))
    for level in range(config.levels):
        layout = drawn(config, level)
        assert bool(passes(config, layout.obstacles).any(-1).all())
        box = layout.obstacles.unflatten(1, (config.stations, 4))
        # Between two stations, and before the first, the whole width is free for as long.
        front, back = box[..., 0] - size[..., 0], box[..., 0] + size[..., 0]
        assert float(front[:, 0].min()) > config.gap[1]
        between = front[:, 1:].amin(-1) - back[:, :-1].amax(-1)
        assert float(between.min()) >= config.gap[1] - 1e-5
        assert float(back.max()) < config.length


def test_the_way_leads_through_passages_with_room_to_both_sides() -> None:
    config = CorridorConfig(gap=[0.6, 0.6])
    layout = drawn(config, config.levels - 1)
    free = passes(config, layout.obstacles)
    room = (config.width - config.gap[1]) / 2
    tried = ((layout.way[:, :-1, 1] + room) / (2 * room) * 400).round().long()
    assert 0 <= int(tried.min()) < int(tried.max()) <= 400
    assert bool(free.gather(-1, tried[..., None]).all())
    assert layout.way[:, -1].tolist() == [[pytest.approx(config.length), 0.0, 0.0]] * COUNT


@pytest.mark.parametrize("gap", [[1.0, 0.55], [0.5, 0.5], [1.4, 1.3]])
def test_panels_reach_from_the_gap_to_the_walls(gap: list[float]) -> None:
    config = CorridorConfig(kinds=["gap"], gap=gap, spacing=[2.0, 2.0], pillar=0.1, width=2.8)
    for level in (0, config.levels - 1):
        box = drawn(config, level).obstacles.unflatten(1, (3, 4))
        stands = box[..., 0, 2] > 0
        ends = (box[..., 0, 1] + config.panel / 2, -box[..., 1, 1] + config.panel / 2)
        assert all(float(end[stands].min()) >= config.width / 2 - 1e-5 for end in ends)


def test_levels_ask_for_more_stations_and_harder_ones() -> None:
    config = CorridorConfig(stations=3, levels=5)
    used, narrowest, lowest, highest = [], [], [], []
    for level in range(5):
        box = drawn(config, level).obstacles.unflatten(1, (3, 4))
        stands = (box[..., 2] > -1).any(-1)
        assert len(set(stands.sum(-1).tolist())) == 1
        used.append(int(stands[0].sum()))
        gaps = (box[..., 0, 1] - box[..., 1, 1] - config.panel)[box[..., 0, 2] > 0]
        narrowest.append(float(gaps.min()))
        beam = box[..., 3, 2]
        lowest.append(float(beam[beam > 0.2].min()) - BEAM_HEIGHT / 2)
        highest.append(float(beam[(beam > -1) & (beam < 0.2)].max()) + BEAM_HEIGHT / 2)
    assert used == [1, 2, 2, 3, 3]
    hard = torch.arange(1, 6) / 5  # the hardest of 100 and more is near to what a level may ask
    assert narrowest == pytest.approx((1.0 - 0.45 * hard).tolist(), abs=0.03)
    assert lowest == pytest.approx((0.6 - 0.28 * hard).tolist(), abs=0.02)
    assert highest == pytest.approx((0.03 + 0.05 * hard).tolist(), abs=0.005)


def followed(config: CorridorConfig, layout: Layout, way: torch.Tensor, height: float):
    """Points that follow the field for 14 m at most: how far from the goal, how near to boxes."""
    walls = torch.tensor([centre for centre, _ in config.walls.values()])
    half = torch.tensor([*config.obstacle_sizes, *(size for _, size in config.walls.values())])
    centre = torch.cat([layout.obstacles, walls.expand(len(way), 4, 3)], dim=1)
    point = torch.zeros(len(way), 1, 3)
    point[..., 2] = height
    clearance = torch.full((len(way),), math.inf)
    for _ in range(700):
        distance, outward = signed_distance(point, centre, half)
        clearance = torch.minimum(clearance, distance.amin((1, 2)))
        field = config.field
        force = push(distance, outward, reach=field.reach, strength=field.strength)
        force = force + pull(point, way, near=field.near).force
        force[..., 2] = 0
        point = point + 0.02 * force / force.norm(dim=-1, keepdim=True).clamp_min(1.0)
    return (point[:, 0] - layout.way[:, -1])[:, :2].norm(dim=-1), clearance


@pytest.mark.slow
@pytest.mark.parametrize(
    ("robot", "height"), [("go2", 0.2), pytest.param("g1", 0.9, marks=pytest.mark.full)]
)
def test_a_point_that_follows_the_field_arrives_and_touches_nothing(robot, height) -> None:
    """At the height of the hips: under the bars and over the hurdles of the last level."""
    config = composed(["task=clutter", f"robot={robot}"]).config.task.scene.clutter
    assert config is not None
    layout = drawn(config, config.levels - 1, count=100)
    away, clearance = followed(config, layout, layout.way, height)
    assert float(away.max()) < 0.2
    assert float(clearance.min()) > 0.1
    # Pulled straight at the goal, many stop before walls.
    away, _ = followed(config, layout, layout.way[:, -1:], height)
    assert float((away > 0.2).float().mean()) > 0.1


def way_to(layout: Layout, place: tuple[float, float], base: float = 0.0) -> torch.Tensor:
    """Places of the first layout's way from (base, 0), (S + 1, 3)."""
    corridors = Corridors(CorridorConfig(), num_envs=1, device=CPU, evaluation=False)
    goal, robot = torch.tensor([*place, 0.0]), torch.tensor([base, 0.0, 0.3])
    poses = corridors.way_to(goal, robot, layout.obstacles[0])
    assert list(poses) == CorridorConfig().way
    assert all(pose[3:].tolist() == [1.0, 0.0, 0.0, 0.0] for pose in poses.values())
    return torch.stack([pose[:3] for pose in poses.values()])


def test_a_way_to_the_corridors_end_is_the_one_that_was_drawn() -> None:
    config = CorridorConfig()
    for seed in range(20):
        layout = drawn(config, seed % config.levels, seed, count=1)
        torch.testing.assert_close(way_to(layout, (config.length, 0.0)), layout.way[0])


def test_a_way_to_another_place_leads_through_the_passages_up_to_it_and_back() -> None:
    layout = drawn(CorridorConfig(kinds=["pillar"]), 4, count=1)
    first, second, third, _ = layout.way[0].tolist()
    x = (second[0] + third[0]) / 2
    goal = pytest.approx([x, 0.3, 0.0])
    assert way_to(layout, (x, 0.3)).tolist() == [first, second, goal, goal]
    back = way_to(layout, (0.2, -0.3), base=x)
    there = pytest.approx([0.2, -0.3, 0.0])
    assert back.tolist() == [third, second, first, there]
    between = way_to(layout, (x, 0.3), base=6.0).tolist()
    assert between == [third, goal, goal, goal]


def test_no_goal_can_be_in_an_obstacle_at_a_wall_or_outside() -> None:
    layout = drawn(CorridorConfig(kinds=["pillar"]), 4, count=1)
    pillar = layout.obstacles[0].unflatten(0, (-1, 4))[0, 2]
    x, y = float(pillar[0]), float(pillar[1])
    with pytest.raises(ConfigError, match=r"where the box obstacle_pillar_0 stands: choose"):
        way_to(layout, (x, y))
    with pytest.raises(ConfigError, match="obstacle_pillar_0"):
        way_to(layout, (x - 0.2, y))  # its side is 0.125 m away from its middle
    assert way_to(layout, (x - 0.23, y)).shape == (4, 3)
    for place in ((3.0, 0.71), (-0.91, 0.0), (7.31, 0.0)):
        with pytest.raises(ConfigError, match=r"outside the corridor .* x from -0.90 to 7.30"):
            way_to(layout, place)


def test_a_goal_may_be_under_a_bar_and_not_on_a_hurdle() -> None:
    for kind, refused in (("bar", False), ("hurdle", True)):
        layout = drawn(CorridorConfig(kinds=[kind]), 4, count=1)
        middle = (float(layout.way[0, 0, 0]), 0.0)
        if refused:
            with pytest.raises(ConfigError, match="obstacle_beam_0"):
                way_to(layout, middle)
        else:
            assert way_to(layout, middle)[0].tolist() == pytest.approx([*middle, 0.0])
