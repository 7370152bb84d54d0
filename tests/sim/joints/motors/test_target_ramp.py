"""Position targets that joints can follow: the ramp by hand, saved and loaded, and where it is."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.robot_command import JointCommand
from sim.robots.joint_motors import TargetRamp
from sim.robots.joint_simulation import MujocoSimulation
from tests.compositions import composed
from tests.sim.arms import arms, begin, hold, panda

FAST, SLOW = 2.61 * 0.005, 2.175 * 0.005
"""Way of the last three and of the first four joints in a physics step [rad]."""


def leap(simulation: MujocoSimulation, way: float) -> JointCommand:
    """A command of all joints, so far from where they began [rad]."""
    held = hold(simulation)
    return replace(held, q=held.q + way)


def asked(simulation: MujocoSimulation, control: np.ndarray) -> np.ndarray:
    """How far from where they began the targets are that controls ask for, (..., 7)."""
    joints = simulation.robot.joints
    begun = [joint.default_position for joint in joints]
    return control[..., :7] / [joint.stiffness for joint in joints] - begun


def test_targets_move_by_the_velocity_limit_and_stop_at_the_goal_by_hand() -> None:
    simulation = arms(2, robot=panda(noise=False))
    ramp = TargetRamp(simulation.robot, simulation.engine)
    joints = simulation.robot.joints
    begun = torch.tensor([[joint.default_position for joint in joints]] * 2).double()
    stiffness = torch.tensor([[joint.stiffness for joint in joints]] * 2)
    ramp.begin(EnvSelection(torch.ones(2, dtype=torch.bool)), begun)
    control = simulation.engine.control
    for way, before in ((0.05, 0.0), (-1.0, 0.05)):
        control[:, :7] = stiffness * (begun + way)
        ramp.draw((begun + way).float(), stiffness)
        drawn = simulation.engine.ramp
        targets = asked(simulation, drawn[0].numpy())
        assert targets.shape == (8, 7)  # steps, joints
        assert torch.equal(control, drawn[:, -1])
        for joint, step in ((0, SLOW), (6, FAST)):
            rising = before + np.sign(way) * step * np.arange(1, 9)
            expected = np.minimum(rising, way) if way > 0 else np.maximum(rising, way)
            np.testing.assert_allclose(targets[:, joint], expected, atol=1e-6)
    assert (drawn[..., 7:] == drawn[:, :1, 7:]).all(), "fingers stay"


def test_a_leap_takes_its_time_and_arrives() -> None:
    limited, free = arms(1), arms(1, robot=panda(noise=False, limit_target_speed=False))
    for simulation in (limited, free):
        simulation.step(leap(simulation, 0.5))
    way = {s: float(s.true_state.joint_position[0, 6]) - np.pi / 4 for s in (limited, free)}
    assert 0 < way[limited] < 0.8 * way[free]
    assert way[limited] < 8 * FAST
    for _ in range(100):
        limited.step(leap(limited, 0.1))
        free.step(leap(free, 0.1))
    torch.testing.assert_close(
        limited.true_state.joint_position, free.true_state.joint_position, atol=1e-4, rtol=0
    )


def test_targets_within_reach_are_followed_as_they_are() -> None:
    limited, free = arms(1), arms(1, robot=panda(noise=False, limit_target_speed=False))
    for _ in range(3):
        limited.step(hold(limited))
        free.step(hold(free))
    torch.testing.assert_close(
        limited.true_state.joint_position, free.true_state.joint_position, atol=1e-9, rtol=0
    )


def test_an_episode_begins_with_the_target_where_the_joints_are() -> None:
    simulation, fresh = arms(2), arms(2)
    for _ in range(5):
        simulation.step(leap(simulation, 1.0))
    begin(simulation, torch.tensor([True, False]))
    for each in (simulation, fresh):
        each.step(leap(each, 0.3))
    position = simulation.true_state.joint_position
    torch.testing.assert_close(position[0], fresh.true_state.joint_position[0])
    assert (position[1] - position[0]).abs().max() > 0.1


def test_saved_targets_go_on_as_they_would_have() -> None:
    simulation = arms(3)
    simulation.step(leap(simulation, 1.0))
    saved = simulation.state_dict()
    simulation.step(leap(simulation, -1.0))
    expected = simulation.true_state.joint_position.clone()
    other = arms(3)
    other.load_state_dict(saved)
    other.step(leap(other, -1.0))
    assert torch.equal(other.true_state.joint_position, expected)


@pytest.mark.parametrize(
    ("task", "limited"), [("reach", True), ("lift", True), ("velocity robot=go2", False)]
)
def test_arms_have_it_and_legs_have_not(task: str, limited: bool) -> None:
    robot = composed(f"task={task}".split()).config.robot
    assert robot.limit_target_speed is limited
    assert not robot.behind_a_loop().limit_target_speed, "the loop's own limiter is enough"


@pytest.mark.parametrize("limit", [float("inf"), 0.0])
def test_a_joint_without_a_limit_is_at_its_goal_at_once_and_one_that_may_not_move_stays(
    limit: float,
) -> None:
    robot = panda(noise=False)
    joints = [replace(joint, velocity_limit=limit) for joint in robot.spec.joints]
    simulation = arms(2, robot=robot)
    ramp = TargetRamp(replace(robot.spec, joints=joints), simulation.engine)
    begun = torch.zeros(2, 7)
    ramp.begin(EnvSelection(torch.ones(2, dtype=torch.bool)), begun)
    simulation.engine.control[:, :7] = 0.5
    ramp.draw(begun + 0.5, torch.ones(2, 7))
    drawn = simulation.engine.ramp[..., :7]
    np.testing.assert_allclose(drawn, 0.5 if limit else 0.0, atol=1e-6)
