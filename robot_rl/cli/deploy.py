"""Deploys a policy on a robot: `robot-rl deploy bundle=...`; `--help` says more."""

import os
from collections.abc import Sequence

HELP = """Lets a trained policy move a robot over ROS 2, with every limit kept on the robot's side.

usage: robot-rl deploy bundle=runs/<run>/bundle [option=value ...]

options:
  bundle=          folder of the policy
  robot=           the robot at hand; the bundle's own if empty. Another one's bundle is refused
  driver=twin      who moves the robot: twin, a simulated one behind the topics of a real one;
                   ros2, somebody else's node; fake, nobody: ideal joints or a flying point
  mode=policy      policy; or shadow: the policy computes, the robot holds, differences are shown
  arm_at=robot     where arming leads the joints, slowly: robot, its default pose; policy, the pose
                   around which the policy's targets lie. Look that the way there is free
  seconds=0        how long the policy is in charge; 0 until Ctrl-C
  seed=0           of the twin's start, goals and noise
  goal={}          goals that hold until a message on goal/<name> changes them, such as
                   'goal={velocity_b:[0.5,0,0]}'; with ros2 nobody else may have any
  patience=1       factor on the times that the robot waits for policy, samples and loop; above 1
                   for a simulated robot on a busy machine
  domain=-1        ROS_DOMAIN_ID; -1 takes the environment's
  namespace=       of all topics; the robot's name if empty
  record=          a new folder: records everything, for robot-rl replay

of driver=ros2, for a robot behind joint_states, imu/data, odom and a command topic:
  source=/         namespace of their topics
  topics={}        theirs with other names: 'topics={joint_states:/arm/states,command:/arm/go}'
  command=         form of commands: joint_state, trajectory, positions or efforts
  joints=[]        order of the joints in positions and efforts; the robot's own if empty
of driver=fake:
  delay=0 noise=0 dropout=0   age of samples [s], times the declared noise, share that is lost

It starts a process each for the robot's loop with its limits and monitors, its ROS 2 topics, and
the policy; with ros2 one more that talks to the other node. It arms the robot, waits until it
stands, hands it over, and prints one line every half second. Ctrl-C, a terminal that is closed, the
end of the time, a fault or the death of this program stop the robot softly; a second Ctrl-C stops
it at once. This stop is software: it is no safety-rated emergency stop, which a real robot needs
besides.

While it runs, any ROS 2 tool can stop the robot:
  ros2 service call /go2/loop/estop std_srvs/srv/Trigger

examples:
  robot-rl deploy bundle=runs/2026-01-31_14-05-09_hover_crazyflie_sac_s1/bundle
  robot-rl deploy bundle=runs/.../bundle mode=shadow seconds=10
  robot-rl deploy bundle=runs/.../bundle driver=ros2 command=trajectory"""


def run(words: Sequence[str]) -> None:
    """Deploy what the command line says."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from configs.compose import read_only_options
    from robot_rl.cli.deployment.operator import Operator
    from robot_rl.cli.deployment.options import DeployOptions
    from robot_rl.cli.deployment.processes import TerminalSignals

    options = read_only_options(DeployOptions, words)
    terminal = TerminalSignals()
    operator = Operator(options, terminal.tell, attend=terminal.interrupt_if_asked)
    try:
        operator.arm()
        if options.mode == "policy":
            operator.hand_over()
        operator.watch(options.seconds)
    except KeyboardInterrupt:
        terminal.tell("")
    finally:
        terminal.stopping()
        operator.stop()
