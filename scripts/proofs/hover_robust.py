"""The robust hover proof: five seeds on every published plant, late, pushed and out of balance."""

from robot_rl.cli.robustness_axes import read_changes
from scripts.proofs.hover import COLUMNS
from scripts.proofs.pages.record import ProofRecord
from scripts.proofs.pages.results import Bar
from scripts.proofs.proving.flights import GEOMETRIC, Condition
from scripts.proofs.proving.plan import Group, Proof

_GROUP = "hover_robust"
_HOME, _EXACT, _JOINT, _LATE = "at home", "at home, exactly", "all at once", "delay 20 ms"
_SHIFTED = "centre of mass 3 mm behind"
_CHANGES = read_changes("multirotor") | read_changes("crazyflie")
"""Those of `robot-rl evaluate robustness=true`."""
_NOMINAL = (
    "task.randomization.plants=[]",
    "task.randomization.mass=0.1",
    "task.randomization.inertia=0.1",
    "task.randomization.thrust=0.1",
    "task.randomization.rotor_lag=[0.04,0.15]",
    "task.randomization.action_delay=[0,0.01]",
    "task.randomization.force=0.05",
    "task.randomization.torque=1e-4",
)
"""Draws of hover's own settings, around one plant."""
_PLANTS = ("measured", "bullet", "rotorpy")


def _around(plant: str) -> Condition:
    return Condition(
        name=f"plant {plant}",
        about="Another plant that was published (`configs/robot/crazyflie.yaml`).",
        overrides=(*_NOMINAL, f"robot.plant={plant}"),
    )


CONDITIONS = (
    Condition(
        name=_HOME,
        about="The plant of the paper, with the draws of hover's own settings.",
        overrides=_NOMINAL,
    ),
    Condition(
        name=_EXACT,
        about="The same, within 0.05 m and 0.1 m/s as hover asks for.",
        overrides=(*_NOMINAL, "task.success_distance=0.05", "task.success_speed=0.1"),
    ),
    Condition(
        name=_JOINT,
        about="Mass within 25 %, inertia within 30 %, thrust within 15 %, rotor lag of 0.03 to "
        "0.2 s, delay to 15 ms, and a constant force of 0.15 of the weight (standard deviation "
        "per axis).",
        overrides=(*_NOMINAL, *_CHANGES["all of these, delay to 15 ms"]),
    ),
    Condition(
        name=_LATE,
        about="Commands act 20 ms late in every world.",
        overrides=(*_NOMINAL, *_CHANGES[_LATE]),
    ),
    *map(_around, _PLANTS),
    Condition(
        name=_SHIFTED,
        about="The rotors stand 3 mm further ahead.",
        overrides=(*_NOMINAL, *_CHANGES[_SHIFTED]),
    ),
)


def bars(record: ProofRecord) -> list[Bar]:
    """Bars of the proof."""
    seeds = record.groups[_GROUP].seeds

    def rates(condition: str) -> list[float]:
        return [seed.trials[condition].success for seed in seeds]

    plants = [_HOME, *(f"plant {name}" for name in _PLANTS)]
    return [
        Bar(what="seeds", value=len(seeds), limit=5),
        *(
            Bar(what=f"success, {name}, worst seed", value=min(rates(name)), limit=0.95, unit="%")
            for name in plants
        ),
        Bar(
            what="success, all at once, worst seed; the bar is the geometric controller's",
            value=min(rates(_JOINT)), limit=record.expert[_JOINT].success, unit="%",
        ),
        Bar(
            what="success, delay of 20 ms, worst seed",
            value=min(rates(_LATE)), limit=0.9, unit="%",
        ),
    ]  # fmt: skip


HOVER_ROBUST = Proof(
    name="hover_robust",
    title="Hover on any Crazyflie",
    about="A Crazyflie recovers from a thrown start and holds its goal on plants that others "
    "published, with commands that come late, and pushed. A flight of 5 s succeeds if it stays "
    "within 1.5 m and, over the last 2 s, its mean position error is below 0.1 m and its mean "
    "speed below 0.2 m/s.",
    groups=(
        Group(
            name=_GROUP,
            about="As `make train ARGS=experiment=hover_robust`.",
            overrides=("experiment=hover_robust",),
            seeds=5,
            trials=tuple(one.name for one in CONDITIONS),
            bears_bars=True,
        ),
    ),
    conditions=CONDITIONS,
    columns=COLUMNS,
    curve="eval/success",
    bars=bars,
    controller=GEOMETRIC,
)
