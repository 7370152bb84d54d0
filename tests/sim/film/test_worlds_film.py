"""Films and contact sheets of any worlds, looked at as pictures."""

from pathlib import Path

import av
import numpy as np
import pytest

from robot_rl.core.errors import ConfigError
from sim.film.process import DrawingError, draw, sheet_size
from sim.film.recording import WorldRecording, record_worlds
from sim.film.worlds_film import contact_sheet, render_film
from tests.sim.viewing.shown import player_of


def pictures(path: Path) -> list[np.ndarray]:
    with av.open(str(path)) as film:
        return [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]


@pytest.fixture(scope="module")
def reach() -> WorldRecording:
    return record_worlds(player_of("reach", 2, action=0.8), worlds=2, seconds=0.4)


@pytest.mark.slow
@pytest.mark.usefixtures("gl")
def test_film_is_h264_in_real_time_and_moves(tmp_path, reach):
    path = tmp_path / "films" / "reach.mp4"
    assert render_film(reach, path, width=256, height=128, fps=20, title="test") == path
    with av.open(str(path)) as film:
        stream = film.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert (stream.width, stream.height, stream.average_rate) == (256, 128, 20)
    frames = pictures(path)
    assert len(frames) == 8  # 0.4 s at 20 per second
    assert np.abs(frames[0].astype(int) - frames[-1]).max() > 60
    assert [file.name for file in path.parent.iterdir()] == ["reach.mp4"]


@pytest.mark.slow
@pytest.mark.usefixtures("gl")
def test_every_cell_of_the_sheet_shows_the_robot_in_its_middle(tmp_path, reach):
    path = contact_sheet(reach, tmp_path / "sheet.png", columns=3, cell_width=160, cell_height=120)
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
    job = {**sheet_size(1, 1, 32, 32), "title": "no times"}
    with pytest.raises(DrawingError, match="KeyError: 'times'"):
        draw("sim.film.worlds_film", reach, tmp_path / "sheet.png", job)
    assert list(tmp_path.iterdir()) == []


def test_impossible_pictures_are_refused(tmp_path, reach):
    with pytest.raises(ConfigError, match="even width and height"):
        render_film(reach, tmp_path / "film.mp4", width=15)
    with pytest.raises(ConfigError, match="needs times"):
        contact_sheet(reach, tmp_path / "sheet.png", columns=0)
