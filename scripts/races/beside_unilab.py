"""Sets UniLab beside our SAC on the Go2: `python -m scripts.races.beside_unilab --help`."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from robot_rl.cli.command_line import exit_with_sentence, read_overrides
from robot_rl.core.errors import ConfigError, unknown_name
from scripts.baselines.unilab_side import ENTRANTS
from scripts.races.unilab_curves import (
    EVALUATIONS,
    OURS,
    OUT,
    TIMES,
    iteration_of,
    lines_of,
    read_curves,
)

_HELP = """Trains UniLab's learners and our SAC on the Go2, and writes who was where when.

usage: python -m scripts.races.beside_unilab train <entrant> [option=value ...] [override ...]
       python -m scripts.races.beside_unilab evaluate <entrant> python=... [option=value ...]
       python -m scripts.races.beside_unilab report [option=value ...]

entrants:
  ours       robot-rl train task=velocity robot=go2 threads=1, evaluated as it goes
  ppo        UniLab's PPO with its file for the Go2
  sac_cpu    UniLab's SAC in sizes for a processor, with the rewards of its FlashSAC
  flashsac   UniLab's FlashSAC with its file for the Go2, made for a GPU

UniLab lives in an environment of its own. Its versions of torch and mujoco are not ours:
  python3.11 -m venv unilab && unilab/bin/pip install torch==2.13.0
  unilab/bin/pip install 'unilab[mujoco]==1.5.2' 'torch==2.13.0'
The second line pins torch again, as UniLab alone may bring one for a GPU. Nothing is downloaded
at run time: meshes that only a renderer sees are replaced by small ones in that environment.

options (defaults in brackets):
  python=              the Python of UniLab's environment
  minutes=40           processor time of a training, children included, after which it is stopped
  cpu=                 number of the processor that a training is held to; empty holds it to none
  episodes=128         of an evaluation
  every=1              of UniLab's checkpoints every so-manieth is evaluated, those done before not
  out=outputs/unilab   folder of all runs
  page=docs/races      folder of the report

Overrides go to the trainer: training.total_steps=1e5, or algo.num_envs=64.

examples:
  python -m scripts.races.beside_unilab train ours cpu=0
  python -m scripts.races.beside_unilab train sac_cpu python=unilab/bin/python cpu=1
  python -m scripts.races.beside_unilab evaluate sac_cpu python=unilab/bin/python
  python -m scripts.races.beside_unilab report"""

_SIDE = Path(__file__).parents[1] / "baselines" / "unilab_side.py"
_POLL_SECONDS = 5.0


@dataclass(kw_only=True)
class UniLabOptions:
    """Options of the command."""

    python: str = ""
    minutes: float = 40.0
    cpu: str = ""
    episodes: int = 128
    every: int = 1
    out: str = OUT
    page: str = "docs/races"

    def __post_init__(self) -> None:
        """Refuse what cannot run."""
        for name in ("minutes", "episodes", "every"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, got {getattr(self, name)}")


@exit_with_sentence()
def main(arguments: Sequence[str] | None = None) -> None:
    """Train, evaluate or report what the command line says."""
    words, _ = read_overrides(arguments, lambda: _HELP)
    from configs.compose import read_options

    plain = [word for word in words if "=" not in word]
    names = list(UniLabOptions.__dataclass_fields__)
    own = [word for word in words if word.partition("=")[0] in names]
    changes = [word for word in words if "=" in word and word not in own]
    options, _ = read_options(UniLabOptions, own)
    match plain:
        case ["train", name]:
            _train(_known(name), options, changes)
        case ["evaluate", name] if name != OURS and not changes:
            _evaluate(_known(name), options)
        case ["report"] if not changes:
            from scripts.races.unilab_page import write_report

            write_report(read_curves(Path(options.out)), Path(options.page))
        case _:
            raise ConfigError(
                f"'{shlex.join(words)}' is not understood; expected train <entrant>, "
                "evaluate <entrant> or report, see --help"
            )


def _known(name: str) -> str:
    if name not in (OURS, *ENTRANTS):
        raise ConfigError(unknown_name("entrant", name, (OURS, *ENTRANTS)))
    return name


def _train(name: str, options: UniLabOptions, changes: Sequence[str]) -> None:
    folder = Path(options.out) / name
    if folder.exists():
        raise ConfigError(f"{folder} holds a training already; remove it, or set out=")
    if name == OURS:
        command = [
            sys.executable, "-m", "robot_rl.cli", "train", "task=velocity", "robot=go2",
            "threads=1", "training.evaluation_interval=125000",
            f"training.evaluation_episodes={options.episodes}", "seed=0", "video=false",
            f"runs={folder}", *changes,
        ]  # fmt: skip
    else:
        command = [*_theirs(options), "train", name, str(folder), *changes]
    folder.mkdir(parents=True)
    held = ["taskset", "-c", options.cpu] if options.cpu else []
    _run_watched([*held, *command], folder / TIMES, options.minutes * 60)


def _theirs(options: UniLabOptions) -> list[str]:
    """The Python of UniLab's environment, which imports nothing from the script's folder.

    Raises:
        ConfigError: It is not told, or has no UniLab.
    """
    if not options.python:
        raise ConfigError("UniLab has an environment of its own: python=<its Python>, see --help")
    try:
        found = subprocess.run(
            [options.python, "-c", "import mjbatch, unilab"], capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    except OSError as error:
        raise ConfigError(f"python={options.python} does not start: {error}") from None
    if found.returncode:
        reason = found.stderr.strip().rpartition("\n")[2]
        raise ConfigError(
            f"python={options.python} has no UniLab with MuJoCo ({reason}); "
            "install it with: pip install 'unilab[mujoco]==1.5.2' 'torch==2.13.0'"
        )
    return [options.python, "-P", str(_SIDE)]


def _run_watched(command: Sequence[str], times: Path, limit: float) -> None:
    """Run a command, note its processor time, and stop it at the limit [s].

    Raises:
        ConfigError: It failed by itself.
    """
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    with subprocess.Popen(command, env=environ, start_new_session=True) as child:
        try:
            with times.open("a") as file:
                while child.poll() is None:
                    spent = _processor_time(child.pid)
                    line = {"time": time.time(), "cpu": spent, "load": os.getloadavg()[0]}
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    if spent > limit:
                        return
                    time.sleep(_POLL_SECONDS)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGTERM)
    if child.returncode:
        raise ConfigError(f"the training ended with exit code {child.returncode}: see above")


def _processor_time(process: int) -> float:
    total = 0.0
    try:
        parent = psutil.Process(process)
        for one in (parent, *parent.children(recursive=True)):
            times = one.cpu_times()
            total += times.user + times.system
    except psutil.Error:  # somebody has ended while we looked
        pass
    return total


def _evaluate(name: str, options: UniLabOptions) -> None:
    folder = Path(options.out) / name
    paths = sorted(folder.glob("model_*.pt"), key=iteration_of)
    if not paths:
        raise ConfigError(f"there are no checkpoints in {folder}; train {name} first")
    told = folder / EVALUATIONS
    done = {line["file"] for line in lines_of(told)} if told.is_file() else set()
    names = [path.name for path in paths[options.every - 1 :: options.every]]
    missing = [one for one in names if one not in done]
    if not missing:
        return
    command = [*_theirs(options), "evaluate", name, str(folder), str(options.episodes), *missing]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    if subprocess.run(command, env=environ, check=False).returncode:
        raise ConfigError(f"the evaluation of {name} failed: see above")


if __name__ == "__main__":
    main()
