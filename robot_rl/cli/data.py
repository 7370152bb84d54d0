"""Shows, converts, merges, splits, relabels, plots and repairs data sets of episodes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from robot_rl.cli.command_line import read_options
from robot_rl.core.errors import ConfigError, DatasetError, unknown_name

HELP = """Shows, converts, merges, splits, relabels, plots and repairs data sets of episodes.

usage: robot-rl data <command> <dataset> ... [option=value ...]

  info <dataset>               contents, and whether all of its files are whole
  convert <dataset> <out>      data of others or what a run experienced into ours, or ours into
                               theirs
  merge <dataset> ... out=     several data sets in a new one
  split <dataset> out=         parts by chance or by task, of whole episodes
  relabel <dataset> out=       a new data set with other labels
  plot <dataset>               observations, actions and rewards over time
  repair <dataset>             tidies up behind a writer that was killed, or saves what is whole in
                               <dataset>_repaired

options of convert:
  to=                episodes (ours), minari, robomimic or npz; by the ending of <out> if empty:
                     .npz, .hdf5, else ours
  groups=            observation groups of theirs side by side: 'groups={actor:[state,goal]}'; each
                     is a group of its own if empty
  control_dt=        time between two actions [s]
  action_range=      values that -1 and 1 stand for in their actions: LOW,HIGH
  done=terminated    meaning of a done that says no more: terminated or truncated
  task=              task, where the data do not say it
  robot=             robot that they are of, such as panda
  name=              name of a Minari data set, such as arm/lift-v0
  only_successes=false   leave out episodes that did not succeed
  only_led=false     leave out episodes that no person led; what a policy did in the others is not
                     to be learned from

options of split:
  shares=            parts by chance: train:0.9,val:0.1
  by_task=false      a part for every task instead
  seed=0             of the draw

options of relabel:
  episodes=          such as 0:10,15, where 10 is not among them; all if empty
  task=              task
  success=           true or false: how they ended
  valid=             true or false: whether to learn from them
  weights=           the reward is the weighted sum of these terms: near:1,effort:-0.1

options of plot:
  episodes=0         such as 0:3
  out=data.png       picture to write

examples:
  robot-rl data info datasets/demos
  robot-rl data convert lift.hdf5 datasets/lift                    # robomimic
  robot-rl data convert D4RL/door/human-v2 datasets/door control_dt=0.01   # Minari
  robot-rl data convert moves.npz datasets/moves control_dt=0.02 action_range=-2,2
  robot-rl data convert lerobot/pusht datasets/pusht 'groups={actor:[state]}'
  robot-rl data convert datasets/demos demos.hdf5 to=robomimic
  robot-rl data convert runs/2026-01-31_hover datasets/hover       # its saved replay
  robot-rl data convert runs/2026-02-01_peg datasets/peg only_led=true     # of robot-rl learn
  robot-rl data merge datasets/monday datasets/tuesday out=datasets/week
  robot-rl data split datasets/week out=datasets/parts shares=train:0.9,val:0.1
  robot-rl data relabel datasets/week out=datasets/good episodes=3,7:9 success=false
  robot-rl data relabel datasets/week out=datasets/paid weights=near:1,effort:-0.1
  robot-rl data plot datasets/week episodes=0:3 out=week.png
  robot-rl train task=reach training.prior.run=datasets/week

