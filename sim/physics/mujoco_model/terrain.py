"""Puts a terrain under a robot as MuJoCo's height field."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import mujoco
import torch

from sim.scenes.terrain import Terrain, TerrainConfig

NAME = "terrain"
"""Of the height field and of its geom."""
_FLOOR = "floor"
"""Geom of a robot's file that the terrain takes the place of."""
_THICKNESS = 1.0
"""Solid ground below the lowest place [m]."""


def add_terrain(tree: mujoco.MjSpec, config: TerrainConfig) -> None:
    """Replace the geom named `floor` by a height field, which everything with contype 1 touches.

    Args:
        tree: A robot's model; changed.
        config: Which ground.
    """
    terrain = Terrain(config, torch.device("cpu"))
    grid = terrain.grid
    rows, columns = grid.shape
    lowest, extent = float(grid.min()), max(float(grid.max() - grid.min()), 1e-3)
    tree.add_hfield(
        name=NAME,
        nrow=rows,
        ncol=columns,
        size=[*terrain.half_size, extent, _THICKNESS],
        userdata=(grid - lowest).flatten().tolist(),  # MuJoCo scales them to [0, 1]
    )
    rgba = [0.8, 0.82, 0.85, 1.0]
    floor = tree.geom(_FLOOR)
    if floor is not None:
        rgba = floor.rgba
        tree.delete(floor)
    tree.worldbody.add_geom(
        name=NAME, type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname=NAME, pos=[0.0, 0.0, lowest],
        contype=0, conaffinity=1, rgba=rgba,
    )  # fmt: skip
