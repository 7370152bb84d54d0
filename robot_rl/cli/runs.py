"""Lists, shows, compares and cleans runs: `robot-rl runs --help`."""

import argparse
import glob
import math
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from robot_rl.cli.command_line import exit_with_sentence
from robot_rl.core.errors import ConfigError
from robot_rl.training.reporting.console import (
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

_EXAMPLES = """examples:
  robot-rl runs list
  robot-rl runs list --sort success
  robot-rl runs show latest
  robot-rl runs compare                          # all runs, grouped by task robot learner
  robot-rl runs compare 'runs/*hover*' --metric eval/success --by learner --out hover.png
  robot-rl runs compare --by learner.gamma
  robot-rl runs clean                            # says what it would delete
  robot-rl runs clean --keep 20 --yes
"""


@exit_with_sentence()
def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run the command."""
    options = _parser().parse_args(arguments)
    options.command(options)


def list_runs(options: argparse.Namespace) -> None:
    """Print one line per run."""
    runs = [summarise(path) for path in find_runs(options.root)]
    if not runs:
        print(f"no runs in {options.root}; start one with: robot-rl train")
        return
    keys = {
        "age": lambda run: run.age,
        "name": lambda run: run.path.name,
        "success": lambda run: -_or_lowest(run.success),
        "return": lambda run: -_or_lowest(run.episode_return),
        "best": lambda run: -_or_lowest(run.best),
        "size": lambda run: -run.num_bytes,
    }
    rows = [_list_row(run, options.root) for run in sorted(runs, key=keys[options.sort])]
    print_table(
        ["run", "status", "steps", "success", "return", "best", "age", "size"], rows, left=2
    )


def show_run(options: argparse.Namespace) -> None:
    """Print what is known of one run."""
    run = RunFolder.open(_run_path(options.run, options.root))
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
            print(f"  {name:<32} {value:>12.6g}")


def compare_runs(options: argparse.Namespace) -> None:
    """Draw runs in groups and print a table of their final values."""
    from robot_rl.training.reporting.curves import (
        plot_comparison,  # matplotlib takes a second
    )

    groups: dict[str, list] = {}
    for path in _chosen(options.runs, options.root):
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


def clean_runs(options: argparse.Namespace) -> None:
    """Delete runs, or say which would be deleted."""
    runs = {path: summarise(path) for path in find_runs(options.root)}
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
        print(f"{len(reasons)} of {len(runs)} would go ({freed}); add --yes to delete them")


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> None:
    """Aligned columns, the first `left` to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in [titles, *rows]:
        cells = zip(row, widths, strict=True)
        aligned = [f"{c:<{w}}" if i < left else f"{c:>{w}}" for i, (c, w) in enumerate(cells)]
        print("  ".join(aligned).rstrip())


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--root", type=Path, default=Path("runs"), help="folder of all runs (default: runs)"
    )
    parser = argparse.ArgumentParser(
        prog="runs.py",
        description="List, show, compare and clean training runs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="command")

    one = commands.add_parser("list", parents=[shared], help="one line per run")
    one.add_argument(
        "--sort",
        choices=["age", "name", "success", "return", "best", "size"],
        default="age",
        help="order of the lines (default: age, newest first)",
    )
    one.set_defaults(command=list_runs)

    one = commands.add_parser("show", parents=[shared], help="everything about one run")
    one.add_argument("run", help="folder of the run, or latest")
    one.set_defaults(command=show_run)

    one = commands.add_parser(
        "compare", parents=[shared], help="learning curves with IQM and 95 %% intervals over seeds"
    )
    one.add_argument("runs", nargs="*", help="folders or quoted patterns (default: all runs)")
    one.add_argument("--metric", default="rollout/success", help="default: rollout/success")
    one.add_argument(
        "--by",
        default="name",
        help="name (task, robot and learner, the default), task, robot, learner, seed, run, or a "
        "path into the configuration such as learner.gamma",
    )
    one.add_argument(
        "--out", type=Path, default=Path("comparison.png"), help="default: comparison.png"
    )
    one.set_defaults(command=compare_runs)

    one = commands.add_parser(
        "clean",
        parents=[shared],
        help="delete runs that hold no checkpoint, and others if asked",
        description="Delete runs that hold no checkpoint, and others if asked. Without --yes it "
        "only says what it would delete. A run that is training is never touched.",
    )
    one.add_argument(
        "--keep", type=_whole, metavar="N", help="also all but the N runs written to last"
    )
    one.add_argument("--older-than", type=float, metavar="DAYS", help="also older ones")
    one.add_argument("--failed", action="store_true", help="also failed ones with checkpoints")
    how = one.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="only say so (the default)")
    how.add_argument("--yes", action="store_true", help="really delete")
    one.set_defaults(command=clean_runs)
    return parser


def _chosen(patterns: Sequence[str], root: Path) -> list[Path]:
    if not patterns:
        runs = find_runs(root)
        if not runs:
            raise ConfigError(f"there are no runs in {root}; train some, or name another --root")
        return runs
    paths = []
    for pattern in patterns:
        matches = [path for path in map(Path, sorted(glob.glob(pattern))) if path.is_dir()]
        paths += matches or [Path(pattern)]  # what matches nothing is refused when it is opened
    return list(dict.fromkeys(paths))


def _run_path(name: str, root: Path) -> Path:
    if name != "latest":
        return Path(name)
    return _chosen([], root)[-1]


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


def _whole(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is negative; expected 0 or more")
    return number


if __name__ == "__main__":
    main()
