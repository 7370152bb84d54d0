"""The Gymnasium race: our SAC and that of Stable-Baselines3 with the same settings."""

import math
import statistics
from collections.abc import Sequence

from robot_rl.training.reporting.metrics import Record
from scripts.proofs.pages.results import Bar
from scripts.races.measurement import ratio_of_areas
from scripts.races.plan import Entrant, Race, Track
from scripts.races.record import RaceRecord, RaceSeed

_SB3, _OURS, _BF16 = "Stable-Baselines3", "sac_sb3", "sac_sb3 in bf16"
_IDS = ("HalfCheetah-v5", "Hopper-v5")


def _return(record: Record) -> float:
    return record.get("eval/return", math.nan)


def _track(name: str) -> Track:
    return Track(
        name=name,
        about="60,000 steps of one world; ten episodes every 5,000.",
        overrides=(
            "experiment=hopper", f"env.id={name}", "num_envs=1", "training.total_steps=60000",
            "training.evaluation_interval=5000", "training.evaluation_episodes=10",
        ),
        value=_return,
        what="return",
    )  # fmt: skip


def _bars(record: RaceRecord) -> list[Bar]:
    """Bars of the race; tracks that were left out have none."""
    fewest = min(len(one.seeds) for group in record.tracks.values() for one in group.values())
    bars = [Bar(what="seeds", value=fewest, limit=5)]
    for name in (name for name in _IDS if name in record.tracks):
        bars.append(_area_bar(name, record, [name], _OURS))
    if set(_IDS) <= set(record.tracks):
        bars += [_area_bar(f"both, {name}", record, _IDS, name) for name in (_OURS, _BF16)]
    for name, entrants in record.tracks.items():
        ours, theirs = (_median_seconds(entrants[who].seeds) for who in (_BF16, _SB3))
        bars.append(
            Bar(
                what=f"{name}, wall time in bf16 / {_SB3}'s, medians",
                value=ours / theirs,
                limit=0.6,
                at_least=False,
            )
        )
    return bars


def _area_bar(told: str, record: RaceRecord, tracks: Sequence[str], entrant: str) -> Bar:
    """The middle of all seeds decides; its interval tells how much that says."""
    ratio, low, high = ratio_of_areas(record, tracks, entrant, _SB3)
    what = f"{told}, area / {_SB3}'s, IQM (95 %)"
    return Bar(what=what, value=ratio, limit=0.9, interval=(low, high))


def _median_seconds(seeds: Sequence[RaceSeed]) -> float:
    return statistics.median(seed.seconds for seed in seeds)


GYMNASIUM = Race(
    name="gymnasium",
    title="Gymnasium beside Stable-Baselines3",
    about="SAC with the settings of Stable-Baselines3 in both libraries, one world, one update "
    "per step, one thread. The library steps Gymnasium's environment in its own loop; ours steps "
    "the same worlds through its adapter. Both are evaluated in the same worlds from the same "
    "starts, with the deterministic policy.",
    seeds=5,
    tracks=tuple(map(_track, _IDS)),
    entrants=(
        Entrant(
            name=_SB3,
            about="`SAC` with its defaults.",
            overrides=dict.fromkeys(_IDS, ()),
            script="train_sb3",
        ),
        Entrant(
            name=_OURS,
            about="The same settings here, in float32.",
            overrides=dict.fromkeys(_IDS, ("learner=sac_sb3",)),
        ),
        Entrant(
            name=_BF16,
            about="The same with hidden layers in bfloat16.",
            overrides=dict.fromkeys(_IDS, ("learner=sac_sb3", "learner.precision=bf16")),
        ),
    ),
    bars=_bars,
)
