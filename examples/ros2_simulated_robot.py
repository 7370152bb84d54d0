"""The simulated arm of a task as a ROS 2 node, to learn on over ROS 2 without a robot.

It takes joint positions by name, has the gains of the robot's description, and knows nothing of
episodes, rewards or policies: it goes on simulating whatever happens. Beside the measurements of
docs/ros2.md it tells what a tracker would, on `/<robot>/sensed/<name>`. In a second terminal,
with the same ROS_DOMAIN_ID (words choose another task; none is the peg that pays at the end):

    python examples/ros2_simulated_robot.py
    robot-rl learn task=peg driver=ros2 ros2.source=/simulated ros2.reach=0.15 task.kind=sparse
"""

# pyright: reportAttributeAccessIssue=false

import sys
import time
from array import array
from contextlib import suppress

import numpy as np
import rclpy
import torch
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from configs.compose import compose
from configs.twin_builder import build_twin
from hardware.control.realtime import LOOP_PRIORITY, request_priority
from hardware.ros.compat import message
from hardware.ros.state_messages import GRIPPER, state_topics
from hardware.ros.streams import StateWriter
from robot_rl.core.robot_command import JointCommand
from sim.twin import Twin

SENSED_PERIOD = 1 / 30  # [s]
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)


class SimulatedArm(Node):
    """Publishes what the arm and a tracker measure, obeys `joint_command`."""

    def __init__(self, twin: Twin) -> None:
        """Offer the topics."""
        super().__init__("arm", namespace="/simulated")
        spec = twin.spec
        self.twin, self.names = twin, spec.joint_names
        self.kp = np.array([[joint.stiffness for joint in spec.joints]])
        self.kd = np.array([[joint.damping for joint in spec.joints]])
        self.told: JointState | None = None
        self.measured = [
            StateWriter(
                self.create_publisher(message(topic.package, topic.message), topic.name, 1), topic,
                spec.state_widths,
            )
            for topic in reversed(state_topics(spec))
        ]  # fmt: skip
        place = f"/{spec.name}"
        self.sensed = {
            name: self.create_publisher(JointState, f"{place}/sensed/{name}", 1)
            for name in twin.sensed
        }
        for name, value in twin.goal.items():
            sender = self.create_publisher(Float64MultiArray, f"{place}/goal/{name}", LATCHED)
            sender.publish(Float64MultiArray(data=value[0].tolist()))
        self.create_subscription(JointState, "joint_command", self.obey, 1)
        self.sensed_at = 0.0

    def obey(self, command: JointState) -> None:
        """Remember the targets."""
        self.told = command

    def step(self) -> None:
        """Move for a period: by the newest targets, damped before any and in a stop."""
        none = np.zeros_like(self.kp)
        command = JointCommand(q=none, dq=none, tau=none, kp=none, kd=self.kd)
        if self.told is not None and self.told.header.frame_id != "damping":
            q = dict(zip(self.told.name, self.told.position, strict=True))
            dq = dict(zip(self.told.name, self.told.velocity, strict=True))
            command = JointCommand(
                q=self.row(q), dq=self.row(dq), tau=none, kp=self.kp, kd=self.kd,
                gripper=np.array([[q[GRIPPER]]]) if GRIPPER in q else None,
            )  # fmt: skip
        self.twin.write(command)

    def row(self, values: dict[str, float]) -> np.ndarray:
        """Numbers by name in the order of the joints, (1, J)."""
        return np.array([[values[name] for name in self.names]])

    def publish(self) -> None:
        """Measure. The header's stamp is the time of the measurement; joints come last."""
        stamp = self.get_clock().now()
        fields = {
            name: np.asarray(value, dtype=np.float64)
            for name, value in self.twin.read().fields.items()
        }
        for writer in self.measured:
            writer.publish(fields, stamp.nanoseconds)
        if time.monotonic() < self.sensed_at + SENSED_PERIOD:
            return
        self.sensed_at = time.monotonic()
        for name, value in self.twin.sensed.items():
            packed = JointState(position=array("d", np.asarray(value, dtype=np.float64)[0]))
            packed.header.stamp = stamp.to_msg()
            self.sensed[name].publish(packed)


def main() -> None:
    """Simulate in real time until Ctrl-C, and say when the task counts as done."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    asked = sys.argv[1:]
    if not any(word.startswith(("task=", "experiment=")) for word in asked):
        asked = ["task=peg", "task.kind=sparse", *asked]
    twin = build_twin(compose(asked).config, seed=0)
    twin.connect()
    request_priority(LOOP_PRIORITY)  # a robot has a computer of its own
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)  # Ctrl-C and SIGTERM as usual
    node, due, done = SimulatedArm(twin), time.monotonic(), False
    print("simulates", flush=True)
    while True:
        due = max(due + twin.period, time.monotonic() - twin.period)
        rclpy.spin_once(node, timeout_sec=0.0)  # also where it is late
        while (left := due - time.monotonic()) > 0:
            rclpy.spin_once(node, timeout_sec=left)
        node.step()
        node.publish()
        before, done = done, twin.outcome.reward > 0
        if done and not before:
            print("the task is done", flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
