"""From finished trainings to a record of the race, and from a record to its statistics."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from robot_rl.core.errors import CheckpointError
from robot_rl.training.reporting.metrics import read_metrics, share_of_time
from robot_rl.training.reporting.statistics import iqm
from robot_rl.training.runs.provenance import short_commit
from robot_rl.training.runs.run_folder import RunFolder
from scripts.proofs.pages.results import changes
from scripts.proofs.proving.measurement import machine
from scripts.proofs.proving.training import TrainingJob
from scripts.races.plan import Race, Track
from scripts.races.record import EntrantResult, RaceRecord, RaceSeed, load_race

_RESAMPLES = 10_000


def measure_race(
    race: Race,
    jobs: Mapping[tuple[str, str], Sequence[TrainingJob]],
    runs: Mapping[TrainingJob, RunFolder],
    *,
    command: str,
    overrides: Sequence[str],
    workers: int,
    load_average: float,
    kept: Mapping[TrainingJob, RaceSeed],
) -> RaceRecord:
    """Read the curves of all trainings.

    Args:
        race: What is asked.
        jobs: Its trainings, by track and entrant.
        runs: Their finished runs.
        command: What a person typed.
        overrides: Changes to every training.
        workers: Trainings that ran at once.
        load_average: Of the machine before they began.
        kept: Trainings that were measured before, and have no runs.
    """
    tracks: dict[str, dict[str, EntrantResult]] = {}
    for (track, entrant), seeds in jobs.items():
        tracks.setdefault(track, {})[entrant] = EntrantResult(
            **seeds[0].trained(),
            seeds=[
                kept[job] if job in kept else _read_seed(race.track(track), job, runs[job])
                for job in seeds
            ],
        )
    device = next(iter(jobs.values()))[0].config.device
    return RaceRecord(
        name=race.name, command=command, overrides=list(overrides), tracks=tracks,
        origin={**machine(device), "load_average": load_average, "jobs": workers},
    )  # fmt: skip


def measured_before(
    path: Path, jobs: Mapping[tuple[str, str], Sequence[TrainingJob]]
) -> dict[TrainingJob, RaceSeed]:
    """Trainings whose results are in a file already, trained as they would be today.

    Args:
        path: The file; there need not be one.
        jobs: What is wanted, by track and entrant.
    """
    if not path.is_file():
        return {}
    found, tracks = {}, load_race(path).tracks
    for (track, entrant), seeds in jobs.items():
        result = tracks.get(track, {}).get(entrant)
        here = seeds[0].config.device  # a report does without the device, a time does not
        if (
            result is not None
            and result.config.get("device", here) == here
            and not changes(result, seeds[0])
        ):
            before = {seed.seed: seed for seed in result.seeds}
            found |= {job: before[job.seed] for job in seeds if job.seed in before}
    return found


def with_other_tracks(race: Race, record: RaceRecord, path: Path) -> RaceRecord:
    """A race of some tracks, beside those that its file holds already, in the order of the race.

    Args:
        race: What was asked.
        record: What was measured now.
        path: The file; there need not be one. Results with other changes are left out.
    """
    if not path.is_file() or (before := load_race(path)).overrides != record.overrides:
        return record
    known = {**before.tracks, **record.tracks}
    return replace(record, tracks={t.name: known[t.name] for t in race.tracks if t.name in known})


def _read_seed(track: Track, job: TrainingJob, run: RunFolder) -> RaceSeed:
    records = read_metrics(run.metrics_path)
    rows = [
        (int(record["step"]), record["seconds"], value)
        for record in records
        if math.isfinite(value := track.value(record))
    ]
    if not rows:
        raise CheckpointError(f"the finished run {run.path} holds no {track.what}; train it again")
    steps, times, values = map(list, zip(*rows, strict=True))
    return RaceSeed(
        seed=job.seed,
        commit=short_commit(run.provenance().get("git")),
        seconds=run.status().seconds,
        collect_share=share_of_time(records, "collect"),
        learn_share=share_of_time(records, "learn"),
        steps=steps,
        times=times,
        values=values,
    )


def first_reached(track: Track, seed: RaceSeed) -> tuple[int, float] | None:
    """World-steps and wall time [s] of the first evaluation that is as good as the goal."""
    for step, seconds, value in zip(seed.steps, seed.times, seed.values, strict=True):
        if track.reached(value):
            return step, seconds
    return None


def ratio_of_areas(
    record: RaceRecord, tracks: Sequence[str], entrant: str, yardstick: str
) -> tuple[float, float, float]:
    """IQM over tracks and seeds of areas in units of the yardstick's IQM on the same track.

    Args:
        record: The race.
        tracks: Which tracks count.
        entrant: Whose areas.
        yardstick: Whose areas are one.

    Returns:
        The ratio and its 95 % interval from a bootstrap that draws seeds within each track and
        learner (stratified, as in Agarwal et al. 2021, section 4.1). NaN ends where one seed is
        all there is.
    """
    ours = [np.array(record.tracks[track][entrant].areas) for track in tracks]
    theirs = [np.array(record.tracks[track][yardstick].areas) for track in tracks]
    rng = np.random.default_rng(0)

    def drawn(values: np.ndarray) -> np.ndarray:
        return values[rng.integers(len(values), size=(_RESAMPLES, len(values)))]

    middle = _joined([one[None] for one in ours], [one[None] for one in theirs])[0]
    if min(map(len, [*ours, *theirs])) < 2:
        return float(middle), math.nan, math.nan
    low, high = np.percentile(_joined([*map(drawn, ours)], [*map(drawn, theirs)]), [2.5, 97.5])
    return float(middle), float(low), float(high)


def _joined(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> np.ndarray:
    """(R, S) per track -> (R,)."""
    scaled = [one / iqm(other, axis=1)[:, None] for one, other in zip(ours, theirs, strict=True)]
    return iqm(np.concatenate(scaled, axis=1), axis=1)
