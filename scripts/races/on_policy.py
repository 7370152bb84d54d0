"""SAC beside PPO on our own tasks: how long, and how many steps, to the same success."""

from scripts.proofs.pages.results import Bar
from scripts.races.flights_and_walks import HOVER, HOVER_TRACK, VELOCITY, VELOCITY_TRACK
from scripts.races.plan import Entrant, Race
from scripts.races.record import RaceRecord

_QUADCOPTER = ("entropy=0", "learning_rate=5e-4", "hidden=[64,64]")


def _bars(record: RaceRecord) -> list[Bar]:
    """Nothing must hold: the race tells, it does not judge."""
    del record
    return []


ON_POLICY = Race(
    name="on_policy",
    title="SAC beside PPO",
    about="The default SAC and PPO of rsl_rl in the same worlds, with the same observations, "
    "rewards and starts of evaluation, one thread each.",
    seeds=2,
    tracks=(HOVER_TRACK, VELOCITY_TRACK),
    entrants=(
        Entrant(
            name="SAC",
            about="`learner=sac`, the default.",
            overrides={
                HOVER: ("training.total_steps=6000000",),
                VELOCITY: ("training.total_steps=2000000",),
            },
        ),
        Entrant(
            name="PPO",
            about="rsl_rl's; on hover with the settings of Isaac Lab's quadcopter task, on "
            "velocity with those of its locomotion tasks.",
            overrides={
                HOVER: (*_QUADCOPTER, "num_envs=1024", "training.total_steps=20000000"),
                VELOCITY: ("num_envs=256", "training.total_steps=8000000"),
            },
            script="train_ppo",
        ),
    ),
    bars=_bars,
)
