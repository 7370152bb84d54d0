"""Simulated multirotors: sensors, drawn parameters, delays, body rates, and their mirror image."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from configs.schema import make_env
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.mirror import RobotMirror
from robot_rl.core.observation import Mirrored
from robot_rl.core.robot import SensorSpec
from robot_rl.core.robot_command import BodyRateCommand, RotorCommand
from sim.env import SimEnv
from sim.physics.multirotor_model import PARAM_COLUMNS, STATE_COLUMNS
from sim.randomization import CurriculumConfig
from sim.robots.multirotor_robot import MultirotorConfig
from sim.robots.multirotor_simulation import CommandDelay, MultirotorSimulation
from tests.compositions import composed
from tests.fakes import CPU
from tests.matrices import some
from tests.robot_rl.core.test_mirror import image
from tests.sim.flying import begin, multirotors, robot_config

WORLDS = 2000
NOTHING = {"mass": 0.0, "inertia": 0.0, "thrust": 0.0, "rotor_lag": [], "force": 0.0, "torque": 0.0}


def params(simulation: MultirotorSimulation, name: str) -> np.ndarray:
    return simulation.engine.params[:, PARAM_COLUMNS[name]].numpy().astype(np.float64)


def with_plant(**changes: Any) -> MultirotorConfig:
    """The robot with another plant of the same name."""
    robot = robot_config()
    return replace(robot, plants={"paper": replace(robot.model, **changes)})


def uniformly_within(values: np.ndarray, low: float, high: float) -> bool:
    """No value outside, and the distribution is uniform (Kolmogorov-Smirnov, fixed seed)."""
    slack = 1e-6 * (high - low)
    inside = low - slack <= values.min() and values.max() <= high + slack
    return bool(inside and stats.kstest(values, "uniform", (low, high - low)).pvalue > 1e-3)


@pytest.mark.parametrize(
    ("field", "name"), [("mass", "mass"), ("inertia", "inertia"), ("thrust", "thrust_curve")]
)
def test_masses_and_thrusts_are_drawn_uniformly_in_their_range(field: str, name: str) -> None:
    simulation = multirotors(WORLDS, **{**NOTHING, field: 0.2})
    nominal = simulation.config.model.row()[PARAM_COLUMNS[name]].numpy()
    drawn = params(simulation, name)
    ratio = drawn[:, -1] / nominal[-1]
    assert uniformly_within(ratio, 0.8, 1.2)
    np.testing.assert_allclose(drawn, ratio[:, None] * nominal, rtol=1e-6)  # one factor for all
    for other in {"mass", "inertia", "thrust_curve"} - {name}:
        np.testing.assert_array_equal(
            params(simulation, other), params(simulation, other)[:1].repeat(WORLDS, 0)
        )


def test_rotor_lag_is_drawn_in_seconds_rise_and_fall_alike_or_is_the_plants():
    simulation = multirotors(WORLDS, **{**NOTHING, "rotor_lag": [0.04, 0.15]})
    assert uniformly_within(params(simulation, "rotor_rise_time")[:, 0], 0.04, 0.15)
    np.testing.assert_array_equal(
        params(simulation, "rotor_rise_time"), params(simulation, "rotor_fall_time")
    )
    robot = replace(robot_config(), plant="measured")
    simulation = multirotors(4, robot=robot, **NOTHING)
    np.testing.assert_allclose(params(simulation, "rotor_rise_time"), 0.05545, rtol=1e-6)
    np.testing.assert_allclose(params(simulation, "rotor_fall_time"), 0.24939, rtol=1e-6)


def test_plants_between_published_ones_are_drawn_evenly_in_the_logarithm() -> None:
    ranges = {**NOTHING, "plants": ["paper", "bullet"], "rotor_lag": [0.03, 0.25]}
    simulation = multirotors(WORLDS, **ranges)
    inertia = params(simulation, "inertia")
    assert np.isclose(inertia[:, 0], 3.85e-6, rtol=1e-4).mean() == pytest.approx(0.25, abs=0.05)
    assert np.isclose(inertia[:, 0], 1.4e-5, rtol=1e-4).mean() == pytest.approx(0.25, abs=0.05)
    between = inertia[(inertia[:, 0] > 3.8501e-6) & (inertia[:, 0] < 1.39999e-5)]
    place = np.log(between / [3.85e-6, 3.85e-6, 5.9675e-6])
    place /= np.log([1.4e-5 / 3.85e-6, 1.4e-5 / 3.85e-6, 2.17e-5 / 5.9675e-6])
    assert uniformly_within(place[:, 0], 0.0, 1.0)
    np.testing.assert_allclose(place, place[:, :1].repeat(3, 1), atol=1e-4)  # of one plant
    np.testing.assert_allclose(params(simulation, "mass"), 0.027, rtol=1e-6)  # both have it
    rise, fall = (params(simulation, f"rotor_{name}_time")[:, 0] for name in ("rise", "fall"))
    for lag in (rise, fall):
        assert uniformly_within(np.log(lag), np.log(0.03), np.log(0.25))
    assert abs(np.corrcoef(rise, fall)[0, 1]) < 0.1


def test_thrusts_between_published_plants_keep_a_curve_and_mass_is_drawn_apart() -> None:
    simulation = multirotors(WORLDS, **NOTHING, plants=["paper", "measured"])
    curve = params(simulation, "thrust_curve")
    paper, measured = np.array([[0, 0, 0.14882867], [0.00352526, 0.01437313, 0.09223048]])
    place = curve[:, 0] / measured[0]
    wanted = paper + place[:, None] * (measured - paper)
    np.testing.assert_allclose(curve, wanted, rtol=1e-4, atol=1e-8)
    mass = params(simulation, "mass")[:, 0]
    assert (mass > 0.027 * (1 - 1e-4)).all()
    assert (mass < 0.0306 * (1 + 1e-4)).all()
    assert abs(np.corrcoef(mass, place)[0, 1]) < 0.1


def test_unknown_plants_and_rotors_that_turn_otherwise_are_refused() -> None:
    with pytest.raises(ConfigError, match="plant 'heavy' is unknown; known: "):
        multirotors(2, **NOTHING, plants=["paper", "heavy"])
    plants = robot_config().plants
    turned = replace(plants["paper"], rotor_yaw_sign=[1.0, -1.0, 1.0, -1.0])
    robot = replace(robot_config(), plants={**plants, "turned": turned})
    with pytest.raises(ConfigError, match="rotors of 'turned' turn"):
        multirotors(2, robot=robot, **NOTHING, plants=["paper", "turned"])


def test_ranges_widen_around_the_plant_with_the_level_of_the_curriculum() -> None:
    robot = replace(robot_config(), plant="measured")  # rotors rise in 0.055 s, fall in 0.249 s
    ranges = {**NOTHING, "mass": 0.2, "rotor_lag": [0.04, 0.15], "action_delay": [0.0, 0.04]}
    ranges |= {"force": 0.05, "curriculum": CurriculumConfig(start=0.25, window=1)}
    simulation = multirotors(WORLDS, robot=robot, **ranges)
    nominal = robot.model.mass
    assert uniformly_within(params(simulation, "mass")[:, 0] / nominal, 0.95, 1.05)
    rise, fall = (params(simulation, f"rotor_{name}_time")[:, 0] for name in ("rise", "fall"))
    assert uniformly_within(rise, *np.add(0.75 * 0.05545, [0.25 * 0.04, 0.25 * 0.15]))
    assert uniformly_within(fall, *np.add(0.75 * 0.15, [0.25 * 0.04, 0.25 * 0.15]))
    weight = nominal * robot.model.gravity
    force = params(simulation, "disturbance_force") / (0.25 * 0.05 * weight)
    assert stats.kstest(force.flatten(), "norm").pvalue > 1e-3
    assert uniformly_within(params(simulation, "action_delay")[:, 0], 0.0, 1.0)
    assert simulation.curriculum is not None
    ones = torch.ones(WORLDS, dtype=torch.bool)
    for _ in range(8):
        simulation.curriculum.follow(ones, ones)
    begin(simulation, ones)
    assert uniformly_within(params(simulation, "mass")[:, 0] / nominal, 0.8, 1.2)
    assert uniformly_within(params(simulation, "action_delay")[:, 0], 0.0, 4.0)
    other = multirotors(WORLDS, robot=robot, **ranges)
    other.load_state_dict(simulation.state_dict())
    assert other.curriculum is not None
    assert float(other.curriculum.level) == 1.0


def test_a_sensors_latency_delays_what_is_measured_in_control_steps() -> None:
    robot = robot_config(noise=False, latency=0.02)
    simulation = multirotors(1, robot=robot, **NOTHING)
    truth, measured = [], []
    for _ in range(6):
        simulation.step(RotorCommand(speed=torch.ones(1, 4)))
        truth.append(simulation.true_state.position_w.clone())
        measured.append(simulation.measured.position_w.clone())
    for old, seen in zip(truth[:-2], measured[2:], strict=True):
        assert torch.equal(old, seen)


def test_sensor_noise_has_the_declared_deviation_per_field() -> None:
    robot = robot_config()
    simulation = multirotors(WORLDS, robot=robot, **NOTHING)
    for name, sensor in robot.spec.sensors.items():
        error = (simulation.measured.fields[name] - simulation.true_state.fields[name]).numpy()
        if name == "orientation_w":
            error = 2 * error[:, 1:]  # of a small rotation vector
        # 6,000 draws: the standard error of a deviation is 0.9 %.
        assert error.std() == pytest.approx(sensor.noise, rel=0.04)


def test_only_declared_sensors_can_be_read() -> None:
    robot = robot_config()
    del robot.spec.sensors["linear_velocity_w"]
    simulation = multirotors(2, robot=robot)
    assert set(simulation.measured.fields) == set(robot.spec.sensors)
    with pytest.raises(SpecMismatchError, match="linear_velocity_w"):
        _ = simulation.measured.linear_velocity_w
    assert simulation.true_state.linear_velocity_w.shape == (2, 3)


@pytest.mark.parametrize(
    ("name", "sensor", "error", "told"),
    [
        ("linear_acceleration_b", {}, SpecMismatchError, "linear_acceleration_b"),
        ("position_w", {"latency": 0.05}, ConfigError, "delays all sensors alike"),
        ("position_w", {"rate_hz": 50}, ConfigError, "100 Hz; .* 'position_w' .* declares 50 Hz"),
        *(("position_w", {"rate_hz": 100, field: 0.1}, ConfigError,
           f"'position_w' .* declares {field}, .* not simulate")
          for field in ("jitter", "dropout", "bias", "bias_walk", "resolution")),
    ],
)  # fmt: skip
def test_a_sensor_that_the_engine_lacks_is_refused_not_ignored(name, sensor, error, told):
    robot = robot_config()
    robot.spec.sensors[name] = SensorSpec(rate_hz=500)
    if name == "position_w":
        multirotors(2, robot=robot)  # faster than control is no harm
    robot.spec.sensors[name] = SensorSpec(**sensor)
    with pytest.raises(error, match=told):
        multirotors(2, robot=robot)


@pytest.mark.parametrize("field", ["noise_gyro", "latency"])
def test_noise_and_latency_of_a_plant_are_refused_not_ignored(field: str) -> None:
    with pytest.raises(ConfigError, match=f"plant of robot 'crazyflie' sets {field}; "):
        multirotors(2, robot=with_plant(**{field: 1}))


def test_without_a_range_the_plant_keeps_its_action_delay() -> None:
    simulation = multirotors(4, robot=with_plant(action_delay=2), **NOTHING, action_delay=[])
    assert (params(simulation, "action_delay") == 2).all()
    speeds = []
    for _ in range(3):
        simulation.step(RotorCommand(speed=torch.ones(4, 4)))
        speeds.append(float(simulation.rotor_speed[0, 0]))
    assert speeds[:2] == [0.5] * 2
    assert speeds[2] > 0.5


def test_drawn_disturbances_are_added_to_the_plants_own() -> None:
    robot = with_plant(disturbance_force=[0.01, 0.0, -0.02])
    constant = params(multirotors(4, robot=robot, **NOTHING), "disturbance_force")
    np.testing.assert_allclose(constant, np.tile([0.01, 0.0, -0.02], (4, 1)), rtol=1e-6)
    drawn = params(multirotors(4, force=0.05), "disturbance_force")
    both = params(multirotors(4, robot=robot, force=0.05), "disturbance_force")
    np.testing.assert_allclose(both, drawn + constant, atol=1e-8)


def said(step: int, worlds: int) -> BodyRateCommand:
    return BodyRateCommand(
        rates_b=torch.full((worlds, 3), float(step)), thrust=torch.full((worlds, 1), step / 100)
    )


def test_every_world_hears_what_was_said_its_delay_ago():
    delay = torch.tensor([0.0, 1.0, 2.0])
    line = CommandDelay(3, longest=2, device=CPU)
    line.begin(EnvSelection(torch.ones(3, dtype=torch.bool)), 0.5)
    for step in range(1, 8):
        heard = line.pass_on(said(step, 3), delay)
        for world, steps in enumerate((0, 1, 2)):
            past = step - steps
            rate, thrust = (past, past / 100) if past >= 1 else (0.0, 0.5)
            np.testing.assert_allclose(heard.rates_b[world], rate)
            np.testing.assert_allclose(heard.thrust[world], thrust)


def test_an_episode_begins_with_nothing_on_its_way():
    line = CommandDelay(2, longest=1, device=CPU)
    line.pass_on(said(5, 2), torch.ones(2))
    line.begin(EnvSelection(torch.tensor([True, False])), 0.5)
    heard = line.pass_on(said(6, 2), torch.ones(2))
    np.testing.assert_allclose(heard.rates_b[:, 0], [0.0, 5.0])
    np.testing.assert_allclose(heard.thrust[:, 0], [0.5, 0.05])


def test_between_two_steps_a_world_hears_the_mean_of_what_both_say() -> None:
    line = CommandDelay(3, longest=2, device=CPU)
    delay = torch.tensor([0.0, 0.25, 2.0])
    for value in (1, 2, 3):
        heard = line.pass_on(said(value, 3), delay)
    np.testing.assert_allclose(heard.rates_b[:, 0], [3.0, 0.75 * 3 + 0.25 * 2, 1.0])


@pytest.mark.slow
@pytest.mark.parametrize("action", some(["body_rates"], ["rotors"]))
def test_first_actions_move_nobody_before_their_delay(action: str):
    """Same seed, another first action: the state differs only after the delay."""
    config = composed(["task=hover", f"robot.action={action}"]).config

    def speeds(first: float, delay: float) -> list[Any]:
        ranges = replace(config.task.randomization, action_delay=[delay, delay])
        task = replace(config.task, randomization=ranges)
        env = make_env(replace(config, task=task), num_envs=2, device=CPU, seed=3, evaluation=False)
        assert isinstance(env, SimEnv)
        env.reset(seed=3)
        actions = [torch.full((2, 4), value) for value in (first, 0.0, 0.0, 0.0)]
        found = []
        for one in actions:
            env.step(one)
            found.append(env.simulation.privileged["rotor_speed"].clone())
        return found

    for steps, delay in ((0, 0.0), (1, 0.01), (2, 0.02), (1, 0.015)):
        low, high = speeds(-0.5, delay), speeds(0.5, delay)
        differ = [bool((a != b).any()) for a, b in zip(low, high, strict=True)]
        assert differ == [step >= steps for step in range(4)]


KINDS = {
    "position_w": Mirrored.vector,
    "orientation_w": Mirrored.quaternion,
    "linear_velocity_w": Mirrored.vector,
    "angular_velocity_b": Mirrored.pseudovector,
}


def worlds(robot: str, plant: str) -> SimEnv:
    """Two worlds without noise, disturbed and drawn as in training."""
    config = composed(["task=hover", f"robot={robot}", f"robot.plant={plant}"]).config
    spec = config.robot.spec
    sensors = {name: SensorSpec(rate_hz=100) for name in spec.sensors}
    quiet = replace(config.robot, spec=replace(spec, sensors=sensors))
    env = make_env(replace(config, robot=quiet), num_envs=2, device=CPU, seed=5, evaluation=True)
    assert isinstance(env, SimEnv)
    env.reset(seed=5)
    return env


def put_the_image_into_env_one(env: SimEnv, mirror: RobotMirror) -> None:
    state = env.state_dict()
    engine = state["simulation"]["engine"]
    engine["state"][1], engine["params"][1] = engine["state"][0], engine["params"][0]
    for name, kind in KINDS.items():
        columns = STATE_COLUMNS[name]
        values = engine["state"][0, columns]
        engine["state"][1, columns] = image(mirror.kind(kind, len(values)), values)
    for name, kind in (("disturbance_force", Mirrored.vector),
                       ("disturbance_torque", Mirrored.pseudovector)):  # fmt: skip
        columns = PARAM_COLUMNS[name]
        engine["params"][1, columns] = image(mirror.kind(kind, 3), engine["params"][0, columns])
    env.load_state_dict(state)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("robot", "plant"),
    some(
        [("crazyflie", "paper")],
        [("crazyflie", "measured"), ("x500", "gazebo"), ("x500", "identified")],
    ),
)
def test_mirrored_actions_lead_to_mirrored_observations_and_equal_rewards(robot, plant):
    env = worlds(robot, plant)
    put_the_image_into_env_one(env, RobotMirror(env.simulation.robot))
    found, generator = env.mirror(), torch.Generator().manual_seed(0)
    for t in range(30):
        action = torch.rand(4, generator=generator) * 0.8 - 0.2
        step = env.step(torch.stack([action, image(found.action, action)]))
        assert step.reward_terms is not None
        assert torch.allclose(step.reward_terms[0], step.reward_terms[1], atol=1e-4)
        if t >= 16:  # older actions, which the actor sees too, are from before
            for name, group in step.next_obs.items():
                assert torch.allclose(image(found.groups[name], group[0]), group[1], atol=1e-4)
    position = env.simulation.true_state.position_w
    assert not torch.allclose(position[0], position[1], atol=1e-2)
