"""Errors say what was got, what is known and what to do."""

from robot_rl.core.errors import unknown_name


def test_unknown_name_offers_the_nearest_and_lists_all():
    assert unknown_name("task", "wlak", ["walk", "hover"]) == (
        "task 'wlak' is unknown (did you mean 'walk'?); known: hover, walk"
    )


def test_unknown_name_offers_nothing_where_nothing_is_near():
    assert unknown_name("task", "xyz", ["hover"]) == "task 'xyz' is unknown; known: hover"
    assert unknown_name("task", "xyz", []) == "task 'xyz' is unknown; known: none"
