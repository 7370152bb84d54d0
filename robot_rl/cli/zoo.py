"""Shows the policies that ship, and copies them; `robot-rl zoo --help` says more."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from policies.zoo.catalog import PREFIX, ZooCard, bundle_folder, read_card, zoo_names
from robot_rl.core.errors import ConfigError
from robot_rl.training.reporting.console import (
    aligned_rows,
    format_clock,
    format_count,
    format_percent,
)
from robot_rl.training.storage.durable import storage_errors

HELP = """Shows the policies that ship with robot_rl, and copies them.

usage: robot-rl zoo list
       robot-rl zoo show <name>
       robot-rl zoo fetch <name> [to=<folder>]

  list    every policy with its robot, its task and its success
  show    its card: what it sees, how it was trained and measured, what was drawn
  fetch   copy its bundle into a folder of your own; <name> where you are if `to` is not given

zoo:<name> stands for the bundle wherever one is named:

  robot-rl view zoo:go2-velocity              watch it in the browser, push it, steer it
  robot-rl evaluate zoo:panda-reach           success with its interval
  robot-rl deploy zoo:panda-reach             over ROS 2, on a simulated robot or a real one"""

_VERBS = ("list", "show", "fetch")


@dataclass(kw_only=True)
class ZooOptions:
    """Options of `robot-rl zoo`."""

    to: str = ""
    """Folder that `fetch` writes."""


def run(words: Sequence[str]) -> None:
    """Do what the command line says."""
    from configs.compose import read_only_options

    verb, *rest = words or ["list"]
    if verb not in _VERBS:
        raise ConfigError(
            f"what about the zoo? expected {' or '.join(_VERBS)}, got '{verb}'; other commands "
            f"take a policy by its name, such as robot-rl view {PREFIX}go2-velocity"
        )
    names = [word.removeprefix(PREFIX) for word in rest if "=" not in word]
    options = read_only_options(ZooOptions, [word for word in rest if "=" in word])
    if options.to and verb != "fetch":
        raise ConfigError(f"to={options.to} is an option of robot-rl zoo fetch, not of {verb}")
    if verb == "list":
        if names:
            raise ConfigError(f"robot-rl zoo list takes no name, got '{names[0]}'; try show")
        print("\n".join(table()))
        return
    if not names:
        raise ConfigError(f"which one? robot-rl zoo {verb} <name>; there are: {_known()}")
    if len(names) > 1:
        where = "; its folder is to=<folder>" if verb == "fetch" else ""
        raise ConfigError(
            f"robot-rl zoo {verb} takes one name, got {', '.join(map(repr, names))}{where}"
        )
    if verb == "show":
        print("\n".join(card_lines(names[0], read_card(names[0]))))
        return
    fetch(names[0], Path(options.to or names[0]))


def table() -> list[str]:
    """A line per policy."""
    rows: list[tuple[str, ...]] = []
    for name in zoo_names():
        card = read_card(name)
        share = format_percent(card.success)
        rows.append((name, card.robot, card.task, share, f"{card.episodes:,}", card.title))
    titles = ("name", "robot", "task", "success", "of", "what it does")
    return aligned_rows(titles, rows, left=len(titles))


def card_lines(name: str, card: ZooCard) -> list[str]:
    """Everything that a card says."""
    low, high = (format_percent(bound) for bound in card.success_interval)
    metrics = ", ".join(f"{word} {value:.3g}" for word, value in card.metrics.items())
    drawn = ", ".join(f"{word} {value}" for word, value in card.drawn.items())
    return [
        f"{name}: {card.title}",
        f"  robot       {card.robot}",
        f"  task        {card.task}",
        f"  sees        {', '.join(card.sees)}",
        f"  success     {format_percent(card.success)} of {card.episodes:,} episodes "
        f"(95 % interval {low} to {high})",
        f"  measured    {metrics} (means at the end, SI)",
        f"              {card.evaluation}",
        f"  drawn       {drawn or 'nothing'}",
        f"  trained     {format_count(card.steps)} steps, the whole run in "
        f"{format_clock(card.training_seconds)} on {card.processor}",
        f"              {card.training}",
        f"  code        {card.commit}, {card.date}",
        f"  bundle      {bundle_folder(PREFIX + name)}",
    ]


def fetch(name: str, folder: Path) -> None:
    """Copy a bundle.

    Raises:
        ConfigError: The folder exists, or no policy of that name ships.
    """
    source = bundle_folder(PREFIX + name)
    if folder.exists():
        raise ConfigError(f"{folder} exists; name another folder: to=...")
    with storage_errors("write", folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
    print(f"bundle  {folder}")


def _known() -> str:
    return ", ".join(zoo_names())
