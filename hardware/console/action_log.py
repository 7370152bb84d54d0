"""Log of all that people did: JSON lines in the folder of the run, and the newest for the page."""

import json
import logging
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any, TextIO

_logger = logging.getLogger(__name__)
_SHOWN = 60


class ActionLog:
    """Appends a line per action; a full disk is told once and stops nobody."""

    def __init__(self, folder: Path | None) -> None:
        """Continue `console_actions.jsonl` of a folder; without one only the page has the log."""
        self._file: TextIO | None = None
        self._shown: deque[dict[str, Any]] = deque(maxlen=_SHOWN)
        self._began, self._led = time.monotonic(), 0.0
        self._counts: Counter[str] = Counter()
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / "console_actions.jsonl").open("a", encoding="utf-8")
        except OSError as error:
            _logger.error("the log of actions is not written: %s", error)

    @property
    def newest(self) -> list[dict[str, Any]]:
        """The last actions, oldest first."""
        return list(self._shown)

    def write(self, operator: str, action: str, **details: Any) -> None:
        """Write an action with the time and the person who did it."""
        entry = {"time": round(time.time(), 3), "operator": operator, "action": action, **details}
        self._shown.append(entry)
        if not details.get("why"):  # else it was refused
            self._counts[action] += 1
            self._led += details.get("seconds", 0.0) if action == "intervention" else 0.0
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
        except OSError as error:
            _logger.error("the log of actions cannot be written any more: %s", error)
            self._file = None

    @property
    def summary(self) -> str:
        """Sentence about the shift: its length, interventions, and what was pressed."""
        minutes = (time.monotonic() - self._began) / 60
        done = ", ".join(f"{count} {action}" for action, count in self._counts.most_common())
        led = f" ({self._led:.0f} s led by a person)" if self._led else ""
        return f"{minutes:.1f} min: {done.replace('_', ' ') or 'nothing was done'}{led}"

    def close(self) -> None:
        """Close the file; allowed more than once."""
        if self._file is not None:
            self._file.close()
            self._file = None
