"""The reach proof: five seeds bring an arm's end effector to random points within 2 cm."""

from scripts.proofs.pages.record import ProofRecord
from scripts.proofs.pages.results import Bar
from scripts.proofs.proving.flights import Condition
from scripts.proofs.proving.plan import Column, Group, Proof

_BOX, _GROUP = "goals in the box", "reach"

CONDITIONS = (
    Condition(
        name=_BOX,
        about="Goals, starts and ranges of the physical parameters as configured; goals and "
        "parameters that no training has drawn.",
    ),
)


def bars(record: ProofRecord) -> list[Bar]:
    """Bars of the proof."""
    seeds = record.groups[_GROUP].seeds
    worst = min(seed.trials[_BOX].success for seed in seeds)
    longest = max(seed.training_seconds for seed in seeds)
    return [
        Bar(what="seeds", value=len(seeds), limit=5),
        Bar(what="within 2 cm, worst seed", value=worst, limit=0.95, unit="%"),
        Bar(what="training, longest", value=longest, limit=600, at_least=False, unit="s"),
    ]


REACH = Proof(
    name="reach",
    title="Reach",
    about="A Panda arm brings its end effector to a random point. An episode of 3 s succeeds if "
    "the mean distance over its last 0.5 s is below 2 cm. Distance and joint speed are means of "
    "the episodes that lasted to the end.",
    groups=(
        Group(
            name=_GROUP,
            about='As `make train ARGS="task=reach robot=panda num_envs=64"`.',
            overrides=("task=reach", "robot=panda", "num_envs=64"),
            seeds=5,
            trials=(_BOX,),
            bears_bars=True,
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
)
