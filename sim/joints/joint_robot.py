"""A robot with joints as it is configured."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec
from sim.joints.fallen import BeginsFallen
from sim.joints.plant.joint_randomization import JointRandomization
from sim.motions.reference import FollowsMotion, make_reference
from sim.physics.engine import PhysicsEngine
from sim.physics.mechanism import Mechanism


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
    engine: PhysicsEngine = PhysicsEngine.batch
    """What steps the worlds."""
    physics_threads: int = 0
    """CPU threads of the engine `batch`; 0 for one per core."""
    contacts: int = 0
    """Contacts that a world of the engine `warp` has room for, on average over all; 0 for twice
    what falls of it show, and 48 at least (96 on a height field). Too few are an error that says
    so."""
    action_scale: float = 1.0
    """What an action of 1 adds to a joint's default position [rad]."""
    limit_target_speed: bool = False
    """Whether position targets move no faster than the joints' velocity limits, in every physics
    step: as the range limiter of a robot's loop lets them. A policy that leaps farther than its
    joints may move needs it to do on a robot what it does here."""
    payload_body: str = ""
    """Body of the model that carries a payload; needed where one is drawn."""

    def __post_init__(self) -> None:
        """Refuse steps and scales without extent."""
        for name, lowest in (("decimation", 1), ("physics_threads", 0), ("contacts", 0)):
            if getattr(self, name) < lowest:
                raise ConfigError(
                    f"robot.{name} must be at least {lowest}, got {getattr(self, name)}"
                )
        for name in ("physics_dt", "action_scale"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"robot.{name} must be > 0, got {getattr(self, name)}")

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
        """Joint position targets as the task wants them."""
        return task.action.action_map(self.spec, self.action_scale)

    @property
    def initial_action(self) -> float:
        """The "last action" at an episode's start: the default pose."""
        return 0.0

    def simulation_arguments(self, task: Any, *, evaluation: bool) -> dict[str, Any]:
        """What a task for robots with joints says of its worlds; evaluation has whole ranges."""
        return {
            "scene": task.scene,
            "curriculum": None if evaluation else task.randomization.curriculum,
        }

    def task_arguments(self, simulation: Any, task: Any) -> dict[str, Any]:
        """What a task for robots with joints is built with: the robot, true sensors to read.

        A task that begins with fallen robots is told where they came to lie; one that follows a
        motion gets it as this robot moves and senses it.
        """
        parts: dict[str, Any] = {"robot": self.spec, "sensors": simulation.sensors}
        if isinstance(task, FollowsMotion):
            parts["reference"] = make_reference(
                task.motion, self.spec, Mechanism(simulation.engine.model, self.spec),
                control_dt=simulation.control_dt, longest_episode=task.episode_length,
            )  # fmt: skip
        if isinstance(task, BeginsFallen):
            parts["fallen"] = simulation.fallen(task.fallen)
        return parts
