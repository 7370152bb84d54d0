"""Feet on the ground: contacts, air times and slip, with numbers by hand."""

import torch

from robot_rl.core.rows import Rows
from sim.tasks.gait import Gait

DT = 0.1


def gait() -> Gait:
    """One robot with two feet."""
    return Gait(1, 2, control_dt=DT, touch=5.0, device=torch.device("cpu"))


def follow(feet: Gait, *forces: tuple[float, float]) -> None:
    for pair in forces:
        feet.follow(torch.tensor([pair]))


def test_air_time_counts_until_the_step_of_landing_and_is_then_forgotten() -> None:
    feet = gait()
    follow(feet, (50, 50), (0, 50), (4.9, 50), (50, 50))
    assert feet.landed.tolist() == [[True, False]]
    torch.testing.assert_close(feet.air_time, torch.tensor([[0.3, 0.0]]))
    follow(feet, (50, 50))
    assert not feet.landed.any()
    assert not feet.air_time.any()


def test_a_landing_is_paid_by_its_air_time_and_long_hovering_no_more_than_the_target() -> None:
    feet = gait()
    follow(feet, *[(0.0, 50.0)] * 3, (50, 50))  # 0.4 s from the last stand
    torch.testing.assert_close(feet.air_reward(0.25), torch.tensor([0.15]))
    follow(feet, *[(0.0, 50.0)] * 20, (50, 50))
    torch.testing.assert_close(feet.air_reward(0.25), torch.tensor([0.25]))
    follow(feet, (0, 50), (50, 50))  # lifted at once, and hurried: it costs
    torch.testing.assert_close(feet.air_reward(0.25), torch.tensor([-0.05]))
    follow(feet, (50, 50))
    assert not feet.air_reward(0.25).any()


def test_only_standing_feet_slip_and_only_along_the_ground() -> None:
    feet = gait()
    follow(feet, (50, 0))
    velocity = torch.tensor([[3.0, 4.0, 9.0, 1.0, 1.0, 1.0]])
    torch.testing.assert_close(feet.slip(velocity), torch.tensor([25.0]))


def test_a_new_episode_begins_on_all_feet_and_a_saved_gait_goes_on() -> None:
    feet = Gait(2, 2, control_dt=DT, touch=5.0, device=torch.device("cpu"))
    feet.follow(torch.zeros(2, 2))
    saved = feet.state_dict()
    feet.clear(Rows(torch.tensor([False, True])))
    assert feet.contact.tolist() == [[False, False], [True, True]]
    assert feet.air_time[1].tolist() == [0.0, 0.0]
    other = Gait(2, 2, control_dt=DT, touch=5.0, device=torch.device("cpu"))
    other.load_state_dict(saved)
    other.follow(torch.full((2, 2), 9.0))
    assert other.landed.all()
    torch.testing.assert_close(other.air_time, torch.full((2, 2), 0.2))
