"""Plan of a deployment, worked out before anything is started."""

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from configs.compose import compose, from_plain
from configs.schema import RunConfig
from configs.twin_builder import build_twin
from hardware.control.monitors import SafetyLimits
from hardware.control.process import RobotChannels
from hardware.controllers.body_rates import BodyRatesConfig, RotorLayout
from hardware.ros.command_messages import Gains
from hardware.ros.foreign_commands import Wiring, absolute_name
from hardware.ros.introspection import NodeParameter
from hardware.ros.policy_node import gains_of
from policies.bundle import load_bundle
from policies.runner import PolicyRunner
from robot_rl.cli.deployment.description import node_parameters, urdf_of
from robot_rl.cli.deployment.options import (
    DeploymentParts,
    DeployOptions,
    PolicyOptions,
    RobotOptions,
    RotorControl,
)
from robot_rl.core.action import ActionMap
from robot_rl.core.errors import BundleError, ConfigError, SpecMismatchError, unknown_name
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind
from sim.tasks.flights.flight import FlightTaskConfig
from sim.twin import Twin

_RESTING = 0.15
"""Depth to which a walking robot that lies presses into its own stops [rad]."""
_Options = TypeVar("_Options", bound=PolicyOptions, covariant=True)


@dataclass(frozen=True)
class Deployment(Generic[_Options]):
    """A bundle, a robot, and what joins them, from options and configurations."""

    options: _Options

    @cached_property
    def config(self) -> RunConfig:
        """The run that the bundle comes from, with the robot at hand."""
        path = Path(self.options.bundle) / "provenance.json"
        try:
            provenance: dict[str, Any] = json.loads(path.read_bytes())
            plain = provenance["config"]
        except (OSError, ValueError, KeyError) as error:
            raise BundleError(
                f"{path} does not say what the policy was trained for ({error}); export it again "
                "with robot-rl export"
            ) from None
        config = from_plain(plain)
        if self.options.robot and self.options.robot != config.robot.spec.name:
            task = f"task={plain['schemas']['task']}"
            config.robot = compose([task, f"robot={self.options.robot}"]).config.robot
        return config

    @property
    def robot(self) -> RobotSpec:
        """The robot at hand."""
        return self.config.robot.spec

    @cached_property
    def runner(self) -> PolicyRunner:
        """The policy; a bundle of another robot is refused here."""
        robot = self.config.robot
        return load_bundle(
            self.options.bundle, robot=robot.spec, control_dt=robot.physics_dt * robot.decimation
        )

    @cached_property
    def gain_sets(self) -> dict[str, Gains]:
        """Sets of gains that the robot and the policy agree on."""
        return gains_of(self.runner.spec)

    @property
    def setpoint(self) -> CommandKind:
        """Kind of the policy's commands: the robot's own, or one that a law follows."""
        return self.runner.spec.action_map.kind

    @property
    def period(self) -> float:
        """Of the robot's loop [s], and of the twin's physics."""
        return self.config.robot.loop_dt

    @property
    def domain(self) -> int:
        """ROS_DOMAIN_ID."""
        return self.options.ros_domain

    @property
    def namespace(self) -> str:
        """Of all topics."""
        return absolute_name("namespace", self.options.namespace or self.robot.name)

    @property
    def channels(self) -> RobotChannels:
        """Of the robot process; robots in other ROS domains do not meet."""
        return RobotChannels(f"{self.namespace.strip('/').replace('/', '.')}.{self.domain}")

    @property
    def wiring(self: "Deployment[RobotOptions]") -> Wiring:
        """Topics of somebody else's node; for driver=ros2."""
        return self.options.wiring(self.robot, self.namespace)

    @property
    def goals(self: "Deployment[DeployOptions]") -> dict[str, np.ndarray]:
        """Goals that hold until a message changes them, (1, width).

        Raises:
            ConfigError: The policy has no such goal, or the numbers do not fit.
        """
        widths, found = self.runner.spec.goal_widths, {}
        for name, value in self.options.goal.items():
            if name not in widths:
                raise ConfigError(unknown_name("goal", name, widths))
            try:
                found[name] = np.array([value], dtype=np.float64).reshape(1, widths[name])
            except (ValueError, TypeError):
                raise ConfigError(
                    f"goal '{name}' takes {widths[name]} numbers, got {value}"
                ) from None
        return found

    @property
    def world_widths(self: "Deployment[RobotOptions]") -> dict[str, int]:
        """Topics that the world of a robot that is not real fills."""
        if self.options.driver == "ros2":
            return {}
        spec, simulated = self.runner.spec, self.options.driver == "twin"
        goals = {
            f"goal/{name}": width
            for name, width in spec.goal_widths.items()
            if simulated or name not in spec.clocks
        }
        return goals | {f"sensed/{name}": width for name, width in spec.sensed_widths.items()}

    def limits(self: "Deployment[RobotOptions]") -> SafetyLimits:
        """Thresholds of the robot.

        A policy that drives joints by stiffness asks for targets that its joints never reach: as a
        jump counts what lies beyond the reach of its actions.
        """
        return _patient(self._limits, self.options.patience)

    @property
    def _limits(self) -> SafetyLimits:
        if self.robot.rotors:
            return SafetyLimits.for_flight()
        action_map, joints = self.runner.spec.action_map, self.robot.num_joints
        ranges = zip(action_map.low[:joints], action_map.high[:joints], strict=True)
        reach = max((high - low) / 2 for low, high in ranges)
        usual = SafetyLimits()
        return replace(
            usual,
            first_command_jump=reach + usual.first_command_jump,
            range_tolerance=_RESTING if self.robot.feet else usual.range_tolerance,
        )

    @property
    def arming_pose(self: "Deployment[DeployOptions]") -> tuple[float, ...]:
        """Pose in which the joints are armed [rad]; empty for the robot's default pose.

        Raises:
            ConfigError: The policy has no joints to lead anywhere.
        """
        if self.options.arm_at == "robot":
            return ()
        if self.setpoint is not CommandKind.joint:
            raise ConfigError(
                f"arm_at=policy leads joints to a pose, and this policy makes "
                f"'{self.setpoint.value}' commands; leave arm_at out"
            )
        return middle_pose(self.runner.spec.action_map, self.robot)

    @property
    def detour(self) -> float:
        """Distance of the policy's pose from the robot's default one [rad]; 0 without joints."""
        if self.setpoint is not CommandKind.joint:
            return 0.0
        middle = middle_pose(self.runner.spec.action_map, self.robot)
        joints = zip(self.robot.joints, middle, strict=True)
        return max(abs(joint.default_position - position) for joint, position in joints)

    @property
    def rotors(self) -> RotorControl | None:
        """Plant of a drone for its controllers; None for joints."""
        if not self.robot.rotors:
            return None
        plant = self.config.robot.model
        layout = RotorLayout(
            rotor_position=plant.rotor_position, rotor_yaw_sign=plant.rotor_yaw_sign,
            thrust_curve=plant.thrust_curve, torque_per_thrust=plant.torque_per_thrust,
        )  # fmt: skip
        gains = BodyRatesConfig(inertia=plant.inertia, **self.config.robot.rate_loop.gains(plant))
        return RotorControl(layout=layout, gains=gains, hover_thrust=plant.hover_thrust)

    @property
    def urdf(self: "Deployment[RobotOptions]") -> str:
        """Description of the robot; empty where somebody else's has no model here."""
        try:
            return urdf_of(self.config.robot)
        except (ConfigError, SpecMismatchError, ModuleNotFoundError):
            if self.options.driver != "ros2":
                raise
            return ""

    @property
    def parameters(self: "Deployment[DeployOptions]") -> tuple[NodeParameter, ...]:
        """Options in force, for the nodes of the deployment."""
        return node_parameters(
            self.options, self.limits(), robot=self.robot.name, namespace=self.namespace,
            domain=self.domain, period=self.period, control_dt=self.runner.spec.control_dt,
        )  # fmt: skip

    def parts(self: "Deployment[DeployOptions]") -> DeploymentParts:
        """Parts that the processes need.

        Raises:
            RobotRLError: The bundle is not for this robot, or an option does not fit it.
        """
        return DeploymentParts(
            options=self.options, robot=self.robot, period=self.period,
            control_dt=self.runner.spec.control_dt, namespace=self.namespace, domain=self.domain,
            channels=self.channels, gain_sets=self.gain_sets, setpoint=self.setpoint,
            world_widths=self.world_widths, goals=self.goals, limits=self.limits(),
            wiring=self.wiring if self.options.driver == "ros2" else Wiring(), rotors=self.rotors,
            arming_pose=self.arming_pose, urdf=self.urdf, parameters=self.parameters,
        )  # fmt: skip

    def make_twin(self: "Deployment[DeployOptions]") -> Twin:
        """The simulated robot."""
        config = self.config
        if self.options.start == "rest" and isinstance(config.task, FlightTaskConfig):
            calm = config.task.evaluation_start.at_rest()
            config = replace(config, task=replace(config.task, evaluation_start=calm))
        return build_twin(config, seed=self.options.seed)


def middle_pose(action_map: ActionMap, robot: RobotSpec) -> tuple[float, ...]:
    """The pose around which a policy's targets lie, within the joints' limits [rad].

    An action of 0 asks for it, and arms begin their episodes near it.
    """
    ends = zip(action_map.low, action_map.high, robot.joints, strict=False)  # then the gripper
    return tuple(
        min(max((low + high) / 2, joint.position_limit[0]), joint.position_limit[1])
        for low, high, joint in ends
    )


def _patient(limits: SafetyLimits, factor: float) -> SafetyLimits:
    """The same limits with longer times."""
    times = ("command_late", "command_lost", "state_late", "state_lost")
    return replace(
        limits,
        **{name: factor * getattr(limits, name) for name in times},
        overrun_share=min(1.0, factor * limits.overrun_share),
        overrun_ticks=round(factor * limits.overrun_ticks),
    )
