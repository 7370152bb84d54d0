"""Physical parameters of robots with joints: drawn per episode, written into the engine."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.rows import Rows
from sim import draws
from sim.joints.joint_mirror import mirror_drawn
from sim.joints.joint_motors import JointMotors
from sim.joints.joint_randomization import JointRandomization
from sim.joints.joint_robot import JointRobotConfig
from sim.physics.joint_layout import JointLayout
from sim.physics.mujoco_batch import MujocoEngine


@dataclass(frozen=True)
class _Range:
    """A parameter: how many numbers a world draws, from where, and what it is undisturbed."""

    width: int
    low: float
    high: float
    nominal: float

    @property
    def drawn(self) -> bool:
        return self.high > self.low

    @property
    def nominal_unit(self) -> float:
        """The undisturbed value, or the end of the range that is nearest to it, in [-1, 1]."""
        nearest = min(max(self.nominal, self.low), self.high)
        return 2 * (nearest - self.low) / (self.high - self.low) - 1


class JointPlants:
    """What differs between N robots of one kind, and remembers what was drawn.

    Only parameters whose range has an extent take part, so a critic does not see idle columns.
    """

    def __init__(
        self,
        config: JointRobotConfig,
        ranges: JointRandomization,
        engine: MujocoEngine,
        layout: JointLayout,
        motors: JointMotors,
    ) -> None:
        """Begin with the robot of the model in every world.

        Args:
            config: The robot.
            ranges: What is drawn.
            engine: Whose worlds get the parameters.
            layout: Where the robot's joints stand in the engine's state.
            motors: Those of the robot.

        Raises:
            ConfigError: A payload or its place is drawn, but no body carries it, or it is negative
                and exceeds the body.
        """
        model = engine.model
        self._engine, self._motors, self._joints = engine, motors, layout.velocity
        self._bodies = _robot_bodies(engine, layout)
        carries = [name for name in ("payload", "centre_of_mass") if any(getattr(ranges, name))]
        self._payload_body = _payload_body(config, ranges, engine, carries) if carries else 0
        links, joints = len(self._bodies), config.spec.num_joints
        friction = float(model.dof_frictionloss[self._joints].mean())
        self._ranges = {
            "payload": _Range(1, *ranges.payload, nominal=0.0),
            "link_mass": _around_one(links, ranges.link_mass),
            "centre_of_mass": _Range(3, *ranges.centre_of_mass, nominal=0.0),
            "contact_friction": _Range(1, *ranges.contact_friction, nominal=1.0),
            "joint_damping": _around_one(joints, ranges.joint_damping),
            "joint_friction": _Range(joints, *ranges.joint_friction, nominal=friction),
            "motor_strength": _Range(joints, *ranges.motor_strength, nominal=1.0),
            "stiffness": _around_one(1, ranges.stiffness),
            "damping": _around_one(1, ranges.damping),
            "actuator_delay": _Range(1, *ranges.actuator_delay, nominal=0.0),
            "sensor_noise": _Range(1, *ranges.sensor_noise, nominal=1.0),
            "sensor_bias": _Range(1, *ranges.sensor_bias, nominal=1.0),
            "latency": _Range(1, *ranges.latency, nominal=0.0),
            "sensor_jitter": _Range(1, *ranges.sensor_jitter, nominal=1.0),
        }
        self._changing = {
            name
            for name, each in self._ranges.items()
            if (each.low, each.high) != (each.nominal, each.nominal)
        }
        self._widths = {name: each.width for name, each in self._ranges.items() if each.drawn}
        columns = [self._ranges[name] for name, width in self._widths.items() for _ in range(width)]
        self.drawn = torch.zeros(engine.num_worlds, len(columns))
        """What was drawn in each world, (N, W), each column in [-1, 1] over its range."""
        self._undisturbed = np.array([each.nominal_unit for each in columns], dtype=np.float32)
        self._low = np.array([each.low for each in columns])
        self._half = np.array([0.5 * (each.high - each.low) for each in columns])
        stops = np.cumsum([0, *self._widths.values()]).tolist()
        self._columns = {
            name: slice(start, stop)
            for name, start, stop in zip(self._widths, stops[:-1], stops[1:], strict=True)
        }
        self._fixed = {
            name: np.array([[each.low]]) for name, each in self._ranges.items() if not each.drawn
        }
        self.level: Tensor | None = None
        """Part of the ranges that is drawn from, 0-dim, live; None for the whole."""
        self._nominal = {
            name: np.array(getattr(model, name))
            for name in ("body_mass", "body_inertia", "body_ipos", "body_gravcomp", "dof_damping",
                         "geom_friction", "pair_friction")
        }  # fmt: skip
        self._carried = self._nominal["body_mass"] * self._nominal["body_gravcomp"]

    def begin(self, rows: Rows, generator: torch.Generator) -> Mapping[str, NDArray[np.float64]]:
        """Draw new parameters for the picked worlds, write those of mechanism and motors.

        Returns:
            All parameters of the picked worlds, as of `_values`.
        """
        unit = draws.uniform((rows.count, self.drawn.shape[1]), -1.0, 1.0, generator).numpy()
        if self.level is not None:
            unit = self._undisturbed + self.level.numpy() * (unit - self._undisturbed)
        self.drawn.numpy()[rows.ids] = unit
        values = self._values(unit)
        if "joint_damping" in self._widths:
            damping = self._nominal["dof_damping"][self._joints] * values["joint_damping"]
            self._field("dof_damping")[rows.ids, self._joints] = damping
        if self._ranges["joint_friction"].high > 0:
            self._motors.set_friction(rows, self._wide(rows, values["joint_friction"]))
        if self.changes("contact_friction"):
            self._put_contact_friction(rows, values["contact_friction"])
        if self.changes("payload", "link_mass", "centre_of_mass"):
            self._put_masses(rows, values)
        if self.changes("stiffness", "damping"):
            self._motors.scale_gains(rows, values["stiffness"], values["damping"])
        if self.changes("motor_strength"):
            self._motors.scale_strength(rows, self._wide(rows, values["motor_strength"]))
        if self.changes("actuator_delay"):
            self._motors.add_delay(rows, values["actuator_delay"])
        return values

    def changes(self, *names: str) -> bool:
        """Whether any of these parameters is ever another than undisturbed."""
        return not self._changing.isdisjoint(names)

    def drawn_parameters(self) -> dict[str, Tensor]:
        """What was drawn by name, (N, width) each, in the unit of its range."""
        values = self._values(self.drawn.numpy())
        return {name: torch.from_numpy(values[name]) for name in self._widths}

    def mirror(self, robot: RobotMirror) -> SignedPermutation:
        """What a mirror does to `drawn`."""
        bodies = [self._engine.model.body(body).name for body in self._bodies]
        shift = self._ranges["centre_of_mass"]
        return mirror_drawn(self._widths, bodies, [shift.low, shift.high], robot)

    def state_dict(self) -> dict[str, Any]:
        """What was drawn; the engine keeps what was written."""
        return {"drawn": self.drawn.clone(), "motors": self._motors.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.drawn.copy_(state["drawn"])
        self._motors.load_state_dict(state["motors"])
        every = Rows(torch.ones(len(self.drawn), dtype=torch.bool))
        values = self._values(self.drawn.numpy())
        self._motors.scale_gains(every, values["stiffness"], values["damping"])

    def _values(self, unit: NDArray[np.float32]) -> dict[str, NDArray[np.float64]]:
        """All parameters by name, in the unit of their range.

        Args:
            unit: What was drawn, (count, W), in [-1, 1].

        Returns:
            (count, width) each; (1, 1) where nothing is drawn.
        """
        drawn = self._low + self._half * (unit.astype(np.float64) + 1)
        parts = {name: drawn[:, columns] for name, columns in self._columns.items()}
        return {**self._fixed, **parts}

    def _field(self, name: str) -> NDArray[np.float64]:
        """A field of the model in every world, to write into."""
        return self._engine.model_field(name).numpy()

    def _wide(self, rows: Rows, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """One value for each joint, (count, J)."""
        return np.broadcast_to(values, (rows.count, self._joints.stop - self._joints.start))

    def _put_contact_friction(self, rows: Rows, factor: NDArray[np.float64]) -> None:
        """MuJoCo takes the larger friction of two geoms, or that of priority: both scale alike."""
        nominal = self._nominal["geom_friction"][:, 0]
        self._field("geom_friction")[rows.ids, :, 0] = factor * nominal
        if len(self._nominal["pair_friction"]):
            nominal = self._nominal["pair_friction"][:, :2]
            self._field("pair_friction")[rows.ids, :, :2] = factor[..., None] * nominal

    def _put_masses(self, rows: Rows, values: Mapping[str, NDArray[np.float64]]) -> None:
        """Masses with factors and payload; the compensation goes on carrying the nominal ones."""
        nominal, ids = self._nominal, rows.ids
        factor = np.ones((rows.count, len(nominal["body_mass"])))
        factor[:, self._bodies] = values["link_mass"]
        mass = nominal["body_mass"] * factor
        if self._payload_body:
            mass[:, self._payload_body] += values["payload"][:, 0]
        if self.changes("centre_of_mass"):
            place = nominal["body_ipos"][None].repeat(rows.count, 0)
            place[:, self._payload_body] += values["centre_of_mass"]
            self._field("body_ipos")[ids] = place
        self._field("body_mass")[ids] = mass
        self._field("body_inertia")[ids] = nominal["body_inertia"] * factor[..., None]
        self._field("body_gravcomp")[ids] = self._carried / np.maximum(mass, _MASSLESS)
        self._engine.update_constants(rows)


_MASSLESS = 1e-12
"""Less than any body weighs that is carried [kg]: a body without mass is carried by nothing."""


def _around_one(width: int, share: float) -> _Range:
    return _Range(width, 1 - share, 1 + share, nominal=1.0)


def _robot_bodies(engine: MujocoEngine, layout: JointLayout) -> list[int]:
    """Bodies of the trees that the robot's joints are in; a scene's are none of them."""
    model = engine.model
    first = layout.velocity.start - (6 if layout.floating else 0)
    owners = {int(body) for body in model.dof_bodyid[first : layout.velocity.stop]}
    roots = {int(model.body_rootid[body]) for body in owners}
    return [body for body in range(1, model.nbody) if int(model.body_rootid[body]) in roots]


def _payload_body(
    config: JointRobotConfig, ranges: JointRandomization, engine: MujocoEngine, carries: list[str]
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
