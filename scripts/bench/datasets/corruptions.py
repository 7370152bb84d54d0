"""Files are cut off, changed, exchanged and removed: is it ever read as if nothing had happened?

Every file of ours is named in a manifest with its SHA-256: every change must be refused, and a
sample of the damaged sets is repaired. Exports of ours hold checksums: they are refused or equal.
Files of others mostly hold none: what cannot be told from the files alone is counted, but a file
that is cut off or missing must be refused, or must not have been needed.
"""

import contextlib
import io
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.cli.data_sets import show
from robot_rl.core.errors import ConfigError, RobotRLError
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.datasets.repair import repair
from scripts.bench.datasets.subjects import Subject, make_subjects

_KINDS = ("cut off", "flipped", "flipped", "zeroed", "exchanged", "removed")
_STRUCTURAL = ("cut off", "removed")
"""Faults that files of other formats must show too."""
_REPAIRED = 5
"""Every so manieth damage of a data set of ours is repaired too."""
_BLOCK = 64
"""Bytes that are zeroed: a part of a sector, as files here are small."""


@dataclass
class Tally:
    """Results of all damage."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """(data set, outcome) -> how often."""
    faults: list[str] = field(default_factory=list[str])
    """Faults, in sentences."""

    def lines(self) -> list[str]:
        """An aligned table."""
        columns = ["refused", "not needed", "unnoticeable", "repaired"]
        names = list(dict.fromkeys(name for name, _ in self.outcomes))
        width = max(map(len, names))
        head = f"  {'':<{width}}" + "".join(f"{one:>14}" for one in columns)
        return [head] + [
            f"  {name:<{width}}" + "".join(f"{self.outcomes[name, one]:>14}" for one in columns)
            for name in names
        ]

    def record(self) -> dict[str, Any]:
        """For JSON."""
        counts = {f"{name}: {what}": count for (name, what), count in self.outcomes.items()}
        return {"outcomes": counts, "faults": self.faults}


def damage_many(count: int, scratch: Path, *, seed: int = 0) -> Tally:
    """Damage data sets of every kind, one file at a time, and read them.

    Args:
        count: How often.
        scratch: Folder for a temporary one, which is removed.
        seed: Of kinds and places.
    """
    if count < 1:
        raise ConfigError(f"corruptions must be at least 1, got {count}")
    scratch.mkdir(parents=True, exist_ok=True)
    chance, tally = random.Random(seed), Tally()
    with tempfile.TemporaryDirectory(prefix="robot_rl_damage_", dir=scratch) as name:
        subjects = make_subjects(Path(name))
        kept = [_contents(one.path) for one in subjects]
        for number in range(count):
            which = number % len(subjects)
            subject, whole = subjects[which], kept[which]
            what, changed = _damaged(whole, chance)
            for path, content in changed.items():
                _put(path, content)
            _judge(subject, what, tally, repairs=number // len(subjects) % _REPAIRED == 0)
            for path in changed:
                _put(path, whole[path])
    return tally


def _contents(path: Path) -> dict[Path, bytes]:
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    return {one: one.read_bytes() for one in files}


def _put(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(content)


def _damaged(
    whole: dict[Path, bytes], chance: random.Random
) -> tuple[str, dict[Path, bytes | None]]:
    """Words on what is done, and what the files become; something always changes."""
    while True:
        kind, path = chance.choice(_KINDS), chance.choice(list(whole))
        content, changed = whole[path], dict[Path, bytes | None]()
        place = chance.randrange(len(content))
        if kind == "removed":
            changed[path] = None
        elif kind == "cut off":
            changed[path] = content[:place]
        elif kind == "flipped":
            bit = bytes([content[place] ^ 1 << chance.randrange(8)])
            changed[path] = content[:place] + bit + content[place + 1 :]
        elif kind == "zeroed":
            size = len(content[place : place + _BLOCK])
            changed[path] = content[:place] + bytes(size) + content[place + size :]
        else:
            other = chance.choice(list(whole))
            changed |= {path: whole[other], other: content}
        if any(new != whole[one] for one, new in changed.items()):
            return f"{kind} {path.name} at {place}", changed


def _judge(subject: Subject, what: str, tally: Tally, *, repairs: bool) -> None:
    """Read a damaged data set; repair a copy of it where that is due."""

    def blame(fault: str) -> None:
        tally.faults.append(f"{subject.name}, {what}: {fault}")

    found: list[Episode] | None = None
    with _sentences(blame):
        found = subject.read()
    if found is None:
        tally.outcomes[subject.name, "refused"] += 1
    elif subject.manifest:
        blame("was read as if nothing had happened")
    elif _same(found, subject.told):
        tally.outcomes[subject.name, "not needed"] += 1
    elif subject.checksums or what.startswith(_STRUCTURAL):
        blame("other numbers were read")
    else:
        tally.outcomes[subject.name, "unnoticeable"] += 1
    if subject.manifest and repairs:
        with _sentences(blame), contextlib.redirect_stdout(io.StringIO()):
            if show(subject.path):
                blame("robot-rl data info called it whole")
        _repair(subject, blame)
        tally.outcomes[subject.name, "repaired"] += 1


def _repair(subject: Subject, blame: Callable[[str], None]) -> None:
    """Whatever comes out of a repair must be what was there, and most of it."""
    copy = subject.path.with_name("damaged")
    shutil.copytree(subject.path, copy)
    with _sentences(blame):
        done = repair(copy)
        saved = list(EpisodeDataset(done.folder))
        known = {one.digest(): one for one in subject.told}
        wrong = [one for one in saved if not _same_images(one, known.get(one.digest()))]
        if wrong:
            blame(f"{len(wrong)} episodes were saved that had not been there")
        if len(saved) < len(known) and not done.lost:
            blame("episodes were lost in silence")
        if len(saved) < 2:  # two files of two may have been exchanged
            blame(f"{len(saved)} episodes were saved")
    for folder in (copy, copy.with_name("damaged_repaired")):
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _sentences(blame: Callable[[str], None]) -> Iterator[None]:
    """A refusal is one sentence; anything else is a fault."""
    try:
        yield
    except RobotRLError as error:
        if "\n" in str(error):
            blame(f"more than a sentence: {error}")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a traceback to a person
        blame(f"a traceback, {type(error).__name__}: {error}")


def _same(one: list[Episode], two: list[Episode]) -> bool:
    return [e.digest() for e in one] == [e.digest() for e in two]


def _same_images(found: Episode, told: Episode | None) -> bool:
    """True where the images are the same."""
    return told is not None and all(
        np.array_equal(found.images[name], frames) for name, frames in told.images.items()
    )
