"""Films side by side in one moving picture."""

import numpy as np
import pytest
from PIL import Image

from robot_rl.core.errors import ConfigError
from scripts.film_grid import grid_columns, write_film_grid
from sim.rendering.video import write_video


def film(path, grey, frames):
    pictures = [np.full((64, 96, 3), grey + 2 * i, np.uint8) for i in range(frames)]
    write_video(path, pictures, width=96, height=64, fps=30)
    return path


def test_films_of_any_length_stand_side_by_side_and_repeat(tmp_path):
    films = {"dark": film(tmp_path / "a.mp4", 40, 30), "bright": film(tmp_path / "b.mp4", 200, 15)}
    out = tmp_path / "all.webp"
    write_film_grid(films, out, width=48, height=32, fps=10)
    with Image.open(out) as picture:
        assert picture.size == (96, 32)
        lasts = []
        for index in range(getattr(picture, "n_frames", 1)):  # of equal pictures one is kept
            picture.seek(index)
            picture.load()
            lasts.append(picture.info["duration"])
        assert sum(lasts) == 1000  # the shorter one is shown twice
        last = np.asarray(picture.convert("L"), float)
    assert last[28, 40] == pytest.approx(40 + 2 * 27, abs=8)  # 0.9 s
    assert last[28, 90] == pytest.approx(200 + 2 * 12, abs=8)  # 0.4 s of its second time
    with pytest.raises(ConfigError, match="at least one film"):
        write_film_grid({}, out, width=48, height=32, fps=10)


@pytest.mark.parametrize(
    ("count", "columns"),
    [(1, 1), (3, 3), (6, 6), (8, 4), (13, 7), (16, 4), (20, 5), (21, 7), (22, 6), (24, 6), (25, 5)],
)
def test_last_row_of_a_grid_is_as_full_as_it_can_be(count, columns):
    assert grid_columns(count) == columns


@pytest.mark.parametrize("count", range(1, 60))
def test_no_grid_of_a_readable_width_has_fewer_empty_cells(count):
    columns = grid_columns(count)
    assert all(-count % columns <= -count % other for other in range(min(4, count), 8))
