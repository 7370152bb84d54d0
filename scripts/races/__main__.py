"""Races learners against each other and writes the tables: `python -m scripts.races --help`."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.cli.command_line import exit_with_sentence, read_overrides
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.process import check_one_root

if TYPE_CHECKING:
    from scripts.proofs.proving.training import TrainingJob
    from scripts.races.plan import Race
    from scripts.races.record import RaceRecord

_HELP = """Trains several learners on the same tasks and writes who was where when.

usage: python -m scripts.races [<race>[/<track>]|all ...] [option=value ...] [field=value ...]
       python -m scripts.races report [<race>|all ...] [out=docs/races]

races:
  gymnasium   SAC beside Stable-Baselines3 on HalfCheetah-v5 and Hopper-v5, 5 seeds, 60k steps
              (bar: wall time in bf16 <= 0.6 of theirs)
  on_policy   SAC beside PPO of rsl_rl on hover and velocity: time and steps to the same success
  thousands   SAC, FastSAC and FlashSAC beside each other on hover and velocity
  all         all of them; the default
  report      write the pages again from the results in their JSON; nothing is trained

options:
  seeds=0             seeds of every learner; 0 takes the race's own number
  jobs=2              trainings at once, one thread each
  runs=outputs/races  folder of the runs and their logs
  out=                folder of the results: docs/races, or <runs>/tables if anything is changed

Any field of a run can be changed, to try the race itself: training.total_steps=1e4

Seeds take turns, so that all learners meet the same load. A seed that is finished is not trained
again while its configuration is the same, nor one whose results are in the folder of the results
already, from another machine maybe. Ours go on where they were stopped, baselines begin anew:
Ctrl-C at any time, then give the same command again. Exit code 1 if a bar is missed.

examples:
  python -m scripts.races gymnasium
  python -m scripts.races on_policy/hover seeds=1
  python -m scripts.races report"""


@dataclass(kw_only=True)
class RaceOptions:
    """Options of the command beside the fields of a run."""

    seeds: int = 0
    """Seeds of every learner; 0 takes the race's own number."""
    jobs: int = 2
    """Trainings at once."""
    runs: str = "outputs/races"
    """Folder of the runs and their logs."""
    out: str = ""
    """Folder of the results; empty takes docs/races, or <runs>/tables if anything is changed."""

    def __post_init__(self) -> None:
        """Refuse what decides nothing."""
        for name, lowest in (("seeds", 0), ("jobs", 1)):
            if getattr(self, name) < lowest:
                raise ConfigError(f"{name} must be at least {lowest}, got {getattr(self, name)}")


@exit_with_sentence()
def main(arguments: Sequence[str] | None = None) -> None:
    """Run, or report on, what the command line says."""
    overrides, _ = read_overrides(arguments, lambda: _HELP)
    check_one_root()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from configs.compose import read_options
    from scripts.proofs.pages.results import refuse_in_report, report_or_say
    from scripts.races.gymnasium import GYMNASIUM
    from scripts.races.on_policy import ON_POLICY
    from scripts.races.thousands import THOUSANDS

    known = {race.name: race for race in (GYMNASIUM, ON_POLICY, THOUSANDS)}
    words = [text for text in overrides if "=" not in text]
    options, changes = read_options(RaceOptions, [text for text in overrides if "=" in text])
    chosen = _choose([word for word in words if word != "report"] or ["all"], known)
    if "report" in words:
        refuse_in_report(overrides)
        if part := next((word for word in words if "/" in word), ""):
            raise ConfigError(f"'{part}' names a track; a report is about the whole race")
        passed = [report_or_say(partial(_report, known[name], options), _say) for name in chosen]
    else:
        command = shlex.join(["python", "-m", "scripts.races", *overrides])
        runs = Path(options.runs)
        plans = {  # a mistake is told before anything is trained
            name: known[name].jobs(seeds=options.seeds, tracks=tracks, overrides=changes, runs=runs)
            for name, tracks in chosen.items()
        }
        passed = [
            _run(known[name], tracks, plans[name], options, changes, command)
            for name, tracks in chosen.items()
        ]
    raise SystemExit(0 if all(passed) else 1)


def _choose(words: Sequence[str], known: "dict[str, Race]") -> dict[str, list[str]]:
    """Tracks by race; an empty list stands for all of its tracks."""
    chosen: dict[str, list[str]] = {}
    for word in words:
        name, _, track = word.partition("/")
        if name not in (*known, "all"):
            raise ConfigError(unknown_name("race", name, (*known, "all", "report")))
        for race in known if name == "all" else (name,):
            chosen.setdefault(race, []).extend([track] if track else [])
    return chosen


def _run(
    race: "Race",
    tracks: Sequence[str],
    jobs: "Mapping[tuple[str, str], Sequence[TrainingJob]]",
    options: RaceOptions,
    changes: Sequence[str],
    command: str,
) -> bool:
    """Train, read, write; returns whether all bars are passed."""
    from scripts.proofs.proving.training import train_all
    from scripts.races.measurement import measure_race, measured_before, with_other_tracks
    from scripts.races.plan import in_turns

    load_average, runs = os.getloadavg()[0], Path(options.runs)
    whole = not (changes or tracks or options.seeds)
    folder = Path(options.out or ("docs/races" if whole else runs / "tables"))
    kept = measured_before(folder / f"{race.name}.json", jobs)
    if kept:
        _say(f"{len(kept)} trainings were measured before: {folder / race.name}.json")
    missing = [job for job in in_turns([*jobs.values()]) if job not in kept]
    try:
        found = train_all(missing, workers=options.jobs, say=_say)
    except KeyboardInterrupt:
        _say(f"stopped; resume with: {command}")
        raise
    record = measure_race(
        race, jobs, found, command=command, overrides=changes, workers=options.jobs,
        load_average=load_average, kept=kept,
    )  # fmt: skip
    record = with_other_tracks(race, record, folder / f"{race.name}.json")
    record = replace(record, bars=[{**asdict(b), "passed": b.passed} for b in race.bars(record)])
    return _write(race, record, folder)


def _report(race: "Race", options: RaceOptions) -> bool:
    """Write the page again; refuses results of another configuration."""
    from scripts.proofs.pages.results import refuse_changed
    from scripts.races.record import load_race

    folder = Path(options.out or "docs/races")
    path = folder / f"{race.name}.json"
    record = load_race(path)
    jobs = race.jobs(seeds=1, tracks=(), overrides=record.overrides, runs=Path(options.runs))
    for track, entrants in record.tracks.items():
        for entrant, result in entrants.items():
            job = next(iter(jobs.get((track, entrant), [])), None)
            again = f"python -m scripts.races {race.name}"
            refuse_changed(path, f"'{entrant}' on '{track}'", result, job, again=again)
    return _write(race, record, folder)


def _write(race: "Race", record: "RaceRecord", folder: Path) -> bool:
    """Write results, picture and page, and say the verdict."""
    from scripts.proofs.pages.results import publish, save_results
    from scripts.races.page import write_page
    from scripts.races.picture import draw_race

    save_results(folder / f"{race.name}.json", record)
    draw_race(race, record, folder / f"{race.name}.png")
    page = folder / f"{race.name}.md"
    return publish(page, write_page(race, record), race.bars(record), _say)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
