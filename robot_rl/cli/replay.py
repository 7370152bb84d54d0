"""Runs a policy over a recording: `robot-rl replay bag=... bundle=...`; `--help`."""

import os
from collections.abc import Sequence

HELP = """Runs a policy again over a recording, and compares with what it saw and did then.

usage: robot-rl replay bag=<folder> bundle=runs/<run>/bundle [option=value ...]

options:
  bag=             folder that robot-rl record wrote
  bundle=          folder of the policy; another one than the recorded is refused
  force=false      true runs another bundle, too: what would it have done?
  out=             folder for steps.csv and replay.png: every term of the observation over time

It needs no ROS 2. The recorded messages go through the code that runs on the robot; which of them
the policy used in each period, it said itself on policy/step. Compared are every entry of the
observation and of the action, and the numbers of the command that was sent.

Exit code 0: all the same, to 1e-6 per entry of magnitude up to 1, relative beyond. 1: they differ,
or nothing could be compared. 2: the recording cannot be replayed.

examples:
  robot-rl replay bag=runs/.../bag bundle=runs/.../bundle
  robot-rl replay bag=runs/.../bag bundle=runs/<other>/bundle force=true out=compared"""


def run(words: Sequence[str]) -> int:
    """Replay what the command line says."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from configs.compose import read_only_options
    from robot_rl.cli.deployment.replaying import ReplayOptions, replay

    options = read_only_options(ReplayOptions, words)
    return 0 if replay(options) else 1
