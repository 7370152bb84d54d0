"""Which columns are the present and which the window, by hand."""

import pytest
import torch

from policies.networks.history import find_columns
from robot_rl.core.env import TermSpec
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import ObservationInputs, ObservationMap, TermConfig
from robot_rl.core.robot_state import RobotState

# columns: gyro 0 1 | 2 3 | 4 5, goal 6, action 7 | 8 | 9; oldest frame first
TERMS = (
    TermSpec(name="gyro", width=2, history=3),
    TermSpec(name="goal", width=1),
    TermSpec(name="action", width=1, history=3),
)


def test_a_window_holds_one_frame_of_all_terms_in_each_row_oldest_first():
    columns = find_columns(TERMS, frames=0, encoded=[])
    assert columns.window == [[0, 1, 7], [2, 3, 8], [4, 5, 9]]
    assert columns.present == [4, 5, 6, 9]


def test_fewer_frames_are_the_newest():
    columns = find_columns(TERMS, frames=2, encoded=[])
    assert columns.window == [[2, 3, 8], [4, 5, 9]]
    assert columns.present == [4, 5, 6, 9]


def test_without_an_encoder_the_frames_that_are_looked_at_are_seen():
    assert find_columns(TERMS, frames=1, encoded=None).present == [4, 5, 6, 9]
    assert find_columns(TERMS, frames=2, encoded=None).present == [2, 3, 4, 5, 6, 8, 9]
    assert find_columns(TERMS, frames=0, encoded=None).present == list(range(10))


def test_an_encoded_term_of_a_single_frame_is_seen_through_the_latent_alone():
    columns = find_columns(TERMS, frames=1, encoded=["goal"])
    assert columns.window == [[6]]
    assert columns.present == [4, 5, 9]


@pytest.mark.parametrize(
    ("terms", "frames", "encoded", "told"),
    [
        (TERMS, 4, [], "frames 4 asks for more than term 'gyro' has, 3"),
        (TERMS, 0, ["gyroo"], "'gyroo' is unknown .did you mean 'gyro'"),
        (TERMS, 0, ["gyro", "goal"], "gyro 3, goal 1"),
        (TERMS, 1, [], "no term of the actor's groups has more than one frame"),
        (TERMS[1:2], 0, [], "terms: goal"),
    ],
)
def test_windows_that_do_not_exist_are_refused(terms, frames, encoded, told):
    with pytest.raises(ConfigError, match=told):
        find_columns(terms, frames=frames, encoded=encoded)


def test_the_window_follows_the_observation_map_through_steps_and_a_reset():
    """Numbers by hand: two worlds, the second one starts anew after the third frame."""

    def inputs(value: float) -> ObservationInputs:
        last = torch.tensor([[value], [10 * value]])
        return ObservationInputs(state=RobotState({}), goal={}, last_action=last)

    one = ObservationMap([TermConfig(term="last_action", history=3)], inputs(0.0))
    (layout,) = one.layout()
    term = TermSpec(name=layout["term"], width=layout["width"], history=layout["history"])
    rows = [column for (column,) in find_columns([term], frames=0, encoded=[]).window]
    one.reset(EnvSelection(torch.tensor([True, True])), inputs(1.0))
    obs = one.update(inputs(2.0))
    assert obs[:, rows].tolist() == [[1, 1, 2], [10, 10, 20]]
    obs = one.update(inputs(3.0))
    assert obs[:, rows].tolist() == [[1, 2, 3], [10, 20, 30]]
    obs[1] = one.reset(EnvSelection(torch.tensor([False, True])), inputs(4.0))
    assert obs[:, rows].tolist() == [[1, 2, 3], [40, 40, 40]]
