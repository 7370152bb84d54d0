"""Commands on a trained policy; each loads its parts when it runs."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from robot_rl.core.errors import ConfigError

EVALUATE_HELP = """Plays a trained policy without exploration, once in every env.

usage: robot-rl evaluate run=runs/... [option=value ...] [field=value ...]
       robot-rl evaluate zoo:<name>   [option=value ...] [field=value ...]
       robot-rl evaluate task=<name> agent=random [option=value ...] [field=value ...]

options:
  run=runs/...        the run (or run=latest, the newest one)
  runs=runs           folder in which latest is looked for
  checkpoint=best     best, latest, or the folder of a checkpoint
  bundle=             an exported bundle to fly instead, or zoo:<name>; beside a run that it lies
                      in, torch flies too for comparison
  agent=              zero, random, scripted or geometric acts in the policy's place, in its envs,
                      or in those of task= and robot= where no run and no bundle is named;
                      geometric is a controller of multirotors that knows the plant as described
  episodes=1000       one per env, all at once
  seed=2000003        chooses the starts; never those that the best checkpoint was chosen on
  device=cpu          auto, cpu, cuda or cuda:<index>
  threads=1           CPU threads of torch
  video=true          plot flights and render a video of them
  out=                folder of the result; a new one in <run>/evaluations if empty
  robustness=false    play all episodes once more under each change that matters for its kind of
                      robot: mass, delays, noise, pushes, plants that others published

Any field of the task or the robot (or of env) can be changed, to test what was not trained for:
  task.evaluation_start.attitude_deg=90    robot.plant=measured    task.randomization.mass=0.3

examples:
  robot-rl evaluate run=latest
  robot-rl evaluate run=latest episodes=100 video=false
  robot-rl evaluate run=latest robot.plant=measured task.episode_length=20
  robot-rl evaluate bundle=runs/2026-01-31_14-05-09_hover_crazyflie_sac_s1/bundle
  robot-rl evaluate zoo:crazyflie-hover robustness=true
  robot-rl evaluate zoo:crazyflie-hover robustness=true agent=geometric
  robot-rl evaluate task=lift agent=scripted
  robot-rl evaluate zoo:go2-velocity task.randomization.pushes.speed=1.0"""


def run_evaluate(words: Sequence[str]) -> None:
    """Evaluate what the command line says."""
    from configs.compose import read_options
    from robot_rl.cli.evaluation import EvaluateOptions, run_trial, save_trial, trial_lines

    options, rest = read_options(EvaluateOptions, words)
    if options.robustness:
        from robot_rl.cli.robustness import run_axes

        _, written = run_axes(options, rest, lambda line: print(line, flush=True))
        for what, where in written.items():
            print(f"{what:<12} {where}")
        return
    trial = run_trial(options, rest)
    for line in trial_lines(trial):
        print(line)
    for what, where in save_trial(trial, options, rest).items():
        print(f"{what:<12} {where}")


EXPORT_HELP = """Writes the policy of a run as a bundle: what a robot loads and runs without torch.
With target=c99 also as one C file, for a flight controller that cannot wait for a radio.

usage: robot-rl export run=runs/... [option=value ...]

options:
  run=runs/...        the run (or run=latest, the newest one)
  runs=runs           folder in which latest is looked for
  checkpoint=best     best, latest, or the folder of a checkpoint
  target=bundle       bundle, or c99: the bundle of the run, and policy.c and policy.h made from it
  bundle=             a bundle to make C from instead of a run, or zoo:<name>; nothing else is
                      needed then
  name=policy         of the C files and of all that they declare
  out=                folder to write; if empty <run>/bundle, and for C the folder c99 beside it

