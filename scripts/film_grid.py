"""Puts films side by side into one moving picture, which browsers show inside a page."""

import io
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import av
from PIL import Image, ImageDraw, ImageFont

from robot_rl.core.errors import ConfigError
from robot_rl.training.storage.durable import replace_file

_LABEL = 14
"""Size of the names' letters [pixels]."""
_COLUMNS = (4, 7)
"""Fewest and most cells side by side, where there are as many."""
_QUALITY = 55
"""Of WebP, 0 to 100."""


def grid_columns(count: int) -> int:
    """Columns of a grid with the fewest empty cells in its last row; of equals the most."""
    fewest, most = (min(bound, count) for bound in _COLUMNS)
    return min(range(most, fewest - 1, -1), key=lambda columns: -count % columns)


def write_film_grid(
    films: Mapping[str, Path], path: Path, *, width: int, height: int, fps: int
) -> None:
    """Write all films as an animated WebP that repeats, with the name of each in its cell.

    It lasts as long as the longest film; a shorter one begins anew. The last row is as full as it
    can be (`grid_columns`).

    Args:
        films: Videos by the name to write into their cells.
        width: Of one cell [pixels].
        height: Of one cell [pixels].
        fps: Of the moving picture, at most that of the films.

    Raises:
        ConfigError: There is no film.
    """
    if not films:
        raise ConfigError("a grid of films needs at least one film")
    cells = [_cells(film, name, (width, height), fps) for name, film in films.items()]
    columns = grid_columns(len(cells))
    rows = math.ceil(len(cells) / columns)
    pictures = []
    for index in range(max(len(film) for film in cells)):
        picture = Image.new("RGB", (columns * width, rows * height), "white")
        for place, film in enumerate(cells):
            row, column = divmod(place, columns)
            picture.paste(film[index % len(film)], (column * width, row * height))
        pictures.append(picture)
    encoded = io.BytesIO()
    first, *others = pictures
    first.save(
        encoded, "WEBP", save_all=True, append_images=others, duration=round(1000 / fps), loop=0,
        quality=_QUALITY, method=6,
    )  # fmt: skip
    replace_file(path, encoded.getvalue())


def _cells(film: Path, name: str, size: tuple[int, int], fps: int) -> list[Image.Image]:
    """Pictures of a film, small, `fps` for every second of it."""
    font = ImageFont.load_default(size=_LABEL)
    cells = []
    for picture in _every(film, 1.0 / fps):
        cell = picture.resize(size, Image.Resampling.LANCZOS)
        draw = ImageDraw.Draw(cell)
        left, top, right, bottom = draw.textbbox((6, 4), name, font=font)
        draw.rectangle((left - 3, top - 2, right + 3, bottom + 2), fill="white")
        draw.text((6, 4), name, font=font, fill="black")
        cells.append(cell)
    return cells


def _every(film: Path, period: float) -> Iterator[Image.Image]:
    """The picture shown at each multiple of `period` [s]."""
    due = 0.0
    with av.open(str(film)) as video:
        for frame in video.decode(video=0):
            if frame.time is not None and frame.time >= due - 1e-6:
                yield frame.to_image()
                due += period
