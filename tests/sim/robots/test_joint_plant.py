"""Parameters that episodes draw: what reaches the worlds, what a critic sees, what is refused."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from configs.schema import make_env
from robot_rl.core.errors import ConfigError
from sim.randomization import CurriculumConfig
from sim.robots.joint_plant import AHEAD
from sim.robots.joint_robot import JointRandomization
from sim.robots.joint_simulation import MujocoSimulation
from sim.scenes.scene import SceneConfig
from tests.compositions import composed
from tests.equality import assert_same
from tests.sim.arms import CPU, EVERYTHING, arms, begin, hold, panda, worn
from tests.sim.legs import leg_envs

WIDTHS = {
    "payload": 1, "link_mass": 11, "centre_of_mass": 3, "contact_friction": 1, "joint_damping": 7,
    "joint_friction": 7, "motor_strength": 7, "stiffness": 1, "damping": 1, "actuator_delay": 1,
    "sensor_noise": 1, "sensor_bias": 1, "latency": 1, "sensor_jitter": 1,
}  # fmt: skip


def test_drawn_parameters_lie_in_their_ranges_and_reach_the_worlds() -> None:
    simulation = arms(400, randomization=EVERYTHING)
    engine = simulation.engine
    model = engine.model
    mass = engine.model_field("body_mass")[:, 1:] / torch.tensor(model.body_mass[1:])
    hand = [model.body(i).name for i in range(1, model.nbody)].index("hand")
    links = [i for i in range(model.nbody - 1) if i != hand]
    assert uniformly_within(mass[:, links], 0.9, 1.1)
    assert float(mass[:, hand].max()) > 1.1 + 0.5
    assert uniformly_within(engine.model_field("dof_damping")[:, :7], 0.7, 1.3)  # nominal 1
    assert uniformly_within(engine.model_field("dof_frictionloss")[:, :7], 0.0, 0.5)
    assert not bool(engine.model_field("dof_frictionloss")[:, 7:].any())  # fingers keep theirs
    gravcomp = engine.model_field("body_gravcomp")[:, 1:]
    torch.testing.assert_close(gravcomp * mass, torch.ones_like(mass))  # the nominal weight
    place = engine.model_field("body_ipos") - torch.tensor(model.body_ipos)
    assert uniformly_within(place[:, hand + 1], -0.02, 0.02)
    assert not bool(place[:, : hand + 1].any())
    grip = engine.model_field("geom_friction") / torch.tensor(model.geom_friction)
    assert uniformly_within(grip[:, 0, 0], 0.5, 1.5)
    assert torch.equal(grip[..., 0], grip[:, :1, 0].expand_as(grip[..., 0]))
    assert bool((grip[..., 1:] == 1).all())
    strength = engine.model_field("actuator_forcerange")[:, 0, 1] / 87
    assert uniformly_within(strength, 0.8, 1.1)
    simulation.step(hold(simulation))
    gains = -engine.model_field("actuator_biasprm")[:, 0, 1:3]
    assert uniformly_within(gains[:, 0] / 600, 0.9, 1.1)
    assert uniformly_within(gains[:, 1] / 50, 0.9, 1.1)
    plant = simulation.privileged["plant"]
    assert uniformly_within(plant, -1.0, 1.0)
    assert plant.shape[1] == sum(WIDTHS.values())


def uniformly_within(values: torch.Tensor, low: float, high: float) -> bool:
    """No value outside, the middle in the middle, and the ends nearly reached."""
    slack = 0.02 * (high - low)
    inside = low - 1e-6 <= float(values.min()) and float(values.max()) <= high + 1e-6
    reached = float(values.min()) < low + slack and float(values.max()) > high - slack
    return inside and reached and abs(float(values.mean()) - (low + high) / 2) < 4 * slack


def test_draws_can_be_read_by_name_in_their_own_units() -> None:
    simulation = arms(300, robot=worn(panda(), noise=True), randomization=EVERYTHING)
    drawn = simulation.drawn_parameters()
    assert {name: drawn[name].shape[1] for name in WIDTHS} == WIDTHS
    for name in WIDTHS:
        range_ = getattr(EVERYTHING, name)
        low, high = (1 - range_, 1 + range_) if isinstance(range_, float) else range_
        assert uniformly_within(drawn[name], low, high), name
    sensors = simulation.robot.sensors
    assert {name for name in drawn if name not in WIDTHS} == {f"bias/{name}" for name in sensors}
    factor = drawn["sensor_bias"].float()
    for name, sensor in sensors.items():  # 900 draws or more: the standard error is 2.4 %
        own = drawn[f"bias/{name}"] / factor
        assert float(own.std()) == pytest.approx(sensor.bias, rel=0.1)


def test_plants_drawn_ahead_are_saved_and_another_seed_forgets_them() -> None:
    one, two = arms(2, randomization=EVERYTHING), arms(2, randomization=EVERYTHING, seed=5)
    two.load_state_dict(one.state_dict())
    for simulation, seed in ((one, 11), (two, 12)):  # not drawn from: there are plants left
        begin(simulation, torch.tensor([True, True]), seed=seed)
    assert_same(one.drawn_parameters(), two.drawn_parameters())
    assert_same(one.engine.state_dict()["fields"], two.engine.state_dict()["fields"])
    for simulation in (one, two):
        simulation.reseed(3)
        begin(simulation, torch.tensor([True, True]), seed=11)
    fresh = arms(2, randomization=EVERYTHING, seed=11)
    payload = fresh.drawn_parameters()["payload"]
    assert torch.equal(one.drawn_parameters()["payload"], payload)
    assert torch.equal(two.drawn_parameters()["payload"], payload)


def test_more_robots_than_are_drawn_at_a_time_get_masses_of_their_own() -> None:
    simulation = arms(AHEAD + 9, randomization=JointRandomization(link_mass=0.1))
    model = simulation.engine.model
    mass = simulation.engine.model_field("body_mass")
    everything = simulation.engine.model_field("body_subtreemass")[:, 0]  # hangs on the world
    torch.testing.assert_close(everything, mass.sum(-1))
    assert len(set(mass[:, model.nbody - 1].tolist())) == AHEAD + 9


def test_nothing_is_drawn_without_an_extent_and_a_payload_without_a_body_is_refused():
    simulation = arms(3, randomization=JointRandomization())
    assert simulation.privileged["plant"].shape == (3, 0)
    assert simulation.drawn_parameters() == {}
    with pytest.raises(ConfigError, match=r"payload_body.*got 'hnd'; known: link0"):
        arms(1, robot=panda(payload_body="hnd"), randomization=EVERYTHING)


def test_a_base_may_become_lighter_but_not_weightless() -> None:
    simulation = walkers(30, JointRandomization(payload=[-2.0, 2.0]))
    body = simulation.engine.model.body("base")
    mass = simulation.engine.model_field("body_mass")[:, body.id]
    drawn = simulation.drawn_parameters()["payload"][:, 0]
    torch.testing.assert_close(mass - float(body.mass[0]), drawn)
    assert float(drawn.min()) < 0 < float(drawn.max())
    with pytest.raises(ConfigError, match=r"payload \[-50.0, 2.0\] leaves body 'base'.*-6\.921 kg"):
        walkers(2, JointRandomization(payload=[-50.0, 2.0]))


def walkers(count: int, ranges: JointRandomization) -> MujocoSimulation:
    env = leg_envs(count, randomization=ranges)
    env.reset(seed=0)
    assert isinstance(env.simulation, MujocoSimulation)
    return env.simulation


def test_a_floating_base_gets_no_friction_and_keeps_its_freedom() -> None:
    simulation = walkers(3, JointRandomization(joint_friction=[0.2, 0.4], joint_damping=0.3))
    friction = simulation.engine.model_field("dof_frictionloss")
    assert not bool(friction[:, :6].any())
    assert bool(((friction[:, 6:] >= 0.2) & (friction[:, 6:] <= 0.4)).all())


CUBE = """
<mujoco><worldbody><body name="cube" pos="0.6 0 0.02"><freejoint name="cube"/>
  <geom type="box" size="0.02 0.02 0.02" mass="0.1"/></body></worldbody></mujoco>
