"""Recordings of worlds: what was, at each moment, and the same after a file."""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

from dataclasses import fields

import numpy as np
import pytest

from robot_rl.core.errors import ConfigError, StorageError
from sim.film.recording import ENDS, WorldRecording, record_worlds
from tests.sim.viewing.shown import player_of


def test_moments_begin_with_the_start_and_follow_the_simulation():
    player, twin = player_of("velocity", 2), player_of("velocity", 2)
    recording = record_worlds(player, worlds=2, seconds=0.1)
    assert recording.worlds == 2
    assert recording.duration == pytest.approx(0.1)
    for moment in range(6):
        if moment:
            twin.step()
        true_state = twin.env.simulation.true_state
        np.testing.assert_allclose(recording.pose[:, moment, :3], true_state.position_w, atol=1e-6)
        model = recording.model_of(1)
        data = recording.data_for(model)
        recording.put(1, moment, model, data)
        np.testing.assert_allclose(data.xpos[1], true_state.position_w[1], atol=1e-6)
        goal = twin.env.task.goal["velocity_b"]
        np.testing.assert_array_equal(recording.goal["velocity_b"][:, moment], goal)


def test_end_of_an_episode_is_told_from_the_moment_after_it():
    player = player_of("hover", 1, action=-1.0)
    recording = record_worlds(player, worlds=1, seconds=1.0)
    (first, *_) = np.flatnonzero(np.diff(recording.seconds[0]) < 0)
    assert recording.last_end[0, first] == 0
    assert ENDS[recording.last_end[0, first + 1]] == "terminated"
    assert recording.seconds[0, first + 1] == 0
    assert recording.total[0, first + 1] == 0
    assert recording.total[0, first] < 0


def test_file_gives_back_what_was_saved(tmp_path):
    recording = record_worlds(player_of("tracking", 2), worlds=1, seconds=0.05)
    recording.save(tmp_path / "one.npz")
    again = WorldRecording.load(tmp_path / "one.npz")
    for field in fields(WorldRecording):
        if field.name != "goal":
            np.testing.assert_array_equal(
                getattr(again, field.name), getattr(recording, field.name)
            )
    assert again.goal.keys() == {"position_w", "linear_velocity_w", "preview_w"}
    for name, values in recording.goal.items():
        np.testing.assert_array_equal(again.goal[name], values)


def test_more_worlds_than_there_are_and_a_folder_that_is_a_file_are_refused(tmp_path):
    player = player_of("hover", 2)
    with pytest.raises(ConfigError, match="3 worlds were to be filmed; there are 2"):
        record_worlds(player, worlds=3, seconds=0.1)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write"):
        record_worlds(player, worlds=1, seconds=0.0).save(tmp_path / "file" / "one.npz")
