"""Videos and contact sheets, looked at as pictures, and what is said where nothing is drawn."""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

import math
import subprocess
from dataclasses import replace
from pathlib import Path

import av
import mujoco
import numpy as np
import pytest

import sim.rendering.video
from robot_rl.core.errors import ConfigError, StorageError
from sim.rendering.recording import EnvRecording, record_envs
from sim.rendering.stage import camera_way, distance_to_show, smooth
from sim.rendering.video import DrawingError, RenderUnavailableError, contact_sheet, render_video
from tests.sim.rendering.shown import player_of, spiral


@pytest.fixture(scope="module")
def falls() -> EnvRecording:
    """A quadrotor whose rotors stop, in several episodes."""
    player = player_of("hover", 1, "task.evaluation_radius=1.0", action=-1.0)
    return record_envs(player, envs=1, seconds=1.5)


@pytest.mark.slow
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
    way = camera_way(recording := record_envs(player, envs=1, seconds=0.4), 0,
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


@pytest.fixture(scope="module")
def reach() -> EnvRecording:
    return record_envs(player_of("reach", 2, action=0.8), envs=2, seconds=0.4)


@pytest.mark.slow
@pytest.mark.usefixtures("gl")
def test_every_cell_of_the_sheet_shows_the_robot_in_its_middle(tmp_path, reach):
    path = contact_sheet(
        reach, tmp_path / "sheet.png", times=[0.0, 0.2, 0.36], cell_width=160, cell_height=120
    )
    (sheet,) = pictures(path)
    assert sheet.shape == (240, 480, 3)
    for row in range(2):
        cells = [
            sheet[120 * row : 120 * row + 90, 160 * column : 160 * column + 156].astype(int)
            for column in range(3)
        ]
        dark = [(cell.sum(axis=-1) < 250) for cell in cells]  # the arm's dark joints, no ground
        for spots in dark:
            assert spots.sum() > 30
            middle = np.argwhere(spots).mean(axis=0) / spots.shape
            assert (np.abs(middle - 0.5) < 0.25).all()
        assert not (dark[0] == dark[2]).all()


@pytest.mark.slow
@pytest.mark.usefixtures("gl")
def test_defect_of_a_drawing_is_not_blamed_on_the_machine(tmp_path, reach):
    broken = replace(reach, pose=reach.pose[..., :1])
    with pytest.raises(DrawingError, match="a defect of robot_rl"):
        contact_sheet(broken, tmp_path / "sheet.png", cell_width=32, cell_height=32)
    assert list(tmp_path.iterdir()) == []


MODELS = Path(sim.rendering.video.__file__).parent / "models"


def pictures(path: Path) -> list[np.ndarray]:
    with av.open(str(path)) as film:
        return [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]


@pytest.mark.slow
@pytest.mark.usefixtures("gl")
@pytest.mark.parametrize("kind", ["flights", pytest.param("envs", marks=pytest.mark.full)])
def test_video_is_h264_in_real_time_and_moves(tmp_path, reach, kind):
    path = tmp_path / "videos" / "one.mp4"
    recording = reach if kind == "envs" else spiral(2, 40)
    assert render_video(recording, path, width=128, height=96, fps=20, title="test") == path
    with av.open(str(path)) as video:
        stream = video.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert (stream.width, stream.height, stream.average_rate) == (128, 96, 20)
    frames = pictures(path)
    assert len(frames) == 8  # 0.4 s at 20 per second
    assert np.abs(frames[0].astype(int) - frames[-1]).max() > 40
    assert [file.name for file in path.parent.iterdir()] == ["one.mp4"]


@pytest.mark.slow
@pytest.mark.usefixtures("gl")
def test_contact_sheet_shows_each_flight_at_each_time(tmp_path):
    path = tmp_path / "sheet.png"
    contact_sheet(
        spiral(2, 40, moving_goal=True), path, times=[0.0, 0.1, 0.3], cell_width=96, cell_height=64
    )
    (sheet,) = pictures(path)
    assert sheet.shape == (128, 288, 3)
    cells = [
        sheet[64 * row : 64 * row + 60, 96 * column : 96 * column + 92].astype(int)
        for row in range(2)
        for column in range(3)
    ]
    assert all(cell.std() > 5 for cell in cells)  # none is empty
    # No two are the same.
    assert all(np.abs(a - b).max() > 40 for i, a in enumerate(cells) for b in cells[:i])


@pytest.mark.slow
@pytest.mark.usefixtures("gl")
def test_a_broken_backend_falls_to_the_other(tmp_path, monkeypatch):
    tried = []
    run = subprocess.run

    def first_fails(command: list[str], **options) -> subprocess.CompletedProcess[str]:
        tried.append(options["env"]["MUJOCO_GL"])
        if len(tried) == 1:
            return broken(command)
        return run(command, **{**options, "env": {**options["env"], "MUJOCO_GL": tried[0]}})

    monkeypatch.setattr(subprocess, "run", first_fails)
    path = contact_sheet(
        spiral(1, 4), tmp_path / "sheet.png", times=[0.0], cell_width=32, cell_height=32
    )
    assert path.exists()
    assert sorted(tried) == ["egl", "osmesa"]


def broken(command: list[str], **options) -> subprocess.CompletedProcess[str]:
    """A machine whose GL cannot be loaded."""
    return subprocess.CompletedProcess(command, 3, "", "Traceback\nno such library\n")


def test_no_backend_is_one_sentence_that_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", broken)
    with pytest.raises(RenderUnavailableError) as caught:
        render_video(spiral(), tmp_path / "flight.mp4")
    message = str(caught.value)
    assert "egl: no such library" in message
    assert "osmesa: no such library" in message
    assert "libosmesa6" in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


def test_drawing_can_be_switched_off(tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disable")
    with pytest.raises(RenderUnavailableError, match="MUJOCO_GL=disable"):
        render_video(spiral(), tmp_path / "flight.mp4")


def test_unwritable_folder_is_said_in_words(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        render_video(spiral(), tmp_path / "file" / "flight.mp4")


@pytest.mark.parametrize("size", [{"width": 853}, {"height": 8}, {"fps": 0}])
def test_impossible_videos_are_refused(tmp_path, size):
    with pytest.raises(ConfigError, match="even width and height"):
        render_video(spiral(), tmp_path / "flight.mp4", **size)


def test_impossible_sheets_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="needs times"):
        contact_sheet(spiral(), tmp_path / "sheet.png", times=[])


def test_drawn_robot_has_the_mass_of_the_simulated_one():
    from tests.sim.flight_worlds import crazyflie

    model = mujoco.MjModel.from_xml_path(str(MODELS / "crazyflie.xml"))
    plant = crazyflie().model
    assert model.body_mass.sum() == pytest.approx(plant.mass, rel=1e-4)
    np.testing.assert_allclose(model.body("crazyflie").inertia, plant.inertia, rtol=1e-6)
    rotors = [model.body(name).pos[:2].tolist() for name in ("m1", "m2", "m3", "m4")]
    assert rotors == plant.rotor_position
