"""Collects episodes of experts into a data set: `--help` says more."""

from collections.abc import Sequence

from configs.catalog import describe_fields
from robot_rl.cli.collection.experts import CollectOptions, quoted
from robot_rl.cli.command_line import Flags

HELP = """Plays episodes in simulated envs and stores them: demonstrations without people.

usage: robot-rl collect out=datasets/... [group=name ...] [option=value ...]
       [field=value ...]

task:  {tasks}
robot: {robots}
       or experiment=reach_pixels, whose task, robot and cameras count

options:
  out=datasets/peg       folder of the data set
  expert=scripted        scripted (reach, lift, peg, drawer, hover, tracking, landing; stand_up
                         with robot=g1), random, zero, the folder of a run (its best checkpoint),
                         of one of its checkpoints or of a bundle; with shares for several:
                         expert=scripted:0.5,random:0.5
  episodes=50            that are to be there by this command
  only_successes=false   leave out the others; attempts=... are played at most, or ten times as many
  noise=0.1              standard deviation of the noise on actions, which lie in [-1, 1]
  bursts=0               chance per step of a random action that is held for burst_steps=5
  noise_seconds=1        actions are disturbed so long from an episode's beginning; inf for always
  starts=evaluation      evaluation, or training: where episodes begin
  states=false           the simulation's states too, for training.snapshots
  words=                 what is to be done, stored with every episode; the task's name if empty
  append=false           continue the data set: after a kill where it stopped, with other options
                         behind what is there

most used fields:
  num_envs=16            envs that play at once
  seed=0                 the same command with the same seed makes the same data set, bit for bit
  device=cpu             where the envs live: cpu, cuda, cuda:<index> or auto
  task.kind=sparse       any field of the task or the robot; --info fields prints them

Each episode is on the disk when it has ended. Stored are all observation groups, executed actions,
rewards and their terms; "Learning from data" shows what to do with them.

examples:
  robot-rl collect task=peg out=datasets/peg
  robot-rl collect task=peg expert=random noise=0 episodes=20 out=datasets/peg append=true
  robot-rl train task=peg learner=rlpd training.prior.run=datasets/peg"""


def run(words: Sequence[str], flags: Flags) -> None:
    """Collect what the command line says."""
    from configs.compose import read_options
    from robot_rl.cli.collection.collection import collect, configure

    options, rest = read_options(CollectOptions, quoted(words))
    config = configure(options, rest)
    if flags.info:
        print(describe_fields(config))
        return
    collect(options, config)
