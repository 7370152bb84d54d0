"""Runs the long learning proofs and writes their tables: `python -m scripts.proofs --help`."""

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
    from robot_rl.training.runs.run_folder import RunFolder
    from scripts.proofs.pages.record import ProofRecord
    from scripts.proofs.proving.plan import Proof
    from scripts.proofs.proving.training import TrainingJob

_HELP = """Trains many seeds, flies the best policy of each 1,000 times and writes what came of it.

usage: python -m scripts.proofs [<proof>|all] [option=value ...] [field=value ...]
       python -m scripts.proofs report [<proof>|all] [out=docs/proofs]

proofs:
  hover       10 seeds on the paper's plant (bar: worst >= 90 %, mean >= 95 % success); beside it
              the paper's own starts, the measured plant, 3 + 3 seeds trained on that plant, and
              what a controller with full knowledge makes of the same flights
  hover_robust
              5 seeds on every published plant, late, pushed and out of balance (bar: worst >= 95 %
              on each plant, >= 90 % with 20 ms of delay, and not below the geometric controller
              where all is drawn at once)
  tracking    5 seeds on a 5.5 s lemniscate of 1 m (bar: mean RMS error <= 0.15 m each, trained in
              at most 10 minutes)
  reach       5 seeds bring an arm's end effector within 2 cm (bar: worst >= 95 %, at most 10
              minutes of training each)
  velocity    2 seeds walk a quadruped as fast as asked, with pushes (bar: mean velocity error
              <= 0.15 m/s each, falls counted with 1 m/s; at most an hour of training each)
  history     5 seeds of students with and without history, whose teacher sees the hidden
              dynamics (bar: history saves error in every seed)
  compiled    5 seeds of hover with compiled updates, 5 with PyTorch operations (bar: p >= 0.05 of
              an exact permutation test, for the area under the curve and for its speed)
  offline_to_online
              WSRL, Cal-QL that keeps its data, and RLPD, 5 seeds each, from one collected data
              set of mixed quality (bar: WSRL keeps 0.8 of what it reached offline)
  hybrid      H2O, SAC in the simulator, SAC on both halves and IQL on the data, 10 seeds each:
              an arm whose joints rub twice as much as the simulator says (bar: H2O gains success
              over each of them)
  residual    a residual, 2 seeds, on a clone that inserts a peg at times, RLPD beside it (bar:
              worst >= 95 % within an hour of training)
  reach_pixels
              3 students reach for a ball by two cameras, of a teacher who knows where it is (bar:
              worst >= 80 % of its teacher's success)
  cartpole_pixels
              DrQ-SAC, DrQ-v2 and MENTOR swing a pole up by a camera, 3 seeds each, and SAC from
              states (bar: worst >= 80 % of the return from states, at most 30 minutes each)
  people      behaviour cloning, RLPD, HIL-SERL and SiLRI with a simulated person, and EXPO: 3 seeds
              each insert a peg on the twin of an arm, in 12 minutes of it (bar: a person gains)
  all         all of them but the last six; the default
  report      write the pages again from the results in their JSON; nothing is trained or flown

options:
  seeds=0             seeds of the group that bears the bars; 0 takes the proof's own number
  jobs=2              trainings at once, one thread each
  episodes=1000       flights of each policy under each condition
  runs=outputs/proofs folder of the runs and their logs
  out=                folder of the results: docs/proofs, or <runs>/tables if seeds, episodes or a
                      field are changed: only a whole proof is published

Any field of a run can be changed, to try the proof itself: training.total_steps=1e5

A seed that is finished is not trained again while its configuration is the same, and one that was
stopped goes on: Ctrl-C at any time, then give the same command again. The replay of a finished seed
is deleted. Exit code 1 if a bar is missed.

examples:
  python -m scripts.proofs
  python -m scripts.proofs hover seeds=3
  python -m scripts.proofs report"""


@dataclass(kw_only=True)
class ProofOptions:
    """Options of the command beside the fields of a run."""

    seeds: int = 0
    """Seeds of the group that bears the bars; 0 takes the proof's own number."""
    jobs: int = 2
    """Trainings at once."""
    episodes: int = 1000
    """Flights of each policy under each condition."""
    runs: str = "outputs/proofs"
    """Folder of the runs and their logs."""
    out: str = ""
    """Folder of the results; empty takes docs/proofs, or <runs>/tables if anything is changed."""

    def __post_init__(self) -> None:
        """Refuse what proves nothing."""
        for name, lowest in (("seeds", 0), ("jobs", 1), ("episodes", 1)):
            if getattr(self, name) < lowest:
                raise ConfigError(f"{name} must be at least {lowest}, got {getattr(self, name)}")


