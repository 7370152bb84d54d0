"""Films and contact sheets of flights, and what is said where nothing can be drawn."""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

import subprocess
from pathlib import Path

import av
import mujoco
import numpy as np
import pytest

import sim.flights.video
from robot_rl.core.errors import ConfigError, StorageError
from sim.film.process import RenderUnavailableError
from sim.flights.video import contact_sheet, render_flight
from tests.sim.flights.flight_samples import spiral

MODELS = Path(sim.flights.video.__file__).parent / "models"


def pictures(path: Path) -> list[np.ndarray]:
    with av.open(str(path)) as film:
        return [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]


@pytest.mark.slow
@pytest.mark.usefixtures("gl")
def test_film_is_h264_in_real_time_and_moves(tmp_path):
    path = tmp_path / "videos" / "flight.mp4"
    recording = spiral(2, 40)
    assert render_flight(recording, path, width=128, height=96, fps=20, title="test") == path
    with av.open(str(path)) as film:
        stream = film.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert (stream.width, stream.height, stream.average_rate) == (128, 96, 20)
    frames = pictures(path)
    assert len(frames) == 8  # 0.4 s at 20 per second
    assert np.abs(frames[0].astype(int) - frames[-1]).max() > 40
    assert [p.name for p in path.parent.iterdir()] == ["flight.mp4"]


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
    assert all(
        np.abs(a - b).max() > 40 for i, a in enumerate(cells) for b in cells[:i]
    )  # no two are the same


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
        render_flight(spiral(), tmp_path / "flight.mp4")
    message = str(caught.value)
    assert "egl: no such library" in message
    assert "osmesa: no such library" in message
    assert "libosmesa6" in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


def test_drawing_can_be_switched_off(tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disable")
    with pytest.raises(RenderUnavailableError, match="MUJOCO_GL=disable"):
        render_flight(spiral(), tmp_path / "flight.mp4")


def test_unwritable_folder_is_said_in_words(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        render_flight(spiral(), tmp_path / "file" / "flight.mp4")


@pytest.mark.parametrize("size", [{"width": 853}, {"height": 8}, {"fps": 0}])
def test_impossible_films_are_refused(tmp_path, size):
    with pytest.raises(ConfigError, match="even width and height"):
        render_flight(spiral(), tmp_path / "flight.mp4", **size)


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
