"""The velocity proof: two seeds walk a quadruped as fast as asked, pushed and randomised."""

import numpy as np

from scripts.proofs.pages.record import ProofRecord
from scripts.proofs.pages.results import Bar
from scripts.proofs.proving.flights import Condition
from scripts.proofs.proving.plan import Column, Group, Proof

_GOALS, _GROUP = "goals of training", "velocity"
_FALL = 1.0
"""Error that a fall counts with [m/s]: more than any goal is fast."""

CONDITIONS = (
    Condition(
        name=_GOALS,
        about="Goals within +-0.6 m/s forward, +-0.3 m/s sideways and +-0.6 rad/s, another one "
        "after 5 s, a tenth of them to stand still; pushes and ranges of the physical parameters "
        "as configured; none of them seen in training.",
        overrides=(
            "task.forward=[-0.6,0.6]",
            "task.lateral=[-0.3,0.3]",
            "task.turn=[-0.6,0.6]",
        ),
        lost=(("mean_velocity_error", _FALL),),
    ),
)


def bars(record: ProofRecord) -> list[Bar]:
    """Bars of the proof."""
    seeds = record.groups[_GROUP].seeds
    trials = [seed.trials[_GOALS] for seed in seeds]
    error = float(np.max([trial.metric("mean_velocity_error_all") for trial in trials]))
    longest = max(seed.training_seconds for seed in seeds)
    return [
        Bar(what="seeds", value=len(seeds), limit=2),
        Bar(
            what="mean velocity error, falls with 1 m/s, worst seed",
            value=error, limit=0.15, at_least=False, unit="m/s",
        ),
        Bar(what="training, longest", value=longest, limit=3600, at_least=False, unit="s"),
    ]  # fmt: skip


VELOCITY = Proof(
    name="velocity",
    title="Walking at a velocity",
    about="A Go2, which does not measure the velocity of its base, walks as fast as it is asked "
    "and is pushed on the way. The error is the distance between the base's and the asked-for "
    "velocity in the ground plane of the heading frame, averaged over every step of an episode "
    "of 10 s. Changes of goal and pushes are included. An episode with a fall counts with 1 m/s in "
    "the first column and as a failure in the second. An episode succeeds without a fall if this "
    "error is below 0.15 m/s and that of the turning rate below 0.2 rad/s.",
    groups=(
        Group(
            name=_GROUP,
            about='As `make train ARGS="task=velocity robot=go2"`.',
            overrides=("task=velocity", "robot=go2"),
            seeds=2,
            trials=(_GOALS,),
            bears_bars=True,
        ),
    ),
    conditions=CONDITIONS,
    columns=(
        Column(
            title="velocity error",
            value=lambda one: one.metric("mean_velocity_error_all"),
            unit="m/s",
        ),
        Column(title="success", value=lambda one: one.success, unit="%", higher_is_better=True),
        Column(
            title="without falls", value=lambda one: one.metric("mean_velocity_error"), unit="m/s"
        ),
        Column(title="turn error", value=lambda one: one.metric("mean_turn_error"), unit="rad/s"),
        Column(
            title="feet as the clock",
            value=lambda one: one.metric("gait_kept"),
            unit="%",
            higher_is_better=True,
        ),
    ),
    curve="eval/success",
    bars=bars,
)
