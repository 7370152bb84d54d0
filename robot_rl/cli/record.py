"""Records a run of a deployed robot: `robot-rl record bundle=...`; `--help` says more."""

import os
from collections.abc import Sequence
from pathlib import Path

HELP = """Records what a robot and its policy say over ROS 2, as a rosbag2 folder (MCAP).

usage: robot-rl record bundle=runs/<run>/bundle [option=value ...]
       robot-rl record repair <bag>

options:
  bundle=          folder of the policy that moves the robot
  out=             folder of the bag, a new one; runs/<run>/bag_<time> if empty
  seconds=0        how long; 0 until Ctrl-C
  robot=           the robot at hand; the bundle's own if empty
  domain=-1        ROS_DOMAIN_ID; -1 takes the environment's
  namespace=       of all topics; the robot's name if empty

Recorded are the robot's measurements, goals, further inputs, commands, safety/state, safety/estop,
/diagnostics, and policy/step, on which the policy says what it used, saw and decided. Start it
before the deployment, or let that start it: robot-rl deploy ... record=<folder>.
`robot-rl replay`, `ros2 bag info`, `ros2 bag play` and Foxglove read the folder.

Ctrl-C, SIGTERM and a closed terminal end the bag whole. A recorder that was killed loses at most
the last 0.25 s and what came since; `repair` writes the rest into <bag>_repaired.

examples:
  robot-rl record bundle=runs/.../bundle out=runs/.../bag seconds=60
  robot-rl record repair runs/.../bag"""


def run(words: Sequence[str]) -> None:
    """Record what the command line says."""
    if words[:1] == ["repair"]:
        _repair(words[1:])
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from configs.compose import read_only_options
    from robot_rl.cli.deployment.options import RecordOptions
    from robot_rl.cli.deployment.plan import Deployment
    from robot_rl.cli.deployment.processes import tell
    from robot_rl.cli.deployment.recording import ENDINGS, Recording, record

    options = read_only_options(RecordOptions, words)
    plan = Deployment(options)
    _ = plan.runner  # a bundle of another robot is refused here
    what = Recording(
        bundle=options.bundle, namespace=plan.namespace, domain=plan.domain, folder=options.folder
    )
    record(what, seconds=options.seconds, ended_by=ENDINGS, say=tell)


def _repair(folders: Sequence[str]) -> None:
    from hardware.recording.repair import repair
    from robot_rl.core.errors import ConfigError

    if len(folders) != 1 or folders[0].startswith("-"):
        raise ConfigError(f"repair takes one folder, got {' '.join(folders) or 'none'}")
    saved = repair(Path(folders[0]))
    torn = "; the last record was torn" if saved.torn else ""
    print(f"saved {saved.messages} messages of {saved.seconds:.2f} s in {saved.folder}{torn}")
