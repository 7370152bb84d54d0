"""PPO of rsl_rl on our tasks, to compare with: `python -m scripts.baselines.train_ppo --help`."""

from collections.abc import Sequence

from robot_rl.cli.command_line import exit_with_sentence
from scripts.baselines.command import run_baseline

_HELP = """Trains PPO of the package rsl_rl in the worlds of a task, to compare our learners with.

usage: python -m scripts.baselines.train_ppo [task=name] [robot=name]
       [option=value ...] [field=value ...]

Worlds, observations, rewards, validation starts and the run's folder are those of robot-rl train,
so that `robot-rl runs compare` draws both learners' curves over steps or time. Nothing of
it can be resumed or exported: what it leaves are its curves and its weights.

options (defaults in brackets):
  steps_per_env=24      steps of every world per iteration
  epochs=5              passes over them
  mini_batches=4        parts of each pass
  gamma=0.99 lam=0.95   discount, and lambda of the advantages
  learning_rate=1e-3    at the start; follows desired_kl
  desired_kl=0.01       divergence per iteration that the step size aims at
  entropy=0.005         weight of the entropy
  hidden=[256,128,64]   hidden layers of actor and critic
  init_std=1.0          deviation of the actions at the start

fields of a run that count: num_envs, seed, training.total_steps, training.evaluation_interval,
training.evaluation_episodes, device, threads, runs, logging, and all of the task and the robot

examples:
  python -m scripts.baselines.train_ppo task=hover seed=1
  python -m scripts.baselines.train_ppo task=velocity robot=go2 num_envs=1024"""


@exit_with_sentence()
def main(arguments: Sequence[str] | None = None) -> None:
    """Train what the command line says."""
    run_baseline(arguments, _HELP, "train_ppo")


if __name__ == "__main__":
    main()
