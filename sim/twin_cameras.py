"""Cameras of a simulated robot that another process steps: that one tells where all things are.

Drawing takes milliseconds to tens of them, a robot's loop ticks every few. So the process of the
loop tells the positions of its world, which takes microseconds, and another one draws the same
world from them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from sim.cameras.cameras import make_renderer
from sim.cameras.config import CameraConfig, ImageRenderer
from sim.simulation import Simulation


def scene_widths(simulation: Simulation) -> dict[str, int]:
    """Numbers by which `scene_fields` says where everything is, by name."""
    return {name: part[0].numel() for name, part in _live(simulation).items()}


def scene_fields(simulation: Simulation) -> dict[str, np.ndarray]:
    """Position of everything that a camera may see in the first world, (1, width) each.

    Copies; takes some microseconds.
    """
    return {
        name: part[:1].reshape(1, -1).numpy().astype(np.float64)
        for name, part in _live(simulation).items()
    }


class TwinCameras:
    """Draws one world from the positions of another one that is built the same."""

    def __init__(
        self, simulation: Simulation, cameras: Mapping[str, CameraConfig], renderer: ImageRenderer
    ) -> None:
        """Build the scene.

        Args:
            simulation: One world, of a model with these cameras, which nobody steps.
            cameras: By name; whole pictures are drawn, whatever part of them a policy sees.
            renderer: Program that draws.

        Raises:
            ConfigError: It draws nothing here.
            MissingExtraError: It is not installed.
        """
        self._live = _live(simulation)
        worlds: Any = simulation.engine  # pyright: ignore[reportAttributeAccessIssue]
        if not hasattr(worlds, "model"):  # a multirotor's, which knows no shapes
            from sim.cameras.flight_scene import FlightScene  # MuJoCo: not for all

            worlds = FlightScene(simulation, cameras)  # pyright: ignore[reportArgumentType]
        whole = {name: replace(camera, crop=[]) for name, camera in cameras.items()}
        self._renderer = make_renderer(renderer, worlds, whole, simulation.device)
        self._all = EnvSelection(torch.ones(1, dtype=torch.bool, device=simulation.device))

    def draw(self, fields: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Pictures of every camera, (height, width, C) uint8, copied.

        Args:
            fields: Of `scene_fields`.
        """
        for name, part in self._live.items():
            part.copy_(torch.from_numpy(np.array(fields[name])).reshape(part.shape))
        self._renderer.draw(self._all)
        return {name: image[0].numpy().copy() for name, image in self._renderer.images.items()}

    def close(self) -> None:
        """Release the renderer."""
        self._renderer.close()


def _live(simulation: Simulation) -> dict[str, Tensor]:
    """Tensors that say where everything is, (N, ...) each; written to by who places it."""
    engine: Any = simulation.engine  # pyright: ignore[reportAttributeAccessIssue]
    if not hasattr(engine, "model"):
        return {"state": engine.state}
    fixtures = {f"fixtures_{i}": part for i, part in enumerate(engine.fixtures)}
    return {"positions": engine.qpos, **fixtures}
