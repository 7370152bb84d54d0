"""The proof of reaching by cameras: three students who see a ball, of a teacher who knows it."""

import math

from scripts.proofs.pages.record import ProofRecord
from scripts.proofs.pages.results import Bar
from scripts.proofs.proving.flights import Condition
from scripts.proofs.proving.plan import Column, Group, Proof

_TEACHER, _STUDENT = "teacher", "student"
_HELD_OUT = "held-out starts"

CONDITIONS = (
    Condition(
        name=_HELD_OUT,
        about="Balls anywhere in the task's box, poses within 0.3 rad per joint of the default "
        "one, and the ranges of `task.randomization`, as in training; none of them seen in it.",
    ),
)


def bars(record: ProofRecord) -> list[Bar]:
    """Bars of the proof."""
    seeds = record.groups[_STUDENT].seeds
    teachers = [seed.trials[_HELD_OUT].success for seed in record.groups[_TEACHER].seeds]
    worst = min(seed.trials[_HELD_OUT].success for seed in seeds)
    return [
        Bar(what="seeds", value=len(seeds), limit=3),
        Bar(what="success of the teacher", value=max(teachers), limit=0.9, unit="%"),
        Bar(
            what="success of the worst student, as a share of its teacher's",
            value=worst / (max(teachers) or math.nan), limit=0.8, unit="%",
        ),
    ]  # fmt: skip


REACH_PIXELS = Proof(
    name="reach_pixels",
    title="Reach by cameras",
    about="A Panda brings its end effector to a red ball. Its policy knows its joints and two "
    "pictures of 48 by 48 pixels, a control period old, and is told of no goal; it learns by "
    "DAgger from a teacher who knows the goal and sees nothing. An episode of 3 s succeeds if the "
    "distance to the ball is below 2 cm on average over the last 0.5 s. There is one teacher, so "
    "the spread is of the students alone.",
    groups=(
        Group(
            name=_TEACHER,
            about="SAC on the group `critic`: joints, the way to the ball, drawn parameters.",
            overrides=(
                "experiment=reach_pixels",
                "env.cameras=[]",
                "learner.actor.groups=[critic]",
                "training.total_steps=400000",
            ),
            seeds=1,
            trials=(_HELD_OUT,),
        ),
        Group(
            name=_STUDENT,
            about="As `make train ARGS='experiment=reach_pixels_student learner.teacher=<run>'`.",
            overrides=("experiment=reach_pixels_student",),
            seeds=3,
            trials=(_HELD_OUT,),
            bears_bars=True,
            teacher=_TEACHER,
        ),
    ),
    conditions=CONDITIONS,
    columns=(
        Column(title="success", value=lambda one: one.success, unit="%", higher_is_better=True),
        Column(title="distance", value=lambda one: one.metric("mean_distance"), unit="m"),
        Column(title="joint speed", value=lambda one: one.metric("joint_speed"), unit="rad/s"),
    ),
    curve="eval/success",
    bars=bars,
    by_name_only=True,
)
