"""SAC of Stable-Baselines3, to compare with: `python -m scripts.baselines.train_sb3 --help`."""

from collections.abc import Sequence

from robot_rl.cli.command_line import exit_with_sentence
from scripts.baselines.command import run_baseline

_HELP = """Trains SAC of Stable-Baselines3 in a Gymnasium environment, to compare our learners with.

usage: python -m scripts.baselines.train_sb3 experiment=hopper num_envs=1 [env.id=...]
       [option=value ...] [field=value ...]

Validation starts and the run's folder are those of robot-rl train, so that
`robot-rl runs compare` draws both learners' curves over steps or time. The library steps a
plain Gymnasium environment in its own loop. Nothing of it can be resumed or exported: what it
leaves are its curves and its weights.

options (defaults in brackets, those of the library):
  learning_rate=3e-4       step size
  batch_size=256           rows per update; one update per step
  buffer_size=1000000      transitions kept
  learning_starts=100      random steps at the start
  tau=0.005 gamma=0.99     speed of the targets, discount
  hidden=[256,256]         hidden layers of actor and critics

fields of a run that count: env.id, env.kwargs, seed, training.total_steps,
training.evaluation_interval, training.evaluation_episodes, device, threads, runs, logging

examples:
  python -m scripts.baselines.train_sb3 experiment=hopper num_envs=1 training.total_steps=60000
  python -m scripts.baselines.train_sb3 experiment=hopper num_envs=1 env.id=HalfCheetah-v5 seed=1"""


@exit_with_sentence()
def main(arguments: Sequence[str] | None = None) -> None:
    """Train what the command line says."""
    run_baseline(arguments, _HELP, "train_sb3")


if __name__ == "__main__":
    main()
