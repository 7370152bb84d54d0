"""The tracking proof: five seeds follow a lemniscate after at most ten minutes of training."""

import numpy as np

from scripts.proofs.pages.record import ProofRecord
from scripts.proofs.pages.results import Bar
from scripts.proofs.proving.flights import Condition
from scripts.proofs.proving.plan import Column, Group, Proof

_LEMNISCATE, _GROUP = "lemniscate", "tracking"
_RMS = "rms_distance_all"
"""Root-mean-square position error over all flights [m]."""

CONDITIONS = (
    Condition(
        name=_LEMNISCATE,
        about="A lemniscate of 1 m to either side in 5.5 s, one lap, the error counted from the "
        "first step; plant A, starts and ranges of the physical parameters as configured.",
        overrides=(
            "task.evaluation_curve.lemniscate_share=1.0",
            "task.evaluation_curve.lemniscate_size=1.0",
            "task.evaluation_curve.lemniscate_period=5.5",
            "task.episode_length=5.5",
            "task.settling_time=0.0",
        ),
        lost=(("rms_distance", "distance"),),
    ),
)


def bars(record: ProofRecord) -> list[Bar]:
    """Bars of the proof."""
    seeds = record.groups[_GROUP].seeds
    worst = float(np.max([seed.trials[_LEMNISCATE].metric(_RMS) for seed in seeds]))
    longest = max(seed.training_seconds for seed in seeds)
    return [
        Bar(what="seeds", value=len(seeds), limit=5),
        Bar(what="mean RMS error, worst seed", value=worst, limit=0.15, at_least=False, unit="m"),
        Bar(what="training, longest", value=longest, limit=600, at_least=False, unit="s"),
    ]


TRACKING = Proof(
    name="tracking",
    title="Trajectory tracking",
    about="A Crazyflie follows a moving goal that it sees 0.6 s ahead. The RMS error is the "
    "root-mean-square distance to the goal over a flight; the table shows its mean and its 95th "
    "percentile over all flights, of which one that was lost counts with the distance it was lost "
    "at. A flight succeeds if it lasts to its end with an RMS error below 0.15 m.",
    groups=(
        Group(
            name=_GROUP,
            about="As `make train ARGS=task=tracking`.",
            overrides=("task=tracking",),
            seeds=5,
            trials=(_LEMNISCATE,),
            bears_bars=True,
        ),
    ),
    conditions=CONDITIONS,
    columns=(
        Column(title="RMS error", value=lambda one: one.metric(_RMS), unit="m"),
        Column(title="95th percentile", value=lambda one: one.metric(_RMS, "p95"), unit="m"),
        Column(title="success", value=lambda one: one.success, unit="%", higher_is_better=True),
    ),
    curve="eval/success",
    bars=bars,
)
