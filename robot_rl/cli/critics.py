"""Says whether a run's critics are right about stored episodes: `--help` says more."""

from collections.abc import Sequence
from dataclasses import dataclass

from robot_rl.core.errors import ConfigError

HELP = """Prints what critics think of stored steps beside the returns that really came of them.

usage: robot-rl critics run=runs/... [option=value ...]

options:
  run=runs/...        a run of a learner with critics of the family of SAC (or run=latest)
  runs=runs           folder in which latest is looked for
  checkpoint=latest   latest, best, or the folder of a checkpoint
  data=               data set, or run with a saved replay; empty takes training.prior.run
  parts=4             parts that every episode is cut into

Values far above returns early in an episode are hope; values that do not grow where returns do have
not learned what pays. In the last part a value is larger: it goes on behind the time limit, and the
return does not. The policy is another than who acted: with it values may lie below.

example:
  robot-rl critics run=latest data=datasets/peg"""


@dataclass(kw_only=True)
class CriticsOptions:
    """Options of the command."""

    run: str = ""
    """Folder of the run, or `latest`."""
    runs: str = "runs"
    """Folder of all runs, in which `latest` is looked for."""
    checkpoint: str = "latest"
    """latest, best, or the folder of a checkpoint."""
    data: str = ""
    """Stored steps; empty takes those that the run learned from."""
    parts: int = 4
    """Parts that every episode is cut into."""

    def __post_init__(self) -> None:
        """Refuse what cannot be looked at."""
        if not self.run:
            raise ConfigError("run is empty; say which: run=runs/... or run=latest")
        if self.parts < 1:
            raise ConfigError(f"parts must be at least 1, got {self.parts}")


def run(words: Sequence[str]) -> None:
    """Look at what the command line names."""
    from configs.compose import read_options

    options, rest = read_options(CriticsOptions, words)
    if rest:
        raise ConfigError(f"'{rest[0]}' changes nothing here; options: {', '.join(vars(options))}")
    from robot_rl.cli.components import run_path
    from robot_rl.cli.critic_report import compare_critics

    path = run_path(options.run, options.runs)
    for line in compare_critics(path, options.checkpoint, options.data, options.parts):
        print(line)
