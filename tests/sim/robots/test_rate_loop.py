"""The inner loop of many multirotors: the law of the robot process, and rates that are reached."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hardware.controllers.body_rates import BodyRates, BodyRatesConfig, RotorLayout
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import BodyRateCommand, RotorCommand
from sim.robots.multirotor_expert import MultirotorExpert
from sim.robots.multirotor_robot import FlightAction, MultirotorConfig
from sim.robots.rate_loop import RateLoop, RateLoopConfig
from tests.matrices import some
from tests.sim.flying import CPU, crazyflie, multirotors, robot_config

WORLDS, STEPS, DT = 30, 60, 0.01


def told_rates(**changes: Any) -> MultirotorConfig:
    """The robot whose policies give body rates."""
    return replace(robot_config(noise=False), action=FlightAction.body_rates, **changes)


def gyro(rates: np.ndarray) -> RobotState:
    return RobotState({"angular_velocity_b": rates})


@pytest.mark.slow
@pytest.mark.parametrize("plant", some(["measured"], ["paper"]))
def test_every_world_runs_the_law_of_the_robot_process(plant: str) -> None:
    model, config = crazyflie(plant).model, RateLoopConfig()
    layout = RotorLayout(
        rotor_position=model.rotor_position, rotor_yaw_sign=model.rotor_yaw_sign,
        thrust_curve=model.thrust_curve, torque_per_thrust=model.torque_per_thrust,
    )  # fmt: skip
    gains = BodyRatesConfig(inertia=model.inertia, **config.gains(model))
    laws = [BodyRates(layout, gains) for _ in range(WORLDS)]
    loop = RateLoop(model, config, num_worlds=WORLDS, dt=DT, device=CPU)
    rng = np.random.default_rng(0)
    rates = rng.normal(scale=3.0, size=(WORLDS, 3))
    loop.begin(EnvSelection(torch.ones(WORLDS, dtype=torch.bool)), torch.tensor(rates))
    for law, row in zip(laws, rates, strict=True):
        law.start(gyro(row[None]), None)
    seen = []
    for _ in range(STEPS):
        rates = rates + rng.normal(scale=0.5, size=rates.shape)
        # Calm and wild wishes, thrusts of nothing, of everything and between.
        wanted = rates + rng.normal(size=rates.shape) * rng.choice([0.1, 8.0], size=(WORLDS, 1))
        thrust = np.clip(rng.uniform(-0.2, 1.2, size=(WORLDS, 1)), 0.0, 1.0)
        command = BodyRateCommand(rates_b=torch.tensor(wanted), thrust=torch.tensor(thrust))
        speed = loop.update(command, torch.tensor(rates)).numpy()
        for i, law in enumerate(laws):
            own = BodyRateCommand(rates_b=wanted[i : i + 1], thrust=thrust[i : i + 1])
            expected = law.update(own, gyro(rates[i : i + 1]), DT).speed
            np.testing.assert_allclose(speed[i], expected[0], atol=1e-7)  # told in float32
        seen.append(speed)
    speeds = np.array(seen)
    assert (speeds == 0).any(), "rotors that are off or at their least"
    assert (speeds == 1).any(), "rotors that give all they can"


@pytest.mark.slow
@pytest.mark.parametrize("decimation", some([5], [1]))
def test_rates_are_reached_with_every_lag_that_is_drawn(decimation: int) -> None:
    robot = told_rates(physics_dt=DT / decimation, decimation=decimation)
    for sensor in robot.spec.sensors.values():
        sensor.rate_hz = 1 / robot.physics_dt
    simulation = multirotors(64, robot=robot, rotor_lag=[0.04, 0.15], torque=0.0)
    wanted = torch.tensor([[3.0, -2.0, 1.0]]).repeat(64, 1)
    command = BodyRateCommand(rates_b=wanted, thrust=torch.full((64, 1), 0.45))
    for _ in range(150):
        simulation.step(command)
    assert not simulation.fault.any()
    error = (simulation.true_state.angular_velocity_b - wanted).abs().amax(0)
    assert (error < torch.tensor([0.3, 0.3, 0.5])).all(), error


def test_saved_loops_go_on_as_they_would_have() -> None:
    def flown(simulation: Any, steps: int) -> torch.Tensor:
        for i in range(steps):
            wish = torch.full((8, 3), 1.0 + 0.1 * i)
            simulation.step(BodyRateCommand(rates_b=wish, thrust=torch.full((8, 1), 0.4)))
        return simulation.engine.state.clone()

    simulation = multirotors(8, robot=told_rates())
    flown(simulation, 7)
    saved = simulation.state_dict()
    expected = flown(simulation, 9)
    other = multirotors(8, robot=told_rates(), seed=1)
    flown(other, 3)
    other.load_state_dict(saved)
    assert torch.equal(flown(other, 9), expected)


def test_nothing_of_an_episode_is_left_in_the_next() -> None:
    loop = RateLoop(crazyflie().model, RateLoopConfig(), num_worlds=2, dt=DT, device=CPU)
    command = BodyRateCommand(rates_b=torch.ones(2, 3), thrust=torch.full((2, 1), 0.5))
    still = torch.zeros(2, 3)
    first = loop.update(command, still)
    for i in range(20):
        loop.update(command, still + 0.1 * i)
    loop.begin(EnvSelection(torch.tensor([True, False])), still)
    again = loop.update(command, still)
    torch.testing.assert_close(again[0], first[0])
    assert not torch.allclose(again[1], first[1])


def test_actions_span_the_rates_and_the_thrust_and_rotor_speeds_take_no_body_rates():
    robot = told_rates()
    action_map = robot.action_map(None)
    assert action_map.low == [-10.0, -10.0, -5.0, 0.0]
    assert action_map.high == [10.0, 10.0, 5.0, 1.0]
    hover = action_map.to_command(torch.tensor([robot.hover_action]))
    assert isinstance(hover, BodyRateCommand)
    lift = float(hover.thrust[0, 0]) * robot.model.max_thrust
    assert lift == pytest.approx(robot.model.mass * robot.model.gravity, rel=1e-6)
    rates = BodyRateCommand(rates_b=torch.zeros(2, 3), thrust=torch.zeros(2, 1))
    with pytest.raises(SpecMismatchError, match=r"action=rotors takes .* got BodyRateCommand"):
        multirotors(2).step(rates)
    multirotors(2, robot=told_rates()).step(RotorCommand(speed=torch.zeros(2, 4)))  # a law's
    with pytest.raises(ConfigError, match=r"robot\.action=body_rates; use robot\.action=rotors"):
        MultirotorExpert(multirotors(2, robot=told_rates()))
