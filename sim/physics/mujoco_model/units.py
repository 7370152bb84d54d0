"""Finds models whose lengths or masses are in other units than metres and kilograms."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import math

import mujoco

from robot_rl.core.errors import SpecMismatchError

_LONGEST = 10.0
"""A link's length, its shapes' radius, and its radius of gyration [m]: no robot's is near it, and
the length of a finger in millimetres is beyond it."""
_HEAVIEST = 1000.0
"""A link's mass [kg]: no robot's is near it, and a kilogram in grams is."""


def check_units(model: mujoco.MjModel, owner: str, file: str) -> None:
    """Refuse links that are too long or too heavy for any robot.

    Args:
        model: The robot alone.
        owner: Whose model, for errors.
        file: Its name, for errors.

    Raises:
        SpecMismatchError: A link is metres or tonnes large, as where a file is in millimetres or
            grams.
    """
    for body in range(1, model.nbody):
        name = f"{owner}: link '{model.body(body).name}' in {file}"
        mass, inertia = float(model.body_mass[body]), float(model.body_inertia[body].max())
        sizes = {
            "lies {} m from its parent": math.hypot(*model.body_pos[body]),
            "has a shape with a radius of {} m": _largest_shape(model, body),
        }
        for told, size in sizes.items():
            if size > _LONGEST:
                raise SpecMismatchError(
                    f"{name} {told.format(f'{size:.4g}')}; expected at most {_LONGEST:g} m: "
                    "is the file in millimetres?"
                )
        if mass > _HEAVIEST:
            raise SpecMismatchError(
                f"{name} has a mass of {mass:.4g} kg; expected at most {_HEAVIEST:g} kg: "
                "is the file in grams?"
            )
        spread = math.sqrt(inertia / mass) if mass > 0 else 0.0
        if spread > _LONGEST:
            raise SpecMismatchError(
                f"{name} has an inertia of {inertia:.4g} kg m^2 at a mass of {mass:.4g} kg, as if "
                f"it were spread over {spread:.4g} m; expected at most "
                f"{_LONGEST:g} m: are inertias in kg mm^2 or g mm^2?"
            )


def _largest_shape(model: mujoco.MjModel, body: int) -> float:
    first, count = model.body_geomadr[body], model.body_geomnum[body]
    return float(model.geom_rbound[first : first + count].max(initial=0.0))
