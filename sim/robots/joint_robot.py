"""Configuration of a robot with joints: engine, actions, ranges of its parameters, fallen poses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.seeding import derive_seed
from sim import checks, draws
from sim.cameras.config import AppearanceRandomization, CameraConfig
from sim.motions.reference import FollowsMotion, make_reference
from sim.randomization import CurriculumConfig, PushConfig


class PhysicsEngine(Enum):
    """Engines that step robots with joints."""

    batch = "batch"
    """MuJoCo on CPU threads, in double precision."""
    warp = "warp"
    """MuJoCo Warp, in single precision, a control period captured as one graph; extra `gpu`."""


@dataclass(kw_only=True)
class FallenConfig:
    """Robots with any attitude and any joint positions that are dropped with their motors off."""

    count: int = 256
    """Number of poses."""
    height: float = 0.6
    """Height of the base that they are dropped from [m]: all of the robot above the ground."""
    seconds: float = 1.0
    """Time in which they fall and come to rest [s]."""
    damping: float = 1.0
    """Viscous friction of the joints meanwhile [N m s/rad]."""
    seed: int = 0
    """Seed of attitudes and joint positions."""

    def __post_init__(self) -> None:
        if self.count < 4:
            raise ConfigError(f"fallen.count must be >= 4, got {self.count}")
        checks.positive(self, "height", "seconds", of="fallen")
        checks.not_negative(self, "seed", "damping", of="fallen")


@runtime_checkable
class BeginsFallen(Protocol):
    """Config of a task whose robots begin where they came to lie."""

    fallen: FallenConfig
    """Settings of their fall."""


START_KINDS = ("crouched", "moving", "lying")
"""Kinds of starts that a walking robot may have beside standing."""


@dataclass(kw_only=True)
class StartsConfig:
    """Shares of the episodes that do not begin standing, and what their starts are like.

    With all shares at 0 nothing is drawn.
    """

    crouched: float = 0.0
    """Share that begins at rest on folded legs, anywhere from the default pose to the deepest
    crouch."""
    moving: float = 0.0
    """Share that begins on its feet while base and joints move."""
    lying: float = 0.0
    """Share that begins at rest on its belly with folded legs."""
    crouch_height: float = 0.6
    """Height of the base in the deepest crouch, as a share of that in the default pose."""
    speed: float = 0.8
    """Half-width of a moving base's level velocity, per axis [m/s], and of its turning rate
    [rad/s]."""
    joint_speed: float = 2.0
    """Half-width of the velocity of its joints [rad/s]."""
    joint_offset: float = 0.2
    """Half-width of its joint positions around the default pose [rad]."""
    rise_time: float = 2.0
    """Time in which a robot that began lying has not fallen, however low it is, until it has risen
    once [s]."""

    def __post_init__(self) -> None:
        checks.share(self, *START_KINDS, of="starts")
        checks.not_negative(self, "speed", "joint_speed", "joint_offset", of="starts")
        checks.positive(self, "rise_time", of="starts")
        if not 0 < self.crouch_height <= 1:
            raise ConfigError(f"starts.crouch_height must lie in (0, 1], got {self.crouch_height}")
        if sum(self.shares) > 1 + 1e-9:
            raise ConfigError(
                f"starts.crouched, moving and lying are shares of all episodes, got "
                f"{' + '.join(f'{share:g}' for share in self.shares)}: their sum must not exceed 1"
            )

    @property
    def shares(self) -> list[float]:
        """In the order of `START_KINDS`."""
        return [self.crouched, self.moving, self.lying]


@runtime_checkable
class BeginsMixed(Protocol):
    """Config of a task whose robots may begin crouched, moving or lying."""

    starts: StartsConfig
    """Shares and settings."""


def dropped(config: FallenConfig, robot: RobotSpec) -> Tensor:
    """Robots in the air: position, quaternion wxyz, joint positions, (count, 7 + J).

    Attitudes are uniform over all rotations, joint positions over their ranges.
    """
    generator = torch.Generator().manual_seed(derive_seed(config.seed, "fallen"))
    count = config.count
    attitude = quaternion.normalize(draws.normal((count, 4), 1.0, generator))
    limits = torch.tensor([joint.position_limit for joint in robot.joints])
    unit = draws.uniform((count, len(limits)), 0.0, 1.0, generator)
    position = torch.zeros(count, 3)
    position[:, 2] = config.height
    joints = limits[:, 0] + (limits[:, 1] - limits[:, 0]) * unit
    return torch.cat([position, attitude, joints], dim=-1)


_FACTORS = ("contact_friction", "motor_strength", "sensor_noise", "sensor_bias", "sensor_jitter")
_AMOUNTS = ("joint_friction", "actuator_delay", "latency")
_SIGNED = ("payload", "centre_of_mass")


def _nothing() -> list[float]:
    return [0.0, 0.0]


def _as_is() -> list[float]:
    return [1.0, 1.0]


@dataclass(kw_only=True)
class JointRandomization:
    """Parameters that every episode draws anew in every env, all uniform; docs/randomisation.md."""

    payload: list[float] = field(default_factory=_nothing)
    """Mass added at the payload body's centre, unknown to the gravity compensation [kg]."""
    link_mass: float = 0.0
    """Relative half-width of each link's mass and inertia, unknown to the compensation."""
    centre_of_mass: list[float] = field(default_factory=_nothing)
    """Offset of the payload body's centre of mass along each of its axes [m]."""
    contact_friction: list[float] = field(default_factory=_as_is)
    """Factor on the sliding friction of all contacts."""
    joint_damping: float = 0.0
    """Relative half-width of each joint's viscous friction; nothing where none has any."""
    joint_friction: list[float] = field(default_factory=_nothing)
    """Each joint's Coulomb friction instead of its own [N m]; costs about a third of the speed."""
    motor_strength: list[float] = field(default_factory=_as_is)
    """Factor on each joint's effort limit and stall torque."""
    stiffness: float = 0.0
    """Relative half-width of the motors' proportional gain, one factor for all joints."""
    damping: float = 0.0
    """Relative half-width of the motors' derivative gain, one factor for all joints."""
    actuator_delay: list[float] = field(default_factory=_nothing)
    """Time added to the delay of all motors [s], in whole physics steps."""
    sensor_noise: list[float] = field(default_factory=_as_is)
    """Factor on the noise of all sensors."""
    sensor_bias: list[float] = field(default_factory=_as_is)
    """Factor on the bias of all sensors and its walk."""
    latency: list[float] = field(default_factory=_nothing)
    """Time added to the latency of all sensors [s], in whole control periods."""
    sensor_jitter: list[float] = field(default_factory=_as_is)
    """Factor on the jitter of all sensors' latency."""
    pushes: PushConfig = field(default_factory=PushConfig)
    """Pushes against a floating base."""
    appearance: AppearanceRandomization = field(default_factory=AppearanceRandomization)
    """Looks of what cameras see."""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    """Widens ranges and pushes while training succeeds; evaluation has all."""

    @classmethod
    def nominal(cls) -> "JointRandomization":
        """Ranges without extent: every robot is as it is described."""
        return cls()

    def __post_init__(self) -> None:
        checks.below_one(
            self, "link_mass", "joint_damping", "stiffness", "damping", of="randomization"
        )
        for name in (*_FACTORS, *_AMOUNTS, *_SIGNED):
            values, lowest = getattr(self, name), -float("inf") if name in _SIGNED else 0.0
            if len(values) != 2 or not lowest <= values[0] <= values[1] < float("inf"):
                least = "" if name in _SIGNED else "0 <= "
                raise ConfigError(
                    f"randomization.{name} must be [low, high] with {least}low <= high, "
                    f"got {values}"
                )
        if self.motor_strength[0] == 0:
            raise ConfigError("randomization.motor_strength must be above 0, got a low of 0")


