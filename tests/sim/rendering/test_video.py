"""Videos and contact sheets, looked at as pictures, and what is said where nothing is drawn."""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import mujoco
import numpy as np
import pytest

import sim.rendering.video
from robot_rl.core.errors import ConfigError, StorageError
from sim.rendering.recording import EnvRecording, record_envs
from sim.rendering.stage import camera_way
from sim.rendering.video import DrawingError, RenderUnavailableError, contact_sheet, render_video
from tests.sim.flying import crazyflie
from tests.sim.rendering.shown import pictures, player_of, spiral


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


@pytest.fixture(scope="module")
def reach() -> EnvRecording:
    return record_envs(player_of("reach", 2, action=0.8), envs=2, seconds=0.4)


def drawn(draw: Callable[..., Path], *arguments: Any, **options: Any) -> Path:
    """What is drawn; skips where this machine has neither EGL nor OSMesa."""
    try:
        return draw(*arguments, **options)
    except RenderUnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_every_cell_of_the_sheet_shows_the_robot_in_its_middle(tmp_path, reach):
    path = drawn(
        contact_sheet, reach, tmp_path / "sheet.png", times=[0.0, 0.2, 0.36],
        cell_width=160, cell_height=120,
    )  # fmt: skip
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


MODELS = Path(sim.rendering.video.__file__).parent / "models"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flights", pytest.param("envs", marks=pytest.mark.full)])
def test_video_is_h264_in_real_time_and_moves_though_one_backend_is_broken(
    tmp_path, monkeypatch, reach, kind
):
    tried, run = [], subprocess.run

    def first_fails(command: list[str], **options) -> subprocess.CompletedProcess[str]:
        tried.append(options["env"]["MUJOCO_GL"])
        if len(tried) == 1:
            return ended(command, 3)
        return run(command, **{**options, "env": {**options["env"], "MUJOCO_GL": tried[0]}})

    monkeypatch.setattr(subprocess, "run", first_fails)
    path = tmp_path / "videos" / "one.mp4"
    recording = reach if kind == "envs" else spiral(2, 40, moving_goal=True)
    assert drawn(render_video, recording, path, width=128, height=96, fps=20, title="test") == path
    assert sorted(tried) == ["egl", "osmesa"]
    with av.open(str(path)) as video:
        stream = video.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert (stream.width, stream.height, stream.average_rate) == (128, 96, 20)
    frames = pictures(path)
    assert len(frames) == 8  # 0.4 s at 20 per second
    tiles = [
        half.astype(int) for frame in frames[::7] for half in (frame[:, :60], frame[:, 64:124])
    ]
    assert all(tile.std() > 5 for tile in tiles)  # none is empty, and no two are the same
    assert all(np.abs(a - b).max() > 40 for i, a in enumerate(tiles) for b in tiles[:i])
    assert [file.name for file in path.parent.iterdir()] == ["one.mp4"]


@pytest.mark.slow
def test_recordings_are_drawn_without_torch_which_takes_a_second_to_import():
    program = (
        "import sys, sim.rendering.stage, sim.rendering.flight_stage;print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        cwd=Path(sim.rendering.video.__file__).parents[2],
    )  # fmt: skip
    assert done.stdout == "False\n"


def ended(command: list[str], code: int) -> subprocess.CompletedProcess[str]:
    """A child that ended with an error."""
    return subprocess.CompletedProcess(command, code, "", "Traceback\nno such library\n")


def test_no_backend_says_what_to_install_and_a_defect_is_not_blamed_on_the_machine(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(subprocess, "run", lambda command, **options: ended(command, 3))
    with pytest.raises(RenderUnavailableError) as caught:
        render_video(spiral(), tmp_path / "flight.mp4")
    message = str(caught.value)
    for part in ("egl: no such library", "osmesa: no such library", "libosmesa6"):
        assert part in message
    assert "\n" not in message
    monkeypatch.setattr(subprocess, "run", lambda command, **options: ended(command, 1))
    with pytest.raises(DrawingError, match="a defect of robot_rl"):
        contact_sheet(spiral(), tmp_path / "sheet.png")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_drawn_or_written_is_said_in_words(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="even width and height"):
        render_video(spiral(), tmp_path / "flight.mp4", width=853)
    with pytest.raises(ConfigError, match="needs times"):
        contact_sheet(spiral(), tmp_path / "sheet.png", times=[])
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        render_video(spiral(), tmp_path / "file" / "flight.mp4")
    monkeypatch.setenv("MUJOCO_GL", "disable")
    with pytest.raises(RenderUnavailableError, match="MUJOCO_GL=disable"):
        render_video(spiral(), tmp_path / "flight.mp4")


def test_drawn_robot_has_the_mass_of_the_simulated_one():
    model = mujoco.MjModel.from_xml_path(str(MODELS / "crazyflie.xml"))
    plant = crazyflie().model
    assert model.body_mass.sum() == pytest.approx(plant.mass, rel=1e-4)
    np.testing.assert_allclose(model.body("crazyflie").inertia, plant.inertia, rtol=1e-6)
    rotors = [model.body(name).pos[:2].tolist() for name in ("m1", "m2", "m3", "m4")]
    assert rotors == plant.rotor_position
