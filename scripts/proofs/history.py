"""The history proof: students that look back against students that see the present alone."""

from robot_rl.training.reporting.statistics import bootstrap_interval
from scripts.proofs.pages.record import ProofRecord, SeedResult
from scripts.proofs.pages.results import Bar
from scripts.proofs.proving.flights import Condition
from scripts.proofs.proving.plan import Column, Group, Proof

_HIDDEN = "hidden dynamics"
_TEACHER, _WITH, _WITHOUT = "teacher", "student with history", "student without"
_FALL = 1.0
"""Error that a fall counts with [m/s]: more than any goal is fast."""
_STUDENT_STEPS = 400_000
_WORLDS = ("task=velocity_hidden", "robot=go2")
_STUDENT = (*_WORLDS, "learner=distill", f"training.total_steps={_STUDENT_STEPS}")

CONDITIONS = (
    Condition(
        name=_HIDDEN,
        about="Loads, friction, motors, gains, delays and goals from the ranges of training, none "
        "of them seen in it; pushes as configured.",
        lost=(("mean_velocity_error", _FALL),),
    ),
)


def _error(seed: SeedResult) -> float:
    return seed.trials[_HIDDEN].metric("mean_velocity_error_all")


def bars(record: ProofRecord) -> list[Bar]:
    """Bars of the proof."""
    pairs = zip(record.groups[_WITH].seeds, record.groups[_WITHOUT].seeds, strict=True)
    gains = [_error(without) - _error(looks_back) for looks_back, without in pairs]
    low = float(bootstrap_interval(gains)[0]) if len(gains) > 1 else float("nan")
    return [
        Bar(what="seeds", value=len(gains), limit=5),
        Bar(
            what="share of seeds in which the student with history has the smaller error",
            value=sum(gain > 0 for gain in gains) / len(gains), limit=1.0, unit="%",
        ),
        Bar(
            what="error that history saves, lower end of the 95 % interval over seeds",
            value=low, limit=0.0, unit="m/s",
        ),
    ]  # fmt: skip


HISTORY = Proof(
    name="history",
    title="History and privilege",
    about="A Go2 walks as fast as it is asked while its load, its friction, its motors and their "
    "delay are drawn widely and hidden from it. A teacher, who sees all of that and the "
    "velocity of the base, learns by SAC; in each seed two students of this teacher learn by "
    "DAgger, alike but for what they see: ten frames through an encoder, or the newest frame "
    "alone. The error is that of the velocity proof: the distance between the base's and the "
    "asked-for velocity in the ground plane of the heading frame, averaged over every step of "
    "an episode of 10 s; an episode with a fall counts with 1 m/s. There is one teacher, "
    "because it takes as long as all students: what another one would teach is not in the "
    "spread.",
    groups=(
        Group(
            name=_TEACHER,
            about="Sees the group `critic`: true state and drawn parameters.",
            overrides=(*_WORLDS, "learner.actor.groups=[critic]"),
            seeds=1,
            trials=(_HIDDEN,),
        ),
        Group(
            name=_WITH,
            about="Ten frames of 20 ms through convolutions, and the newest frame.",
            overrides=_STUDENT,
            seeds=5,
            trials=(_HIDDEN,),
            bears_bars=True,
            teacher=_TEACHER,
        ),
        Group(
            name=_WITHOUT,
            about="The newest frame alone, the same network behind it.",
            overrides=(
                *_STUDENT,
                "learner.actor.encoder.kind=none",
                "learner.actor.encoder.frames=1",
            ),
            seeds=5,
            trials=(_HIDDEN,),
            bears_bars=True,
            teacher=_TEACHER,
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
    ),
    curve="eval/mean_velocity_error",
    bars=bars,
)
