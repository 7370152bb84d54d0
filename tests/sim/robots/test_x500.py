"""The X500's plants against published numbers, and what they do in the air."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robot_rl.core.robot_command import RotorCommand
from sim.robots.multirotor_robot import MultirotorConfig
from sim.robots.multirotor_simulation import MultirotorSimulation
from tests.compositions import composed
from tests.sim.flying import multirotors

PLANTS = ("gazebo", "identified")
NOTHING = {"mass": 0.0, "inertia": 0.0, "thrust": 0.0, "rotor_lag": [], "force": 0.0, "torque": 0.0}

# PX4-gazebo-models, x500_base/model.sdf: masses [kg], moments of inertia [kg m^2], rotors [m].
BODY_MASS, BODY_INERTIA = 2.0, np.array([0.02166666666666667, 0.02166666666666667, 0.04])
ROTOR_MASS = 0.016076923076923075
ROTOR_INERTIA = np.array([3.8464910483993325e-07, 2.6115851691700804e-05, 2.649858234714004e-05])
ROTORS = np.array([
    [0.174, -0.174, 0.06], [-0.174, 0.174, 0.06], [0.174, 0.174, 0.06], [-0.174, -0.174, 0.06],
])  # fmt: skip
COUNTERCLOCKWISE = [True, True, False, False]
# x500/model.sdf: [N/(rad/s)^2], [rad/s], [m].
MOTOR_CONSTANT, TOP_SPEED, MOMENT_CONSTANT = 8.54858e-06, 1000.0, 0.016


def x500(plant: str = "gazebo") -> MultirotorConfig:
    """The robot of configs/robot/x500.yaml."""
    return composed(["task=hover", "robot=x500", f"robot.plant={plant}"]).config.robot


@pytest.mark.slow
def test_gazebos_body_and_rotors_are_one_body_here() -> None:
    model = x500().model
    mass = BODY_MASS + 4 * ROTOR_MASS
    assert model.mass == pytest.approx(mass)
    centre = ROTOR_MASS * ROTORS.sum(0) / mass  # from the middle of the body
    blades = np.array([ROTOR_INERTIA[:2].mean()] * 2 + [ROTOR_INERTIA[2]])  # they turn
    total = BODY_INERTIA + BODY_MASS * _about(-centre) + 4 * blades
    total += sum(ROTOR_MASS * _about(rotor - centre) for rotor in ROTORS)
    np.testing.assert_allclose(model.inertia, total, rtol=1e-6)
    assert model.rotor_position == ROTORS[:, :2].tolist()
    # A propeller that turns counterclockwise drives the body clockwise.
    assert model.rotor_yaw_sign == [-1.0 if ccw else 1.0 for ccw in COUNTERCLOCKWISE]
    assert model.thrust_curve == [0.0, 0.0, pytest.approx(MOTOR_CONSTANT * TOP_SPEED**2)]
    assert model.torque_per_thrust == MOMENT_CONSTANT
    assert (model.rotor_rise_time, model.rotor_fall_time) == (0.0125, 0.025)


def _about(offset: np.ndarray) -> np.ndarray:
    """Squared distances from the three axes [m^2]."""
    x, y, z = offset**2
    return np.array([y + z, x + z, x + y])


@pytest.mark.slow
def test_hover_speeds_and_lags_are_those_of_its_own_rotors():
    # sqrt(2.0643 kg * 9.81 m/s^2 / 4 / 8.54858e-6) = 769.6 rad/s; rl-tools: 0.55496 of full speed.
    assert x500().model.hover_setpoint == pytest.approx(0.7696, abs=1e-4)
    assert x500("identified").model.hover_setpoint == pytest.approx(0.5549636, abs=1e-6)
    drawn = composed(["task=hover", "robot=x500"]).config.task.randomization
    small = composed(["task=hover", "robot=crazyflie"]).config.task.randomization
    assert drawn.rotor_lag == [0.01, 0.06]
    assert replace(drawn, rotor_lag=small.rotor_lag) == small  # nothing else differs


def flown(plant: str, speed: list[float], seconds: float) -> MultirotorSimulation:
    """One robot of the plant, from rest, with constant rotor speeds."""
    simulation = multirotors(1, robot=x500(plant), **NOTHING)
    simulation.rotor_speed.copy_(torch.tensor([speed]))
    for _ in range(round(seconds / simulation.control_dt)):
        simulation.step(RotorCommand(speed=torch.tensor([speed])))
    return simulation


@pytest.mark.parametrize("plant", PLANTS)
def test_it_hangs_in_the_air_at_its_hover_speed_and_falls_without(plant: str) -> None:
    hover = x500(plant).model.hover_setpoint
    still = flown(plant, [hover] * 4, 2.0).true_state
    assert float(still.position_w.norm()) < 1e-3
    assert float(still.angular_velocity_b.norm()) < 1e-5
    falling = flown(plant, [0.0] * 4, 0.5).true_state
    assert float(falling.linear_velocity_w[0, 2]) == pytest.approx(-9.81 * 0.5, rel=1e-3)


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize(
    ("rotor", "signs"),
    [(0, [-1, -1, -1]), (1, [1, 1, -1]), (2, [1, -1, 1]), (3, [-1, 1, 1])],
    ids=["front right", "rear left", "front left", "rear right"],
)
def test_a_faster_rotor_turns_the_body_to_its_own_side(plant, rotor, signs):
    hover = x500(plant).model.hover_setpoint
    speed = [hover + 0.02 * (i == rotor) for i in range(4)]
    rates = flown(plant, speed, 0.05).true_state.angular_velocity_b[0]
    assert rates.sign().tolist() == signs
