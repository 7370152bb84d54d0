"""Driver and controller of a package of its own; torch-free, as a robot computer needs."""

from my_arm.driver import PortDriver  # pyright: ignore[reportMissingImports]

from hardware.registry import register_controller, register_driver
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind, JointCommand, RobotCommand


class SofterArm:
    """Law from joint targets to joint targets that are held with half of the stiffness."""

    setpoint = command = CommandKind.joint

    def __init__(self, robot: RobotSpec) -> None:
        """Take the robot."""

    def start(self, state: RobotState, last: RobotCommand | None) -> None:
        """Remember nothing."""

    def update(self, setpoint: RobotCommand, state: RobotState, dt: float) -> RobotCommand:
        """The same targets, softer."""
        assert isinstance(setpoint, JointCommand)
        s = setpoint
        return JointCommand(q=s.q, dq=s.dq, tau=s.tau, kp=0.5 * s.kp, kd=s.kd, gripper=s.gripper)


register_driver("my_arm_port", PortDriver)
register_controller("my_arm_soft", SofterArm)
