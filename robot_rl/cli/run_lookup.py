"""Lookup of the run that came of a configuration, so that the same command finds it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from configs.compose import to_plain
from configs.schema import RunConfig
from robot_rl.training.runs.provenance import config_hash
from robot_rl.training.runs.run_folder import RunFolder, find_runs
from robot_rl.training.storage.durable import discard, storage_errors, take_lock


def asked_hash(config: RunConfig) -> str:
    """Digest of a run as it was asked for: before a device was chosen for it."""
    return config_hash(to_plain(config))


def run_of(config: RunConfig) -> Path | None:
    """The newest run that was asked for in these words; None where there is none.

    Args:
        config: As it was composed; runs are looked for in its folder of runs.
    """
    return newest_runs(config.runs).get(asked_hash(config))


def newest_runs(folder: str | Path) -> dict[str, Path]:
    """The newest run of each configuration that was asked for, by its `asked_hash`."""
    newest: dict[str, Path] = {}
    for path in find_runs(folder):
        asked = RunFolder.open(path).provenance().get("asked_sha256")
        if isinstance(asked, str):
            newest[asked] = path
    return newest


@contextmanager
def held(config: RunConfig) -> Iterator[bool]:
    """Keep others from beginning the same run, from before it has a folder until it has ended.

    Yields:
        False where another process keeps us from it.

    Raises:
        StorageError: The folder of runs cannot be written.
    """
    folder = Path(config.runs) / ".asked" / asked_hash(config)[:16]
    with storage_errors("hold a run in", folder.absolute()):
        folder.mkdir(parents=True, exist_ok=True)
        lock = take_lock(folder)
    try:
        yield lock is not None
    finally:
        if lock is not None:  # whoever comes now finds the run, if there is one
            discard(folder)
            with suppress(OSError):  # others are held
                folder.parent.rmdir()
            lock.close()
