"""Interface of engines for robots with joints, and their maker: MuJoCo or MuJoCo Warp."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping
from enum import Enum
from typing import Any, Protocol

import mujoco
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import DeviceError
from sim.physics.fault_record import FaultRecord


class PhysicsEngine(Enum):
    """What can step robots with joints."""

    batch = "batch"
    """MuJoCo on CPU threads, in double precision."""
    warp = "warp"
    """MuJoCo Warp, in single precision, a control period captured as one graph; extra `gpu`."""


class Engine(Protocol):
    """N copies of one model. Tensors are live views: write into them, do not replace them."""

    num_worlds: int
    decimation: int
    control_dt: float
    qpos: Tensor
    qvel: Tensor
    motion: Tensor
    control: Tensor
    ramp: Tensor
    fixtures: tuple[Tensor, ...]
    fault: Tensor
    fault_records: list[FaultRecord]
    sensordata: Tensor
    sensor_columns: dict[str, slice]
    sensors: dict[str, Tensor]
    quaternions: dict[str, list[int]]
    actuator_force: Tensor

    @property
    def model(self) -> mujoco.MjModel:
        """The model that worlds share where no `model_field` gives them values of their own."""
        ...

    def step(self, *, ramped: bool = False) -> None:
        """Simulate one control period in all worlds.

        Args:
            ramped: Take the controls of every integration step from `ramp`, (N, decimation, nu),
                whose last stay in `control`; otherwise hold `control`.
        """
        ...

    def reset(
        self, rows: EnvSelection, qpos: ArrayLike, qvel: ArrayLike, control: ArrayLike, *,
        fixtures: Mapping[int, Tensor] | None = None,
    ) -> None:  # fmt: skip
        """Place the picked worlds and lower their flags."""
        ...

    def has_field(self, name: str) -> bool:
        """Whether a field of the model can differ between worlds."""
        ...

    def model_field(self, name: str) -> Tensor:
        """A field of the model with values per world, (N, ...)."""
        ...

    def update_constants(self, rows: EnvSelection) -> None:
        """Recompute what the model derives from masses, inertias and armatures."""
        ...

    def check(self) -> None:
        """Raise what the engine left out of the simulation since the last check."""
        ...

    def copy_world(self, world: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Copy one world, for drawing."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the future of the worlds, copied."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        ...


def make_engine(
    kind: PhysicsEngine, model: mujoco.MjModel, num_worlds: int, *, decimation: int, threads: int,
    contacts: int, device: torch.device,
) -> Engine:  # fmt: skip
    """Worlds in the model's reference pose.

    Args:
        kind: Which engine.
        model: Of one world.
        num_worlds: N.
        decimation: Integration steps of a control period.
        threads: CPU threads of the engine `batch`; 0 for one per core.
        contacts: Room of the engine `warp` for contacts of a world; 0 for what falls of the
            model suggest.
        device: Where the worlds live; the engine `batch` knows the CPU only.

    Raises:
        ConfigError: The engine cannot simulate the model.
        DeviceError: Not on this device.
        MissingExtraError: The engine is not installed.
    """
    if kind is PhysicsEngine.batch:
        if device.type != "cpu":
            raise DeviceError(
                f"robot.engine=batch simulates on the CPU only, device '{device}' was asked for; "
                "use device=cpu, or robot.engine=warp"
            )
        from sim.physics.mujoco_engine import MujocoEngine  # needs MuJoCo 4, unlike this file

        return MujocoEngine(model, num_worlds, decimation=decimation, threads=threads)
    from sim.physics.warp_engine import MujocoWarpEngine  # an extra, only where asked for

    return MujocoWarpEngine(
        model, num_worlds, decimation=decimation, contacts=contacts, device=device
    )
