"""Records demonstrations of a person on the twin of an arm: `--help` says more."""

import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.core.errors import DatasetError
from robot_rl.core.seeding import derive_seed

if TYPE_CHECKING:
    from robot_rl.cli.teleoperation.demonstrations import DemonstrationRecorder
    from robot_rl.cli.teleoperation.options import TeleopOptions
    from robot_rl.datasets.writer import DatasetWriter

HELP = """Lets a person lead the twin of an arm, and stores the episodes: demonstrations.

usage: robot-rl teleop out=datasets/... [group=name ...] [option=value ...] [field=value ...]

task:  {tasks}
robot: {robots}

options:
  out=datasets/peg       folder of the data set
  person=simulated       who leads: simulated, who knows task=peg, or a device of this computer:
                         gamepad:/dev/input/by-id/..., spacemouse:/dev/input/by-id/...
  episodes=20            that are to be there by this command
  only_successes=false   leave out the others; attempts=... are played at most, or ten times as many
  seconds=10             length of an episode
  skill=human            of a simulated person: human, who is late, noisy and sometimes wrong;
                         or perfect
  seed=0                 of starts and of a simulated person
  append=false           continue the data set
  env.cameras=[wrist]    cameras whose pictures are stored too
  twin.<field>=          actions and rewards, as of robot-rl learn: the same for data and learning

A gamepad: left stick forward and sideways, right stick up and turn, pad roll and pitch, moved while
the right shoulder is held; left shoulder takes the robot over, A turns the gripper over, Y (above
A) says success, B failure, X discards the episode. A SpaceMouse: the first button takes the robot
over and lets the puck move it while it is held, the second turns the gripper over; what the task's
own rule says is the label. The world stands still until the robot is taken over.
The loop of a real robot follows the person: lease, limits, and a Cartesian impedance.

Each episode is on the disk when it has ended: what the actor sees, the action that the loop really
followed, rewards and success.

No page shows the twin here. Where a person must see, or leads another robot, they lead it from the
page of robot-rl learn; robot-rl data convert runs/<run> <out> only_led=true stores what they led.

examples:
  robot-rl teleop task=peg out=datasets/peg_human
  robot-rl teleop task=lift twin.gripper=true person=gamepad:/dev/input/by-id/usb-pad \\
      out=datasets/lift"""


def run(words: Sequence[str]) -> None:
    """Record what the command line says."""
    from configs.compose import changed_keys, compose, read_options
    from hardware.teleop.simulated_person import PersonConfig
    from robot_rl.cli.learning.twin_robot import RESPONSE
    from robot_rl.cli.teleoperation.demonstrations import DemonstrationRecorder
    from robot_rl.cli.teleoperation.options import TeleopOptions
    from robot_rl.datasets.files.manifest import is_dataset
    from robot_rl.datasets.writer import DatasetWriter, check_free

    options, rest = read_options(TeleopOptions, words)
    folder = Path(options.out)
    if is_dataset(folder) and not options.append:
        raise DatasetError(
            f"{folder} is a data set already; continue it with append=true, or choose a new folder"
        )
    if not is_dataset(folder):
        check_free(folder)
    task = [] if "task" in changed_keys(rest) else ["task=peg"]
    config = compose([*task, f"task.episode_length={options.seconds}", *rest]).config
    skill = PersonConfig.perfect() if options.skill == "perfect" else PersonConfig()
    skill = replace(skill, response=RESPONSE)
    recorder = DemonstrationRecorder(
        config, options.twin, person=options.person, skill=skill, seed=config.seed
    )  # fmt: skip
    new = not is_dataset(folder)
    opened = DatasetWriter.create(folder, recorder.spec) if new else DatasetWriter.append_to(folder)
    with closing(recorder), opened as writer:
        writer.spec.check_same(recorder.spec, str(folder), "what is to be recorded")
        try:
            _record(options, recorder, writer, config.seed)
        finally:
            if new and not writer.sources:
                shutil.rmtree(folder)


def _record(
    options: "TeleopOptions", recorder: "DemonstrationRecorder", writer: "DatasetWriter", seed: int
) -> None:
    """Play and store until there is enough, a line for each episode."""
    played = successes = 0
    # Starts that are stored already, beside others that were left out, do not come again.
    numbers = (derive_seed(seed, f"episode {k}") for k in count(len(writer.sources)))
    while len(writer.sources) < options.episodes:
        if played >= (options.attempts or 10 * options.episodes):
            raise DatasetError(
                f"{played} episodes were played, as attempts allow, but {len(writer.sources)} of "
                f"{options.episodes} are in {writer.folder}"
            )
        done = recorder.record(next(n for n in numbers if recorder.source(n) not in writer.sources))
        played += 1
        success = bool(done.episode.success[-1])
        successes += success
        kept = done.label != "discard" and (success or not options.only_successes)
        if kept:
            writer.add(done.episode)
        said = f", the person said {done.label or 'nothing'}" * (options.person != "simulated")
        judged = "success" if success else "no success"
        print(
            f"{len(writer.sources):>5} of {options.episodes}   {judged}{said}"
            f"{'' if kept else ', left out'}   return {done.episode.reward.sum():.1f}",
            flush=True,
        )
    print(f"{successes} of {played} episodes succeeded")
    print(f"{writer.folder} holds {len(writer.sources):,} episodes, {writer.num_steps:,} steps")
