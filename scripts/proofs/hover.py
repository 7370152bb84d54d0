"""The hover proof: ten seeds on the paper's plant; its own starts and the measured plant beside."""

import statistics

from scripts.proofs.pages.record import ProofRecord
from scripts.proofs.pages.results import Bar
from scripts.proofs.proving.flights import FULL_KNOWLEDGE, Condition
from scripts.proofs.proving.plan import Column, Group, Proof

_HELD_OUT, _PAPER, _MEASURED = "held-out starts", "starts of the paper", "measured plant"
_PLANT_A = "plant A"

COLUMNS = (
    Column(title="success", value=lambda one: one.success, unit="%", higher_is_better=True),
    Column(title="position error", value=lambda one: one.metric("mean_distance"), unit="m"),
    Column(title="speed", value=lambda one: one.metric("mean_speed"), unit="m/s"),
    Column(title="swing", value=lambda one: one.metric("action_swing"), unit="%"),
)
"""Of every proof of a hover."""

CONDITIONS = (
    Condition(
        name=_HELD_OUT,
        about="Plant A, starts and ranges of `task.evaluation_start` and `task.randomization` as "
        "configured.",
    ),
    Condition(
        name=_PAPER,
        about="Plant A, starts of Eschmann et al. 2024: any rotation of up to 90 deg, 0.2 m, "
        "1 m/s and 1 rad/s per axis, none at rest on the goal; ranges of the physical parameters "
        "as held-out. Lost is who leaves their box of 0.6 m per axis at any time, seen in every "
        "control step; the radius lies outside the box, so that only the box counts.",
        overrides=(
            "robot.plant=paper",
            "task.evaluation_start.attitude_draw=rotation",
            "task.evaluation_start.attitude_deg=90",
            "task.evaluation_start.position=0.2",
            "task.evaluation_start.velocity=1.0",
            "task.evaluation_start.angular_velocity=1.0",
            "task.evaluation_radius=1.04",
        ),
        box=0.6,
    ),
    Condition(
        name=_MEASURED,
        about="Plant B, the newer identification with thrust-to-weight 1.47 and its own rotor lag, "
        "rise 0.055 s and fall 0.25 s; starts and the other ranges as held-out.",
        overrides=("robot.plant=measured", "task.randomization.rotor_lag=[]"),
    ),
)

GROUPS = (
    Group(
        name=_PLANT_A,
        about="As `make train`; on the measured plant these policies fly what they never saw.",
        overrides=("task=hover",),
        seeds=10,
        trials=(_HELD_OUT, _PAPER, _MEASURED),
        bears_bars=True,
    ),
    Group(
        name="plant B, lag drawn",
        about="Trained on plant B with the rotor lag drawn from 0.04 to 0.15 s.",
        overrides=("task=hover", "robot.plant=measured"),
        seeds=3,
        trials=(_MEASURED,),
    ),
    Group(
        name="plant B, own lag",
        about="Trained on plant B with its own rotor lag.",
        overrides=("task=hover", "robot.plant=measured", "task.randomization.rotor_lag=[]"),
        seeds=3,
        trials=(_MEASURED,),
    ),
)


def bars(record: ProofRecord) -> list[Bar]:
    """Bars of the proof."""
    flown = [seed.trials[_HELD_OUT] for seed in record.groups[_PLANT_A].seeds]
    rates = [trial.success for trial in flown]
    return [
        Bar(what="seeds", value=len(rates), limit=10),
        Bar(what="success on held-out starts, worst seed", value=min(rates), limit=0.9, unit="%"),
        Bar(
            what="success on held-out starts, mean over seeds",
            value=statistics.fmean(rates), limit=0.95, unit="%",
        ),
        Bar(
            what="mean position error, mean over seeds", unit="m", limit=0.02, at_least=False,
            value=statistics.fmean(trial.metric("mean_distance") for trial in flown),
        ),
        Bar(
            what="swing of the rotors, worst seed", unit="%", limit=0.02, at_least=False,
            value=max(trial.metric("action_swing") for trial in flown),
        ),
    ]  # fmt: skip


HOVER = Proof(
    name="hover",
    title="Hover",
    about="A Crazyflie recovers from a thrown start and holds its goal. A flight of 5 s succeeds "
    "if it stays within 1.5 m and, over the last 2 s, its mean position error is below 0.05 m and "
    "its mean speed below 0.1 m/s. Errors, speed and swing (standard deviation of the rotor "
    "commands, of their range) are of the last 2 s of flights that lasted.",
    groups=GROUPS,
    conditions=CONDITIONS,
    columns=COLUMNS,
    curve="eval/success",
    bars=bars,
    controller=FULL_KNOWLEDGE,
)
