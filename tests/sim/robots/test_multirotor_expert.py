"""The full-knowledge controller: its laws, and the starts that it saves."""

import pytest
import torch

from robot_rl.training.evaluation import Evaluation, evaluate
from sim.env import SimEnv
from sim.robots.multirotor_expert import MultirotorExpert, allocate, mixing_matrix
from sim.robots.multirotor_robot import MultirotorRandomization
from sim.tasks.flights.hover import HoverConfig
from tests.matrices import some
from tests.sim.flying import STILL, flight_env, simulation_of

ARMS = torch.tensor([[[0.028, -0.028], [-0.028, -0.028], [-0.028, 0.028], [0.028, 0.028]]])
YAW_SIGN = torch.tensor([[-1.0, 1.0, -1.0, 1.0]])
MIXER = mixing_matrix(ARMS, YAW_SIGN, torch.tensor([[0.006]]))
UNMIXER = torch.linalg.inv(MIXER)
CALM = MultirotorRandomization(mass=0, inertia=0, thrust=0, force=0, torque=0)


def fly(env: SimEnv, seed: int = 1) -> Evaluation:
    expert = MultirotorExpert(simulation_of(env))
    return evaluate(env, lambda obs: expert.act(), seed=seed)


def allocated(wanted: list[float], low: float = 0.0, high: float = 0.15) -> torch.Tensor:
    """What four equal rotors give of thrust and torques that are wanted, (4,)."""
    bounds = torch.full((1, 4), low), torch.full((1, 4), high)
    thrust = allocate(torch.tensor([wanted]), UNMIXER, *bounds)
    assert (thrust >= low).all()
    assert (thrust <= high).all()
    return (MIXER @ thrust[:, :, None])[0, :, 0]


def test_mixing_has_the_signs_of_the_physics_and_allocation_inverts_it():
    one = MIXER[0, :, 0]  # rotor 0: in front (x > 0) on the right (y < 0)
    torch.testing.assert_close(one, torch.tensor([1.0, -0.028, -0.028, -0.006]))
    wanted = torch.tensor([0.3, 5e-4, -7e-4, 1e-4])
    torch.testing.assert_close(allocated(wanted.tolist()), wanted, atol=1e-7, rtol=1e-5)


def test_leaning_goes_before_lift_before_heading_and_keeps_its_direction():
    # All the thrust there is leaves no room to lean: thrust gives way, and heading is left out.
    given = allocated([0.6, 1e-3, 0.0, 1e-4])
    torch.testing.assert_close(given[1:3], torch.tensor([1e-3, 0.0]), atol=1e-7, rtol=0)
    assert 0.5 < given[0] < 0.6
    assert given[3].abs() < 1e-7
    given = allocated([0.3, 1.0, -0.5, 0.0])
    assert float(given[2] / given[1]) == pytest.approx(-0.5, rel=1e-4)
    assert given[1] > 3e-3  # and is as large as four rotors of 0.15 N can make it


def test_equilibrium_is_held_with_the_hover_action():
    env = flight_env(HoverConfig(evaluation_start=STILL, randomization=CALM), 2)
    env.reset(seed=0)
    speed = simulation_of(env).config.model.hover_setpoint
    simulation_of(env).rotor_speed.fill_(speed)
    action = MultirotorExpert(simulation_of(env)).act()
    torch.testing.assert_close(action, torch.full((2, 4), 2 * speed - 1), atol=1e-3, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "lag"), some([("measured", [])], [("paper", [0.04, 0.15])]))
def test_saves_all_evaluation_starts_of_hover(plant, lag):
    task = HoverConfig(randomization=MultirotorRandomization(rotor_lag=lag))
    outcome = fly(flight_env(task, 128, plant=plant))
    # 4,096 starts: all saved with either plant; 128 of them leave room for one bad draw.
    assert outcome.success_rate >= 0.99
    assert float(outcome.metrics["mean_distance"].median()) < 0.01
