"""Errors say what was got, what is known and what to do."""

import inspect

from robot_rl.core import errors
from robot_rl.core.errors import MissingExtraError, RobotRLError, unknown_name


def test_unknown_name_offers_the_nearest_and_lists_all():
    assert unknown_name("task", "wlak", ["walk", "hover"]) == (
        "task 'wlak' is unknown (did you mean 'walk'?); known: hover, walk"
    )


def test_unknown_name_offers_nothing_where_nothing_is_near():
    assert unknown_name("task", "xyz", ["hover"]) == "task 'xyz' is unknown; known: hover"
    assert unknown_name("task", "xyz", []) == "task 'xyz' is unknown; known: none"


def test_missing_extra_says_how_to_install_it():
    error = MissingExtraError("viser", "ui", "the operator console")
    assert str(error) == (
        "the operator console needs the package 'viser', which is not installed; "
        "install it with: pip install 'robot_rl[ui]'"
    )
    assert isinstance(error, ImportError)


def test_every_error_is_one_that_a_user_can_mend():
    members = inspect.getmembers(errors, inspect.isclass)
    classes = [c for _, c in members if c.__module__ == errors.__name__]
    assert len(classes) > 8
    assert all(issubclass(c, RobotRLError) for c in classes)