examples:
  robot-rl export run=latest
  robot-rl export run=runs/2026-01-31_14-05-09_hover_crazyflie_sac_s1 out=hover_bundle
  robot-rl export run=latest target=c99
  robot-rl export bundle=hover_bundle target=c99 name=hover out=firmware/hover"""


class ExportTarget(Enum):
    """Format that is written."""

    bundle = "bundle"
    c99 = "c99"


@dataclass(kw_only=True)
class ExportOptions:
    """Options of the command."""

    run: str = ""
    """Folder of the run, or `latest`."""
    runs: str = "runs"
    """Folder of all runs, in which `latest` is looked for."""
    checkpoint: str = "best"
    """best, latest, or the folder of a checkpoint."""
    target: ExportTarget = ExportTarget.bundle
    """Format that is written."""
    bundle: str = ""
    """Folder of a bundle to read instead of a run."""
    name: str = "policy"
    """Of the C files."""
    out: str = ""
    """Folder to write; empty for the run's own."""

    def __post_init__(self) -> None:
        if not self.run and not self.bundle:
            raise ConfigError("run is empty; say which: run=runs/... or run=latest")
        if self.bundle and (self.run or self.target is not ExportTarget.c99):
            raise ConfigError(
                f"bundle={self.bundle} can become C only, with target=c99 and without run; got "
                f"target={self.target.value} and run={self.run or 'nothing'}"
            )
        if self.target is ExportTarget.c99:  # before a bundle is written anew
            from policies.c99.literals import check_name

            check_name(self.name, "name:")


def run_export(words: Sequence[str]) -> None:
    """Export what the command line says."""
    from configs.compose import read_only_options

    options = read_only_options(ExportOptions, words)
    bundle = Path(options.bundle) if options.bundle else _write_bundle(options)
    if options.target is ExportTarget.c99:
        _write_c99(options, bundle)


def _write_bundle(options: ExportOptions) -> Path:
    from configs.compose import from_plain
    from robot_rl.cli.components import run_path
    from robot_rl.cli.learning.bundling import export_policy
    from robot_rl.training.runs.run_folder import RunFolder

    run = RunFolder.open(run_path(options.run, options.runs))
    config = from_plain(run.config())
    if options.target is ExportTarget.c99 and config.robot is None:
        raise ConfigError(
            f"the run {run.path} has no robot, and C is written for policies of robots: export it "
            "without target=c99, for robot_rl.load_policy"
        )
    elsewhere = options.out and options.target is ExportTarget.bundle
    path = Path(options.out) if elsewhere else run.bundle
    exported = export_policy(run, config, options.checkpoint, path)
    print(f"bundle  {exported.path}")
    print(f"        {exported.sentence}")
    where, bundle = shlex.quote(str(run.path)), shlex.quote(str(exported.path))
    if exported.led:
        print(f"next    robot-rl deploy bundle={bundle}")
    elif not exported.of_robot:
        print(f"next    in Python: policy = robot_rl.load_policy('{exported.path}')")
    else:
        print(f"next    robot-rl evaluate run={where} bundle={bundle}")
    return exported.path


def _write_c99(options: ExportOptions, bundle: Path) -> None:
    from policies.c99.source import COMPILE, write_c99
    from policies.zoo.catalog import place_beside

    folder = Path(options.out) if options.out else place_beside(bundle) / "c99"
    header, source = write_c99(bundle, folder, options.name)
    print(f"c99     {source}")
    print(f"        {header}")
    compile_it = COMPILE.format(name=options.name)
    print(f"test    cd {shlex.quote(str(folder))} && {compile_it} && ./a.out")


CRITICS_HELP = """Prints what critics think of stored steps beside the returns that came of them.

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
        if not self.run:
            raise ConfigError("run is empty; say which: run=runs/... or run=latest")
        if self.parts < 1:
            raise ConfigError(f"parts must be at least 1, got {self.parts}")


def run_critics(words: Sequence[str]) -> None:
    """Look at what the command line names."""
    from configs.compose import read_options

    options, rest = read_options(CriticsOptions, words)
    if rest:
        raise ConfigError(f"'{rest[0]}' changes nothing here; options: {', '.join(vars(options))}")
    from robot_rl.cli.components import run_path
    from robot_rl.cli.evaluation import compare_critics

    path = run_path(options.run, options.runs)
    for line in compare_critics(path, options.checkpoint, options.data, options.parts):
        print(line)
