"""Shows, converts, merges, splits, relabels, draws and repairs data sets: `--help` says more."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from robot_rl.cli.command_line import exit_with_sentence

_EXAMPLES = """examples:
  robot-rl data info datasets/demos
  robot-rl data convert lift.hdf5 datasets/lift                    # robomimic
  robot-rl data convert D4RL/door/human-v2 datasets/door --control-dt 0.01   # Minari
  robot-rl data convert moves.npz datasets/moves --control-dt 0.02 --action-range -2 2
  robot-rl data convert lerobot/pusht datasets/pusht --group actor=state \\
      --action-range 0 512
  robot-rl data convert datasets/demos demos.hdf5 --to robomimic
  robot-rl data convert runs/2026-01-31_hover datasets/hover       # its saved replay
  robot-rl data merge datasets/monday datasets/tuesday --out datasets/week
  robot-rl data split datasets/week --out datasets/parts --shares train=0.9 val=0.1
  robot-rl data relabel datasets/week --out datasets/good --episodes 3,7:9 --success no
  robot-rl data relabel datasets/week --out datasets/paid --weights near=1 effort=-0.1
  robot-rl data plot datasets/week --episodes 0:3 --out week.png
  robot-rl data repair datasets/week
  robot-rl train task=reach training.prior.run=datasets/week

"Data sets" in the documentation describes the format, and how your own data come in."""


@exit_with_sentence()
def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run the command."""
    options = _parser().parse_args(arguments)
    options.command(options)


def _info(options: argparse.Namespace) -> None:
    from robot_rl.cli.data_report import show

    raise SystemExit(0 if show(options.dataset) else 1)


def _convert(options: argparse.Namespace) -> None:
    from robot_rl.cli.data_convert import convert

    convert(options)


def _merge(options: argparse.Namespace) -> None:
    from robot_rl.datasets.edit import merge

    _tell(merge(options.datasets, options.out), options.out)


def _split(options: argparse.Namespace) -> None:
    from robot_rl.core.errors import DatasetError
    from robot_rl.datasets.edit import split, split_by_task

    if options.by_task == bool(options.shares):
        raise DatasetError("split takes --shares such as train=0.9 val=0.1, or --by-task")
    if options.by_task:
        parts = split_by_task(options.dataset, options.out)
    else:
        parts = split(options.dataset, options.out, dict(options.shares), seed=options.seed)
    for name, count in parts.items():
        _tell(count, options.out / name)


def _relabel(options: argparse.Namespace) -> None:
    from robot_rl.core.errors import DatasetError
    from robot_rl.datasets.edit import Labels, parse_numbers, relabel

    labels = Labels(
        task=options.task, success=options.success, valid=options.valid,
        weights=dict(options.weights or []),
    )  # fmt: skip
    if labels == Labels():
        raise DatasetError("relabel takes --task, --success, --valid or --weights; got none")
    numbers = None if options.episodes is None else parse_numbers(options.episodes)
    _tell(relabel(options.dataset, options.out, labels, numbers), options.out)
    if labels.weights:
        print("a run that has these reward terms weighs them by its own weights: task.reward...")


def _plot(options: argparse.Namespace) -> None:
    from robot_rl.cli.data_report import draw
    from robot_rl.datasets.edit import parse_numbers

    print(f"drew {draw(options.dataset, parse_numbers(options.episodes), options.out)}")


def _repair(options: argparse.Namespace) -> None:
    from robot_rl.datasets.repair import repair

    done = repair(options.dataset)
    for sentence in done.mended:
        print(f"found: {sentence}")
    for sentence in done.lost:
        print(f"lost: {sentence}")
    if not done.mended:
        print(f"{done.folder} is whole: {done.episodes} episodes")
    else:
        print(f"{done.episodes} whole episodes in {done.folder}")
    raise SystemExit(1 if done.lost else 0)