@exit_with_sentence()
def main(arguments: Sequence[str] | None = None) -> None:
    """Run, or report on, what the command line says."""
    overrides, _ = read_overrides(arguments, lambda: _HELP)
    check_one_root()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from configs.compose import read_options
    from scripts.proofs.cartpole_pixels import CARTPOLE_PIXELS
    from scripts.proofs.compiled import COMPILED
    from scripts.proofs.history import HISTORY
    from scripts.proofs.hover import HOVER
    from scripts.proofs.hover_robust import HOVER_ROBUST
    from scripts.proofs.hybrid import HYBRID
    from scripts.proofs.offline_to_online import OFFLINE_TO_ONLINE
    from scripts.proofs.people import PEOPLE
    from scripts.proofs.reach import REACH
    from scripts.proofs.reach_pixels import REACH_PIXELS
    from scripts.proofs.residual import PEG_RESIDUAL
    from scripts.proofs.tracking import TRACKING
    from scripts.proofs.velocity import VELOCITY

    proofs = (
        HOVER, HOVER_ROBUST, TRACKING, REACH, VELOCITY, HISTORY, COMPILED, OFFLINE_TO_ONLINE,
        HYBRID, PEG_RESIDUAL, REACH_PIXELS, CARTPOLE_PIXELS, PEOPLE,
    )  # fmt: skip
    known = {proof.name: proof for proof in proofs}
    words = [text for text in overrides if "=" not in text]
    options, changes = read_options(ProofOptions, [text for text in overrides if "=" in text])
    names = [word for word in words if word != "report"] or ["all"]
    for name in names:
        if name not in (*known, "all"):
            raise ConfigError(unknown_name("proof", name, (*known, "all", "report")))
    chosen = [
        proof for name, proof in known.items()
        if name in names or ("all" in names and not proof.by_name_only)
    ]  # fmt: skip
    if "report" in words:
        from scripts.proofs.pages.results import refuse_in_report, report_or_say

        refuse_in_report(overrides)
        passed = [report_or_say(partial(_report, proof, options), _say) for proof in chosen]
    else:
        command = shlex.join(["python", "-m", "scripts.proofs", *overrides])
        passed = _prove(chosen, options, changes, command)
    raise SystemExit(0 if all(passed) else 1)


def _prove(
    proofs: "Sequence[Proof]", options: ProofOptions, changes: Sequence[str], command: str
) -> list[bool]:
    """Train, fly, write; returns whether each proof has passed its bars."""
    from scripts.proofs.pages.results import save_results
    from scripts.proofs.proving.measurement import measure
    from scripts.proofs.proving.stages import Preparation
    from scripts.proofs.proving.training import train_all

    load_average = os.getloadavg()[0]
    if load_average > 0.25 * (os.cpu_count() or 1):
        _say(f"warning: the machine is busy (load average {load_average:.2f}): times will be long")
    runs = Path(options.runs)
    plans = {
        proof: proof.jobs(seeds=options.seeds, overrides=changes, runs=runs) for proof in proofs
    }
    jobs = [job for plan in plans.values() for group in plan.values() for job in group]
    try:
        for proof in proofs:
            if proof.prepare is not None:
                proof.prepare(
                    Preparation(
                        runs=runs, jobs=plans[proof], workers=options.jobs, say=_say
                    )
                )  # fmt: skip
        found = train_all(jobs, workers=options.jobs, say=_say)
    except KeyboardInterrupt:
        _say(f"stopped; resume with: {command}")
        raise
    # Nothing is written before everything is measured: a new page would be an uncommitted change.
    records = [
        measure(
            proof, plan, found, command=command, overrides=changes, workers=options.jobs,
            load_average=load_average, episodes=options.episodes, say=_say,
        )
        for proof, plan in plans.items()
    ]  # fmt: skip
    whole = not (changes or options.seeds or options.episodes != ProofOptions.episodes)
    folder = Path(options.out or ("docs/proofs" if whole else runs / "tables"))
    for (proof, plan), record in zip(plans.items(), records, strict=True):
        _draw(proof, plan, found, record, folder)
        bars = [
            {name: value for name, value in asdict(bar).items() if value is not None}
            | {"passed": bar.passed}
            for bar in proof.bars(record)
        ]
        save_results(folder / f"{proof.name}.json", replace(record, bars=bars))
    return [_write(*one, folder) for one in zip(plans, records, strict=True)]


def _draw(
    proof: "Proof",
    plan: "Mapping[str, Sequence[TrainingJob]]",
    found: "Mapping[TrainingJob, RunFolder]",
    record: "ProofRecord",
    folder: Path,
) -> None:
    """Draw the learning curves of all groups, or what became of every seed."""
    from robot_rl.training.reporting.curves import plot_comparison
    from robot_rl.training.reporting.metrics import read_metrics
    from scripts.proofs.pages.outcomes import plot_outcomes

    picture = folder / f"{proof.name}.png"
    if not proof.curve:
        plot_outcomes(proof, record, picture)
        return
    curves = {
        group: [read_metrics(found[job].metrics_path) for job in jobs]
        for group, jobs in plan.items()
    }
    plot_comparison(curves, picture, metric=proof.curve)


def _report(proof: "Proof", options: ProofOptions) -> bool:
    """Write the page again; refuses results of another configuration."""
    from scripts.proofs.pages.record import load_record
    from scripts.proofs.pages.results import refuse_changed

    folder = Path(options.out or "docs/proofs")
    path = folder / f"{proof.name}.json"
    record = load_record(path)
    jobs = proof.jobs(seeds=1, overrides=record.overrides, runs=Path(options.runs))
    for name, group in record.groups.items():
        job = next(iter(jobs.get(name, [])), None)
        again = f"python -m scripts.proofs {proof.name}"
        refuse_changed(path, f"'{name}'", group, job, again=again)
    return _write(proof, record, folder)


def _write(proof: "Proof", record: "ProofRecord", folder: Path) -> bool:
    """Write the page and say the verdict; returns whether all bars are passed."""
    from scripts.proofs.pages.page import write_page
    from scripts.proofs.pages.results import publish

    picture = folder / f"{proof.name}.png"
    text = write_page(proof, record, picture=picture.name if picture.is_file() else None)
    return publish(folder / f"{proof.name}.md", text, proof.bars(record), _say)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