"Data sets of episodes" in the documentation describes the format, and how your own data come in."""


@dataclass(kw_only=True)
class NoOptions:
    """Options of `info` and `repair`."""


@dataclass(kw_only=True)
class MergeOptions:
    """Options of `merge`."""

    out: Path
    """Folder of the new data set."""


@dataclass(kw_only=True)
class SplitOptions:
    """Options of `split`."""

    out: Path
    """Folder of the parts."""
    shares: dict[str, float] = field(default_factory=dict)
    """Parts by chance."""
    by_task: bool = False
    """A part for every task."""
    seed: int = 0
    """Of the draw."""

    def __post_init__(self) -> None:
        if self.by_task == bool(self.shares):
            raise DatasetError("split takes shares=train:0.9,val:0.1 or by_task=true")
        if self.seed < 0:
            raise DatasetError(f"seed must be at least 0, got {self.seed}")


@dataclass(kw_only=True)
class RelabelOptions:
    """Options of `relabel`."""

    out: Path
    """Folder of the new data set."""
    episodes: str | None = None
    """Such as 0:10,15; None takes all."""
    task: str | None = None
    """Task of each."""
    success: bool | None = None
    """Outcome of each."""
    valid: bool | None = None
    """True to learn from them."""
    weights: dict[str, float] = field(default_factory=dict)
    """Weights of the reward terms."""


@dataclass(kw_only=True)
class PlotOptions:
    """Options of `plot`."""

    episodes: str = "0"
    """Such as 0:3."""
    out: Path = Path("data.png")
    """Picture to write."""


def run(words: Sequence[str]) -> int:
    """Run the command that the first word names; returns the exit code."""
    command, rest = words[0] if words else "", words[1:]
    if command not in _COMMANDS:
        raise ConfigError(unknown_name("command of data", command, _COMMANDS))
    paths = [Path(word) for word in rest if "=" not in word]
    options = [word for word in rest if "=" in word]
    expected = {"convert": 2, "merge": max(2, len(paths))}.get(command, 1)
    if len(paths) != expected:
        raise ConfigError(
            f"data {command} takes {expected} path{'s' * (expected > 1)}, got "
            f"{' '.join(map(str, paths)) or 'none'}; see: robot-rl data --help"
        )
    return _COMMANDS[command](paths, options)


def _info(paths: Sequence[Path], words: Sequence[str]) -> int:
    from robot_rl.cli.data_sets import show

    read_options(NoOptions, words)
    return 0 if show(paths[0]) else 1


def _convert(paths: Sequence[Path], words: Sequence[str]) -> int:
    from robot_rl.cli.data_sets import ConvertOptions, convert

    convert(paths[0], paths[1], read_options(ConvertOptions, words))
    return 0


def _merge(paths: Sequence[Path], words: Sequence[str]) -> int:
    from robot_rl.datasets.edit import merge
    from robot_rl.datasets.reader import EpisodeDataset

    out = read_options(MergeOptions, words).out
    _wrote(merge(paths, out), out)
    if copies := EpisodeDataset(out, images=False).num_copies:
        print(
            f"note: {copies} of them are copies of others; a division (data split, reward train) "
            "keeps copies together"
        )
    return 0


def _split(paths: Sequence[Path], words: Sequence[str]) -> int:
    from robot_rl.datasets.edit import split, split_by_task

    options = read_options(SplitOptions, words)
    if options.by_task:
        parts = split_by_task(paths[0], options.out)
    else:
        parts = split(paths[0], options.out, options.shares, seed=options.seed)
    for name, count in parts.items():
        _wrote(count, options.out / name)
    return 0


def _relabel(paths: Sequence[Path], words: Sequence[str]) -> int:
    from robot_rl.datasets.edit import Labels, parse_numbers, relabel

    options = read_options(RelabelOptions, words)
    labels = Labels(
        task=options.task, success=options.success, valid=options.valid, weights=options.weights
    )
    if labels == Labels():
        raise DatasetError("relabel takes task, success, valid or weights; got none")
    numbers = None if options.episodes is None else parse_numbers(options.episodes)
    _wrote(relabel(paths[0], options.out, labels, numbers), options.out)
    if labels.weights:
        print("a run that has these reward terms weighs them by its own weights: task.reward...")
    return 0


def _plot(paths: Sequence[Path], words: Sequence[str]) -> int:
    from robot_rl.cli.data_sets import draw
    from robot_rl.datasets.edit import parse_numbers

    options = read_options(PlotOptions, words)
    print(f"drew {draw(paths[0], parse_numbers(options.episodes), options.out)}")
    return 0


def _repair(paths: Sequence[Path], words: Sequence[str]) -> int:
    from robot_rl.datasets.repair import repair

    read_options(NoOptions, words)
    done = repair(paths[0])
    for sentence in done.mended:
        print(f"found: {sentence}")
    for sentence in done.lost:
        print(f"lost: {sentence}")
    if not done.mended:
        print(f"{done.folder} is whole: {done.episodes} episodes")
    else:
        print(f"{done.episodes} whole episodes in {done.folder}")
    return 1 if done.lost else 0


def _wrote(count: int, out: Path) -> int:
    print(f"wrote {count} episodes to {out}")
    return 0


_COMMANDS = {
    "info": _info,
    "convert": _convert,
    "merge": _merge,
    "split": _split,
    "relabel": _relabel,
    "plot": _plot,
    "repair": _repair,
}
