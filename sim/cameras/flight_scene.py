"""Surroundings of multirotors for their cameras: their own engine knows no shapes.

The model is the one that films are drawn with: a floor 1.6 m below the origin, with squares, and
four balls on it, 2 m from the origin, by which a picture tells place and heading.
"""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping

import mujoco
import torch
from torch import Tensor

from sim.cameras.config import CameraConfig
from sim.physics.mujoco_scene import add_cameras
from sim.physics.multirotor_model import ORIENTATION, POSITION
from sim.rendering.flight_scene import FLIGHT_FLOOR, flight_scene
from sim.robots.multirotor_simulation import MultirotorSimulation

_BASE = "base"
"""Body of the multirotor, for cameras."""
_BALLS = {
    (2.0, 0.0): (0.85, 0.15, 0.15, 1.0), (0.0, 2.0): (0.15, 0.65, 0.2, 1.0),
    (-2.0, 0.0): (0.15, 0.3, 0.85, 1.0), (0.0, -2.0): (0.9, 0.7, 0.1, 1.0),
}  # fmt: skip
"""Place on the floor [m] -> colour."""
_RADIUS = 0.25
"""Of a ball [m]."""


class FlightScene:
    """N multirotors as worlds that cameras see; blades stand still."""

    def __init__(
        self, simulation: MultirotorSimulation, cameras: Mapping[str, CameraConfig]
    ) -> None:
        """Build the model.

        Raises:
            ConfigError: A camera is on another body than `base` or the world.
        """
        self._state = simulation.engine.state
        tree = flight_scene(simulation.config.model.rotor_position).tree
        tree.body("crazyflie").name = _BASE
        # Dimmer than for films: a ray's light beyond 1 would wash the squares of the floor out.
        tree.visual.headlight.ambient, tree.visual.headlight.diffuse = [0.4] * 3, [0.1] * 3
        tree.lights[0].diffuse = [0.4] * 3
        for (x, y), colour in _BALLS.items():
            tree.worldbody.add_geom(
                type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[_RADIUS, 0, 0], rgba=colour,
                pos=[x, y, FLIGHT_FLOOR + _RADIUS],
            )  # fmt: skip
        add_cameras(tree, cameras)
        self.model = tree.compile()
        self.num_worlds = simulation.num_worlds
        self._qpos = torch.zeros(self.num_worlds, self.model.nq, device=self._state.device)
        self.fixtures: tuple[Tensor, ...] = ()

    @property
    def qpos(self) -> Tensor:
        """Generalised positions, (N, nq), as the multirotors are now."""
        self._qpos[:, :3] = self._state[:, POSITION]
        self._qpos[:, 3:7] = self._state[:, ORIENTATION]
        return self._qpos
