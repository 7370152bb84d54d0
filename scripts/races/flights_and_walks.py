"""The two tracks of our own worlds: hover, and walking at a velocity."""

import math

from robot_rl.training.reporting.metrics import Record
from scripts.races.plan import Track

HOVER, VELOCITY = "hover", "velocity"
_FALL = 1.0
"""Error that a fall counts with [m/s], as in the velocity proof."""


def _success(record: Record) -> float:
    return record.get("eval/success", math.nan)


def _velocity_error(record: Record) -> float:
    error, fallen = record.get("eval/mean_velocity_error"), record.get("eval/terminated")
    if error is None or fallen is None:
        return math.nan
    return _FALL if fallen == 1.0 else error * (1 - fallen) + _FALL * fallen


HOVER_TRACK = Track(
    name=HOVER,
    about="Recover from a thrown start and hold the place: 256 starts every 250,000 world-steps. "
    "The goal is the success of the hover proof's bar.",
    overrides=("task=hover", "training.evaluation_interval=250000"),
    value=_success,
    what="success",
    goal=0.95,
)

VELOCITY_TRACK = Track(
    name=VELOCITY,
    about="A Go2 walks as fast as it is asked, with pushes and drawn parameters: 64 episodes every "
    "250,000 world-steps. The goal is the bar of the velocity proof.",
    overrides=(
        "task=velocity", "robot=go2", "training.evaluation_interval=250000",
        "training.evaluation_episodes=64",
    ),
    value=_velocity_error,
    what="mean velocity error [m/s], falls with 1 m/s",
    goal=0.15,
    higher_is_better=False,
)  # fmt: skip
