"""The tracking proof: five seeds follow a lemniscate after at most ten minutes of training."""

from collections.abc import Sequence
from functools import partial

from proofs.flights import Condition
from proofs.plan import Column, Group, Proof
from proofs.record import Bar, ProofRecord, SeedResult

_LEMNISCATE, _GROUP = "lemniscate", "tracking"

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
    ),
)


def rms(statistic: str, condition: str, seed: SeedResult) -> float:
    """A statistic over all flights of the root-mean-square position error [m]."""
    value = seed.trials[condition].metrics["rms_distance_all"][statistic]
    return float("nan") if value is None else value


def columns(condition: str) -> Sequence[Column]:
    """Columns of a group's table."""
    return (
        _rms_column(condition),
        Column(title="95th percentile", value=partial(rms, "p95", condition), unit="m"),
        Column(
            title="success",
            value=lambda seed: seed.trials[condition].success,
            unit="%",
            higher_is_better=True,
        ),
    )


def bars(record: ProofRecord) -> list[Bar]:
    """What must hold."""
    group = record.groups[_GROUP]
    worst = max(group.each(partial(rms, "mean", _LEMNISCATE)))
    longest = max(group.each(lambda seed: seed.training_seconds))
    return [
        Bar(what="seeds", value=len(group.seeds), limit=5),
        Bar(what="mean RMS error, worst seed", value=worst, limit=0.15, at_least=False, unit="m"),
        Bar(what="training, longest", value=longest, limit=600, at_least=False, unit="s"),
    ]


def _rms_column(condition: str) -> Column:
    return Column(title="RMS error", value=partial(rms, "mean", condition), unit="m")


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
    columns=columns,
    compared=_rms_column,
    curve="eval/success",
    bars=bars,
)
