"""Simulated cameras as policies and robots know them: inputs of a network, pixels that are sent."""

import numpy as np

from configs.schema import RunConfig
from policies.cameras import CameraInput, PixelContent
from sim.cameras.config import CameraConfig, ImageKind, chosen_cameras

_LEAST_DISTANCE = 1e-6
"""Of depth that is sent [m]: 0 would say that nothing was measured."""
CONTENT = {
    ImageKind.rgb: PixelContent.colour, ImageKind.grey: PixelContent.grey,
    ImageKind.segmentation: PixelContent.grey, ImageKind.depth: PixelContent.depth,
}  # fmt: skip
"""Content of the pixels that each kind of camera sends."""
_CHANNELS = {
    ImageKind.rgb: ["red", "green", "blue"], ImageKind.grey: ["brightness"],
    ImageKind.depth: ["depth"], ImageKind.segmentation: ["body"],
}  # fmt: skip


def camera_input(camera: CameraConfig, control_dt: float) -> CameraInput:
    """A simulated camera as a bundle says it; `control_dt` is that of the policy [s]."""
    period = camera.period * control_dt
    return CameraInput(
        picture=[camera.height, camera.width], crop=list(camera.window),
        channels=_CHANNELS[camera.kind], stack=camera.stack, near=camera.near, far=camera.far,
        period=period, latency=camera.latency * period, field_of_view=camera.field_of_view,
    )  # fmt: skip


def camera_inputs(config: RunConfig, control_dt: float) -> dict[str, CameraInput]:
    """All cameras that a run's simulation draws, by name; `control_dt` as of `camera_input`."""
    chosen = chosen_cameras(config.env.cameras, config.robot, config.task)
    return {name: camera_input(one, control_dt) for name, one in chosen.items()}


def as_sent(picture: np.ndarray, camera: CameraConfig) -> np.ndarray:
    """A drawn picture as a camera sends it: depth in metres."""
    if camera.kind is not ImageKind.depth:
        return picture
    share = picture.astype(np.float32) / 255
    return np.maximum(camera.near + share * (camera.far - camera.near), _LEAST_DISTANCE)
