"""Lists, shows, compares and cleans runs: `robot-rl runs --help`."""

import glob
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from robot_rl.cli.command_line import read_options
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.training.reporting.console import (
    aligned_rows,
    format_clock,
    format_count,
    format_number,
    format_percent,
)
from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.runs.run_folder import RunFolder, find_runs
from robot_rl.training.runs.run_summary import (
    RunSummary,
    delete_run,
    group_of,
    removable,
    summarise,
)
from robot_rl.training.storage.checkpoint import CheckpointStore

HELP = """Lists, shows, compares and cleans training runs.

usage: robot-rl runs list [option=value ...]                one line per run
       robot-rl runs show <run>|latest                      everything about one run
       robot-rl runs compare [<run> ...] [option=value ...] learning curves and a table
       robot-rl runs clean [option=value ...]               deletes runs without a checkpoint

options of all:
  runs=runs               folder of all runs

of list:
  sort=age                order of the lines: age (newest first), name, success, return, best, size

of compare, which takes folders or quoted patterns, and all runs where none is named:
  metric=rollout/success  what is compared: interquartile mean and 95 % interval over seeds
  by=name                 name (task, robot and learner), task, robot, learner, seed, run, or a path
                          into the configuration such as learner.gamma
  out=comparison.png      the picture

of clean, which only says what it would delete, and never touches a run that is training, that
robot-rl learn uses, or that holds the steps of a robot (to be deleted by hand):
  yes=false               true deletes
  keep=                   also all but this many runs, those written to last
  older_than=             also runs older than this many days
  failed=false            also failed ones with checkpoints

examples:
  robot-rl runs list sort=success
  robot-rl runs show latest
  robot-rl runs compare 'runs/*hover*' metric=eval/success by=learner out=hover.png
  robot-rl runs compare by=learner.gamma
  robot-rl runs clean keep=20 yes=true"""


@dataclass(kw_only=True)
class AnyOptions:
    """Options of all commands."""

    runs: Path = Path("runs")
    """Folder of all runs."""


@dataclass(kw_only=True)
class ListOptions(AnyOptions):
    """Options of `list`."""

    sort: str = "age"
    """Order of the lines: a name of `_ORDERS`."""

    def __post_init__(self) -> None:
        if self.sort not in _ORDERS:
            raise ConfigError(unknown_name("order", self.sort, _ORDERS))


@dataclass(kw_only=True)
class CompareOptions(AnyOptions):
    """Options of `compare`."""

    metric: str = "rollout/success"
    """Name in the metrics."""
    by: str = "name"
    """Runs of one group, together."""
    out: Path = Path("comparison.png")
    """Picture to write."""

    def __post_init__(self) -> None:
        if self.out.suffix != ".png":
            raise ConfigError(f"out must be a picture to write, such as curves.png, got {self.out}")


@dataclass(kw_only=True)
class CleanOptions(AnyOptions):
    """Options of `clean`."""

    yes: bool = False
    """Delete; else only say so."""
    keep: int | None = None
    """Delete also all but so many, those written to last."""
    older_than: float | None = None
    """Delete also older ones [days]."""
    failed: bool = False
    """Delete also failed ones with checkpoints."""

    def __post_init__(self) -> None:
        if self.keep is not None and self.keep < 0:
            raise ConfigError(f"keep must be 0 or more, got {self.keep}")
        if self.older_than is not None and not self.older_than >= 0:
            raise ConfigError(f"older_than must be 0 days or more, got {self.older_than}")
        if self.older_than is not None and self.older_than > _MOST_DAYS:
            raise ConfigError(
                f"older_than must be {_MOST_DAYS} days or less, got {self.older_than}"
            )


_MOST_DAYS = 36_500
_COMMANDS = ("list", "show", "compare", "clean")
_ORDERS: dict[str, Callable[[RunSummary], Any]] = {
    "age": lambda run: run.age,
    "name": lambda run: run.path.name,
    "success": lambda run: -_or_lowest(run.success),
    "return": lambda run: -_or_lowest(run.episode_return),
    "best": lambda run: -_or_lowest(run.best),
    "size": lambda run: -run.num_bytes,
}


def run(words: Sequence[str]) -> None:
    """Run the command that the first word names."""
    command, rest = words[0] if words else "", words[1:]
    named = [word for word in rest if "=" not in word or Path(word).exists()]
    options = [word for word in rest if word not in named]
    if command == "compare":
        compare_runs(named, read_options(CompareOptions, options))
        return
    expected = 1 if command == "show" else 0
    if command in _COMMANDS and len(named) != expected:
        raise ConfigError(
            f"runs {command} takes {'the folder of one run, or latest' if expected else 'options'}"
            f", got {' '.join(named) or 'none'}"
        )
    if command == "list":
        list_runs(read_options(ListOptions, options))
    elif command == "show":
        show_run(named[0], read_options(AnyOptions, options))
    elif command == "clean":
        clean_runs(read_options(CleanOptions, options))
    else:
        raise ConfigError(unknown_name("command of runs", command, _COMMANDS))


def list_runs(options: ListOptions) -> None:
    """Print one line per run."""
    runs = [summarise(path) for path in find_runs(options.runs)]
    if not runs:
        print(f"no runs in {options.runs}; start one with: robot-rl train")
        return
    rows = [_list_row(run, options.runs) for run in sorted(runs, key=_ORDERS[options.sort])]
    print_table(
        ["run", "status", "steps", "success", "return", "best", "age", "size"], rows, left=2
    )


