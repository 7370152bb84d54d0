"""The state of a world with a jointed robot as a few vectors, to be put into another world later.

It is what a beginning sets: positions, velocities, the targets that motors hold, and where fixtures
stand. Drawn parameters, delays and noise are not in it: a world that begins in it has its own.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError
from sim.joints.motors.joint_motors import JointMotors
from sim.joints.placement import Placed
from sim.physics.engine import Engine
from sim.physics.joint_layout import JointLayout

_FIXTURE = "fixture."


class JointStates:
    """Takes states out of N worlds, and says where a world stands that begins in one."""

    def __init__(self, engine: Engine, layout: JointLayout, motors: JointMotors) -> None:
        """Join the parts; they are only read."""
        self._engine, self._layout, self._motors = engine, layout, motors

    @property
    def widths(self) -> Mapping[str, int]:
        """Part -> width.

        Raises:
            ConfigError: Actuators have a state of their own, which a beginning does not set.
        """
        if self._engine.model.na:
            raise ConfigError(
                f"states of worlds whose {self._engine.model.na} actuators have activations cannot "
                "be begun in; expected motors of configs/robot, which have none"
            )
        return {name: part.shape[1] for name, part in self._parts().items()}

    def take(self) -> dict[str, Tensor]:
        """All parts of all worlds, (N, W) float32, copied."""
        return {name: part.float().clone() for name, part in self._parts().items()}

    def placed(self, state: Mapping[str, Tensor]) -> Placed:
        """Where worlds stand that begin in states, (count, W) each."""
        like = self._engine.qpos
        parts = {name: part.to(like) for name, part in state.items()}
        fixtures = {n: parts[_FIXTURE + name] for name, n in self._layout.fixtures.items()}
        return Placed(
            position=parts["position"], velocity=parts["velocity"], joints=parts["targets"],
            finger=parts.get("finger"), fixtures=fixtures,
        )  # fmt: skip

    def _parts(self) -> dict[str, Tensor]:
        engine, layout, gripper = self._engine, self._layout, self._motors.gripper
        parts = {
            "position": engine.qpos,
            "velocity": engine.qvel,
            "targets": self._motors.targets(engine.qpos[:, layout.position]),
        }
        if gripper is not None:
            parts["finger"] = gripper.target
        for name, n in layout.fixtures.items():
            parts[_FIXTURE + name] = torch.cat([one[:, n] for one in engine.fixtures], dim=-1)
        return parts
