"""Plots as PNG files.

Figures are drawn with the Agg canvas and never through `pyplot`: nothing global changes and no
screen is needed.
"""

import io
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from sim.film.files import replacing

INK, GRID = "#333333", "#E4E4E4"
"""Of words and of the lines behind curves."""


def titled_figure(title: str, *, size: tuple[float, float], dpi: int) -> Figure:
    """A figure with a line above its panels.

    Args:
        title: The line.
        size: Width and height [inch].
        dpi: Pixels per inch.
    """
    figure = Figure(figsize=size, dpi=dpi, layout="constrained")
    figure.suptitle(title, color=INK, fontsize=12, fontweight="bold")
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG, replacing an older one only when the new one is complete.

    Raises:
        StorageError: The file cannot be written.
    """
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    with replacing(path) as unfinished:
        unfinished.write_bytes(buffer.getvalue())
