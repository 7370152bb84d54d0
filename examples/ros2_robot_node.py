"""A robot that somebody else's ROS 2 node drives, for `robot-rl deploy driver=ros2`: a Panda.

Plain rclpy, nothing of this project but the URDF. Its joints are ideal: they go where they are told
as fast as they may. In a second terminal, with the same ROS_DOMAIN_ID:

    robot-rl deploy bundle=runs/<run>/bundle driver=ros2 source=/panda_node \
        'goal={end_effector_position_b:[0.4,0,0.4]}'
"""

# pyright: reportAttributeAccessIssue=false

import subprocess
import sys
from contextlib import suppress

import mujoco
import numpy as np
import rclpy
from geometry_msgs.msg import PoseStamped
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import JointState

PERIOD, FASTEST, TOLD = 0.005, 2.0, 3.0  # [s], [rad/s], between two lines [s]
HOME = [0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785]


class PandaNode(Node):
    """Publishes what a Panda measures, obeys `joint_command`."""

    def __init__(self, urdf: str) -> None:
        """Take joints and their kinematics from the URDF, with every fixed link."""
        super().__init__("panda", namespace="/panda_node")
        keep = '<mujoco><compiler fusestatic="false"/></mujoco></robot>'
        self.model = mujoco.MjModel.from_xml_string(urdf.replace("</robot>", keep))
        self.data = mujoco.MjData(self.model)
        self.names = [f"joint{i}" for i in range(1, 8)]
        self.position, self.target, self.opening = np.array(HOME), np.array(HOME), 1.0
        self.sent = {
            name: self.create_publisher(kind, name, 1)
            for name, kind in (
                ("joint_states", JointState), ("gripper_state", JointState),
                ("ee_pose", PoseStamped),
            )
        }  # fmt: skip
        self.create_subscription(JointState, "joint_command", self.obey, 1)
        self.create_timer(PERIOD, self.step)
        self.create_timer(TOLD, self.tell)

    def obey(self, command: JointState) -> None:
        """Remember the targets; without stiffness, in a stop, the joints stay where they are."""
        told = dict(zip(command.name, command.position, strict=True))
        damped = command.header.frame_id == "damping"
        self.target = self.position if damped else np.array([told[name] for name in self.names])
        self.opening = told.get("gripper", self.opening)

    def step(self) -> None:
        """Move and measure. The header's stamp is the time of the measurement."""
        moved = np.clip(self.target - self.position, -FASTEST * PERIOD, FASTEST * PERIOD)
        self.position = self.position + moved
        joints, gripper = JointState(name=self.names), JointState(name=["gripper"])
        joints.position, joints.velocity = self.position.tolist(), (moved / PERIOD).tolist()
        gripper.position = [self.opening]
        self.data.qpos[:7] = self.position
        mujoco.mj_kinematics(self.model, self.data)
        link, hand = self.data.body("end_effector"), PoseStamped()
        place, turn = hand.pose.position, hand.pose.orientation
        place.x, place.y, place.z = link.xpos.tolist()  # base_link is the world of this model
        turn.w, turn.x, turn.y, turn.z = link.xquat.tolist()
        hand.header.frame_id = "base_link"
        for name, message in (
            ("gripper_state", gripper), ("ee_pose", hand), ("joint_states", joints),
        ):  # fmt: skip
            message.header.stamp = self.get_clock().now().to_msg()
            self.sent[name].publish(message)

    def tell(self) -> None:
        """Say where the hand is."""
        hand = self.data.body("end_effector").xpos
        print(f"hand at {hand.round(3).tolist()} m", flush=True)


if __name__ == "__main__":
    command = [sys.executable, "-m", "robot_rl.cli", "urdf", "robot=panda"]
    urdf = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)  # Ctrl-C and SIGTERM as usual
    with suppress(KeyboardInterrupt):
        rclpy.spin(PandaNode(urdf))
