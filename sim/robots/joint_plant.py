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

from robot_rl.core.env_selection import EnvSelection, counting_is_free
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.observation import Mirrored
from sim import draws
from sim.physics.engine import Engine
from sim.physics.joint_layout import JointLayout
from sim.physics.mujoco_engine import ModelConstants
from sim.robots.joint_motors import JointMotors
from sim.robots.joint_robot import JointRandomization, JointRobotConfig

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


AHEAD = 64
"""Plants that are drawn at a time, at most, where fewer begin."""
STOCK = 512
"""Plants that worlds on an accelerator choose from, until the next `restock`."""


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
    """Parameters that differ between N robots of one kind, as they were drawn.

    Only parameters whose range has an extent take part, so a critic does not see idle columns.
    """

    def __init__(
        self,
        config: JointRobotConfig,
        ranges: JointRandomization,
        engine: Engine,
        layout: JointLayout,
        motors: JointMotors,
    ) -> None:
        """Begin with the robot of the model in every world.

        Raises:
            ConfigError: As of `LinkMasses`.
        """
        model = engine.model
        self._engine, self._motors, self._joints = engine, motors, layout.velocity
        self._masses = LinkMasses(config, ranges, engine, layout, at_once=AHEAD)
        links, joints = len(self._masses.bodies), config.spec.num_joints
        friction = float(model.dof_frictionloss[self._joints].mean())
        damped = bool(model.dof_damping[self._joints].any())  # else there is nothing to scale
        self._ranges = {
            "payload": _Range(1, *ranges.payload, nominal=0.0),
            "link_mass": _around_one(links, ranges.link_mass),
            "centre_of_mass": _Range(3, *ranges.centre_of_mass, nominal=0.0),
            "contact_friction": _Range(1, *ranges.contact_friction, nominal=1.0),
            "joint_damping": _around_one(joints, ranges.joint_damping if damped else 0.0),
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
        self.drawn = torch.zeros(engine.num_worlds, len(columns), device=engine.qpos.device)
        """Drawn parameters of each env, (N, W), each column in [-1, 1] over its range."""
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
        self._same = {name: self._on_device(value) for name, value in self._fixed.items()}
        self.level: Tensor | None = None
        """Part of the ranges that is drawn from, 0-dim, live; None for the whole."""
        self._nominal = {
            name: np.array(getattr(model, name))
            for name in ("dof_damping", "geom_friction", "pair_friction")
        }
        # Drawn ahead, (M, W), the level of the curriculum then, and what follows from them.
        self._ahead = self.drawn[:0]
        self._ahead_level, self._given = 1.0, 0
        self._ahead_values: dict[str, Tensor] = {}
        self._ahead_fields: list[tuple[Tensor, Tensor]] = []
        self._counting_is_free = counting_is_free(self.drawn)

    def begin(self, rows: EnvSelection, generator: torch.Generator) -> Mapping[str, Tensor]:
        """Give the picked worlds new parameters, write those of mechanism and motors.

        Plants are drawn many at a time: in most steps a world or two begin, and drawing for so few
        takes as long as for all. On the CPU they are given one by one; on an accelerator, where the
        host cannot know who begins, every env draws from a stock at random.

        Args:
            generator: Draws parameters when there are none left.

        Returns:
            All parameters of the picked worlds, as of `_values`.
        """
        given = self._next(rows.count, generator)
        rows.put(self.drawn, self._ahead[given])
        for field, ahead in self._ahead_fields:
            rows.put(field, ahead[given])
        values = self._same | {name: self._ahead_values[name][given] for name in self._widths}
        if self._ranges["joint_friction"].high > 0:
            self._motors.set_friction(rows, self._wide(rows, values["joint_friction"]))
        if self.changes("stiffness", "damping"):
            self._motors.scale_gains(rows, values["stiffness"], values["damping"])
        if self.changes("motor_strength"):
            self._motors.scale_strength(rows, self._wide(rows, values["motor_strength"]))
        if self.changes("actuator_delay"):
            self._motors.add_delay(rows, values["actuator_delay"])
        return values

    def restock(self) -> None:
        """Let an accelerator's next beginnings choose from new plants; waits for the device."""
        if not self._counting_is_free:
            self.forget()

    def forget(self) -> None:
        """Throw away what was drawn ahead: another stream begins."""
        self._ahead, self._given = self._ahead[:0], 0

    def changes(self, *names: str) -> bool:
        """True if any of these parameters is ever drawn."""
        return not self._changing.isdisjoint(names)

    def drawn_parameters(self) -> dict[str, Tensor]:
        """Drawn parameters by name, (N, width) each, in the unit of its range."""
        values = self._values(self.drawn.cpu().numpy())
        return {name: torch.from_numpy(values[name]) for name in self._widths}

    def mirror(self, robot: RobotMirror) -> SignedPermutation:
        """Mirror of `drawn`."""
        bodies = [self._engine.model.body(body).name for body in self._masses.bodies]
        shift = self._ranges["centre_of_mass"]
        return mirror_drawn(self._widths, bodies, [shift.low, shift.high], robot)

    def state_dict(self) -> dict[str, Any]:
        """Drawn parameters, also ahead; the engine keeps what was written."""
        return {
            "drawn": self.drawn.clone(),
            "motors": self._motors.state_dict(),
            "ahead": self._ahead[self._given :].clone(),
            "ahead_level": self._ahead_level,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.drawn.copy_(state["drawn"])
        self._motors.load_state_dict(state["motors"])
        every = EnvSelection(torch.ones_like(self._engine.fault))
        values = self._values(self.drawn.cpu().numpy())
        self._motors.scale_gains(every, *(self._on_device(values[n]) for n in _GAINS))
        self.forget()
        if "ahead" in state:  # older states drew nothing ahead
            self._prepare(state["ahead"].cpu().numpy().copy(), state["ahead_level"])

    def _next(self, count: int, generator: torch.Generator) -> slice | Tensor:
        """Indices of the plants drawn ahead for `count` envs."""
        if not self._counting_is_free:
            if len(self._ahead) < STOCK:  # of a state that the CPU saved there may be fewer
                self._draw(STOCK, generator)
            device = self.drawn.device
            return torch.randint(STOCK, (count,), generator=generator, device=device)
        level = self._level()
        if self._given + count > len(self._ahead) or level != self._ahead_level:
            self._draw(count * max(1, AHEAD // count), generator)
        given = slice(self._given, self._given + count)
        self._given = given.stop
        return given

    def _level(self) -> float:
        return 1.0 if self.level is None else float(self.level)

    def _draw(self, count: int, generator: torch.Generator) -> None:
        level = self._level()
        unit = draws.uniform((count, self.drawn.shape[1]), -1.0, 1.0, generator).cpu().numpy()
        unit = self._undisturbed + np.float32(level) * (unit - self._undisturbed)
        self._prepare(unit.astype(np.float32, copy=False), level)

    def _prepare(self, ahead: NDArray[np.float32], level: float) -> None:
        """Compute what follows from draws, (M, W)."""
        self._ahead, self._ahead_level, self._given = self._on_device(ahead), level, 0
        values = self._values(ahead)
        self._ahead_values = {name: self._on_device(values[name]) for name in self._widths}
        self._ahead_fields = []
        if not len(ahead):
            return
        fields: dict[str, NDArray[Any]] = {}
        if "joint_damping" in self._widths:
            damping = self._nominal["dof_damping"][None].repeat(len(ahead), 0)
            damping[:, self._joints] *= values["joint_damping"]
            fields["dof_damping"] = damping
        if self.changes("contact_friction"):
            # MuJoCo takes the larger friction of two geoms, or that of priority: both scale alike.
            for name, columns in (("geom_friction", 1), ("pair_friction", 2)):
                friction = self._nominal[name][None].repeat(len(ahead), 0)
                friction[..., :columns] *= values["contact_friction"][..., None]
                fields[name] = friction
        if self.changes("payload", "link_mass", "centre_of_mass"):
            fields |= self._masses.fields(len(ahead), values)
        engine = self._engine
        self._ahead_fields = [
            (engine.model_field(name), self._on_device(rows))
            for name, rows in fields.items()
            if engine.has_field(name)  # what an engine does not have, it derives by itself
        ]

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

    def _wide(self, rows: EnvSelection, values: Tensor) -> Tensor:
        """One value for each joint, (count, J)."""
        return values.expand(rows.count, self._joints.stop - self._joints.start)

    def _on_device(self, values: NDArray[Any]) -> Tensor:
        """In the precision of the engine."""
        kind = self.drawn.dtype if values.dtype == np.float32 else self._engine.qpos.dtype
        return torch.from_numpy(values).to(self.drawn.device, kind)


def _around_one(width: int, share: float) -> _Range:
    return _Range(width, 1 - share, 1 + share, nominal=1.0)


_GAINS = ("stiffness", "damping")


def mirror_drawn(
    widths: Mapping[str, int], bodies: list[str], centre_of_mass: list[float], robot: RobotMirror
) -> SignedPermutation:
    """Mirror of drawn parameters, each column in [-1, 1] over its range.

    Args:
        widths: Of each parameter that is drawn, in order.
        bodies: Links whose mass is drawn, in order.
        centre_of_mass: Range of its shift [m].

    Raises:
        ConfigError: Shifts to the left are drawn from another range than those to the right.
    """
    parts: list[SignedPermutation] = []
    for name, width in widths.items():
        if name == "centre_of_mass":
            if abs(sum(centre_of_mass)) > 1e-9:
                raise ConfigError(
                    f"randomization.centre_of_mass {centre_of_mass} has no mirror; expected a "
                    "range that is symmetric about 0"
                )
            parts.append(robot.kind(Mirrored.vector, width))
        elif name == "link_mass":
            parts.append(robot.unsigned(bodies))
        elif width > 1:  # one for each joint, without a direction
            parts.append(robot.unsigned(robot.robot.joint_names))
        else:
            parts.append(robot.kind(Mirrored.same, width))
    return SignedPermutation.joined(parts)
