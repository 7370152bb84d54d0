"""A plant is described by finite, physical numbers, each in its own column."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from robot_rl.core.errors import ConfigError
from sim.physics.multirotor_model import PARAM_COLUMNS, PARAM_WIDTH
from tests.sim.physics.reference_multirotor import PLANT_A, PLANT_B


def test_hover_setpoints_are_those_worked_out_by_hand() -> None:
    # Paper: hover at 14475.8 of 21702 rpm. Identified: 0.0922 u^2 + 0.0144 u + 0.0035 = m g / 4.
    assert pytest.approx(14475.8 / 21702.0, abs=1e-5) == PLANT_A.hover_setpoint
    u = PLANT_B.hover_setpoint
    assert 0.00352526 + 0.01437313 * u + 0.09223048 * u * u == pytest.approx(0.0306 * 9.81 / 4)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"mass": 0.0}, "mass"),
        ({"mass": float("nan")}, "mass"),
        ({"inertia": [1e-6, 1e-6, 1e-5]}, "no rigid body"),
        ({"inertia": [1e-6, 1e-6]}, "2 numbers; expected 3"),
        ({"rotor_yaw_sign": [1.0, 1.0, 0.5, -1.0]}, "rotor_yaw_sign"),
        ({"rotor_position": [[0.1, 0.1]]}, "2 numbers; expected 8"),
        ({"noise_gyro": -0.1}, "noise_gyro"),
        ({"action_delay": 1.5}, "action_delay"),
        ({"mass": 1.0}, "cannot hover"),
        ({"thrust_curve": [1.0, 0.0, 0.0]}, "cannot hover"),
    ],
)
def test_an_impossible_plant_is_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        replace(PLANT_B, **change)


def test_every_parameter_has_its_own_columns() -> None:
    covered = [i for columns in PARAM_COLUMNS.values() for i in range(PARAM_WIDTH)[columns]]
    assert covered == list(range(PARAM_WIDTH))
    row = PLANT_B.row()
    assert row.shape == (PARAM_WIDTH,)
    torch.testing.assert_close(row[PARAM_COLUMNS["inertia"]], torch.tensor(PLANT_B.inertia))
    torch.testing.assert_close(
        row[PARAM_COLUMNS["rotor_position"]].view(4, 2), torch.tensor(PLANT_B.rotor_position)
    )
