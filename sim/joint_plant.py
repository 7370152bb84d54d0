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
        self,
        config: JointRobotConfig,
        ranges: JointRandomization,
        engine: MujocoEngine,
        dofs: slice,
    ) -> None:
        """Begin with the robot of the model in every world.

        Args:
            config: The robot.
            ranges: What is drawn.
            engine: Whose worlds get the parameters.
            dofs: Columns of the robot's joints among the velocities; others keep their friction.

        Raises:
            ConfigError: A payload is drawn, but no body carries it.
        """
        model = engine.model
        self._engine = engine
        self._dofs = dofs
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
        links, joints = model.nbody - 1, dofs.stop - dofs.start
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
        self._columns: dict[str, slice] = {}
        width = 0
        for name, (size, (low, high)) in every.items():
            if high > low:
                self._columns[name] = slice(width, width + size)
                width += size
        self.drawn = torch.zeros(engine.num_worlds, width)
        """What was drawn in each world, (N, W), each column in [-1, 1] over its range."""
        self._nominal = {
            name: torch.tensor(getattr(model, name))
            for name in ("body_mass", "body_inertia", "body_gravcomp", "dof_damping")
        }

    def begin(self, rows: Rows, generator: torch.Generator) -> None:
        """Draw new parameters for the picked worlds and write those of the mechanism."""
        rows.put(self.drawn, draws.uniform((rows.count, self.drawn.shape[1]), -1.0, 1.0, generator))
        nominal, field = self._nominal, self._engine.model_field
        if "joint_damping" in self._columns:
            rows.put(
                field("dof_damping")[:, self._dofs],
                nominal["dof_damping"][self._dofs] * self.value("joint_damping", rows),
            )
        if self._ranges["joint_friction"][1] > 0:
            friction = field("dof_frictionloss")[:, self._dofs]
            rows.put(friction, self.value("joint_friction", rows).expand(-1, friction.shape[1]))
        if self._changes_masses:
            self._put_masses(rows)

    def value(self, name: str, rows: Rows) -> Tensor:
        """Values of a parameter in the picked worlds, (count, width), float64, its own unit."""
        low, high = self._ranges[name]
        if name not in self._columns:
            return torch.full((rows.count, 1), low, dtype=torch.float64)
        unit = rows.take(self.drawn[:, self._columns[name]]).double()
        return low + (high - low) * 0.5 * (unit + 1)

    def state_dict(self) -> dict[str, Any]:
        """What was drawn; the engine keeps what was written."""
        return {"drawn": self.drawn.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.drawn.copy_(state["drawn"])

    def _put_masses(self, rows: Rows) -> None:
        """Masses with factors and payload; the compensation goes on carrying the nominal ones."""
        nominal, field = self._nominal, self._engine.model_field
        factor = self.value("link_mass", rows)  # (count, links) or (count, 1)
        mass = nominal["body_mass"].repeat(rows.count, 1)
        mass[:, self._bodies] *= factor
        inertia = nominal["body_inertia"].repeat(rows.count, 1, 1)
        inertia[:, self._bodies] *= factor[..., None]
        if self._payload_body:
            mass[:, self._payload_body] += self.value("payload", rows)[:, 0]
        carried = nominal["body_mass"] * nominal["body_gravcomp"]
        rows.put(field("body_mass"), mass)
        rows.put(field("body_inertia"), inertia)
        rows.put(field("body_gravcomp"), torch.where(mass > 0, carried / mass, 0.0))
        self._engine.update_constants(rows)
