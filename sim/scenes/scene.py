"""Scene around a robot with joints: objects, fixtures, ground; declared by the task."""

from dataclasses import dataclass, field

from robot_rl.core.robot import SensorSpec
from sim.cameras.config import CameraConfig
from sim.scenes.corridor import CorridorConfig
from sim.scenes.terrain import TerrainConfig


@dataclass(kw_only=True)
class SceneConfig:
    """Things that a task puts into the robot's world."""

    file: str = ""
    """MJCF with objects and their sensors: a file in sim/scenes, or a whole path; empty for none.
    Its joints need names; its sensors are read by the task under theirs. Bodies with mocap="true"
    are fixtures, which stand anew in every episode."""
    tool: str = ""
    """MJCF with something rigid that the robot carries, found like `file`; empty for none. Sensors
    of the scene may name its parts."""
    tool_site: str = "end_effector"
    """Site of the robot that the tool's origin is fixed to."""
    measured: dict[str, SensorSpec] = field(default_factory=dict)
    """Sensors of the model that a robot could have too, such as a camera's estimate of an object's
    position: name -> noise and latency. Actors see them as `sensed/<name>`."""
    terrain: TerrainConfig | None = None
    """Uneven ground instead of the model's geom `floor`; none for that floor."""
    clutter: CorridorConfig | None = None
    """A corridor with obstacles that stand anew in every episode, and the potential field in it;
    none for open ground."""
    bodies: list[str] = field(default_factory=list)
    """Bodies of the model whose pose and velocities the task reads, as the sensors
    `body_position_w`, `body_orientation_w`, `body_velocity_w` and `body_rates_w` (world axes)."""
    cameras: dict[str, CameraConfig] = field(default_factory=dict[str, CameraConfig])
    """Cameras of the task; `env.cameras` chooses from them and from the robot's."""
