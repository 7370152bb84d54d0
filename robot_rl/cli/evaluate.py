"""Tests a trained policy: `robot-rl evaluate run=runs/...`; `--help` says more."""

from collections.abc import Sequence

HELP = """Plays a trained policy without exploration, once in every env.

usage: robot-rl evaluate run=runs/... [option=value ...] [field=value ...]

options:
  run=runs/...        the run (or run=latest, the newest one)
  runs=runs           folder in which latest is looked for
  checkpoint=best     best, latest, or the folder of a checkpoint
  bundle=             an exported bundle to fly instead; torch flies beside it for comparison
  episodes=1000       one per env, all at once
  seed=2000003        chooses the starts; never those that the best checkpoint was chosen on
  device=cpu          auto, cpu, cuda or cuda:<index>
  threads=1           CPU threads of torch
  video=true          plot flights and render a video of them
  out=                folder of the result; a new one in <run>/evaluations if empty

Any field of the task or the robot (or of env) can be changed, to test what was not trained for:
  task.evaluation_start.attitude_deg=90    robot.plant=measured    task.randomization.mass=0.3

examples:
  robot-rl evaluate run=latest
  robot-rl evaluate run=latest episodes=100 video=false
  robot-rl evaluate run=latest robot.plant=measured task.episode_length=20
  robot-rl evaluate bundle=runs/2026-01-31_14-05-09_hover_crazyflie_sac_s1/bundle"""


def run(words: Sequence[str]) -> None:
    """Evaluate what the command line says."""
    from configs.compose import read_options
    from robot_rl.cli.evaluation import EvaluateOptions, run_trial, save_trial, trial_lines

    options, rest = read_options(EvaluateOptions, words)
    trial = run_trial(options, rest)
    for line in trial_lines(trial):
        print(line)
    for what, where in save_trial(trial, options, rest).items():
        print(f"{what:<12} {where}")
