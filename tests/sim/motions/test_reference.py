"""References: repeated, resampled, and felt by the sensors of the robot's own model."""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

import dataclasses

import numpy as np
import pytest
import torch

from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError, SpecMismatchError
from sim.motions.clip import Clip
from sim.motions.reference import (
    MotionConfig,
    Reference,
    Script,
    ScriptConfig,
    make_reference,
    repeated,
    resampled,
)
from sim.physics.kinematics import Mechanism
from sim.robots.joint_simulation import MujocoSimulation
from tests.sim.rendering.shown import envs


def line(frames: int = 11, *, turn: float = 0.0) -> Clip:
    """One second along x at 1 m/s, turning at a rate [rad/s], with a joint that swings back."""
    time = np.linspace(0.0, 1.0, frames)
    return Clip(
        fps=frames - 1.0,
        root_position=np.stack([time, 0 * time, 0.5 + 0 * time], axis=1),
        root_orientation=quaternion.from_yaw(turn * time),
        joint_position=np.sin(np.pi * time)[:, None],
    )


def test_repeated_clips_go_on_where_they_ended_in_the_heading_where_they_ended():
    long = repeated(line(), 2.5, owner="it")
    assert long.duration >= 2.5
    fields = resampled(long, 26, 0.1)
    torch.testing.assert_close(fields["position_w"][:, 0], torch.arange(26) * 0.1)
    torch.testing.assert_close(fields["linear_velocity_w"], torch.tensor([[1.0, 0, 0]] * 26),
                               atol=1e-5, rtol=0)  # fmt: skip
    long = repeated(line(turn=np.pi / 2), 3.0, owner="it")
    corners = long.root_position[[0, 10, 20, 30], :2]
    np.testing.assert_allclose(corners, [[0, 0], [1, 0], [1, 1], [0, 1]], atol=1e-9)
    fields = resampled(long, 31, 0.1)
    torch.testing.assert_close(fields["angular_velocity_b"][:, 2], torch.full((31,), np.pi / 2),
                               atol=1e-4, rtol=0)  # fmt: skip


def test_a_clip_that_does_not_close_is_not_repeated():
    open_end = dataclasses.replace(line(), joint_position=np.linspace(0, 1, 11)[:, None])
    with pytest.raises(ConfigError, match=r"does not close: joint 0 ends 1.00 rad"):
        repeated(open_end, 5.0, owner="it")


def test_other_frame_rates_are_interpolated_and_the_end_is_held():
    fields = resampled(line(3), 15, 0.1)  # two frames a second
    expected = torch.tensor([0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 0.8])
    torch.testing.assert_close(fields["joint_position"][:7, 0], expected)
    torch.testing.assert_close(fields["position_w"][11:, 0], torch.ones(4))
    assert fields["linear_velocity_w"][12:].abs().max() == 0


def test_a_quaternion_that_changes_its_sign_is_no_turn():
    flipped = line()
    signs = np.where(np.arange(11) % 2, -1.0, 1.0)[:, None]
    flipped = dataclasses.replace(flipped, root_orientation=flipped.root_orientation * signs)
    fields = resampled(flipped, 11, 0.1)
    assert fields["angular_velocity_b"].abs().max() < 1e-6
    torch.testing.assert_close(fields["orientation_w"], torch.tensor([[1.0, 0, 0, 0]] * 11))


@pytest.fixture(scope="module")
def go2() -> MujocoSimulation:
    simulation = envs("motion", 1).simulation
    assert isinstance(simulation, MujocoSimulation)
    return simulation


def made(simulation: MujocoSimulation, **script) -> Reference:
    return make_reference(
        MotionConfig(script=ScriptConfig(**script)), simulation.robot,
        Mechanism(simulation.engine.model, simulation.robot), control_dt=0.02, longest_episode=1.0,
    )  # fmt: skip


def feet(simulation: MujocoSimulation, reference: Reference) -> np.ndarray:
    """Where the feet are in every frame, (F, 4, 3)."""
    import mujoco

    model = simulation.engine.model
    data, places = mujoco.MjData(model), []
    fields = {name: value.double().numpy() for name, value in reference.fields.items()}
    for frame in range(len(fields["position_w"])):
        parts = [fields[name][frame] for name in ("position_w", "orientation_w", "joint_position")]
        data.qpos[: sum(map(len, parts))] = np.concatenate(parts)
        mujoco.mj_kinematics(model, data)
        places.append([data.site(foot).xpos.copy() for foot in simulation.robot.feet])
    return np.array(places)


@pytest.mark.slow
def test_feet_of_a_trot_stand_still_in_turn_and_the_base_goes_ahead(go2):
    reference = made(go2, kind=Script.walk, period=0.6, bend=0.4, stride=0.2)
    place = feet(go2, reference)
    low = place[..., 2].min()
    assert place[..., 2].min(axis=1).max() < low + 0.002  # always one on the ground
    assert place[..., 2].max() > low + 0.04
    stands = (place[1:, :, 2] < low + 0.002) & (place[:-1, :, 2] < low + 0.002)
    slip = np.abs(np.diff(place[..., 0], axis=0))[stands]
    assert slip.max() < 0.01  # [m] in 20 ms; the base makes 8 mm
    ahead = reference.fields["position_w"][-1, 0] - reference.fields["position_w"][0, 0]
    assert ahead > 0.3


@pytest.mark.parametrize("kind", [Script.squat, Script.step])
def test_squats_and_steps_stay_on_the_spot(go2, kind):
    reference = made(go2, kind=kind, period=1.0)
    way = reference.fields["position_w"] - reference.fields["position_w"][0]
    assert way[:, :2].norm(dim=-1).max() < 0.1
    assert reference.starts == 50
    assert len(way) == 101


def test_a_walk_moves_its_base_evenly(go2):
    """A base that stops between two steps, as it did, is followed by nobody."""
    reference = made(go2, kind=Script.walk, period=0.6, bend=0.4, stride=0.2)
    speed = reference.fields["linear_velocity_w"][:, 0]
    assert speed.median() == pytest.approx(0.42, abs=0.01)
    even = (speed - speed.median()).abs() < 0.05
    assert even.float().mean() > 0.75  # but where one pair of legs takes over from the other
    assert speed.min() > 0.1


def test_watched_bodies_are_where_the_sensors_find_them(go2):
    fields = made(go2, kind=Script.walk).fields
    torch.testing.assert_close(fields["body_position_w"][:, 0], fields["position_w"])  # the base
    velocity = torch.gradient(fields["body_position_w"], spacing=0.02, dim=0)[0]
    assert (velocity - fields["body_velocity_w"])[2:-2].abs().mean() < 0.05  # [m/s], of up to 2


@pytest.mark.slow
def test_robots_and_legs_that_no_script_knows_are_refused(go2):
    arm = envs("reach", 1).simulation
    assert isinstance(arm, MujocoSimulation)
    with pytest.raises(SpecMismatchError, match="floating base"):
        made(arm)
    other = dataclasses.replace(go2.robot, feet=["tail"])
    with pytest.raises(ConfigError, match="its leg 'tail' has neither"):
        make_reference(MotionConfig(), other, Mechanism(go2.engine.model, other), control_dt=0.02,
                       longest_episode=1.0)  # fmt: skip
