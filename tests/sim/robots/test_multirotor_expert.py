"""The full-knowledge controller: its laws, and the starts that it saves."""

import pytest
import torch

from robot_rl.training.evaluation import Evaluation, evaluate
from sim.env import SimEnv
from sim.robots.multirotor_expert import (
    MultirotorExpert,
    NominalController,
    allocate,
    mixing_matrix,
)
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


class Flown:
    """The controller that knows the nominal plant, as a policy that remembers."""

    def __init__(self, env: SimEnv) -> None:
        self._env, self._controller = env, NominalController(simulation_of(env))
        self.begin = self._controller.begin

    def __call__(self, obs: object) -> torch.Tensor:
        return self._controller.act(self._env.task.goal)


def test_nominal_controller_asks_the_same_of_unlike_plants_in_the_same_state():
    unlike = MultirotorRandomization(mass=0.2, inertia=0.2, thrust=0.2, force=0.1, torque=1e-4)
    env = flight_env(HoverConfig(evaluation_start=STILL, randomization=unlike), 4)
    env.reset(seed=0)
    simulation = simulation_of(env)
    for name, value in simulation.measured.fields.items():
        value.copy_(simulation.true_state.fields[name])
    actions = NominalController(simulation).act()
    torch.testing.assert_close(actions, actions[:1].expand(4, -1), atol=1e-4, rtol=0)
    assert not torch.allclose(MultirotorExpert(simulation).act(), actions, atol=1e-3)


def test_nominal_controller_forgets_where_an_episode_begins():
    env = flight_env(HoverConfig(evaluation_start=STILL, randomization=CALM), 2)
    env.reset(seed=0)
    controller, fresh = (NominalController(simulation_of(env)) for _ in range(2))
    goal = {"position_w": torch.full((2, 3), 0.2)}
    for _ in range(50):  # an error that stays is integrated
        controller.act(goal)
    controller.begin(torch.tensor([True, False]))
    torch.testing.assert_close(controller.act(goal)[0], fresh.act(goal)[0])
    assert not torch.allclose(controller.act(goal)[1], fresh.act(goal)[1], atol=1e-2)


@pytest.mark.slow
def test_nominal_controller_takes_an_unknown_force_and_mass_to_the_goal():
    unknown = MultirotorRandomization(
        mass=0.1, inertia=0.1, thrust=0.1, force=0.05, torque=1e-4, rotor_lag=[]
    )
    env = flight_env(HoverConfig(randomization=unknown, evaluation_start=STILL), 32)
    outcome = evaluate(env, Flown(env), seed=1)
    # The largest of 32 offsets is 1.9 m/s^2: without an integral it would stay 0.3 m off.
    assert not bool(outcome.terminated.any())
    assert float(outcome.metrics["distance"].median()) < 0.05
