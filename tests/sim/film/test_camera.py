"""Where the camera looks: always at the robot, calmly, and never from one episode into the next."""

import math

import numpy as np
import pytest

from sim.film.camera import camera_way, distance_to_show, smooth
from sim.film.recording import WorldRecording, record_worlds
from tests.sim.viewing.shown import player_of


@pytest.fixture(scope="module")
def falls() -> WorldRecording:
    """A quadrotor whose rotors stop, in several episodes."""
    player = player_of("hover", 1, "task.evaluation_radius=1.0", action=-1.0)
    return record_worlds(player, worlds=1, seconds=1.5)


def test_falling_robot_stays_in_the_picture_through_its_resets(falls):
    ends = np.flatnonzero(np.diff(falls.seconds[0]) < 0)
    assert len(ends) >= 2
    way = camera_way(falls, 0, falls.model_of(0))
    position = falls.pose[0, :, :3]
    assert (np.linalg.norm(position - way.centre, axis=1) < way.radius).all()
    jumps = np.linalg.norm(np.diff(way.centre, axis=0), axis=1)
    calm = np.delete(jumps, ends)
    assert calm.max() < 0.06  # falling at 4.5 m/s makes 4.5 cm in a step


def test_camera_of_an_arm_stands_still():
    player = player_of("reach", 1, action=0.8)
    way = camera_way(recording := record_worlds(player, worlds=1, seconds=0.4), 0,
                     recording.model_of(0))  # fmt: skip
    assert np.ptp(way.centre, axis=0).max() == 0
    assert np.ptp(way.radius) == 0
    assert 0.3 < way.radius[0] < 0.8  # the arm is 0.8 m high in its pose


def test_ball_fills_the_height_of_the_picture():
    # Seen from 2 m, a ball of radius 1 m takes 30 deg to either side.
    assert distance_to_show(1.0, math.radians(60), margin=1.0) == pytest.approx(2.0)


def test_smoothing_keeps_constants_and_the_mean():
    constant = np.full((1, 20, 3), 2.5)
    np.testing.assert_allclose(smooth(constant, 4.0), constant, rtol=1e-6)
    step = np.concatenate([np.zeros((1, 30, 1)), np.ones((1, 30, 1))], axis=1)
    smoothed = smooth(step, 3.0)
    assert (np.diff(smoothed[0, :, 0]) >= -1e-7).all()
    assert smoothed.mean() == pytest.approx(0.5, abs=1e-6)
