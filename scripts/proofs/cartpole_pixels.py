"""The proof of learning from pixels alone: three learners swing a pole up by a camera."""

import math
from statistics import fmean

from scripts.proofs.pages.record import ProofRecord
from scripts.proofs.pages.results import Bar
from scripts.proofs.proving.flights import Condition
from scripts.proofs.proving.plan import Column, Group, Proof

_STATES, _HELD_OUT = "SAC on states", "held-out starts"
_LARGEST_RETURN = 125.0
_PIXELS = ("experiment=cartpole_pixels", "learner.precision=bf16")
_LEARNERS = {
    "DrQ-SAC": ("learner=drq_sac",),
    "DrQ-v2": ("learner=drq_v2",),
    "MENTOR": ("learner=mentor", "learner.images.encoder=keypoints"),
}

CONDITIONS = (
    Condition(
        name=_HELD_OUT,
        about="The pole hangs down at rest, about a centimetre and a hundredth of a radian off, "
        "drawn anew.",
    ),
)


def bars(record: ProofRecord) -> list[Bar]:
    """Bars of the proof."""
    seen = {name: record.groups[name].seeds for name in (_STATES, *_LEARNERS)}
    returns = {
        name: [seed.trials[_HELD_OUT].metric("return") for seed in seeds]
        for name, seeds in seen.items()
    }
    reference = fmean(returns[_STATES])
    longest = max(seed.training_seconds for name in _LEARNERS for seed in seen[name])
    return [
        Bar(what="seeds", value=min(map(len, seen.values())), limit=3),
        Bar(what="mean return from states", value=reference, limit=0.8 * _LARGEST_RETURN),
        *(
            Bar(
                what=f"return of {name}, worst seed, as a share of the mean from states",
                value=min(returns[name]) / (reference or math.nan), limit=0.8, unit="%",
            )
            for name in _LEARNERS
        ),
        Bar(what="training, longest", value=longest, limit=1800, at_least=False, unit="s"),
    ]  # fmt: skip


CARTPOLE_PIXELS = Proof(
    name="cartpole_pixels",
    title="Cart-pole from pixels",
    about="A cart on a rail swings a hanging pole up and holds it: the task of the DeepMind "
    "Control Suite, in control periods of 80 ms, where 125 is the largest return. Policies see "
    "three pictures of 48 by 48 pixels and their last action. An episode of 10 s succeeds if the "
    "pole is within 0.2 rad of upright on average over its last 2 s.",
    groups=(
        Group(
            name=_STATES,
            about="As `make train ARGS='task=cartpole_swingup'`: what pixels are compared with.",
            # As it was measured: its tuned file named the length as training.total_steps then.
            overrides=(
                "task=cartpole_swingup",
                "robot=cartpole",
                "task.train_steps=100000",
                "training.total_steps=16000",
            ),
            seeds=3,
            trials=(_HELD_OUT,),
        ),
        *(
            Group(
                name=name,
                about=f"As `make train ARGS='{' '.join((*_PIXELS, *words))}'`.",
                overrides=(*_PIXELS, *words),
                seeds=3,
                trials=(_HELD_OUT,),
                bears_bars=True,
            )
            for name, words in _LEARNERS.items()
        ),
    ),
    conditions=CONDITIONS,
    columns=(
        Column(title="return", value=lambda one: one.metric("return"), higher_is_better=True),
        Column(title="success", value=lambda one: one.success, unit="%", higher_is_better=True),
        Column(title="upright", value=lambda one: one.metric("upright"), higher_is_better=True),
    ),
    curve="eval/return",
    bars=bars,
    by_name_only=True,
)
