"""Recordings of envs, flights and walks: what is kept, what a file gives back, and their plots."""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

import math
from dataclasses import fields
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from matplotlib.image import imread

from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError
from robot_rl.training.evaluation import evaluate
from sim.rendering.flight_recording import FlightRecorder, FlightRecording
from sim.rendering.flight_scene import flight_scene
from sim.rendering.plots import plot_flight
from sim.rendering.recording import record_envs
from sim.rendering.walk_recording import WalkRecorder, WalkRecording
from sim.robots.multirotor_expert import MultirotorExpert
from sim.tasks.flights.hover import HoverConfig
from sim.tasks.flights.tracking import TrackingConfig
from sim.tasks.legs.gait import heading_velocity
from sim.tasks.legs.velocity import GOAL
from tests.sim.flying import flight_env, simulation_of
from tests.sim.legs import STEPS, leg_envs
from tests.sim.rendering.shown import player_of, spiral


def test_moments_begin_with_the_start_and_follow_the_simulation():
    player, twin = player_of("velocity", 2), player_of("velocity", 2)
    recording = record_envs(player, envs=2, seconds=0.1)
    assert recording.tiles == 2
    assert recording.duration == pytest.approx(0.1)
    for moment in range(6):
        if moment:
            twin.step()
        true_state = twin.env.simulation.true_state
        np.testing.assert_allclose(recording.pose[:, moment, :3], true_state.position_w, atol=1e-6)
        model = recording.model_of(1)
        data = mujoco.MjData(model)
        recording.put(1, moment, model, data)
        np.testing.assert_allclose(data.xpos[1], true_state.position_w[1], atol=1e-6)
        goal = twin.env.task.goal["velocity_b"]
        np.testing.assert_array_equal(recording.goal["velocity_b"][:, moment], goal)


def test_files_give_back_what_was_saved(tmp_path, flown):
    player = player_of("tracking", 2)
    for recording in (record_envs(player, envs=1, seconds=0.05), flown):
        path = tmp_path / "new folder" / "one.npz"
        recording.save(path)
        again = type(recording).load(path)
        for field in fields(recording):
            one, two = (getattr(each, field.name) for each in (again, recording))
            for found, saved in (
                [(one[name], two[name]) for name in two] if field.name == "goal" else [(one, two)]
            ):
                np.testing.assert_array_equal(found, saved)
    with pytest.raises(ConfigError, match="3 envs were to be recorded; there are 2"):
        record_envs(player, envs=3, seconds=0.1)


SHORT = HoverConfig(episode_length=0.3, success_window=0.1, success_distance=1.0, success_speed=5.0)


def record_flights(
    task: HoverConfig | TrackingConfig = SHORT, envs=3, flights=2, act=None
) -> FlightRecording:
    env = flight_env(task, envs)
    expert = MultirotorExpert(simulation_of(env))
    recorder = FlightRecorder(env, flights)
    watched = recorder.watch(act or (lambda obs: expert.act()))
    evaluate(env, watched, seed=5, on_step=recorder.on_step)
    return recorder.recording()


@pytest.fixture(scope="module")
def flown() -> FlightRecording:
    return record_flights()


def test_recording_has_every_step_of_the_first_episode(flown):
    assert (flown.tiles, flown.steps) == (2, 30)
    assert flown.length.tolist() == [30, 30]
    assert flown.success.all()
    assert flown.position_w.shape == (2, 30, 3)
    assert flown.rotor_speed.shape == flown.action.shape == (2, 30, 4)
    np.testing.assert_allclose(flown.time[[0, -1]], [0.0, 0.29], atol=1e-6)
    env = flight_env(SHORT, 3)
    env.reset(seed=5)
    start = env.simulation.true_state.position_w[:2]
    np.testing.assert_array_equal(flown.position_w[:, 0], start.numpy())
    np.testing.assert_allclose(flown.rotor_speed[:, 0], 0.5, atol=1e-6)  # before the first action
    v = flown.linear_velocity_w
    middle = 0.5 * (v[:, 1:] + v[:, :-1]) * flown.control_dt
    # trapezium: dt^3 * jerk / 12
    np.testing.assert_allclose(np.diff(flown.position_w, axis=1), middle, atol=1e-4)


