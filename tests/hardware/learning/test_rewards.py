"""Rewards that a real robot can be judged by."""

import numpy as np
import pytest

from hardware.learning.rewards import PlaceConfig, PlaceReward, RewardInputs
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import ObservationInputs, RobotState

GOAL = (0.4, 0.0, 0.3)


def at(place, step: int, stamp: float) -> RewardInputs:
    inputs = ObservationInputs(
        state=RobotState({"end_effector_position_b": np.array([place], np.float32)}),
        goal={"place": np.array([GOAL], np.float32)}, last_action=np.zeros((1, 3), np.float32),
        sensed={},
    )  # fmt: skip
    return RewardInputs(inputs=inputs, obs={}, outcome=None, step=step, stamp=stamp)


def judged(rule: PlaceReward, places) -> list[float]:
    rule.begin(at((0.0, 0.0, 0.0), 0, 0.0))
    return [rule.judge(at(place, i + 1, 0.1 * (i + 1))).reward for i, place in enumerate(places)]


def test_a_place_pays_once_the_hand_has_stayed_there():
    rule = PlaceReward(PlaceConfig(input="goal/place", radius=0.01, seconds=0.2))
    near, far = (0.405, 0.0, 0.3), (0.42, 0.0, 0.3)
    assert judged(rule, [near, near, far, near, near, near]) == [0, 0, 0, 0, 0, 1]
    assert judged(rule, [near]) == [0], "an episode begins anew"


def test_a_place_may_lie_beside_what_is_measured_or_be_fixed():
    beside = PlaceConfig(input="goal/place", at=[0.0, 0.0, 0.05], radius=0.01)
    assert judged(PlaceReward(beside), [GOAL, (0.4, 0.0, 0.35)]) == [0, 1]
    assert judged(PlaceReward(PlaceConfig(at=[0.1, 0.2, 0.3], radius=0.01)), [(0.1, 0.2, 0.3)]) == [
        1
    ]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"at": [1.0]}, "place.at must be 3 numbers"),
        ({"radius": -1.0}, "place.radius must be >= 0"),
        ({"input": "goal/plac"}, "place.input 'goal/plac' is unknown .did you mean 'goal/place'"),
        ({"input": "sensed/axis"}, "has 2 numbers; a place has 3"),
    ],
)
def test_a_place_that_is_none_is_refused(values, why):
    with pytest.raises(ConfigError, match=why):
        PlaceConfig(**values).check({"goal/place": 3, "sensed/axis": 2})
