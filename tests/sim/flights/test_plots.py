"""The plot of recorded flights: a PNG for every kind of flight, never a half-written one."""

import pytest

from robot_rl.core.errors import StorageError
from sim.flights.plots import plot_flight
from tests.sim.flights.flight_samples import spiral

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("moving_goal", [False, True])
@pytest.mark.parametrize("flights", [1, 4])
def test_plot_of_any_flight_is_a_png_of_readable_size(tmp_path, flights, moving_goal):
    path = tmp_path / "plots" / "flight.png"
    recording = spiral(flights, moving_goal=moving_goal)
    assert plot_flight(recording, path, title="spiral", window=0.1) == path
    image = path.read_bytes()
    assert image.startswith(PNG)
    width, height = (int.from_bytes(image[i : i + 4], "big") for i in (16, 20))
    assert width >= 1200
    assert height >= 700
    assert len(list(path.parent.iterdir())) == 1


def test_plot_replaces_an_older_one(tmp_path):
    path = tmp_path / "flight.png"
    path.write_text("old")
    plot_flight(spiral(), path, title="new")
    assert path.read_bytes().startswith(PNG)


def test_unwritable_folder_is_said_in_words(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        plot_flight(spiral(), tmp_path / "file" / "flight.png", title="nowhere")


def test_plotting_leaves_no_global_state():
    import matplotlib.pyplot as plt

    assert plt.get_fignums() == []