def _tell(count: int, out: Path) -> None:
    print(f"wrote {count} episodes to {out}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="data.py",
        description="Show, convert, merge, split, relabel, draw and repair data sets of episodes.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(
        name: str, run: Callable[[argparse.Namespace], None], text: str, *, out: str = ""
    ) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        one.set_defaults(command=run)
        if name == "merge":
            one.add_argument("datasets", nargs="+", type=Path, help="folders of the data sets")
        else:
            one.add_argument("dataset", type=Path, help="folder or file of the data set")
        if out:
            one.add_argument("--out", type=Path, required=True, help=out)
        return one

    command("info", _info, "what a data set holds, and whether all of its files are whole")

    _add_convert(
        command(
            "convert",
            _convert,
            "data of others or the replay of a run into ours, or ours into theirs",
        )
    )

    command("merge", _merge, "several data sets in a new one", out="folder of the new one")

    one = command("split", _split, "parts by chance or by task, of whole episodes",
                  out="folder of the parts")  # fmt: skip
    one.add_argument(
        "--shares", nargs="+", type=_number_of, metavar="PART=SHARE",
        help="parts by chance, such as train=0.9 val=0.1",
    )  # fmt: skip
    one.add_argument("--by-task", action="store_true", help="a part for every task")
    one.add_argument("--seed", type=int, default=0, help="of the draw (default: 0)")

    one = command("relabel", _relabel, "a new data set with other labels",
                  out="folder of the new one")  # fmt: skip
    one.add_argument("--episodes", help="such as 0:10,15 (default: all)")
    one.add_argument("--task", help="what was to be done, in words")
    one.add_argument("--success", type=_yes_or_no, metavar="yes|no", help="how they ended")
    one.add_argument(
        "--valid", type=_yes_or_no, metavar="yes|no", help="whether to learn from them"
    )
    one.add_argument(
        "--weights", nargs="+", type=_number_of, metavar="TERM=WEIGHT",
        help="the reward is the weighted sum of these terms",
    )  # fmt: skip

    one = command("plot", _plot, "observations, actions and rewards over time")
    one.add_argument("--episodes", default="0", help="such as 0:3 (default: 0)")
    one.add_argument("--out", type=Path, default=Path("data.png"), help="default: data.png")

    command(
        "repair", _repair,
        "tidy up behind a writer that was killed, or save what is whole into <dataset>_repaired",
    )  # fmt: skip
    return parser


def _add_convert(one: argparse.ArgumentParser) -> None:
    one.add_argument("out", type=Path, help="file or folder to write")
    one.add_argument(
        "--to", choices=["episodes", "minari", "robomimic", "npz"], default=None,
        help="format to write (default: by the ending of out: .npz, .hdf5; else episodes, ours)",
    )  # fmt: skip
    one.add_argument(
        "--group", action="append", default=[], metavar="GROUP=KEY,KEY",
        help="an observation group of theirs side by side; once per group (default: each is one)",
    )  # fmt: skip
    one.add_argument("--control-dt", type=float, metavar="SECONDS", help="time between two actions")
    one.add_argument(
        "--action-range", type=float, nargs=2, metavar=("LOW", "HIGH"),
        help="what -1 and 1 stand for in their actions",
    )  # fmt: skip
    one.add_argument(
        "--done", choices=["terminated", "truncated"], default="terminated",
        help="what a done stands for that says no more (default: terminated)",
    )  # fmt: skip
    one.add_argument("--task", default="", help="what was to be done, where the data do not say")
    one.add_argument("--robot", help="whose they are, such as panda")
    one.add_argument("--name", default="", help="of a Minari data set, such as arm/lift-v0")


def _number_of(text: str) -> tuple[str, float]:
    name, equals, number = text.partition("=")
    try:
        if name and equals:
            return name, float(number)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"'{text}' is not NAME=NUMBER")


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise argparse.ArgumentTypeError(f"'{text}' is neither yes nor no")
    return text == "yes"


if __name__ == "__main__":
    main()
