"""The flight controllers, with their default gains, on both plants of the simulated Crazyflie."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from hardware.controllers.body_rates import BodyRates, BodyRatesConfig, RotorLayout
from hardware.controllers.controller import Cascade
from hardware.controllers.position_se3 import PositionSe3, PositionSe3Config
from robot_rl.core import quaternion
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import RotorCommand
from sim.physics.multirotor_engine import MultirotorEngine
from sim.physics.multirotor_model import MultirotorModel
from tests.hardware.controllers.flying import pose

ROBOT = Path(__file__).parents[3] / "configs/robot/crazyflie.yaml"
PLANTS = yaml.safe_load(ROBOT.read_text())["plants"]
NOISE: dict[str, Any] = {
    "noise_position": 0.001,
    "noise_attitude": 0.001,
    "noise_velocity": 0.002,
    "noise_gyro": 0.002,
}


def flyer(plant):
    names = ("rotor_position", "rotor_yaw_sign", "thrust_curve", "torque_per_thrust")
    layout = RotorLayout(**{name: plant[name] for name in names})
    outer = PositionSe3Config(mass=plant["mass"], max_thrust=layout.max_thrust)
    rates = BodyRates(layout, BodyRatesConfig(inertia=plant["inertia"]))
    return Cascade(PositionSe3(outer), rates)


def tilted_world(model, dt):
    """One body that hovers, leaning by 45 degrees and tumbling a little."""
    engine = MultirotorEngine(1, physics_dt=dt)
    engine.params[:] = model.row()
    half = math.radians(22.5)
    lean = [math.cos(half), 0.8 * math.sin(half), 0.6 * math.sin(half), 0.0]
    start = [0.0, 0.0, 0.0, *lean, 0.0, 0.0, 0.0, 1.0, -1.0, 0.5, *[model.hover_setpoint] * 4]
    engine.state[:] = torch.tensor(start)
    hover = torch.full((1, 4), model.hover_setpoint)
    engine.settle(torch.ones(1, dtype=torch.bool), hover, None)
    return engine


def measured(engine):
    row = engine.measured.double().numpy()
    names = ("position_w", "orientation_w", "linear_velocity_w", "angular_velocity_b")
    return RobotState(dict(zip(names, np.split(row, [3, 7, 10], axis=1), strict=True)))


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "dt"), [("paper", 0.002), ("measured", 0.01)])
def test_they_recover_from_a_tilt_and_go_to_the_goal(plant, dt):
    engine = tilted_world(MultirotorModel(**PLANTS[plant], **NOISE), dt)
    law = flyer(PLANTS[plant])
    law.start(measured(engine), None)
    random = torch.Generator().manual_seed(0)
    for _ in range(round(8.0 / dt)):
        command = law.update(pose([0.3, -0.2, 0.1], yaw=1.0), measured(engine), dt)
        assert isinstance(command, RotorCommand)
        engine.step(
            torch.tensor(command.speed, dtype=torch.float32), torch.randn(1, 12, generator=random)
        )
    end = engine.state[0].double().numpy()
    np.testing.assert_allclose(end[:3], [0.3, -0.2, 0.1], atol=0.03)
    assert math.degrees(quaternion.tilt(end[3:7])) < 2
    assert 2 * math.atan2(end[6], end[3]) == pytest.approx(1.0, abs=0.05)
