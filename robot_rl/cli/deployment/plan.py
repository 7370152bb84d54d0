"""Plan of a deployment, worked out before anything is started."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from configs.catalog import choices
from configs.compose import compose, from_plain, robot_description
from configs.schema import RunConfig
from configs.twin_builder import build_twin
from hardware.control.limits import JointBounds
from hardware.control.monitors import SafetyLimits
from hardware.control.process import RobotChannels
from hardware.controllers.chain import KinematicChain
from hardware.robot_file import (
    RobotFile,
    differences,
    excess,
    load_robot_file,
    shipped_robot_file,
)
from hardware.ros.command_messages import Gains
from hardware.ros.foreign_commands import Wiring, absolute_name
from hardware.ros.introspection import NodeParameter
from hardware.ros.policy_node import gains_of
from policies.bundle import load_bundle, read_provenance, without_robot
from policies.runner import PolicyRunner
from robot_rl.cli.control_laws import PoseControl, RotorControl, chain_of, default_arm_law
from robot_rl.cli.deployment.description import node_parameters, urdf_of
from robot_rl.cli.deployment.options import (
    DeploymentParts,
    DeployOptions,
    PolicyOptions,
    RobotOptions,
)
from robot_rl.core.action import ActionMap
from robot_rl.core.errors import (
    BundleError,
    ConfigError,
    MissingExtraError,
    SpecMismatchError,
    unknown_name,
)
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind
from sim.cameras.config import CameraConfig, chosen_cameras
from sim.robots.joint_robot import BeginsFallen
from sim.tasks.flights.flight import FlightTaskConfig
from sim.twin import Twin

_BIPED = 2
_RESTING = 0.15
"""Depth to which a walking robot that lies presses into its own stops [rad]."""
_PRESSED = 0.4
"""Likewise where it rolls over its legs; on the simulated Go2 0.16 was seen."""
_FLUNG = 0.2
"""Time for which a leg that comes free may be too fast then [s]; otherwise 0.05."""
_Options = TypeVar("_Options", bound=PolicyOptions, covariant=True)


@dataclass(frozen=True)
class Deployment(Generic[_Options]):
    """A bundle, a robot, and what joins them, from options and configurations."""

    options: _Options

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Origin of the bundle."""
        folder = Path(self.options.bundle)
        if not folder.is_dir():
            raise BundleError(
                f"bundle '{folder}' is not a folder; give the one that export wrote, or one that "
                "ships: robot-rl zoo list"
            )
        found = read_provenance(folder)
        if not isinstance(found.get("config"), dict):
            raise BundleError(
                f"bundle {folder} does not say what the policy was trained for: provenance.json "
                "has no config; export it again with robot-rl export"
            )
        return found

    @cached_property
    def config(self) -> RunConfig:
        """The run that the bundle comes from, with the robot at hand."""
        plain = self.provenance["config"]
        config = from_plain(plain)
        if config.robot is None:
            raise BundleError(without_robot(self.options.bundle))
        if self.options.robot and self.options.robot != config.robot.spec.name:
            task = f"task={plain['schemas']['task']}"
            config.robot = compose([task, f"robot={self.options.robot}"]).config.robot
        return config

    @cached_property
    def described(self) -> RobotSpec:
        """The robot at hand by its own description on this computer, which decides about limits.

        Its sensors are those that the policy was trained with. A robot that has no description here
        is what its bundle says.
        """
        trained = self.config.robot.spec
        own = robot_description(trained.name)
        return replace(own, sensors=trained.sensors) if own else trained

    @cached_property
    def runner(self) -> PolicyRunner:
        """The policy; a bundle of another robot is refused here."""
        robot = self.config.robot
        return load_bundle(
            self.options.bundle,
            robot=self.described,
            control_dt=robot.physics_dt * robot.decimation,
            ramp=False,  # the loop's range limiter does it
            pictures=True,
        )

    @cached_property
    def robot_file(self) -> RobotFile | None:
        """Bounds of the robot at hand; None where nobody gives any."""
        options, name = self.options, self.described.name
        chosen = options.robot_file if isinstance(options, RobotOptions) else ""
        if not chosen and self.gets_up:  # those that ship bound how far legs are from their targets
            return None
        return load_robot_file(chosen) if chosen else shipped_robot_file(name)

    @property
    def robot(self) -> RobotSpec:
        """The robot at hand, within its file's bounds."""
        return self._narrowed[0]

    @cached_property
    def remarks(self) -> list[str]:
        """Sentences about what the robot has otherwise than the training, and what narrows it.

        Raises:
            SpecMismatchError: The policy needs more than the robot allows.
        """
        spec, limits, said = self._narrowed
        trained, found = self.runner.spec.robot, [*said]
        if robot_description(spec.name) is None:
            found.append(f"'{spec.name}' has no description on this computer: its bundle's counts")
        found += differences(trained, self.described)
        beyond = list(excess(self.runner.spec, spec, limits.joints or JointBounds.of(spec)))
        if beyond and not self._clips:
            raise SpecMismatchError(
                f"the policy needs more than the robot allows: {'; '.join(beyond)}; train it "
                "within these limits, or hold it within them with clip=true"
            )
        return found + [f"the policy is clipped: {what}" for what in beyond]

    @property
    def _clips(self) -> bool:
        options, file = self.options, self.robot_file
        asked = isinstance(options, RobotOptions) and options.clip
        return asked or (file is not None and file.clip)

    @cached_property
    def _narrowed(self) -> tuple[RobotSpec, SafetyLimits, list[str]]:
        """Robot, thresholds and sentences, within the bounds of the robot's file."""
        file, spec, limits = self.robot_file, self.described, self._usual_limits
        if file is None:
            return spec, limits, []
        return replace(file, clip=self._clips).narrow(spec, limits)

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
        return absolute_name("namespace", self.options.namespace or self.described.name)

    @property
    def channels(self) -> RobotChannels:
        """Of the robot process; robots in other ROS domains do not meet."""
        return RobotChannels(f"{self.namespace.strip('/').replace('/', '.')}.{self.domain}")

    @property
    def wiring(self: "Deployment[RobotOptions]") -> Wiring:
        """Topics of somebody else's node; for driver=ros2."""
        given = self.robot_file.ros2 if self.robot_file else {}
        grips = self.runner.spec.action_map.gripper
        torques = self.led is not None and self.led.torques
        if torques and grips:
            raise ConfigError(
                f"the policy leads the end effector of '{self.robot.name}' by torques and moves "
                "its gripper, and no form of commands of a ROS 2 node carries both; deploy one "
                "that was learned with robot-rl learn driver=ros2, which is led by joint targets"
            )
        wiring = self.options.wiring(self.robot, self.namespace, given, grips=grips)
        if torques and wiring.form != "efforts":
            raise ConfigError(
                f"the policy leads the end effector of '{self.robot.name}' by torques, which the "
                f"form of commands '{wiring.form}' does not carry; take command=efforts, or a "
                "policy of joint targets, as robot-rl learn driver=ros2 learns"
            )
        return wiring

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
                if not np.isfinite(found[name]).all():
                    raise ValueError(value)
            except (ValueError, TypeError):
                raise ConfigError(
                    f"goal '{name}' takes {widths[name]} finite numbers, got {value}"
                ) from None
        return found

    @property
    def world_widths(self: "Deployment[RobotOptions]") -> dict[str, int]:
        """Topics that the world of a robot that is not real fills.

        Clocks run on the policy's side, by the goal that it follows: a person may set that one. A
        clip is played there too, except where a twin follows its own.
        """
        if not self.options.simulated:
            return {}
        spec = self.runner.spec
        played = set(spec.clocks)
        if spec.playback is not None and self.options.driver == "fake":
            played |= set(spec.playback.goals)
        goals = {
            f"goal/{name}": width for name, width in spec.goal_widths.items() if name not in played
        }
        return goals | {f"sensed/{name}": width for name, width in spec.given_widths.items()}

    @property
    def camera_topics(self: "Deployment[RobotOptions]") -> dict[str, str]:
        """Topics of the pictures that the policy sees, by camera.

        Raises:
            ConfigError: Nobody says where a camera's pictures come from, or the policy lacks one.
        """
        seen, asked = self.runner.spec.cameras, self.options.camera_topics
        for name in asked:
            if name not in seen:
                raise ConfigError(unknown_name("camera of the policy", name, seen))
        known = {**(self.robot_file.camera_topics if self.robot_file else {}), **asked}
        if self.options.driver == "twin":
            known = {**{name: f"camera/{name}/image_raw" for name in seen}, **asked}
        missing = [name for name in seen if name not in known]
        if missing:
            raise ConfigError(
                f"the policy sees the camera '{missing[0]}', and with driver="
                f"{self.options.driver} nothing says where its pictures come from; give "
                f"camera.{missing[0]}.topic=<sensor_msgs/Image>, or name it in the robot file"
            )
        return {name: known[name] for name in seen}

    @property
    def drawn_cameras(self: "Deployment[RobotOptions]") -> tuple[str, ...]:
        """Cameras that are drawn here, of a simulated robot."""
        if self.options.driver != "twin":
            return ()
        return tuple(n for n in self.runner.spec.cameras if n not in self.options.camera_topics)

    @property
    def simulated_cameras(self) -> dict[str, CameraConfig]:
        """Cameras of the run that the bundle comes from."""
        return chosen_cameras(self.config.env.cameras, self.config.robot, self.config.task)

    def limits(self: "Deployment[RobotOptions]") -> SafetyLimits:
        """Thresholds of the robot.

        A policy that drives joints by stiffness asks for targets that its joints never reach: as a
        jump counts what lies beyond the reach of its actions.
        """
        return self._narrowed[1].stretched(self.options.patience)

    @property
    def _usual_limits(self) -> SafetyLimits:
        """Thresholds before a robot file narrows them."""
        spec = self.runner.spec
        usual = SafetyLimits.for_policy(self.described, spec.control_dt, self.period)
        if self.described.rotors or self.setpoint is not CommandKind.joint:
            return usual
        ranges = zip(spec.action_map.low, spec.action_map.high, self.described.joints, strict=False)
        reach = max(
            (min(high, joint.position_limit[1]) - max(low, joint.position_limit[0])) / 2
            for low, high, joint in ranges
        )
        if self.gets_up:
            return self._limits_of_who_lies(usual)
        return replace(
            usual,
            first_command_jump=max(reach, 0.0) + usual.first_command_jump,
            range_tolerance=_RESTING if self.described.feet else usual.range_tolerance,
        )

    def _limits_of_who_lies(self, usual: SafetyLimits) -> SafetyLimits:
        """A joint may lie anywhere, held by the body's weight or pressed into its stop."""
        ranges = [joint.position_limit for joint in self.described.joints]
        return replace(
            usual, first_command_jump=max(high - low for low, high in ranges),
            range_tolerance=_PRESSED, tilt=math.pi, tracking_error=math.inf, load_time=_FLUNG,
        )  # fmt: skip

    @property
    def arming_pose(self: "Deployment[DeployOptions]") -> tuple[float, ...]:
        """Pose in which the joints are armed [rad]; empty for the robot's default pose."""
        if self.options.arm_at != "policy" or self.arms_in_place:
            return ()
        return self._policy_pose or ()

    @property
    def gets_up(self) -> bool:
        """The policy's episodes begin with a robot that lies."""
        return isinstance(self.config.task, BeginsFallen)

    @property
    def arms_in_place(self: "Deployment[DeployOptions]") -> bool:
        """The joints are armed where they are."""
        return self.gets_up and self.options.arm_at == "policy"

    @property
    def detour(self) -> float:
        """Distance of the policy's pose from the robot's default one [rad]; 0 without joints."""
        joints = zip(self.robot.joints, self._policy_pose or (), strict=False)
        return max((abs(one.default_position - place) for one, place in joints), default=0.0)

    @property
    def _policy_pose(self) -> tuple[float, ...] | None:
        """Pose of the joints in which the policy's episodes begin [rad]; None without joints."""
        if self.setpoint is CommandKind.joint:
            return middle_pose(self.runner.spec.action_map, self.robot)
        if self.setpoint is CommandKind.pose:
            return _within(self.config.task.action.middle(self.robot), self.robot)
        return None

    @cached_property
    def chain(self) -> KinematicChain:
        """Links of the arm, as it was trained with.

        Raises:
            ConfigError: The robot is no arm.
        """
        return chain_of(build_twin(self.config, seed=0))

    @cached_property
    def led(self) -> PoseControl | None:
        """Law of an arm whose policy displaces its end effector, as it was trained with."""
        if self.setpoint is not CommandKind.pose:
            return None
        told, chain = self.provenance.get("loop"), self.chain
        if told is None:
            return PoseControl(robot=self.robot, chain=chain, law=default_arm_law(), speed=0.25)
        return PoseControl.from_dict(told, self.robot, chain)

    @property
    def rotors(self) -> RotorControl | None:
        """Plant of a drone for its controllers; None for joints."""
        if not self.robot.rotors:
            return None
        return RotorControl.of(self.config.robot)

    @property
    def urdf(self: "Deployment[RobotOptions]") -> str:
        """Description of the robot; empty where somebody else's has no model here."""
        try:
            return urdf_of(replace(self.config.robot, spec=self.described))
        except (ConfigError, SpecMismatchError, MissingExtraError, ModuleNotFoundError):
            if self.options.simulated:
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
            RobotRLError: The bundle is not for this robot or needs more than it allows, or an
                option does not fit it.
        """
        _ = self.remarks  # refuses a policy that needs too much
        return DeploymentParts(
            options=self.options, robot=self.robot, period=self.period,
            control_dt=self.runner.spec.control_dt, namespace=self.namespace, domain=self.domain,
            channels=self.channels, gain_sets=self.gain_sets, setpoint=self.setpoint,
            world_widths=self.world_widths, goals=self.goals, limits=self.limits(),
            wiring=self.wiring if self.options.driver == "ros2" else Wiring(), rotors=self.rotors,
            cameras=self.camera_topics, drawn_cameras=self.drawn_cameras,
            led=self.led, arming_pose=self.arming_pose, arms_in_place=self.arms_in_place,
            urdf=self.urdf, parameters=self.parameters,
            estop=self.robot_file.estop_device if self.robot_file else None,
            steered=not self.options.simulated
            and "velocity_b" in self.runner.spec.goal_widths,
        )  # fmt: skip

    def make_twin(
        self: "Deployment[DeployOptions]", cameras: Mapping[str, CameraConfig] | None = None
    ) -> Twin:
        """The simulated robot; with cameras in its model, for who draws it."""
        held = self.options.start == "rest" and len(self.robot.feet) == _BIPED and not self.gets_up
        return build_twin(self.twin_config, seed=self.options.seed, held=held, cameras=cameras)

    @property
    def twin_config(self: "Deployment[DeployOptions]") -> RunConfig:
        """The run's configuration; a drone's twin starts level and at rest."""
        config = self.config
        if self.options.start != "rest" or not isinstance(config.task, FlightTaskConfig):
            return config
        calm = config.task.evaluation_start.at_rest()
        return replace(config, task=replace(config.task, evaluation_start=calm))


def middle_pose(action_map: ActionMap, robot: RobotSpec) -> tuple[float, ...]:
    """The pose around which a policy's targets lie, within the joints' limits [rad].

    An action of 0 asks for it, and arms begin their episodes near it.
    """
    ends = zip(action_map.low, action_map.high, robot.joints, strict=False)  # then the gripper
    return _within([(low + high) / 2 for low, high, _ in ends], robot)


def _within(pose: Sequence[float], robot: RobotSpec) -> tuple[float, ...]:
    """A pose of the joints within their limits [rad]."""
    limits = [joint.position_limit for joint in robot.joints]
    return tuple(min(max(q, low), high) for q, (low, high) in zip(pose, limits, strict=True))


class RobotAlone(Deployment[RobotOptions]):
    """A robot behind somebody else's node, without a policy: by its description alone."""

    @cached_property
    def described(self) -> RobotSpec:
        """The robot that the options name.

        Raises:
            ConfigError: They name none, or none of this computer.
        """
        name = self.options.robot
        if not name:
            raise ConfigError("whose topics? name the robot: robot=<name>, or bundle=<folder>")
        if (found := robot_description(name)) is None:
            raise ConfigError(unknown_name("robot", name, choices("robot")))
        return found

    @property
    def gets_up(self) -> bool:
        """Nobody does."""
        return False

    @property
    def robot(self) -> RobotSpec:
        """By its description."""
        return self.described

    @cached_property
    def gain_sets(self) -> dict[str, Gains]:
        """Nobody's."""
        return {}

    @property
    def setpoint(self) -> CommandKind:
        """The robot's own."""
        return CommandKind.joint if self.described.joints else CommandKind.rotors

    @property
    def wiring(self) -> Wiring:
        """Topics of the node; nobody moves a gripper."""
        given = self.robot_file.ros2 if self.robot_file else {}
        return self.options.wiring(self.described, self.namespace, given, grips=False)
