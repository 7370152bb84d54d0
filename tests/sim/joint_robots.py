"""Robots with joints for the tests of sim: those of configs/robot."""

from dataclasses import replace
from typing import Any

from robot_rl.core.robot import SensorSpec
from sim.robots.joint_robot import JointRobotConfig
from tests.compositions import composed


def joint_robot(
    name: str, task: str, *, noise: bool = True, latency: float = 0.0, **changes: Any
) -> JointRobotConfig:
    """A robot of configs/robot, stepped by one thread, with sensors that differ in noise only.

    Args:
        name: The robot.
        task: A task that it can learn.
        noise: Keep the declared noise; else there is none.
        latency: Of every sensor [s].
        changes: Other fields of the config.
    """
    robot = composed([f"task={task}", f"robot={name}"]).config.robot
    sensors = {
        sensed: SensorSpec(
            rate_hz=sensor.rate_hz, noise=sensor.noise if noise else 0.0, latency=latency
        )
        for sensed, sensor in robot.spec.sensors.items()
    }
    spec = replace(robot.spec, sensors=sensors)
    return replace(robot, **{"spec": spec, "physics_threads": 1, **changes})
