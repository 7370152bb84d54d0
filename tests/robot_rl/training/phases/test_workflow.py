"""Hints about an offline phase: each of its stories, and silence where there is none."""

import re

import pytest

from robot_rl.training.phases.workflow import hints


def history(**curves: list[float]) -> list[dict[str, float]]:
    told = {
        "q_data": [1.0, 2.0, 3.0, 3.0], "q_random": [0.0] * 4, "td_error": [1.0, 0.1, 0.05, 0.04],
        "held_out_td_error": [1.0, 0.1, 0.06, 0.05], **curves,
    }  # fmt: skip
    return [
        {"updates": 10.0 * i, **{name: curve[i] for name, curve in told.items()}} for i in range(4)
    ]


def test_good_curves_bring_no_hint() -> None:
    assert hints(history()) == []
    assert hints([]) == []


@pytest.mark.parametrize(
    ("curves", "said"),
    [
        ({"q_data": [1.0, 3.0, 2.0, 1.5]}, "peaked at 3 after 10 updates and is 1.5 now"),
        ({"held_out_td_error": [1.0, 0.2, 0.2, 0.4]}, "is 10.0 times that of the others"),
        ({"td_error": [4.0, 4.0, 4.0, 4.0], "held_out_td_error": [4.0] * 4}, "underfitted"),
        ({"q_random": [0.0, 1.0, 2.0, 4.0]}, "nobody has tried count more \\(4\\)"),
    ],
)
def test_each_failure_has_its_sentence(curves: dict[str, list[float]], said: str) -> None:
    found = hints(history(**curves))
    assert len(found) == 1
    assert re.search(said, found[0])


def test_a_value_that_is_still_near_its_peak_is_not_called_overfitted() -> None:
    assert hints(history(q_data=[1.0, 3.0, 3.2, 3.1])) == []


def test_two_records_are_too_few() -> None:
    assert hints(history(q_data=[1.0, 3.0, 2.0, 1.0])[:2]) == []
