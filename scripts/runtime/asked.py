"""Which run came of a configuration, so that the same words again find it."""

from pathlib import Path

from configs.compose import to_plain
from configs.schema import RunConfig
from robot_rl.training.provenance import config_hash
from robot_rl.training.run_folder import RunFolder, find_runs


def asked_hash(config: RunConfig) -> str:
    """Digest of a run as it was asked for: before a device was chosen for it."""
    return config_hash(to_plain(config))


def run_of(config: RunConfig) -> Path | None:
    """The newest run that was asked for in these words; None where there is none.

    Args:
        config: As it was composed; runs are looked for in its folder of runs.
    """
    asked = asked_hash(config)
    for path in reversed(find_runs(config.runs)):
        if RunFolder.open(path).provenance().get("asked_sha256") == asked:
            return path
    return None
