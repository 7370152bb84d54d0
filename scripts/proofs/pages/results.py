"""Results that stay: files in JSON, pages beside them, and whether they hold today."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from configs.compose import with_present_fields
from robot_rl.core.errors import ConfigError
from robot_rl.training.storage.durable import replace_file, storage_errors
from scripts.proofs.proving.training import TrainingJob
from sim.physics.menagerie import MENAGERIE

_MACHINE = ("device",)
"""Fields in which a report may differ from what it reports on."""
_LONGEST = 60
"""Letters of a value that are shown."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A value and what it must reach."""

    what: str
    value: float
    limit: float
    at_least: bool = True
    """False where the value must not exceed the limit."""
    unit: str = ""
    """"%" shows shares as percentages."""

    @property
    def passed(self) -> bool:
        """True if the value reaches the limit; NaN never does."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Settings that several seeds were trained with."""

    command: str
    """Command that trains its first seed."""
    config_sha256: str
    """Of `config`."""
    config: dict[str, Any] = field(default_factory=dict)
    """Without seed, folder, logging and video; empty in results of older versions."""


def save_results(path: Path, record: Any) -> None:
    """Write a dataclass as JSON, whole or not at all.

    Raises:
        StorageError: The file cannot be written.
    """
    write_json(path, asdict(record), what="the results")


@contextmanager
def open_results(path: Path, script: str) -> Iterator[dict[str, Any]]:
    """Values that `save_results` wrote; errors in reading them tell about the file.

    Args:
        path: The file.
        script: Who makes such files.

    Raises:
        ConfigError: There is no such file, or it is something else.
    """
    if not path.is_file():
        raise ConfigError(f"there are no results in {path}; run: python -m scripts.{script}s")
    try:
        yield json.loads(path.read_bytes())
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{path} does not hold results of this version: {error}") from error


def publish(page: Path, text: str, bars: Sequence[Bar], say: Callable[[str], None]) -> bool:
    """Write a page and say the verdict; returns whether all bars are passed."""
    with storage_errors("write the page", page):
        replace_file(page, text.encode())
    for bar in bars:
        sign = ">=" if bar.at_least else "<="
        say(f"{'PASS' if bar.passed else 'FAIL'} {bar.what}: {bar.value:.4g} {sign} {bar.limit:g}")
    say(f"written: {page}")
    return all(bar.passed for bar in bars)


def refuse_in_report(words: Sequence[str]) -> None:
    """Refuse what a report does not read.

    Raises:
        ConfigError: A word changes nothing in it.
    """
    for word in words:
        if "=" in word and word.partition("=")[0] not in ("out", "runs"):
            raise ConfigError(f"'{word}' changes nothing in a report; it takes out= and runs=")


def report_or_say(report: Callable[[], bool], say: Callable[[str], None]) -> bool:
    """Report on one thing; a refusal is said, so that the others are reported on too."""
    try:
        return report()
    except ConfigError as error:
        say(f"refused: {error}")
        return False


def changes(trained: Trained, job: TrainingJob | None) -> list[str]:
    """Differences of a training of today, as `task.reward.gait: 1.0 -> 1.5`.

    A field that did not exist when it was trained is no change at its default, which means what
    was meant before there was one.
    """
    if job is None:
        return ["nobody trains it any more"]
    if not trained.config:
        return ["its configuration"] * (trained.config_sha256 != job.identity)
    before = dict(trained.config)
    if isinstance(before.get("learner"), Mapping):
        before["learner"] = with_present_fields(before["learner"], type(job.config.learner))
    found = _changes(before, job.plain, job.config, "")
    plants = {f"robot.plants.{name}" for name in (job.plain["robot"] or {}).get("plants", ())}
    idle = _without_effect(trained.config, plants) & _without_effect(job.plain, plants)
    return [told for told in found if told.split(":")[0].removesuffix(" is new") not in idle]


def _without_effect(config: Mapping[str, Any], plants: set[str]) -> set[str]:
    """Fields that others leave unused.

    Which published model another model would be, cameras of a robot whose pictures nobody asks
    for, and plants that nobody flies.
    """
    robot, env = config.get("robot"), config.get("env")
    if not isinstance(robot, Mapping):
        return set()
    idle = {"robot.menagerie"} if robot.get("model") != MENAGERIE else set()
    if not (isinstance(env, Mapping) and env.get("cameras")):
        idle |= {"robot.cameras"}
    drawn = (config.get("task") or {}).get("randomization") or {}
    flown = {robot.get("plant"), *(drawn.get("plants") or ())}
    return idle | plants - {f"robot.plants.{name}" for name in flown}


def refuse_changed(
    path: Path, what: str, trained: Trained, job: TrainingJob | None, *, again: str
) -> None:
    """Refuse results that the same command would not make today.

    Args:
        path: Their file.
        what: Whose they are, for the message.
        trained: How they were trained.
        job: How they would be.
        again: What makes them anew.

    Raises:
        ConfigError: See `changes`.
    """
    if found := changes(trained, job):
        shown = "; ".join(found[:5]) + f" and {len(found) - 5} more" * (len(found) > 5)
        raise ConfigError(
            f"{path} holds results of {what} that has changed since: {shown}; anew: {again}"
        )


def _changes(
    before: Mapping[str, Any], now: Mapping[str, Any], meant: object, path: str
) -> Iterator[str]:
    """Fields that differ; `meant` is the dataclass, or the mapping, of which `now` is the text."""
    for name, value in before.items():
        where = f"{path}{name}"
        if where in _MACHINE:
            continue
        if name not in now and isinstance(value, Mapping) and value.get("weight") == 0:
            continue  # a part of a loss that counted nothing
        if name not in now:
            yield f"{where} is gone"
        else:
            yield from _differences(value, now[name], getattr(meant, name, None), where)
    for name in now.keys() - before.keys():
        if f"{path}{name}" not in _MACHINE and not _is_default(meant, name):
            yield f"{path}{name} is new: {shorten(str(now[name]), _LONGEST)}"


def _differences(before: Any, now: Any, meant: object, where: str) -> Iterator[str]:
    """Differences of two values of a field; entries of lists are compared one by one."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        yield from _changes(before, now, meant, f"{where}.")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        told = meant if isinstance(meant, list) else [None] * len(now)
        for i, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from _differences(one, other, told[i], f"{where}.{i}")
    elif before != now:
        yield f"{where}: {shorten(str(before), _LONGEST)} -> {shorten(str(now), _LONGEST)}"


def _is_default(meant: object, name: str) -> bool:
    """True if a field holds its default."""
    for one in fields(meant) if is_dataclass(meant) else ():
        if one.name == name:
            default = one.default if one.default_factory is MISSING else one.default_factory()
            return getattr(meant, name) == default
    return False


def write_json(path: Path, content: Any, *, what: str) -> None:
    """Write plain data as JSON into a folder that is made, whole or not at all.

    Raises:
        StorageError: The file cannot be written.
    """
    with storage_errors(f"write {what}", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, (json.dumps(content, indent=1) + "\n").encode())
