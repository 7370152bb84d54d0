"""Recorded flights: what is kept, when it ends, and what comes back from disk."""

import math

import numpy as np
import pytest
import torch

from robot_rl.core.errors import ConfigError, StorageError
from robot_rl.training.evaluation import evaluate
from sim.flights.recording import FlightRecorder, FlightRecording
from sim.robots.multirotor_expert import MultirotorExpert
from sim.tasks.flights.hover import HoverConfig
from sim.tasks.flights.tracking import TrackingConfig
from tests.sim.flight_worlds import flight_env, multirotors

SHORT = HoverConfig(episode_length=0.3, success_window=0.1, success_distance=1.0, success_speed=5.0)


def record(
    task: HoverConfig | TrackingConfig = SHORT, worlds=3, flights=2, act=None
) -> FlightRecording:
    env = flight_env(task, worlds)
    expert = MultirotorExpert(multirotors(env))
    recorder = FlightRecorder(env, flights)
    watched = recorder.watch(act or (lambda obs: expert.act()))
    evaluate(env, watched, seed=5, on_step=recorder.on_step)
    return recorder.recording()


def test_recording_has_every_step_of_the_first_episode():
    recording = record()
    assert (recording.flights, recording.steps) == (2, 30)
    assert recording.length.tolist() == [30, 30]
    assert recording.success.all()
    assert recording.position_w.shape == (2, 30, 3)
    assert recording.rotor_speed.shape == recording.action.shape == (2, 30, 4)
    np.testing.assert_allclose(recording.time[[0, -1]], [0.0, 0.29], atol=1e-6)


def test_recording_begins_at_the_start_and_before_the_first_action():
    env = flight_env(SHORT, 3)
    env.reset(seed=5)
    start = env.simulation.true_state.position_w[:2].clone()
    recording = record()
    np.testing.assert_array_equal(recording.position_w[:, 0], start.numpy())
    np.testing.assert_allclose(recording.rotor_speed[:, 0], 0.5, atol=1e-6)


def test_positions_follow_from_velocities():
    recording = record()
    v = recording.linear_velocity_w
    moved = np.diff(recording.position_w, axis=1)
    middle = 0.5 * (v[:, 1:] + v[:, :-1]) * recording.control_dt
    np.testing.assert_allclose(moved, middle, atol=1e-4)  # trapezium: dt^3 * jerk / 12


def test_a_lost_flight_ends_where_it_was_lost_and_repeats_its_end():
    motors_off = record(
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


def test_derived_numbers_by_hand():
    recording = record()
    expected = np.linalg.norm(recording.position_w[1, 7] - recording.goal_w[1, 7])
    assert recording.distance[1, 7] == pytest.approx(expected)
    w, x, y, z = recording.orientation_w[0, 3]
    vertical = w * w - x * x - y * y + z * z  # body z on world z
    assert recording.tilt[0, 3] == pytest.approx(math.acos(vertical), abs=1e-3)


def test_a_path_is_told_from_a_place():
    assert not record().goal_moves
    assert record(TrackingConfig(episode_length=0.5)).goal_moves


def test_saved_recordings_come_back(tmp_path):
    recording = record()
    path = tmp_path / "new folder" / "flight.npz"
    recording.save(path)
    loaded = FlightRecording.load(path)
    assert loaded.control_dt == recording.control_dt
    for name in ("position_w", "orientation_w", "rotor_speed", "action", "length", "success"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(recording, name))
    assert [p.name for p in path.parent.iterdir()] == ["flight.npz"]


def test_a_damaged_or_missing_recording_is_said_in_words(tmp_path):
    path = tmp_path / "flight.npz"
    with pytest.raises(StorageError, match=r"flight\.npz"):
        FlightRecording.load(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(StorageError, match="not a readable flight recording"):
        FlightRecording.load(path)
    with pytest.raises(StorageError, match="cannot write"):
        record().save(path / "below a file.npz")


def test_too_many_flights_and_empty_recordings_are_refused():
    env = flight_env(SHORT, 2)
    with pytest.raises(ConfigError, match=r"1\.\.2"):
        FlightRecorder(env, 3)
    with pytest.raises(ConfigError, match="nothing was recorded"):
        FlightRecorder(env, 1).recording()
