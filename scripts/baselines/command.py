"""The command of a baseline: what it says is trained into a run's folder."""

import os
from collections.abc import Sequence

from robot_rl.cli.command_line import read_overrides
from robot_rl.core.process import check_one_root, keep_freed_memory


def run_baseline(arguments: Sequence[str] | None, help_text: str, script: str) -> None:
    """Train what the command line says.

    Args:
        arguments: The command line; None takes the process's own.
        help_text: What `--help` shows.
        script: Which baseline: a name of `BASELINES`.
    """
    overrides, _ = read_overrides(arguments, lambda: help_text)
    check_one_root()
    keep_freed_memory()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from scripts.baselines.settings import BASELINES, compose_baseline

    settings, composition = compose_baseline(BASELINES[script], overrides)
    # Only now: the baselines' packages take seconds to import, and may be missing.
    from scripts.baselines.baseline_run import train_baseline

    if script == "train_ppo":
        from scripts.baselines.ppo import PPOTraining as Training
    else:
        from scripts.baselines.sb3 import SB3Training as Training
    train_baseline(Training, settings, composition)
