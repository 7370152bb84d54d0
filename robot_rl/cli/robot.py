"""Commands around a deployed robot; each loads its parts when it runs."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.core.errors import ConfigError

DEPLOY_HELP = """Lets a trained policy move a robot over ROS 2; the robot's side keeps every limit.

usage: robot-rl deploy bundle=runs/<run>/bundle [option=value ...]

options:
  bundle=          folder of the policy, or zoo:<name> (robot-rl zoo list)
  robot=           the robot at hand; the bundle's own if empty. Another one's bundle is refused
  driver=twin      who moves the robot: twin, a simulated one behind the topics of a real one;
                   ros2, somebody else's node; fake, nobody: ideal joints or a flying point; or the
                   name of a plug-in's, with its own options as 'driver_options={port:/dev/tty0}'
  controller=      a plug-in's law between policy and driver; the robot's own if empty
  mode=policy      policy; or shadow: the policy computes, the robot holds, differences are shown
  arm_at=policy    where arming leads the joints, slowly: policy, the pose around which the policy's
                   targets lie; robot, its default pose. Look that the way there is free. A policy
                   that gets up is armed where the robot lies, and is bounded less
  seconds=0        how long the policy is in charge; 0 until Ctrl-C
  seed=0           of the twin's start, goals and noise
  start=rest       of the twin: rest, a drone level and still, a humanoid held upright until the
                   policy is in charge; thrown, as the task's episodes start
  goal={}          goals that hold until a message on goal/<name> changes them, such as
                   'goal={velocity_b:[0.5,0,0]}'; with ros2 nobody else may have any
  patience=1       factor on the times that the robot waits for policy, samples and loop; above 1
                   for a simulated robot on a busy machine
  robot_file=      bounds of the robot at hand, narrower than its description; if empty those that
                   are shipped for it
  clip=false       true holds a policy that needs more than the robot allows within its limits,
                   instead of refusing it
  domain=-1        ROS_DOMAIN_ID; -1 takes the environment's
  namespace=       of all topics; the robot's name if empty
  record=          a new folder: records everything but pictures, for robot-rl replay
  camera.<name>.topic=   pictures of a camera that the policy sees: sensor_msgs/Image, or
                   CompressedImage where the name ends with /compressed. Those of the robot file
                   besides; a simulated robot draws its own

of driver=ros2, for a robot behind joint_states, imu/data, odom and a command topic; an arm has
ee_pose, and with a gripper gripper_state:
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

While it runs, a second terminal watches and commands the robot, by keys or one thing at a time,
and so does any ROS 2 tool. What a person stops so can go on; trouble ends the deployment.
  robot-rl operate
  robot-rl estop
  ros2 service call /go2/loop/estop std_srvs/srv/Trigger

examples:
  robot-rl deploy bundle=runs/2026-01-31_14-05-09_hover_crazyflie_sac_s1/bundle
  robot-rl deploy bundle=runs/.../bundle mode=shadow seconds=10
  robot-rl deploy bundle=runs/.../bundle driver=ros2 command=trajectory"""


def run_deploy(words: Sequence[str]) -> None:
    """Deploy what the command line says."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from configs.compose import read_only_options
    from robot_rl.cli.deployment.operator import DeploymentError, Operator
    from robot_rl.cli.deployment.options import DeployOptions
    from robot_rl.cli.deployment.signals import TerminalSignals

    options = read_only_options(DeployOptions, words)
    terminal = TerminalSignals()
    operator = Operator(options, terminal.tell, attend=terminal.interrupt_if_asked)
    try:
        operator.arm()
        if options.mode == "policy":
            operator.hand_over()
        if not operator.watch(options.seconds):
            raise DeploymentError("time is over, and somebody had stopped the robot before")
    except KeyboardInterrupt:
        terminal.tell("")
    finally:
        terminal.stopping()
        operator.stop()


DOCTOR_HELP = """Finds what stands in the way of a deployment, each with its remedy.

usage: robot-rl doctor [bundle=runs/<run>/bundle] [option=value ...]

It looks at: the ROS 2 installation and its RMW; the rights that a loop wants (SCHED_FIFO, locked
memory); the bundle, whether it is for this robot, and its recorded sequences; whether it needs more
than the robot allows; how old commands get before the robot pauses; other robot processes; others
who send commands; rate, names and clocks of the robot's topics, if somebody publishes them (with
driver=ros2 somebody must); joints and limits of /robot_description; rates of cameras, and whether
those that the policy sees are as in training.

options are those of robot-rl deploy: robot, robot_file, clip, driver, source, topics, command,
joints, camera, domain, namespace; and
  listen=3         how long to listen to the robot's topics [s], beside 4 s for finding them

Without a bundle it looks at the computer alone, and with robot= and driver=ros2 at the topics of
that robot's node, as before learning on it.

Exit code 0: deployment may go on, warnings or not. 1: it may not.

examples:
  robot-rl doctor
  robot-rl doctor bundle=runs/.../bundle robot=go2
  robot-rl doctor robot=panda driver=ros2 source=/arm
  robot-rl doctor bundle=runs/.../bundle driver=ros2 source=/arm command=trajectory"""


