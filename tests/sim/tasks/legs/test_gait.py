"""The gait's clock and what feet do, with numbers by hand."""

import math

import pytest
import torch

from robot_rl.core.errors import ConfigError
from sim.tasks.legs.gait import Gait, GaitConfig, GaitTarget, slip, swing_error
from tests.fakes import CPU

MOVING = torch.tensor([True])


def gait(**changes: float) -> Gait:
    config = GaitConfig(
        **{"duty": 0.5, "swing_height": 0.1, "foot_radius": 0.02, **changes},
        offsets=[0.0, 0.5, 0.5, 0.0],
    )
    return Gait(config, num_feet=4, device=CPU)


@pytest.mark.parametrize(
    ("phase", "stands"), [(0.0, [0, 3]), (0.49, [0, 3]), (0.5, [1, 2]), (0.99, [1, 2])]
)
def test_diagonal_feet_of_a_trot_stand_together(phase: float, stands: list[int]) -> None:
    target = gait().target(torch.tensor([phase]), MOVING)
    assert target.stands[0].nonzero().flatten().tolist() == stands


def test_feet_stand_for_the_share_of_the_cycle_that_duty_says() -> None:
    phase = torch.linspace(0, 1, 1001)[:-1]
    target = gait(duty=0.6).target(phase, torch.ones(1000, dtype=torch.bool))
    assert target.stands.float().mean(0).tolist() == pytest.approx([0.6] * 4, abs=2e-3)


def test_a_swing_is_an_arc_with_its_top_in_the_middle() -> None:
    phase = torch.tensor([0.5, 0.625, 0.75, 1.0 - 1e-7])
    height = gait().target(phase, torch.ones(4, dtype=torch.bool)).height[:, 0]
    middle = 0.02 + 0.1 * math.sin(math.pi / 4)
    torch.testing.assert_close(height, torch.tensor([0.02, middle, 0.12, 0.02]), atol=1e-5, rtol=0)


def test_only_standing_feet_slip_along_the_ground_and_only_swinging_feet_owe_a_height():
    contact = torch.tensor([[True, False, False, False]])
    velocity = torch.tensor([[3.0, 4.0, 9.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0]])
    torch.testing.assert_close(slip(contact, velocity), torch.tensor([25.0]))
    target = GaitTarget(stands=torch.tensor([[True, False]]), height=torch.tensor([[0.02, 0.10]]))
    error = swing_error(target, torch.tensor([[0.50, 0.07]]))
    torch.testing.assert_close(error, torch.tensor([0.03**2]))


def test_every_foot_needs_an_offset() -> None:
    with pytest.raises(ConfigError, match=r"expected one for each of 2 feet, got \[0\.0, 0\.5"):
        Gait(GaitConfig(), num_feet=2, device=CPU)
