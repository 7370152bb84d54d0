"""A person's hand on a deployed robot, by the kind of robot: what a console beside it leads.

arm with a measured end effector   the end effector, by commands of the policy's own kind
multirotor                         position and heading, which the robot process flies to
robot on legs                      the velocity that its policy is asked for; the policy stays
"""

from hardware.console.teleop_thread import Teleoperator as Hand
from hardware.control.ipc import CommandLayout, ExecutedSubscriber, channel_path
from hardware.control.process import RobotChannels
from hardware.teleop.intent import StickConfig
from hardware.teleop.robot_port import ChannelPort
from hardware.teleop.targets import FlightTarget, JointTarget, PoseTarget, Target
from hardware.teleop.teleoperator import TeleopConfig, Teleoperator
from hardware.teleop.velocity_goal import GOAL, VelocityGoal, VelocityGoalConfig
from robot_rl.cli.deployment.options import DeployOptions, RobotOptions
from robot_rl.cli.deployment.options_file import read_beside
from robot_rl.cli.deployment.plan import Deployment
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot_command import CommandKind, RobotCommand


def running_deployment(robot: str) -> Deployment[DeployOptions]:
    """Deployment of a robot process, by the name of its channels, which left its options.

    Raises:
        ConfigError: They cannot be read, or are of another version.
    """
    path = channel_path(RobotChannels(robot).deployment)
    try:
        return Deployment(DeployOptions(**read_beside(path)))
    except TypeError as error:
        raise ConfigError(f"{path} has options of another version: {error}") from None


def make_hand(plan: Deployment[RobotOptions]) -> Hand:
    """A person's hand on the robot of a deployment that runs, or will.

    Raises:
        ConfigError: Nothing of this robot can be led.
        ChannelBusyError: Another person has it.
    """
    spec, channels, setpoint = plan.robot, plan.channels, plan.setpoint
    stick = StickConfig(deadband=[0.0] * 6)  # the console has applied it
    if spec.feet:
        if GOAL.partition("/")[2] not in plan.runner.spec.goal_widths:
            raise ConfigError(
                f"nobody can steer '{spec.name}': its policy takes no goal 'velocity_b', but "
                f"{', '.join(plan.runner.spec.goal_widths) or 'none'}"
            )
        task = plan.config.task
        trained: list[list[float]] = [
            getattr(task, name, []) for name in ("forward", "lateral", "turn")
        ]
        if not all(trained):
            return VelocityGoal(channels, VelocityGoalConfig(stick=stick))
        around = [[min(low, 0.0), max(high, 0.0)] for low, high in trained]
        return VelocityGoal(channels, VelocityGoalConfig(ranges=around, stick=stick))
    if spec.rotors and "position_w" not in spec.sensors:
        raise ConfigError(
            f"nobody can lead '{spec.name}': it measures no position, but {[*spec.sensors]}"
        )
    kind = CommandKind.pose if spec.rotors else setpoint
    target = FlightTarget() if spec.rotors else _arm_target(plan)
    names = (*plan.gain_sets,) or ("",)
    port = ChannelPort(spec, channels, kind, names)
    executed = ExecutedSubscriber(channels.executed, CommandLayout(spec, setpoint))

    def followed() -> RobotCommand | None:
        newest = executed.newest()
        return None if newest is None else newest.setpoint

    config = TeleopConfig(stick=stick, gains=names[0])
    return Teleoperator(port, target, config, limits=plan.limits(), followed=followed)


def _arm_target(plan: Deployment[RobotOptions]) -> Target:
    spec = plan.robot
    if "end_effector_position_b" not in spec.sensors:
        raise ConfigError(
            f"nobody can lead '{spec.name}': it measures no end effector, but {[*spec.sensors]}"
        )
    if plan.setpoint is CommandKind.pose:
        return PoseTarget()
    return JointTarget(spec, plan.chain)
