"""Episodes for the review page: a line of values per control step, a small picture every second.

The console records them while it runs, with or without a browser, from the actor's snapshots:
`<run>/console/<session>_<episode>/timeline.jsonl` with the pictures `<index>.jpg` beside it. They
are for people's eyes; training data is the actor's own. Another store of episodes can be shown by
another `EpisodeReader`.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO, runtime_checkable

from robot_rl.core.errors import ConfigError

_PICTURE_SECONDS = 1.0
_MOST_SHOWN = 60
_NAME = re.compile(r"[0-9A-Za-z-]{1,64}_\d{1,9}")
_VALUES = ("step", "success_probability", "q", "reward", "segment", "policy_version")
"""Fields of a snapshot that a timeline keeps."""


@runtime_checkable
class EpisodeReader(Protocol):
    """Recorded episodes, newest first."""

    def episodes(self) -> list[dict[str, Any]]:
        """Name, session, episode, length [s], last label and its operator, of each."""
        ...

    def timeline(self, name: str) -> dict[str, Any]:
        """Rows over time and the indices that have a picture.

        Raises:
            ConfigError: There is no such episode.
        """
        ...

    def picture(self, name: str, index: int) -> bytes | None:
        """JPEG of a row; None where there is none."""
        ...


class TimelineRecorder:
    """Writes the episode that is running, and labels into those that were."""

    def __init__(self, folder: Path) -> None:
        """Write below this folder."""
        self._folder = folder / "console"
        self._open: tuple[str, TextIO] | None = None
        self._rows = 0
        self._row: tuple[str | None, Any] | None = None
        self._next_picture = 0.0

    def wants_line(self, snapshot: Mapping[str, Any]) -> bool:
        """True when a snapshot of the actor is of another step than the newest row."""
        return _row_of(snapshot) != self._row

    def wants_picture(self, now: float) -> bool:
        """True when the row that is due gets a picture."""
        return now >= self._next_picture

    def record(
        self, snapshot: Mapping[str, Any], who: str, now: float, picture: bytes | None
    ) -> None:
        """Write a row of the running episode.

        Args:
            snapshot: Of the actor; without an episode nothing is written.
            who: Authority: policy, human, paused or nobody.
            now: Time, `time.monotonic` [s].
        """
        self._row = _row_of(snapshot)
        name = running_episode(snapshot)
        if name is None:
            self._close_episode()
            return
        if self._open is None or self._open[0] != name:
            self._begin(name)
        assert self._open is not None
        row = {"index": self._rows, "t": snapshot.get("time"), "who": who}
        row |= {key: snapshot[key] for key in _VALUES if key in snapshot}
        if picture is not None:
            self._next_picture = now + _PICTURE_SECONDS
            (self._folder / name / f"{self._rows}.jpg").write_bytes(picture)
            row["picture"] = True
        self._write(row)
        self._rows += 1

    def label(self, name: str, entry: Mapping[str, Any]) -> None:
        """Append a label to an episode; an unknown one has no timeline and is left out."""
        folder = self._folder / name
        if _NAME.fullmatch(name) and folder.is_dir():
            with (folder / "timeline.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({"label": dict(entry)}) + "\n")

    def close(self) -> None:
        """Close the file of the running episode."""
        self._close_episode()

    def _begin(self, name: str) -> None:
        self._close_episode()
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "timeline.jsonl").open("a+", encoding="utf-8")
        file.seek(0)  # a console that was started again continues the episode
        self._rows = sum('"index"' in line for line in file)
        self._open = (name, file)

    def _write(self, row: Mapping[str, Any]) -> None:
        assert self._open is not None
        self._open[1].write(json.dumps(row) + "\n")
        self._open[1].flush()

    def _close_episode(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None
            self._next_picture = 0.0


class TimelineReader:
    """An `EpisodeReader` of what a `TimelineRecorder` wrote."""

    def __init__(self, folder: Path) -> None:
        """Read below this folder."""
        self._folder = folder / "console"

    def episodes(self) -> list[dict[str, Any]]:
        """The newest episodes."""
        if not self._folder.is_dir():
            return []
        folders = [one for one in self._folder.iterdir() if _NAME.fullmatch(one.name)]
        folders.sort(key=lambda one: one.stat().st_mtime, reverse=True)
        return [self._summary(one.name) for one in folders[:_MOST_SHOWN]]

    def timeline(self, name: str) -> dict[str, Any]:
        """Rows and labels of an episode."""
        rows, labels = self._read(name)
        session, _, episode = name.rpartition("_")
        return {
            "name": name, "session": session, "episode": int(episode), "rows": rows,
            "labels": labels,
        }  # fmt: skip

    def picture(self, name: str, index: int) -> bytes | None:
        """A small JPEG."""
        path = self._folder / name / f"{index}.jpg"
        return path.read_bytes() if _NAME.fullmatch(name) and path.is_file() else None

    def _summary(self, name: str) -> dict[str, Any]:
        rows, labels = self._read(name)
        session, _, episode = name.rpartition("_")
        human = sum(row.get("who") == "human" for row in rows)
        return {
            "name": name, "session": session, "episode": int(episode),
            "seconds": round(rows[-1].get("t") or 0.0, 1) if rows else 0.0,
            "human": round(human / len(rows), 3) if rows else 0.0,
            "label": labels[-1] if labels else None,
            "first": next((row["index"] for row in rows if row.get("picture")), None),
        }  # fmt: skip

    def _read(self, name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        path = self._folder / name / "timeline.jsonl"
        if not _NAME.fullmatch(name) or not path.is_file():
            raise ConfigError(f"there is no recorded episode '{name[:80]}'")
        rows: list[dict[str, Any]] = []
        labels: list[dict[str, Any]] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:  # the last line of a console that was killed
                continue
            if "label" in entry:
                labels.append(entry["label"])
            else:
                rows.append(entry)
        return rows, labels


def episode_name(snapshot: Mapping[str, Any]) -> str | None:
    """Name of the episode that a snapshot is of; None without one."""
    episode = snapshot.get("episode")
    if not isinstance(episode, int):
        return None
    name = f"{snapshot.get('session', 'session')}_{episode}"
    return name if _NAME.fullmatch(name) else None


def _row_of(snapshot: Mapping[str, Any]) -> tuple[str | None, Any]:
    """Episode and step that a row is of; of an actor that counts no steps, its time."""
    return running_episode(snapshot), snapshot.get("step", snapshot.get("time"))


def running_episode(snapshot: Mapping[str, Any]) -> str | None:
    """Name of the episode that runs as a snapshot tells; None between episodes."""
    return episode_name(snapshot) if snapshot.get("phase") in ("running", "evaluating") else None
