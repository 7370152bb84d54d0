"""Lines that one process of a deployment leaves, and the one who measures reads."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from robot_rl.cli.deployment.operator import DeploymentError

_POLL_SECONDS = 0.02


class Journal:
    """A file of entries, one line of JSON each; a line that is not whole yet does not count."""

    def __init__(self, path: Path | str) -> None:
        """Write to or read a file, which need not exist."""
        self._path = Path(path)

    def write(self, **entry: Any) -> None:
        """Append an entry; takes a fraction of a millisecond, so where nothing is in a hurry."""
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """All entries so far."""
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def find(self, fits: Callable[[dict[str, Any]], bool], seconds: float) -> dict[str, Any] | None:
        """The first entry that fits, waited for; None if none came in time."""
        end = time.monotonic() + seconds
        while True:
            last = time.monotonic() > end
            for entry in self.read():
                if fits(entry):
                    return entry
            if last:
                return None
            time.sleep(_POLL_SECONDS)

    def first(self, what: str, seconds: float, check: Callable[[], None]) -> dict[str, Any]:
        """The first entry, waited for.

        Args:
            what: Is waited for, in words.
            seconds: Longest time.
            check: Called meanwhile; raises where waiting is in vain.

        Raises:
            DeploymentError: None came in time.
        """
        end = time.monotonic() + seconds
        while not (entries := self.read()):
            check()
            if time.monotonic() > end:
                raise DeploymentError(f"waited {seconds:.0f} s for {what}")
            time.sleep(_POLL_SECONDS)
        return entries[0]
