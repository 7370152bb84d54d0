"""Looks for what stands in the way of a deployment: `robot-rl doctor --help`."""

from collections.abc import Sequence

HELP = """Finds what stands in the way of a deployment, each with its remedy.

usage: robot-rl doctor [bundle=runs/<run>/bundle] [option=value ...]

It looks at: the ROS 2 installation and its RMW; the rights that a loop wants (SCHED_FIFO, locked
memory); the bundle, whether it is for this robot, and its recorded sequences; other robot
processes; others who send commands; rate, names and clocks of the robot's topics, if somebody
publishes them (with driver=ros2 somebody must); joints and limits of /robot_description; rates of
cameras.

options are those of robot-rl deploy: robot, driver, source, topics, command, joints, domain,
namespace; and
  listen=3         how long to listen to the robot's topics [s], beside 4 s for finding them

Exit code 0: deployment may go on, warnings or not. 1: it may not.

examples:
  robot-rl doctor
  robot-rl doctor bundle=runs/.../bundle robot=go2
  robot-rl doctor bundle=runs/.../bundle driver=ros2 source=/arm command=trajectory"""


def run(words: Sequence[str]) -> int:
    """Examine what the command line says."""
    from configs.compose import read_only_options
    from robot_rl.cli.deployment.diagnostics import Level, examine
    from robot_rl.cli.deployment.options import DoctorOptions
    from robot_rl.cli.deployment.plan import Deployment

    options = read_only_options(DoctorOptions, words)
    worst = Level.good
    for finding in examine(Deployment(options), listen=options.listen):
        print(finding.line, flush=True)
        if finding.level is Level.fault:
            worst = Level.fault
    return 1 if worst is Level.fault else 0