def show_run(name: str, options: AnyOptions) -> None:
    """Print what is known of one run."""
    from robot_rl.cli.components import run_path  # takes time that a list does not need

    run = RunFolder.open(run_path(name, str(options.runs)))
    summary, status, origin = summarise(run.path), run.status(), run.provenance()
    store = CheckpointStore(run.checkpoints, read_only=True)
    latest, best = store.latest(), store.best()
    records = read_metrics(run.metrics_path)
    git = origin.get("git") or {}
    commit = f"{git['commit'][:12]}{' with changes' if git['dirty'] else ''}" if git else "-"
    why = f": {status.reason}" if status.reason else ""
    lines = {
        "run": str(run.path),
        "status": f"{status.state.value}{why}",
        "steps": f"{format_count(summary.step)} in {format_clock(status.seconds)}",
        "success": format_percent(summary.success),
        "return": _number(summary.episode_return),
        "latest": str(latest or "no checkpoint yet"),
        "best": f"{best} (score {_number(summary.best)})" if best else "none marked",
        "size": _size(summary.num_bytes),
        "started": f"{origin.get('started', '-')} on {status.hostname or '-'}",
        "command": origin.get("command", "-"),
        "commit": commit,
        "device": origin.get("device", "-"),
        "config": f"{run.config_path} (sha256 {origin.get('config_sha256', '-')[:12]})",
    }
    for word, text in lines.items():
        print(f"{word:<8} {text}")
    if records:
        print("\nlast record")
        for name, value in records[-1].items():
            shown = "-" if math.isnan(value) else f"{value:.6g}"
            print(f"  {name:<32} {shown:>12}")


def compare_runs(named: Sequence[str], options: CompareOptions) -> None:
    """Draw runs in groups and print a table of their final values."""
    from robot_rl.training.reporting.curves import (
        plot_comparison,  # matplotlib takes a second
    )

    groups: dict[str, list] = {}
    for path in _chosen(named, options.runs):
        run = RunFolder.open(path)
        groups.setdefault(group_of(run, options.by), []).append(read_metrics(run.metrics_path))
    results = plot_comparison(groups, options.out, metric=options.metric)
    show = format_percent if "success" in options.metric else format_number
    rows = [
        [
            result.group,
            str(result.runs),
            show(result.iqm),
            f"{show(result.low)} to {show(result.high)}" if result.runs > 1 else "-",
            show(result.worst),
            format_count(result.steps),
        ]
        for result in results
    ]
    print(f"{options.metric}, mean of the last tenth of each run")
    print_table([options.by, "seeds", "IQM", "95 % interval", "worst", "steps"], rows, left=1)
    print(f"curves   {options.out}")


def clean_runs(options: CleanOptions) -> None:
    """Delete runs, or say which would be deleted."""
    runs = {path: summarise(path) for path in find_runs(options.runs)}
    older = None if options.older_than is None else timedelta(days=options.older_than)
    reasons = removable(
        list(runs.values()), keep=options.keep, failed=options.failed, older_than=older
    )
    for path, reason in reasons.items():
        if options.yes:
            delete_run(path)
        print(f"{'deleted' if options.yes else 'would delete'} {path} ({reason})")
    freed = _size(sum(runs[path].num_bytes for path in reasons))
    left = len(runs) - len(reasons)
    if options.yes or not reasons:
        print(f"{len(reasons)} deleted, {left} kept, {freed} set free")
    else:
        print(f"{len(reasons)} of {len(runs)} would go ({freed}); add yes=true to delete them")


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> None:
    """Aligned columns, the first `left` to the left and the others to the right."""
    print("\n".join(aligned_rows(titles, rows, left=left)))


def _chosen(patterns: Sequence[str], root: Path) -> list[Path]:
    if not patterns:
        runs = find_runs(root)
        if not runs:
            raise ConfigError(
                f"there are no runs in {root}; train some, or name another folder: runs=..."
            )
        return runs
    paths = []
    for pattern in patterns:
        matches = [path for path in map(Path, sorted(glob.glob(pattern))) if path.is_dir()]
        runs = [path for path in matches if (path / "config.yaml").is_file()]
        # What matches no run is refused when it is opened.
        paths += runs or matches or [Path(pattern)]
    return list(dict.fromkeys(paths))


def _list_row(run: RunSummary, root: Path) -> list[str]:
    return [
        str(run.path.relative_to(root)),
        run.status.state.value,
        format_count(run.step),
        format_percent(run.success),
        _number(run.episode_return),
        _number(run.best),
        _age(run.age),
        _size(run.num_bytes),
    ]


def _number(value: float) -> str:
    return "-" if math.isnan(value) else format_number(value)


def _or_lowest(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _age(age: timedelta) -> str:
    minutes = age.total_seconds() / 60
    for unit, size in (("d", 24 * 60), ("h", 60)):
        if minutes >= 2 * size:
            return f"{minutes / size:.0f} {unit}"
    return f"{minutes:.0f} min"


def _size(num_bytes: float) -> str:
    for unit in ("B", "kB", "MB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} GB"
