"""Looks at a task: `robot-rl view task=hover agent=random`; `--help` says more."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.catalog import describe_fields
from robot_rl.cli.command_line import Flags
from robot_rl.core.errors import ConfigError

HELP = """Shows a task: in the browser of this machine, or as a video with a contact sheet.

usage: robot-rl view [group=name ...] [option=value ...] [field=value ...]
       robot-rl view zoo:<name> ...      a policy that ships (robot-rl zoo list)

task:  {tasks}
robot: {robots}

options:
  agent=zero          zero, random, scripted (reach, lift, peg, drawer and flights have an expert;
                      stand_up with robot=g1, slowly), geometric (flights: it knows the plant
                      as it is described), or the folder of a bundle, which brings its task
                      and robot, or zoo:<name>
  video=out.mp4       write a video and out.png, a contact sheet, instead of opening a page
  seconds=0           length of the video; 0 for one episode, but 10 s at most
  starts=evaluation   evaluation, or training: where episodes begin
  port=8080           of the page; 0 for any free one. Only this machine can open it
  open=false          open the page in the browser, where there is a screen

most used fields:
  num_envs=4          envs that run; the page shows one of them, the video up to four
  seed=0              starts, goals, physical parameters and the random agent
  device=cpu          where the envs live: cpu, cuda, cuda:<index> or auto
  reward.model=rewards/reach    what a learned reward says of it (robot-rl reward train)
  task.start.attitude_deg=90    any field of the task or the robot; --info fields prints them

In the page: pause, step, reset, choose an env, push the robot, move its goal, see contacts and
what each reward term pays. Ctrl-C ends it.

examples:
  robot-rl view task=reach robot=panda agent=random
  robot-rl view task=hover agent=zero video=hover.mp4
  robot-rl view zoo:go2-velocity num_envs=1
  robot-rl view agent=runs/2026-01-31_14-05-09_hover_crazyflie_sac_s1/bundle"""

_VIDEO_ENVS, _LONGEST_VIDEO = 4, 10.0
"""Envs in a video, and the longest time of one whose length nobody chose [s]."""


@dataclass(kw_only=True)
class ViewOptions:
    """Options of the command beside the fields of a run."""

    agent: str = "zero"
    """zero, random, scripted, geometric, or the folder of a bundle."""
    video: str = ""
    """The mp4 to write; empty opens a page."""
    seconds: float = 0.0
    """Length of the video [s]; 0 for one episode."""
    starts: str = "evaluation"
    """evaluation or training."""
    port: int = 8080
    """Of the page."""
    open: bool = False
    """Open it in the browser."""

    def __post_init__(self) -> None:
        if self.starts not in ("evaluation", "training"):
            raise ConfigError(f"starts must be evaluation or training, got '{self.starts}'")
        if not 0 <= self.seconds < float("inf"):
            raise ConfigError(f"seconds must be 0 or more, got {self.seconds:g}")
        if self.video and not self.video.endswith(".mp4"):
            raise ConfigError(f"video must end with .mp4, got '{self.video}'")


def run(words: Sequence[str], flags: Flags) -> None:
    """Show what the command line says."""
    from configs.compose import read_options
    from robot_rl.cli.viewing import configure, make_player, show, write_video

    options, rest = read_options(ViewOptions, words)
    run = configure(options.agent, rest)
    if flags.info:
        print(describe_fields(run.config))
        return
    learned = run.config.reward.model or run.config.reward.function
    if options.video and learned:
        raise ConfigError(
            f"the page shows what the learned reward {learned} says, and a video does not; leave "
            "video or the reward out"
        )
    player = make_player(run.config, options.agent, evaluation=options.starts == "evaluation")
    if options.video:
        found = write_video(
            player, Path(options.video), title=run.title, num_envs=_VIDEO_ENVS,
            seconds=options.seconds, longest=_LONGEST_VIDEO,
        )  # fmt: skip
        for what, where in found.items():
            print(f"{what:<14}{where}")
        return
    show(player, run.title, options.port, opened=options.open)
