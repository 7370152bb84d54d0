"""Writes the policy bundle of a run: `python scripts/export.py run=runs/...`."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cli import exit_with_sentence, read_overrides
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.process import check_one_root

_HELP = """Writes the policy of a run as a bundle: what a robot loads and runs without torch.

usage: python scripts/export.py run=runs/... [option=value ...]

options:
  run=runs/...        the run (or run=latest, the newest one)
  checkpoint=best     best, latest, or the folder of a checkpoint
  out=                folder of the bundle; <run>/bundle if empty

examples:
  python scripts/export.py run=latest
  python scripts/export.py run=runs/2026-01-31_14-05-09_hover_crazyflie_sac_s1 out=hover_bundle"""


@dataclass(kw_only=True)
class ExportOptions:
    """What the command takes."""

    run: str = ""
    """Folder of the run, or `latest`."""
    checkpoint: str = "best"
    """best, latest, or the folder of a checkpoint."""
    out: str = ""
    """Folder of the bundle; empty for the run's own."""


@exit_with_sentence()
def main(arguments: Sequence[str] | None = None) -> None:
    """Export what the command line says."""
    overrides, _ = read_overrides(arguments, lambda: _HELP)
    check_one_root()
    from configs.compose import from_plain, read_options
    from robot_rl.training.run_folder import RunFolder
    from runtime.bundling import export_run
    from runtime.parts import run_path

    options, rest = read_options(ExportOptions, overrides)
    if rest:
        name = rest[0].partition("=")[0]
        raise ConfigError(unknown_name("option", name, ExportOptions.__dataclass_fields__))
    if not options.run:
        raise ConfigError("run is empty; say which: run=runs/... or run=latest")
    run = RunFolder.open(run_path(options.run))
    path = Path(options.out) if options.out else run.bundle
    exported = export_run(run, from_plain(run.config()), options.checkpoint, path)
    print(f"bundle  {exported.path}")
    print(f"        {exported.sentence}")
    where, bundle = shlex.quote(str(run.path)), shlex.quote(str(exported.path))
    print(f"next    python scripts/evaluate.py run={where} bundle={bundle}")


if __name__ == "__main__":
    main()
