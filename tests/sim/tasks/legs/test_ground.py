"""Ground under legs: where episodes begin, levels that follow success, heights above the ground."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.observation import RobotState, TermConfig
from sim.robots.joint_robot import JointRandomization
from sim.scenes.scene import SceneConfig
from sim.scenes.terrain import TerrainConfig, scan_points
from sim.tasks.legs.velocity import Hills
from tests.sim.arms import arm_envs
from tests.sim.legs import CPU, GROUND, hill_envs, leg_envs
from tests.sim.stepping import everyone as everybody

pytestmark = pytest.mark.slow

POINTS = len(scan_points(GROUND.scan))


def hills(envs: int, *, evaluation: bool = False, config: TerrainConfig = GROUND) -> Hills:
    scan = torch.zeros(envs, POINTS)
    return Hills(config, scan, num_envs=envs, device=CPU, evaluation=evaluation)


def at(x: float, y: float, z: float) -> RobotState:
    return RobotState({"position_w": torch.tensor([[x, y, z]])})


def test_training_begins_on_the_first_level_with_all_kinds_in_turn() -> None:
    ground = hills(6)
    place = ground.place(everybody(6), torch.Generator().manual_seed(0))
    assert ground.kind.tolist() == [0, 1, 2, 0, 1, 2]
    assert place[:, 0].tolist() == [-4.0, 0.0, 4.0] * 2  # tiles of 4 m
    assert place[:, 1].tolist() == [-2.0] * 6


def test_fewer_envs_than_kinds_see_all_of_them() -> None:
    ground, generator = hills(2), torch.Generator().manual_seed(0)
    seen = set[int]()
    for _ in range(60):
        ground.place(everybody(2), generator)
        seen |= set(ground.kind.tolist())
    assert seen == set(range(len(GROUND.kinds)))


def test_success_leads_a_level_up_failure_down_and_the_top_anywhere() -> None:
    ground, generator = hills(300), torch.Generator().manual_seed(0)
    everyone, nobody = torch.ones(300, dtype=torch.bool), torch.zeros(300, dtype=torch.bool)
    ground.follow(everyone, everyone)
    assert ground.place(everybody(300), generator)[:, 1].unique().tolist() == [2.0]
    ground.follow(everyone, nobody)
    assert ground.place(everybody(300), generator)[:, 1].unique().tolist() == [-2.0]
    ground.follow(everyone, nobody)  # there is no lower one
    ground.follow(everyone, everyone)
    ground.follow(everyone, everyone)  # past the last level
    rows = ground.place(everybody(300), generator)[:, 1]
    assert 100 < int((rows == 2.0).sum()) < 200
    assert int((rows == -2.0).sum()) + int((rows == 2.0).sum()) == 300
    ground.follow(nobody, nobody)
    assert torch.equal(ground.place(everybody(300), generator)[:, 1], rows)


def test_evaluation_begins_on_every_tile_alike_whatever_succeeded() -> None:
    ground, generator = hills(6000, evaluation=True), torch.Generator().manual_seed(0)
    everyone = torch.ones(6000, dtype=torch.bool)
    ground.place(everybody(6000), generator)
    ground.follow(everyone, everyone)
    place = ground.place(everybody(6000), generator)
    tiles = (ground.kind + 3 * ground.levels.level).bincount()
    assert len(tiles) == 6
    assert tiles.min() > 850  # 1000 expected, deviation 29
    expected = ground.terrain.origin(ground.levels.level, ground.kind)
    assert torch.equal(place, expected)


def test_heights_are_above_the_ground_below() -> None:
    ground = hills(1)
    x, y, z = ground.terrain.origin(torch.tensor(1), torch.tensor(1)).tolist()  # a pit of stairs
    assert z < 0
    feet = torch.tensor([[x, y, z + 0.05, 99.0, 0.0, 0.07]])  # the second is on the border
    torch.testing.assert_close(ground.clearance(feet), torch.tensor([[0.05, 0.07]]))
    scan: Tensor = ground._scan  # pyright: ignore[reportPrivateUsage]
    near = scan_points(GROUND.scan).norm(dim=-1) < 0.29
    scan[0] = torch.where(near, -0.3, 7.0)
    assert float(ground.altitude(at(x, y, 0.0))) == pytest.approx(0.3)


def test_who_comes_within_a_metre_of_the_edge_is_lost() -> None:
    ground = hills(1)  # 12 m x 8 m of tiles and 3 m of border: +-9 m and +-7 m
    for x, y, lost in ((7.9, 0.0, False), (8.1, 0.0, True), (0.0, -5.9, False), (0.0, 6.1, True)):
        assert bool(ground.lost(at(x, y, 0.3))) is lost


def test_robots_stand_on_every_tile_as_on_the_floor() -> None:
    ground = replace(GROUND, kinds=["stairs_up", "stairs_down", "slope_up", "slope_down"])
    env = leg_envs(
        8, noise=False, episode_length=4.0, goal_time=4.0, standing=1.0, start_velocity=0.0,
        start_position=0.0, randomization=JointRandomization(), scene=SceneConfig(terrain=ground),
    )  # fmt: skip
    env.reset(seed=0)
    floor = leg_envs(
        1, noise=False, episode_length=4.0, start_velocity=0.0, start_position=0.0,
        randomization=JointRandomization(),
    )  # fmt: skip
    floor.reset(seed=0)
    for _ in range(60):
        step = env.step(torch.zeros(8, 12))
        floor.step(torch.zeros(1, 12))
        assert not step.terminated.any()
    true_state = env.simulation.true_state
    expected = float(floor.simulation.true_state.position_w[0, 2])
    heights = true_state.position_w[:, 2]
    assert heights.max() - heights.min() > 0.4  # they stand in pits and on hills
    altitude = -env.simulation.privileged["height_scan"].unflatten(-1, (9, 5))[:, 4, 2]
    torch.testing.assert_close(altitude, torch.full((8,), expected), atol=5e-3, rtol=0.0)


def test_an_actor_sees_the_ground_only_where_it_is_measured_and_it_needs_a_floating_base():
    seen = [TermConfig(term="sensed/height_scan")]
    with pytest.raises(SpecMismatchError, match="sensed input 'height_scan'"):
        hill_envs(1, scene=SceneConfig(terrain=GROUND), actor=seen)
    env = hill_envs(4)
    env.reset(seed=0)
    measured = env.simulation.sensed["height_scan"]
    error = measured - env.simulation.privileged["height_scan"]
    assert 0.01 < float(error.std()) < 0.03
    with pytest.raises(ConfigError, match="robot 'panda', whose base is fixed"):
        arm_envs(1, scene=SceneConfig(terrain=GROUND))
