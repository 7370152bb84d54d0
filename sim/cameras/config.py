"""Declaration of a simulated camera; readable without a renderer."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError, unknown_name
from sim import checks


class ImageKind(Enum):
    """Content of a pixel."""

    rgb = "rgb"
    """Red, green and blue."""
    grey = "grey"
    """Brightness, as ITU-R BT.601 weighs the three."""
    depth = "depth"
    """Distance along the optical axis: 0 at `near`, 255 at `far`, beyond, and where nothing is."""
    segmentation = "segmentation"
    """Number of the model's body that is seen, 1 for the world's own ground; 0 for nothing."""


class ImageRenderer(Enum):
    """Programs that draw what cameras see."""

    warp = "warp"
    """Ray-caster of MuJoCo Warp: all envs at once, needs no GL library; extra `gpu`."""
    gl = "gl"
    """MuJoCo's own renderer, one env after the other on the CPU; needs EGL or OSMesa."""


@dataclass(kw_only=True)
class CameraConfig:
    """Camera on a body or in the world, and the images that arrive from it.

    Images are uint8, (stack, height, width, channels), one frame per control step, the oldest
    first.
    """

    body: str = ""
    """Body of the model that carries it; empty for the world."""
    position: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Optical centre, in axes of the body, [m]."""
    target: list[float] = field(default_factory=lambda: [1.0, 0.0, 0.0])
    """Point in the middle of the picture, in axes of the body, [m]."""
    up: list[float] = field(default_factory=lambda: [0.0, 0.0, 1.0])
    """Direction that is upwards in the picture, in axes of the body."""
    orientation: list[float] = field(default_factory=list)
    """Unit quaternion wxyz from camera to body, instead of target and up, as a calibration gives
    it: x to the right of the picture, y down, z forward."""
    field_of_view: float = 0.8
    """Angle between the upper and the lower edge of the whole picture [rad]."""
    width: int = 64
    """Of the whole picture [pixels]."""
    height: int = 64
    """Of the whole picture [pixels]."""
    crop: list[int] = field(default_factory=list)
    """Part of the picture that is kept: top, left, height, width [pixels]; empty keeps all."""
    kind: ImageKind = ImageKind.rgb
    """Content of a pixel: rgb, grey, depth or segmentation."""
    near: float = 0.0
    """Distance that `depth` shows as 0 [m]."""
    far: float = 2.0
    """Distance that `depth` shows as 255 [m]."""
    stack: int = 3
    """Frames in an observation, one per control step; at an episode's start all are the first."""
    period: int = 1
    """Control steps from one frame to the next; between them the last one stays."""
    latency: int = 0
    """Frames by which pictures arrive late; an episode begins with a picture of its start."""
    dropout: float = 0.0
    """Probability that a frame is lost, in [0, 1); the one before stays."""
    dropout_frames: int = 1
    """Frames that are lost together, such as 50 for a camera that freezes for a while."""
    stale_after: int = 0
    """Frames lost in a row after which steps are invalid, as of a lost sensor; 0 for never."""
    black: float = 0.0
    """Probability that a frame is black, in [0, 1)."""
    noise: float = 0.0
    """Standard deviation of white noise per pixel and channel, of 255."""

    def __post_init__(self) -> None:
        checks.positive(self, "width", "height", "stack", "period", "dropout_frames", of="camera")
        checks.not_negative(self, "latency", "stale_after", "near", "noise", of="camera")
        checks.below_one(self, "dropout", "black", of="camera")
        for name in ("position", "target", "up"):
            if len(getattr(self, name)) != 3:
                raise ConfigError(f"camera.{name} must have 3 numbers, got {getattr(self, name)}")
        if not 0 < self.field_of_view < math.pi:
            raise ConfigError(
                f"camera.field_of_view is an angle between 0 and pi [rad], got {self.field_of_view}"
            )
        if not self.near < self.far < math.inf:
            raise ConfigError(f"camera.far {self.far} must exceed near {self.near}, and be finite")
        if self.orientation and not self._is_rotation():
            raise ConfigError(
                f"camera.orientation must be a unit quaternion wxyz, got {self.orientation}"
            )
        top, left, height, width = self.window
        inside = min(top, left) >= 0 and top + height <= self.height and left + width <= self.width
        if not inside or min(height, width) < 1:
            raise ConfigError(
                f"camera.crop {self.crop} leaves the picture of {self.height} x {self.width} pixels"
            )
        self.axes()

    @property
    def window(self) -> tuple[int, int, int, int]:
        """Part of the picture that is kept: top, left, height, width [pixels]."""
        if self.crop and len(self.crop) != 4:
            raise ConfigError(f"camera.crop must be [top, left, height, width], got {self.crop}")
        top, left, height, width = self.crop or (0, 0, self.height, self.width)
        return top, left, height, width

    @property
    def channels(self) -> int:
        """C: numbers per pixel."""
        return 3 if self.kind is ImageKind.rgb else 1

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of a frame as it arrives."""
        return (*self.window[2:], self.channels)

    def axes(self) -> NDArray[np.float64]:
        """Rotation from MuJoCo's camera (x right, y up, looking along -z) to the body, (3, 3).

        Raises:
            ConfigError: Target, position and up do not say how the picture lies.
        """
        if self.orientation:
            w, x, y, z = self.orientation
            rotation = np.array([
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ])  # fmt: skip
            return rotation * [1.0, -1.0, -1.0]
        back = np.subtract(self.position, self.target)
        right = np.cross(self.up, back)
        if np.linalg.norm(right) < 1e-6 * np.linalg.norm(back) or not np.linalg.norm(back) > 1e-9:
            raise ConfigError(
                f"camera at {self.position} looks at {self.target} along up={self.up}, which says "
                "not how the picture lies; choose another target or up"
            )
        right, back = right / np.linalg.norm(right), back / np.linalg.norm(back)
        return np.stack([right, np.cross(back, right), back], axis=1)

    def _is_rotation(self) -> bool:
        norm = float(np.linalg.norm(self.orientation))
        return len(self.orientation) == 4 and math.isclose(norm, 1.0, abs_tol=1e-3)


@dataclass(kw_only=True)
class AppearanceRandomization:
    """Looks that every episode draws anew in every env, all uniform; cameras only."""

    camera_position: float = 0.0
    """Half-width of each camera's place along each of its body's axes [m]."""
    camera_rotation: float = 0.0
    """Half-width of each camera's rotation vector, in the camera's axes [rad]."""
    brightness: float = 0.0
    """Relative half-width of each light's brightness."""
    light_position: float = 0.0
    """Half-width of each light's place along each axis [m]."""
    colour: float = 0.0
    """Half-width of what is added to red, green and blue of each geom and material, of 1."""

    def __post_init__(self) -> None:
        checks.below_one(self, "brightness", of="randomization.appearance")
        checks.not_negative(
            self, "camera_position", "camera_rotation", "light_position", "colour",
            of="randomization.appearance",
        )  # fmt: skip


def camera_name(name: str) -> str:
    """Name in the model of a camera of ours; files of robots have some of their own."""
    return f"camera/{name}"


def chosen_cameras(names: list[str], robot: Any, task: Any) -> dict[str, CameraConfig]:
    """Cameras of a robot and of a task's scene that a run uses, by name.

    Args:
        names: Those that are used.
        robot: Config of the robot.
        task: Config of the task.

    Raises:
        ConfigError: A name is unknown or comes twice.
    """
    if not names:
        return {}
    own: Mapping[str, CameraConfig] = robot.cameras
    scene: Mapping[str, CameraConfig] = task.scene.cameras if hasattr(task, "scene") else {}
    if both := sorted(own.keys() & scene.keys()):
        raise ConfigError(
            f"camera {both} is declared by the robot and by the task's scene; rename one of them"
        )
    known = {**own, **scene}
    for name in names:
        if name not in known:
            raise ConfigError(
                f"{unknown_name('env.cameras: camera', name, known)}; declare it in robot.cameras "
                "or task.scene.cameras"
            )
    if len(set(names)) != len(names):
        raise ConfigError(f"env.cameras names a camera twice: {names}")
    return {name: known[name] for name in names}
