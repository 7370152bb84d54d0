"""The page of a race: bars, a table per track, the curves, and the origin."""

import math
import statistics
from collections.abc import Sequence

from robot_rl.training.reporting.console import format_clock, format_count, format_percent
from robot_rl.training.reporting.statistics import bootstrap_interval, iqm
from scripts.proofs.pages.tables import bars_table, origin_table, present, table
from scripts.races.measurement import first_reached
from scripts.races.plan import Entrant, Race, Track
from scripts.races.record import EntrantResult, RaceRecord


def write_page(race: Race, record: RaceRecord) -> str:
    """Markdown of a race, whose results and picture lie beside it."""
    bars = race.bars(record)
    verdict = (": PASS" if all(bar.passed for bar in bars) else ": FAIL") if bars else ""
    parts = [
        f"# {race.title}{verdict}",
        "Written by `python -m scripts.races` from the measurements beside it "
        f"([{race.name}.json]({race.name}.json)).",
        race.about,
        *([bars_table(bars)] if bars else []),
        *filter(None, [race.findings(record)]),
        f"![{race.title}: curves over steps and time]({race.name}.png)",
        "Thin lines are seeds, thick ones their IQM.",
    ]
    for name, entrants in record.tracks.items():
        parts += _track_part(race, race.track(name), entrants)
    commits = sorted(
        {
            seed.commit
            for entrants in record.tracks.values()
            for result in entrants.values()
            for seed in result.seeds
        }
    )
    origin = origin_table(record.origin, record.command, commits, record.overrides)
    return "\n\n".join([*parts, "## Origin", origin]) + "\n"


def _track_part(race: Race, track: Track, entrants: dict[str, EntrantResult]) -> list[str]:
    timed = math.isfinite(track.goal)
    head = ["learner", "seeds", "mean over the curve, IQM (95 %)", "at the end, IQM"]
    head += ["steps to the goal", "time to the goal"] * timed
    head += ["wall time", "world-steps/s", "collecting", "learning"]
    rows = [_row(track, name, result) for name, result in entrants.items()]
    sign = "at least" if track.higher_is_better else "at most"
    goal = f" Goal: {sign} {track.goal:g}; medians of the seeds that saw it." if timed else ""
    commands = [_about(race.entrant(name), result) for name, result in entrants.items()]
    return [
        f"## {track.name}",
        f"{track.about} Values: {track.what}.{goal}",
        table(head, rows),
        "\n".join(commands),
    ]


def _row(track: Track, name: str, result: EntrantResult) -> list[str]:
    seeds = result.seeds
    ends = [seed.values[-1] for seed in seeds]
    cells = [name, str(len(seeds)), _with_interval(result.areas), f"{float(iqm(ends)):.4g}"]
    if math.isfinite(track.goal):
        cells += _goal_cells(track, result)
    seconds = statistics.median(seed.seconds for seed in seeds)
    cells += [
        format_clock(seconds),
        format_count(statistics.median(seed.steps[-1] / seed.seconds for seed in seeds)),
        format_percent(_median([seed.collect_share for seed in seeds])),
        format_percent(_median([seed.learn_share for seed in seeds])),
    ]
    return cells


def _goal_cells(track: Track, result: EntrantResult) -> list[str]:
    found = [first_reached(track, seed) for seed in result.seeds]
    reached = [one for one in found if one is not None]
    if not reached:
        return ["not reached", "not reached"]
    some = "" if len(reached) == len(found) else f" ({len(reached)} of {len(found)})"
    steps = statistics.median(step for step, _ in reached)
    return [
        f"{format_count(steps)}{some}",
        f"{format_clock(statistics.median(seconds for _, seconds in reached))}{some}",
    ]


def _with_interval(values: Sequence[float]) -> str:
    middle = f"{float(iqm(values)):.4g}"
    if len(values) < 2:
        return middle
    low, high = bootstrap_interval(values)
    return f"{middle} ({float(low):.4g} to {float(high):.4g})"


def _median(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return statistics.median(known) if known else None


def _about(entrant: Entrant, result: EntrantResult) -> str:
    return (
        f"- **{entrant.name}**: {entrant.about} `{present(result.command)}`, configuration "
        f"`{result.config_sha256[:16]}`."
    )
