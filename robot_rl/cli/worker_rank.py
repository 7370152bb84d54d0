"""Ranks beside rank 0: they train their share in silence, in the run that rank 0 names.

Rank 0 chooses and makes the run's folder, reads the command line's wishes into it, and calls the
others; they build the same parts meanwhile.
"""

import contextlib
import json
import logging
import signal
from collections.abc import Iterator
from pathlib import Path

from configs.schema import RunConfig
from robot_rl.cli.base_policy import without_base
from robot_rl.cli.build import build_run
from robot_rl.cli.faults import keep_faults
from robot_rl.cli.signals import stop_on_signals
from robot_rl.training.ranks import Ranks
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.storage.checkpoint import Checkpoint, CheckpointStore, read_checkpoint
from robot_rl.training.storage.segments import SegmentStore


def call(ranks: Ranks, run: RunFolder, checkpoint: Checkpoint | None) -> None:
    """Rank 0 tells the others where the run lies, and from which checkpoint it goes on."""
    ranks.words(json.dumps([str(run.path), str(checkpoint.path) if checkpoint else ""]))


def dismiss(ranks: Ranks) -> None:
    """Rank 0 tells the others that there is nothing to do."""
    ranks.words(json.dumps(["", ""]))


def follow(config: RunConfig, ranks: Ranks) -> int:
    """Train this rank's share to its end.

    Args:
        config: The run's, as rank 0 has it.
        ranks: Processes that train it.

    Returns:
        Exit code: 0, or 128 + the signal that stopped the run.
    """
    parts = build_run(config, ranks)
    folder, checkpoint = json.loads(ranks.words("")[0])
    if not folder:
        return 0
    run = RunFolder(Path(folder), None)
    segments = SegmentStore(run.replay, prefix=f"rank_{ranks.rank:03d}_")
    store = CheckpointStore(run.checkpoints, segments=segments, read_only=True)
    faults = run.path / "faults" / f"rank_{ranks.rank}"
    with contextlib.closing(parts.env), _logs(run, ranks):
        trainer = parts.make_trainer(
            store, lambda record: keep_faults(without_base(parts.env), faults, int(record["step"]))
        )
        if checkpoint:
            trainer.load_state_dict(read_checkpoint(Path(checkpoint)).state)
        else:
            trainer.begin()
        with stop_on_signals(trainer, ranks) as caught:
            finished = trainer.run()
    return 0 if finished else 128 + (caught[0] if caught else signal.SIGTERM)


@contextlib.contextmanager
def _logs(run: RunFolder, ranks: Ranks) -> Iterator[None]:
    """Warnings of this rank go to the run's log.txt, with its number; lines never tear."""
    handler, root = run.log_handler(), logging.getLogger()
    handler.setLevel(logging.WARNING)
    form = f"%(asctime)s %(levelname)s %(name)s (rank {ranks.rank}): %(message)s"
    handler.setFormatter(logging.Formatter(form))
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
