"""Messages of a stick: which count, and what the settings make of them."""

import math

import pytest

from hardware.console.stick import DriveSettings, StickMessage, StickStream
from robot_rl.core.errors import ConfigError

GOOD = {"seq": 0, "t": 10.0, "connection": "c", "axes": [0.0] * 6, "clutch": True}


def said(**changes):
    return StickMessage.of({**GOOD, **changes})


class TestStream:
    def test_repeated_overtaken_old_and_foreign_messages_do_not_count(self):
        stream = StickStream("c")
        assert stream.fault(said(seq=4), 10.0) == ""
        assert stream.fault(said(seq=4), 10.0) == "repeated or overtaken"
        assert stream.fault(said(seq=3), 10.0) == "repeated or overtaken"
        assert stream.fault(said(seq=5), 10.14) == ""
        assert stream.fault(said(seq=6), 10.16) == "more than 150 ms old"
        assert stream.fault(said(seq=7, t=10.4), 10.2) == "more than 150 ms old"  # of the future
        assert stream.fault(said(seq=8, connection="other"), 10.0) == "of another connection"
        assert stream.fault(said(seq=9), 10.0) == ""
        assert stream.dropped["repeated or overtaken"] == 2

    def test_a_deflection_that_never_changes_is_stuck_after_five_seconds(self):
        stream = StickStream("c")
        axes = [0.0, 0.37, 0.0, 0.0, 0.0, 0.0]
        found = [stream.stuck_axis(said(axes=axes), 0.05 * i) for i in range(110)]
        assert found[100] == ""
        assert found[103] == "y"
        axes[1] = 0.38
        assert stream.stuck_axis(said(axes=axes), 6.0) == ""

    def test_a_key_that_is_held_and_a_stick_at_rest_are_not_stuck(self):
        stream = StickStream("c")
        axes = [1.0, -1.0, 0.0, 0.03, 0.0, 0.0]
        assert {stream.stuck_axis(said(axes=axes), 0.05 * i) for i in range(300)} == {""}
        held = said(axes=[0.4, 0.0, 0.0, 0.0, 0.0, 0.0], device="pad")  # a mouse that stays
        assert {stream.stuck_axis(held, 0.05 * i) for i in range(300)} == {""}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("axes", [0.0] * 5), ("axes", [0.0] * 5 + [1.2]), ("axes", [0.0] * 5 + [math.nan]),
        ("axes", "000000"), ("axes", [True] * 6), ("seq", -1), ("seq", 1.5), ("seq", True),
        ("t", None), ("t", math.inf), ("clutch", 1), ("gripper", 0.5),
    ],
)  # fmt: skip
def test_a_malformed_message_is_refused_by_the_name_of_its_part(name, value):
    with pytest.raises(ConfigError, match=name):
        said(**{name: value})


class TestSettings:
    def test_the_deadband_takes_the_middle_and_leaves_the_ends(self):
        settings = DriveSettings(deadband=[0.2] * 6)
        assert settings.shaped([0.2, -0.1, 1.0, -1.0, 0.6, -0.6]) == pytest.approx(
            [0.0, 0.0, 1.0, -1.0, 0.5, -0.5]
        )

    def test_an_intent_has_what_the_teleoperator_reads(self):
        settings = DriveSettings().changed(
            {"speed": 0.25, "frame": "tool", "locked": [False, True, False, False, False, True]}
        )
        intent = settings.intent(said(axes=[1.0] * 6, gripper=True), clutch=False)
        assert intent == {
            "axes": [1.0] * 6, "clutch": False, "gripper": True, "speed": 0.25,
            "lock": ["y", "yaw"], "frame": "tool",
        }  # fmt: skip

    @pytest.mark.parametrize(
        "wish",
        [{"speed": 0.0}, {"speed": 2}, {"speed": "fast"}, {"frame": "moon"}, {"deadband": [0.1]},
         {"deadband": [0.95] * 6}, {"locked": [1] * 6}],
    )  # fmt: skip
    def test_what_cannot_be_set_is_refused_and_changes_nothing(self, wish):
        settings = DriveSettings()
        with pytest.raises(ConfigError, match=next(iter(wish))):
            settings.changed(wish)
        assert settings == DriveSettings()
