"""Physical parameters of robots with joints: drawn per episode, written into the engine."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError
from robot_rl.core.rows import Rows
from sim import draws
from sim.joint_robot import JointRandomization, JointRobotConfig
from sim.physics.mujoco_batch import MujocoEngine


class JointPlants:
    """What differs between N robots of one kind, and remembers what was drawn.

    Only parameters whose range has an extent take part, so a critic does not see idle columns.
    """

    def __init__(
        self, config: JointRobotConfig, ranges: JointRandomization, engine: MujocoEngine
    ) -> None:
        """Begin with the robot of the model in every world.

        Args:
            config: The robot.
            ranges: What is drawn.
            engine: Whose worlds get the parameters.

        Raises:
            ConfigError: A payload is drawn, but no body carries it.
        """
        model = engine.model
        self._engine = engine
        self._changes_masses = ranges.link_mass > 0 or ranges.payload[1] > 0
        self._bodies = slice(1, model.nbody)  # body 0 is the world
        self._payload_body = 0
        if ranges.payload[1] > 0:
            names = [model.body(i).name for i in range(model.nbody)]
            if config.payload_body not in names:
                raise ConfigError(
                    f"randomization.payload needs robot.payload_body to be a body of "
                    f"{config.model}, got '{config.payload_body}'; known: {', '.join(names[1:])}"
                )
            self._payload_body = names.index(config.payload_body)
        links, joints = model.nbody - 1, model.nv
        around = {name: [1 - width, 1 + width] for name, width in vars(ranges).items()
                  if isinstance(width, float)}  # fmt: skip
        every = {
            "payload": (1, ranges.payload),
            "link_mass": (links, around["link_mass"]),
            "joint_damping": (joints, around["joint_damping"]),
            "joint_friction": (joints, ranges.joint_friction),
            "stiffness": (1, around["stiffness"]),
            "damping": (1, around["damping"]),
            "sensor_noise": (1, ranges.sensor_noise),
            "latency": (1, ranges.latency),
        }
        self._ranges = {name: entry[1] for name, entry in every.items()}
        drawn = {name: size for name, (size, (low, high)) in every.items() if high > low}
        fixed = {name: 1 for name in every if name not in drawn}
        self._drawn_names = drawn.keys()
        bounds = [self._ranges[name] for name, size in drawn.items() for _ in range(size)]
        low, high = torch.tensor(bounds, dtype=torch.float64).reshape(-1, 2).unbind(-1)
        self._low, self._half = low, (high - low) * 0.5
        self.drawn = torch.zeros(engine.num_worlds, len(bounds))
        """What was drawn in each world, (N, W), each column in [-1, 1] over its range."""
        constant = torch.tensor([self._ranges[name][0] for name in fixed], dtype=torch.float64)
        self._values = torch.cat([low + self._half, constant]).repeat(engine.num_worlds, 1)
        sizes = {**drawn, **fixed}
        parts = self._values.split(list(sizes.values()), dim=-1)
        self._views = dict(zip(sizes, parts, strict=True))
        self._nominal_damping = torch.tensor(model.dof_damping)
        self._nominal_mass = torch.tensor(model.body_mass)[self._bodies]
        self._nominal_inertia = torch.tensor(model.body_inertia)[self._bodies]
        self._carried = torch.tensor(model.body_mass * model.body_gravcomp)[self._bodies]

    def begin(self, rows: Rows, generator: torch.Generator) -> None:
        """Draw new parameters for the picked worlds and write those of the mechanism."""
        drawn = draws.uniform((rows.count, self.drawn.shape[1]), -1.0, 1.0, generator)
        rows.put(self.drawn, drawn)
        rows.put(self._values[:, : drawn.shape[1]], self._scaled(drawn))
        field = self._engine.model_field
        if "joint_damping" in self._drawn_names:
            factor = rows.take(self.value("joint_damping"))
            rows.put(field("dof_damping"), self._nominal_damping * factor)
        if self._ranges["joint_friction"][1] > 0:
            friction = rows.take(self.value("joint_friction"))
            rows.put(field("dof_frictionloss"), friction.expand(-1, self._engine.qvel.shape[1]))
        if self._changes_masses:
            self._put_masses(rows)

    def value(self, name: str) -> Tensor:
        """Values of a parameter in all worlds, (N, width), float64, its own unit; live."""
        return self._views[name]

    def state_dict(self) -> dict[str, Any]:
        """What was drawn; the engine keeps what was written."""
        return {"drawn": self.drawn.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.drawn.copy_(state["drawn"])
        self._values[:, : self.drawn.shape[1]] = self._scaled(self.drawn)

    def _scaled(self, drawn: Tensor) -> Tensor:
        return self._low + self._half * (drawn.double() + 1)

    def _put_masses(self, rows: Rows) -> None:
        """Masses with factors and payload; the compensation goes on carrying the nominal ones."""
        field, links = self._engine.model_field, self._bodies
        factor = rows.take(self.value("link_mass"))  # (count, links) or (count, 1)
        mass = self._nominal_mass * factor
        if self._payload_body:
            mass[:, self._payload_body - 1] += rows.take(self.value("payload"))[:, 0]
        inertia = self._nominal_inertia * factor[..., None]
        compensation = torch.where(mass > 0, self._carried / mass, 0.0)
        rows.put(field("body_mass")[:, links], mass)
        rows.put(field("body_inertia")[:, links], inertia)
        rows.put(field("body_gravcomp")[:, links], compensation)
        self._engine.update_constants(rows)
