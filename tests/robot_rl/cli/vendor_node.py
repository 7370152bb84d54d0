"""A vendor's node: a go2 behind plain rclpy, with topic names and faults of its own.

It knows nothing of this project's topics: it sends its joints in another order, with a wheel on
top, and moves its motors by gains of its own to the positions that it is told last. Where a command
names the gains "damping", or before the first one, it damps.

    python -m tests.robot_rl.cli.vendor_node <domain> <form>
"""

import signal
import sys
import time
from array import array
from typing import Any

import numpy as np
import torch

from configs.compose import compose
from configs.twin_builder import build_twin
from hardware.ros.compat import message, rclpy
from robot_rl.core.robot_command import JointCommand
from sim.twin import Twin

NAMESPACE = "/vendor"
TOPICS = {"joint_states": "motors", "imu/data": "imu", "foot_forces": "feet", "command": "go"}
FORMS = {
    "joint_state": ("sensor_msgs", "JointState"),
    "trajectory": ("trajectory_msgs", "JointTrajectory"),
    "positions": ("std_msgs", "Float64MultiArray"),
}


class Vendor:
    def __init__(self, node: Any, form: str, twin: Twin) -> None:
        self.node, self.twin = node, twin
        self.names = [*reversed(twin.spec.joint_names)]
        self.target: np.ndarray | None = None
        qos = rclpy("qos").QoSProfile(depth=1)
        package, kind = FORMS[form]
        node.create_subscription(
            message(package, kind), TOPICS["command"], getattr(self, f"on_{form}"), qos
        )
        states, imu = message("sensor_msgs", "JointState"), message("sensor_msgs", "Imu")
        place = message("geometry_msgs", "PointStamped")
        self.kinds = {"motors": states, "imu": imu, "feet": states, "truth": place}
        self.publishers = {
            name: node.create_publisher(kind, name, qos) for name, kind in self.kinds.items()
        }

    def on_joint_state(self, packed: Any) -> None:
        by_name = dict(zip(packed.name, packed.position, strict=True))
        damped = packed.header.frame_id == "damping"
        self.target = None if damped else self._row([by_name[name] for name in self.names])

    def on_trajectory(self, packed: Any) -> None:
        by_name = dict(zip(packed.joint_names, packed.points[-1].positions, strict=True))
        self.target = self._row([by_name[name] for name in self.names])

    def on_positions(self, packed: Any) -> None:
        self.target = self._row(packed.data)

    def _row(self, values: Any) -> np.ndarray:
        return np.array([values], dtype=np.float64)[:, ::-1].copy()

    def step(self) -> None:
        joints, zero = self.twin.spec.joints, np.zeros((1, self.twin.spec.num_joints))
        kd = np.array([[joint.damping for joint in joints]])
        kp = np.array([[joint.stiffness for joint in joints]])
        driven = self.target is not None
        target = self.target if self.target is not None else zero
        self.twin.write(JointCommand(q=target, dq=zero, tau=zero, kp=kp if driven else zero, kd=kd))

    def publish(self) -> None:
        state = self.twin.read()
        packed = {name: kind() for name, kind in self.kinds.items()}
        for one in packed.values():
            one.header.stamp = self.node.get_clock().now().to_msg()
        motors, imu, feet, truth = packed.values()
        motors.name = [*self.names, "wheel"]
        for entry in ("position", "velocity", "effort"):
            row = np.asarray(state.field(f"joint_{entry}"))[0, ::-1]
            setattr(motors, entry, array("d", [*row, 0.0]))
        w, x, y, z = map(float, np.asarray(state.orientation_w)[0])
        imu.orientation.w, imu.orientation.x = w, x
        imu.orientation.y, imu.orientation.z = y, z
        for field, vector in (
            (state.angular_velocity_b, imu.angular_velocity),
            (state.linear_acceleration_b, imu.linear_acceleration),
        ):
            vector.x, vector.y, vector.z = map(float, np.asarray(field)[0])
        feet.name = [*self.twin.spec.feet]
        feet.effort = array("d", np.asarray(state.foot_force)[0])
        base = self.twin.simulation.true_state.field("position_w")
        truth.point.x, truth.point.y, truth.point.z = (float(value) for value in base[0])
        for name, one in packed.items():
            self.publishers[name].publish(one)


def main(domain: int, form: str) -> None:
    torch.set_num_threads(1)
    twin = build_twin(compose(["task=velocity", "robot=go2"]).config, seed=0)
    twin.connect()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ros = rclpy()
    context = ros.Context()
    ros.init(context=context, domain_id=domain,
             signal_handler_options=rclpy("signals").SignalHandlerOptions.NO)  # fmt: skip
    node = ros.create_node("vendor", namespace=NAMESPACE, context=context)
    executor = rclpy("executors").SingleThreadedExecutor(context=context)
    executor.add_node(node)
    vendor, due = Vendor(node, form, twin), time.monotonic()
    try:
        while True:
            executor.spin_once(timeout_sec=0.0)
            due = max(due + twin.period, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
            vendor.step()
            vendor.publish()
    except KeyboardInterrupt:
        pass
    finally:
        executor.shutdown()
        node.destroy_node()
        ros.shutdown(context=context)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