def test_a_lost_flight_ends_where_it_was_lost_and_repeats_its_end():
    motors_off = record_flights(
        HoverConfig(episode_length=2.0, evaluation_radius=0.6),
        act=lambda obs: torch.full((3, 4), -1.0),
    )
    assert not motors_off.success.any()
    assert (motors_off.length < 100).all()  # falls 0.8 m within 0.6 s
    flight = int(motors_off.length.argmin())
    end = motors_off.length[flight] - 1
    tail = motors_off.position_w[flight, end:]
    np.testing.assert_array_equal(tail, np.broadcast_to(tail[0], tail.shape))
    assert motors_off.distance[flight, end] <= 0.6
    assert not motors_off.goal_moves
    w, x, y, z = motors_off.orientation_w[0, 3]
    vertical = w * w - x * x - y * y + z * z  # body z on world z
    assert motors_off.tilt[0, 3] == pytest.approx(math.acos(vertical), abs=1e-3)


def record_walks(walks: int = 3, **changes: Any) -> WalkRecording:
    env = leg_envs(4, seed=1, **changes)
    recorder = WalkRecorder(env, walks)
    evaluate(env, lambda obs: torch.zeros(4, 12), seed=1, on_step=recorder.on_step)
    return recorder.recording()


def test_a_walk_is_the_true_state_after_every_step_of_the_episode_and_who_falls_is_told() -> None:
    env = leg_envs(4, seed=1)
    recorder, seen = WalkRecorder(env, 3), []
    env.reset(seed=1)
    for _ in range(STEPS):  # after the last one the state is of the next episode
        recorder.on_step(env.step(torch.zeros(4, 12)))
        true_state = env.simulation.true_state
        rotation = quaternion.rotation_matrix(true_state.orientation_w)
        moved = heading_velocity(rotation, true_state.linear_velocity_w)
        values = (moved, true_state.foot_force, env.task.goal[GOAL])
        seen.append([value[:3].numpy().copy() for value in values])
    found = recorder.recording()
    for t, (velocity, force, goal) in enumerate(seen[:-1]):
        np.testing.assert_array_equal(found.velocity[:, t, :2], velocity)
        np.testing.assert_array_equal(found.foot_force[:, t], force)
        np.testing.assert_array_equal(found.goal[:, t], goal)
    assert found.feet == ["FL", "FR", "RL", "RR"]
    assert found.time[1] == pytest.approx(0.02)
    assert np.isnan(found.velocity[:, -1]).all()
    assert not np.isnan(found.foot_force[:, -2]).any()
    assert np.isnan(record_walks(lowest_height=0.31).foot_force[:, -2]).any(), "nobody fell"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flights", "moving_goal"), [(4, False), pytest.param(1, True, marks=pytest.mark.full)]
)
def test_plot_of_any_flight_is_a_png_of_readable_size(tmp_path, flights, moving_goal):
    import matplotlib.pyplot as plt

    path = tmp_path / "plots" / "flight.png"
    recording = spiral(flights, moving_goal=moving_goal)
    assert plot_flight(recording, path, title="spiral", window=0.1) == path
    height, width, _ = imread(path).shape
    assert width >= 1200
    assert height >= 700
    assert len(list(path.parent.iterdir())) == 1
    assert plt.get_fignums() == []


def test_a_larger_multirotor_is_drawn_larger_with_its_rotors_where_they_are():
    crazyflie = flight_scene(spiral().rotor_position)
    x500 = np.array([[0.174, -0.174], [-0.174, 0.174], [0.174, 0.174], [-0.174, -0.174]])
    drawn = flight_scene(x500)
    assert crazyflie.scale == pytest.approx(1.0, rel=0.2)
    assert drawn.scale / crazyflie.scale == pytest.approx(0.174 / 0.028)
    places = np.array([rotor.pos[:2] for rotor in drawn.tree.body("crazyflie").bodies])
    assert np.array_equal(np.sign(places[drawn.order]), np.sign(x500))
