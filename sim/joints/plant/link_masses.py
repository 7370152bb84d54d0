"""Masses and inertias of drawn robots, and what MuJoCo derives from them."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError
from sim.joints.joint_robot import JointRobotConfig
from sim.joints.plant.joint_randomization import JointRandomization
from sim.physics.engine import Engine
from sim.physics.joint_layout import JointLayout
from sim.physics.mujoco_engine.constants import ModelConstants

_MASSLESS = 1e-12
"""Less than any body weighs that is carried [kg]: a body without mass is carried by nothing."""


class LinkMasses:
    """Computes, for many robots at once, the fields of the model that depend on masses."""

    def __init__(
        self, config: JointRobotConfig, ranges: JointRandomization, engine: Engine,
        layout: JointLayout, *, at_once: int,
    ) -> None:  # fmt: skip
        """Read the nominal masses.

        Args:
            config: The robot.
            ranges: What is drawn.
            engine: Its worlds.
            layout: Where the robot's joints stand in the engine's state.
            at_once: How many robots MuJoCo derives constants for at a time.

        Raises:
            ConfigError: A payload or its place is drawn, but no body carries it, or it is negative
                and exceeds the body.
        """
        model = engine.model
        self.bodies = _robot_bodies(engine, layout)
        """Links of the robot."""
        carries = [name for name in ("payload", "centre_of_mass") if any(getattr(ranges, name))]
        self._payload_body = _payload_body(config, ranges, engine, carries) if carries else 0
        self._shifts = any(ranges.centre_of_mass)
        self._mass, self._inertia = np.array(model.body_mass), np.array(model.body_inertia)
        self._place = np.array(model.body_ipos)
        self._carried = model.body_mass * model.body_gravcomp
        self._constants = ModelConstants(model, at_once, config.physics_threads)

    def fields(
        self, count: int, drawn: Mapping[str, NDArray[np.float64]]
    ) -> dict[str, NDArray[Any]]:
        """Fields of the model by name, (count, ...) each.

        Masses with factors and payload; the compensation goes on carrying the nominal ones.

        Args:
            count: Number of robots.
            drawn: `link_mass` (count, links), `payload` (count, 1) and `centre_of_mass` (count, 3);
                (1, 1) where nothing is drawn.
        """
        factor = np.ones((count, len(self._mass)))
        factor[:, self.bodies] = drawn["link_mass"]
        mass = self._mass * factor
        fields: dict[str, NDArray[Any]] = {}
        if self._payload_body:
            mass[:, self._payload_body] += drawn["payload"][:, 0]
        if self._shifts:
            place = self._place[None].repeat(count, 0)
            place[:, self._payload_body] += drawn["centre_of_mass"]
            fields["body_ipos"] = place
        fields["body_mass"] = mass
        fields["body_inertia"] = self._inertia * factor[..., None]
        fields["body_gravcomp"] = self._carried / np.maximum(mass, _MASSLESS)
        return self._constants.derive(fields)


def _robot_bodies(engine: Engine, layout: JointLayout) -> list[int]:
    """Bodies of the trees that the robot's joints are in; a scene's are none of them."""
    model = engine.model
    first = layout.velocity.start - (6 if layout.floating else 0)
    owners = {int(body) for body in model.dof_bodyid[first : layout.velocity.stop]}
    roots = {int(model.body_rootid[body]) for body in owners}
    return [body for body in range(1, model.nbody) if int(model.body_rootid[body]) in roots]


def _payload_body(
    config: JointRobotConfig, ranges: JointRandomization, engine: Engine, carries: list[str]
) -> int:
    model = engine.model
    names = [model.body(i).name for i in range(model.nbody)]
    if config.payload_body not in names:
        raise ConfigError(
            f"randomization.{carries[0]} needs robot.payload_body to be a body of "
            f"{config.model}, got '{config.payload_body}'; known: {', '.join(names[1:])}"
        )
    body = names.index(config.payload_body)
    lightest = float(model.body_mass[body]) * (1 - ranges.link_mass) + ranges.payload[0]
    if not lightest > 0:
        raise ConfigError(
            f"randomization.payload {ranges.payload} leaves body '{config.payload_body}' of "
            f"{model.body_mass[body]:g} kg without mass; the lowest must exceed "
            f"{-float(model.body_mass[body]) * (1 - ranges.link_mass):g} kg"
        )
    return body