def run_doctor(words: Sequence[str]) -> int:
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


RECORD_HELP = """Records what a robot and its policy say over ROS 2, as a rosbag2 folder (MCAP).

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


def run_record(words: Sequence[str]) -> None:
    """Record what the command line says."""
    if words[:1] == ["repair"]:
        _repair(words[1:])
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from configs.compose import read_only_options
    from robot_rl.cli.deployment.options import RecordOptions
    from robot_rl.cli.deployment.plan import Deployment
    from robot_rl.cli.deployment.recording import ENDINGS, Recording, record
    from robot_rl.cli.deployment.signals import tell

    options = read_only_options(RecordOptions, words)
    plan = Deployment(options)
    _ = plan.runner  # a bundle of another robot is refused here
    what = Recording(
        bundle=options.bundle, namespace=plan.namespace, domain=plan.domain, folder=options.folder
    )
    record(what, seconds=options.seconds, ended_by=ENDINGS, say=tell)


def _repair(folders: Sequence[str]) -> None:
    from hardware.recording.repair import repair

    if len(folders) != 1 or folders[0].startswith("-"):
        raise ConfigError(f"repair takes one folder, got {' '.join(folders) or 'none'}")
    saved = repair(Path(folders[0]))
    torn = "; the last record was torn" if saved.torn else ""
    print(f"saved {saved.messages} messages of {saved.seconds:.2f} s in {saved.folder}{torn}")


REPLAY_HELP = """Runs a policy again over a recording, and compares with what it saw and did then.

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


def run_replay(words: Sequence[str]) -> int:
    """Replay what the command line says."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from configs.compose import read_only_options
    from robot_rl.cli.deployment.replaying import ReplayOptions, replay

    options = read_only_options(ReplayOptions, words)
    return 0 if replay(options) else 1


URDF_HELP = """Prints the URDF of a robot: links, inertias, shapes, joints with their limits.

usage: robot-rl urdf robot=go2 [option=value ...]
       robot-rl urdf bundle=runs/<run>/bundle [option=value ...]

options:
  robot=           name of the robot; the bundle's own if empty
  bundle=          folder of a policy: its robot, as it was configured
  out=             file to write; printed if empty

It is written from the model that is simulated, with base_link as root, and imu_link and
end_effector where the robot measures. robot-rl deploy publishes the same on robot_description.

robots:
       {robots}

examples:
  robot-rl urdf robot=panda out=panda.urdf
  ros2 run robot_state_publisher robot_state_publisher panda.urdf"""


@dataclass(kw_only=True)
class UrdfOptions:
    """Options of `robot-rl urdf`."""

    robot: str = ""
    """Name of the robot; the bundle's own if empty."""
    bundle: str = ""
    """Folder of a policy."""
    out: str = ""
    """File to write; printed if empty."""

    def __post_init__(self) -> None:
        if not self.robot and not self.bundle:
            raise ConfigError("which robot? robot=go2, or bundle=runs/<run>/bundle")


def run_urdf(words: Sequence[str]) -> None:
    """Print or write the URDF that the command line asks for."""
    from configs.compose import compose, read_only_options
    from robot_rl.cli.deployment.description import urdf_of
    from robot_rl.cli.deployment.options import PolicyOptions
    from robot_rl.cli.deployment.plan import Deployment
    from robot_rl.training.storage.durable import storage_errors

    options = read_only_options(UrdfOptions, words)
    if options.bundle:
        policy = PolicyOptions(bundle=options.bundle, robot=options.robot)
        robot = Deployment(policy).config.robot
    else:
        robot = compose([f"robot={options.robot}"]).config.robot
    text = urdf_of(robot)
    if not options.out:
        print(text, end="")
        return
    with storage_errors("write", Path(options.out)):
        Path(options.out).write_text(text, encoding="utf-8")
    print(f"urdf    {options.out}")


SECURE_HELP = """Makes keys and permissions of ROS 2 security (SROS 2) for a deployed robot.

usage: robot-rl secure out=<keystore> [option=value ...]

options:
  out=             folder of the keystore; an existing one is added to
  namespace=/robot of the robot's topics, as robot-rl deploy has it; its enclave has the same name
  source=          driver=ros2: namespace of the other node's topics, read and commanded too
  domain=-1        ROS_DOMAIN_ID; -1 takes the environment's

It writes <keystore>/policy.xml, which names every topic and service of a deployment, and has
`ros2 security` of a sourced ROS 2 make the rest; without one it prints the commands. Then it says
which environment variables turn security on. Whoever has no key hears and commands nothing.

Exit code 0: keys and permissions are made. 1: the commands that were printed have to be run.

examples:
  robot-rl secure out=keystore namespace=/go2
  robot-rl secure out=keystore namespace=/arm source=/vendor domain=5"""


def run_secure(words: Sequence[str]) -> int:
    """Make what the command line says."""
    from configs.compose import read_only_options
    from robot_rl.cli.deployment.security import SecureOptions, secure

    return secure(read_only_options(SecureOptions, words))