@dataclass(kw_only=True)
class JointActionConfig:
    """Joint position targets around a pose, and the gripper where a task needs it."""

    pose: list[float] = field(default_factory=list)
    """Joint positions that an action of 0 asks for, and around which episodes begin [rad]; empty
    for the robot's default pose."""
    scale: float | None = None
    """Amount that an action of 1 adds to a joint's position [rad]; null for the robot's scale."""
    gripper: bool = False
    """One more entry moves the gripper, closed at -1, open at 1."""

    def __post_init__(self) -> None:
        if self.scale is not None and not self.scale > 0:
            raise ConfigError(f"task.action.scale must be > 0, got {self.scale}")

    def middle(self, robot: RobotSpec) -> list[float]:
        """Joint positions in the middle of the range, one per joint, [rad].

        Raises:
            SpecMismatchError: The pose is of another robot.
        """
        pose = self.pose or [joint.default_position for joint in robot.joints]
        if len(pose) != robot.num_joints:
            raise SpecMismatchError(
                f"task.action.pose has {len(pose)} entries, but robot '{robot.name}' has "
                f"{robot.num_joints} joints; give one for each, or [] for its default pose"
            )
        return pose

    def action_map(self, robot: RobotSpec, scale: float | Sequence[float]) -> ActionMap:
        """The map from actions to commands.

        Args:
            scale: Its own, or one for each joint [rad].

        Raises:
            SpecMismatchError: The pose is of another robot, or it lacks a gripper.
        """
        if self.gripper and robot.gripper is None:
            raise SpecMismatchError(
                f"the task moves a gripper (task.action.gripper), but robot '{robot.name}' has none"
            )
        middle = zip(robot.joints, self.middle(robot), strict=True)
        joints = [replace(joint, default_position=position) for joint, position in middle]
        around = replace(robot, joints=joints)
        return ActionMap.joint_positions(around, self.scale or scale, gripper=self.gripper)