"""


def beside_a_cube(folder: Path, count: int, ranges: JointRandomization) -> MujocoSimulation:
    """Arms with a cube on their floor."""
    (folder / "cube.xml").write_text(CUBE)
    simulation = MujocoSimulation(
        panda(noise=False), ranges, num_worlds=count, device=CPU, seed=0,
        scene=SceneConfig(file=str(folder / "cube.xml")),
    )  # fmt: skip
    begin(simulation, torch.ones(count, dtype=torch.bool))
    return simulation


def test_what_stands_around_the_robot_keeps_its_mass(tmp_path: Path) -> None:
    ranges = replace(EVERYTHING, joint_friction=[0.1, 0.5])
    simulation = beside_a_cube(tmp_path, 3, ranges)
    cube = simulation.engine.model.body("cube").id
    assert simulation.engine.model_field("body_mass")[:, cube].tolist() == [0.1] * 3
    assert not bool(simulation.engine.model_field("dof_frictionloss")[:, 7:].any())
    assert simulation.drawn_parameters()["link_mass"].shape == (3, 11)


@pytest.mark.parametrize("factor", [0.4, 0.8])
def test_a_cube_slides_as_far_as_its_drawn_grip_lets_it(tmp_path: Path, factor: float) -> None:
    ranges = JointRandomization(contact_friction=[factor, factor])
    simulation = beside_a_cube(tmp_path, 1, ranges)
    simulation.engine.qvel[0, int(simulation.engine.model.joint("cube").dofadr[0])] = 0.7
    for _ in range(20):
        simulation.step(hold(simulation))
    way = float(simulation.engine.qpos[0, simulation.layout.scene["cube"].start]) - 0.6
    # v^2 / (2 mu g), with MuJoCo's friction of 1 times the factor; contacts are soft.
    assert way == pytest.approx(0.7**2 / (2 * factor * 9.81), rel=0.15)


@pytest.mark.parametrize("level", [0.0, 0.25])
def test_a_level_draws_from_a_part_of_every_range_around_what_is_undisturbed(level: float) -> None:
    simulation = MujocoSimulation(
        panda(noise=False), EVERYTHING, num_worlds=300, device=CPU, seed=0,
        curriculum=CurriculumConfig(start=level, grow=0.1),
    )  # fmt: skip
    begin(simulation, torch.ones(300, dtype=torch.bool))
    drawn = simulation.drawn_parameters()
    narrow = {
        "payload": (0.0, level * 1.0), "link_mass": (1 - 0.1 * level, 1 + 0.1 * level),
        "joint_friction": (0.0, 0.5 * level), "latency": (0.0, 0.12 * level),
        "motor_strength": (1 - 0.2 * level, 1 + 0.1 * level),
        "sensor_noise": (1 - 0.5 * level, 1 + 1.0 * level),
    }  # fmt: skip
    for name, (low, high) in narrow.items():
        values = drawn[name]
        assert float(values.min()) >= low - 1e-6, name
        assert float(values.max()) <= high + 1e-6, name
        assert float(values.max() - values.min()) >= 0.9 * (high - low), name


@pytest.mark.parametrize(("robot", "damped"), [("panda", True), ("ur5e", False)])
def test_joints_without_damping_have_none_to_draw(robot: str, damped: bool) -> None:
    """Seven columns of the critic's input were noise that changed nothing."""
    config = composed(["task=reach", f"robot={robot}"]).config
    assert config.task.randomization.joint_damping > 0
    simulation: Any = make_env(config, num_envs=2, device=CPU, seed=0, evaluation=True).simulation
    assert ("joint_damping" in simulation.drawn_parameters()) is damped
