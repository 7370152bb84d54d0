"""Goals of a clip, played on a robot's side."""

import numpy as np
import pytest

from policies.decoding import decode
from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError
from robot_rl.core.playback import Playback, PlaybackSpec

WIDTHS = {"joints": 2, "matrix": 9, "place": 3}
ROWS = [[0.0, 1.0], [0.1, 1.1], [0.2, 1.2]]


def facing(*yaws: float) -> list[list[float]]:
    return quaternion.rotation_matrix(quaternion.from_yaw(np.array(yaws))).tolist()


def spec(**changes) -> PlaybackSpec:
    goals = {"joints": ROWS, "matrix": facing(0.2, 0.3, 0.4), "place": [[0.0, 0.0, 0.0]]}
    return PlaybackSpec(**({"goals": goals, "facing": "matrix"} | changes))


def state(yaw: float) -> dict[str, np.ndarray]:
    return {"orientation_w": quaternion.from_yaw(np.array([yaw]))}


def yaw_of(player: Playback) -> float:
    matrix = player.value("matrix").reshape(3, 3)
    return float(np.arctan2(matrix[1, 0], matrix[0, 0]))


def played(player: Playback, ticks: int) -> list[float]:
    """The first joint, once per period."""
    found = []
    for _ in range(ticks):
        found.append(float(player.value("joints")[0, 0]))
        player.tick()
    return found


def test_rows_come_one_per_period_and_the_last_one_is_held():
    player = Playback(spec())
    player.reset(state(0.0))
    assert played(player, 5) == [0.0, 0.1, 0.2, 0.2, 0.2]
    assert player.value("place").tolist() == [[0.0, 0.0, 0.0]], "a goal of one row is constant"
    player.reset(state(0.0))
    assert played(player, 2) == [0.0, 0.1]


def test_a_clip_faces_where_the_robot_looks_as_it_begins():
    player = Playback(spec())
    player.reset(state(1.0))
    assert yaw_of(player) == pytest.approx(1.0)
    player.tick()
    assert yaw_of(player) == pytest.approx(1.1)
    player.reset({"orientation_w": np.full((1, 4), np.nan)})
    assert yaw_of(player) == pytest.approx(0.2), "nobody knows yet: as in the table"


def test_a_clip_that_repeats_goes_on_in_the_heading_where_it_ended():
    player = Playback(spec(repeats=True, turn=0.3))
    player.reset(state(-2.0))
    headings = []
    for _ in range(7):
        headings.append(yaw_of(player))
        player.tick()
    assert headings == pytest.approx([-2.0, -1.9, -1.8, -1.7, -1.6, -1.5, -1.4])


def test_what_is_given_is_nobody_elses_to_change():
    player = Playback(spec())
    player.value("joints")[:] = 9.0
    assert player.value("joints").tolist() == [[0.0, 1.0]]


def test_a_spec_survives_json():
    assert decode(spec(repeats=True, turn=0.3).to_dict(), PlaybackSpec, "x") == spec(
        repeats=True, turn=0.3
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"goals": {"joint": ROWS}, "facing": ""}, "goal 'joint': expected rows of its width"),
        ({"goals": {"joints": [[0.0]]}, "facing": ""}, r"got 1 rows of \[1\] numbers"),
        ({"goals": {"joints": []}, "facing": ""}, "got 0 rows"),
        ({"goals": {"joints": ROWS, "place": [[0.0] * 3] * 2}, "facing": ""}, "expected 1 or 3"),
        ({"facing": "place"}, "facing 'place' must be a goal of 9 numbers"),
        ({"goals": {"joints": [[0.0, 0.0]] * 1_000_001}, "facing": ""}, "take a shorter clip"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(changes, told):
    with pytest.raises(ConfigError, match=told):
        spec(**changes).check(WIDTHS)