@dataclass(kw_only=True)
class JointRobotConfig:
    """A robot with joints: what it is for a policy, and how it is simulated."""

    randomization_type: ClassVar[type] = JointRandomization

    spec: RobotSpec = field(default_factory=lambda: RobotSpec(name="robot"))
    """The description that simulation, policy and driver share."""
    model: str = ""
    """MJCF with the mechanism and the sensors: a file in sim/robots, or a whole path; "menagerie"
    for the published mechanism with the surroundings and sensors of our file."""
    menagerie: str = ""
    """Folder and file of the published model in MuJoCo Menagerie."""
    gripper_model: str = ""
    """MJCF of a gripper that an arm's site `end_effector` carries, found like `model`; its own site
    of that name is the end effector then. Empty for an arm whose model has all that it needs."""
    physics_dt: float = 0.005
    """Integration step [s]."""
    decimation: int = 8
    """Integration steps per control step."""
    engine: PhysicsEngine = PhysicsEngine.batch
    """Engine that steps the envs."""
    physics_threads: int = 0
    """CPU threads of the engine `batch`; 0 for one per core."""
    contacts: int = 0
    """Contacts that a world of the engine `warp` has room for, on average over all; 0 for twice
    what falls of it show, and 48 at least (96 on a height field). Too few are an error that says
    so."""
    action_scale: float = 1.0
    """Amount that an action of 1 adds to a joint's default position [rad]."""
    action_scales: dict[str, float] = field(default_factory=dict[str, float])
    """The same by a part of the joints' names, such as `knee: 2.4`; the last part that fits wins. A
    joint that none names has `action_scale`."""
    limit_target_speed: bool = False
    """Position targets move no faster than the joints' velocity limits, in every physics
    step: as the range limiter of a robot's loop lets them. A policy that leaps farther than its
    joints may move needs it to do on a robot what it does here."""
    payload_body: str = ""
    """Body of the model that carries a payload; needed where one is drawn."""
    passive_joints: list[str] = field(default_factory=list[str])
    """Joints of the model behind those of the spec, which nothing drives; tasks place and read them
    as those of a scene."""
    cameras: dict[str, CameraConfig] = field(default_factory=dict[str, CameraConfig])
    """Cameras that the robot carries, or that stand around it; `env.cameras` chooses from them."""

    def __post_init__(self) -> None:
        checks.positive(self, "decimation", "physics_dt", "action_scale", of="robot")
        checks.not_negative(self, "physics_threads", "contacts", of="robot")
        for part, scale in self.action_scales.items():
            if not 0 < scale < math.inf:
                raise ConfigError(f"robot.action_scales.{part} is {scale}; expected more than 0")

    @property
    def loop_dt(self) -> float:
        """Period of the robot's own loop, behind which a twin lives [s]."""
        return self.physics_dt

    def behind_a_loop(self) -> "JointRobotConfig":
        """This robot with a command per physics step and the limits of targets left to a loop.

        MuJoCo in C steps it, whatever it was trained with: Warp is for many worlds, and its first
        steps take longer than a loop waits.
        """
        return replace(self, decimation=1, limit_target_speed=False, engine=PhysicsEngine.batch)

    def action_map(self, task: Any) -> ActionMap:
        """Joint position targets as the task wants them.

        Raises:
            ConfigError: The task says one reach for all joints, and the robot says others.
        """
        if self.action_scales and getattr(task.action, "scale", None) is not None:
            raise ConfigError(
                f"robot.action_scales={self.action_scales} would have no effect: the task moves "
                f"every joint by task.action.scale={task.action.scale}; set task.action.scale=null"
            )
        scales = checks.by_parts(
            self.action_scales, self.spec.joint_names, self.action_scale, of="robot.action_scales"
        )
        return task.action.action_map(self.spec, scales)

    @property
    def initial_action(self) -> float:
        """The "last action" at an episode's start: the default pose."""
        return 0.0

    def simulation_arguments(self, task: Any, *, evaluation: bool) -> dict[str, Any]:
        """Arguments of the simulation that the task decides; evaluation has whole ranges."""
        return {
            "scene": task.scene,
            "curriculum": None if evaluation else task.randomization.curriculum,
        }

    def task_arguments(self, simulation: Any, task: Any, control_dt: float) -> dict[str, Any]:
        """Arguments of tasks for robots with joints: the robot, true sensors to read.

        A task that begins with fallen robots is told where they came to lie, one that begins with
        crouched or lying ones their poses; one that follows a
        motion gets it as this robot moves and senses it, a frame per control period [s].
        """
        parts: dict[str, Any] = {"robot": self.spec, "sensors": simulation.sensors}
        if isinstance(task, FollowsMotion):
            from sim.physics.kinematics import Mechanism  # MuJoCo: a config does without

            parts["reference"] = make_reference(
                task.motion, self.spec, Mechanism(simulation.engine.model, self.spec),
                control_dt=control_dt, longest_episode=task.episode_length,
            )  # fmt: skip
        if isinstance(task, BeginsFallen):
            parts["fallen"] = simulation.fallen(task.fallen)
        if isinstance(task, BeginsMixed):
            parts["poses"] = simulation.starting_poses(task.starts)
        return parts
