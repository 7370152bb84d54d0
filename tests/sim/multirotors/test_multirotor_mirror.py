"""A multirotor and its mirror image fly mirrored ways, and are paid the same."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from configs.schema import make_env
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.robot import SensorSpec
from robot_rl.core.robot_state import Mirrored
from sim.env import SimEnv
from sim.physics.multirotor_model import PARAM_COLUMNS, STATE_COLUMNS
from tests.compositions import composed
from tests.matrices import some
from tests.sim.flight_worlds import CPU

KINDS = {
    "position_w": Mirrored.vector,
    "orientation_w": Mirrored.quaternion,
    "linear_velocity_w": Mirrored.vector,
    "angular_velocity_b": Mirrored.pseudovector,
}


def image(mirror: SignedPermutation, values: Tensor) -> Tensor:
    return values[..., list(mirror.source)] * torch.tensor(mirror.sign)


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


def put_the_image_into_world_one(env: SimEnv, mirror: RobotMirror) -> None:
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


@pytest.mark.parametrize(
    ("robot", "plant"),
    some(
        [("crazyflie", "paper")],
        [("crazyflie", "measured"), ("x500", "gazebo"), ("x500", "identified")],
    ),
)
def test_mirrored_actions_lead_to_mirrored_observations_and_equal_rewards(
    robot: str, plant: str
) -> None:
    env = worlds(robot, plant)
    put_the_image_into_world_one(env, RobotMirror(env.simulation.robot))
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
