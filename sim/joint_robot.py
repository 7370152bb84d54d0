"""A robot with joints as it is configured, and the physical parameters that episodes draw anew."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec
from sim.pushes import PushConfig


@dataclass(kw_only=True)
class JointRandomization:
    """Ranges of the physical parameters that every episode draws anew, all uniform."""

    payload: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Mass added at the payload body's centre, unknown to the gravity compensation [kg]."""
    link_mass: float = 0.0
    """Relative half-width of each link's mass and inertia, unknown to the compensation."""
    joint_damping: float = 0.0
    """Relative half-width of each joint's viscous friction."""
    joint_friction: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Range of each joint's Coulomb friction [N m]; costs about a third of the speed."""
    stiffness: float = 0.0
    """Relative half-width of the motors' proportional gain, one factor for all joints."""
    damping: float = 0.0
    """Relative half-width of the motors' derivative gain, one factor for all joints."""
    sensor_noise: list[float] = field(default_factory=lambda: [1.0, 1.0])
    """Range of a factor on the noise of all sensors."""
    latency: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Range of a time added to the latency of all sensors [s], in whole control periods."""
    pushes: PushConfig = field(default_factory=PushConfig)
    """Pushes against a floating base."""

    def __post_init__(self) -> None:
        """Refuse ranges that contain impossible robots."""
        for name in ("link_mass", "joint_damping", "stiffness", "damping"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(
                    f"randomization.{name} must lie in [0, 1), got {getattr(self, name)}"
                )
        for name in ("payload", "joint_friction", "sensor_noise", "latency"):
            values = getattr(self, name)
            if len(values) != 2 or not 0 <= values[0] <= values[1]:
                raise ConfigError(
                    f"randomization.{name} must be [low, high] with 0 <= low <= high, got {values}"
                )


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
    physics_dt: float = 0.005
    """Integration step [s]."""
    decimation: int = 8
    """Integration steps per control step."""
    physics_threads: int = 0
    """CPU threads that step the worlds; 0 for one per core."""
    action_scale: float = 1.0
    """What an action of 1 adds to a joint's default position [rad]."""
    payload_body: str = ""
    """Body of the model that carries a payload; needed where one is drawn."""

    def __post_init__(self) -> None:
        """Refuse steps and scales without extent."""
        for name, lowest in (("decimation", 1), ("physics_threads", 0)):
            if getattr(self, name) < lowest:
                raise ConfigError(
                    f"robot.{name} must be at least {lowest}, got {getattr(self, name)}"
                )
        for name in ("physics_dt", "action_scale"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"robot.{name} must be > 0, got {getattr(self, name)}")

    def action_map(self, task: Any) -> ActionMap:
        """Joint position targets as the task wants them."""
        return task.action.action_map(self.spec, self.action_scale)

    @property
    def initial_action(self) -> float:
        """The "last action" at an episode's start: the default pose."""
        return 0.0

    def simulation_arguments(self, task: Any) -> dict[str, Any]:
        """What a task for robots with joints says of its worlds."""
        return {"scene": task.scene}

    def task_arguments(self, simulation: Any) -> dict[str, Any]:
        """What a task for robots with joints is built with: the robot, and true sensors to read."""
        return {"robot": self.spec, "sensors": simulation.sensors}
