"""SAC, FastSAC and FlashSAC where worlds are many: time to the bar, and who takes it."""

from scripts.proofs.pages.results import Bar
from scripts.races.flights_and_walks import HOVER, HOVER_TRACK, VELOCITY, VELOCITY_TRACK
from scripts.races.plan import Entrant, Race
from scripts.races.record import RaceRecord


def _bars(record: RaceRecord) -> list[Bar]:
    """Nothing must hold: the race tells, it does not judge."""
    del record
    return []


def _entrant(learner: str, name: str, about: str) -> Entrant:
    return Entrant(
        name=name,
        about=about,
        overrides={
            HOVER: (f"learner={learner}", "num_envs=1024", "training.total_steps=6000000"),
            VELOCITY: (f"learner={learner}", "num_envs=64", "training.total_steps=2000000"),
        },
    )


THOUSANDS = Race(
    name="thousands",
    title="FastSAC and FlashSAC beside SAC",
    about="Three of the family in 1,024 quadrotors and in 64 quadrupeds, one thread each.",
    seeds=1,
    tracks=(HOVER_TRACK, VELOCITY_TRACK),
    entrants=(
        _entrant("sac", "SAC", "`learner=sac`, the default."),
        _entrant("fast_sac", "FastSAC", "`learner=fast_sac` with `configs/tuned`."),
        _entrant("flash_sac", "FlashSAC", "`learner=flash_sac` with `configs/tuned`."),
    ),
    bars=_bars,
)
