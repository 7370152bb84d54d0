"""Base of the engines that step robots with joints: MuJoCo on CPU threads, or MuJoCo Warp."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping
from typing import Any

import mujoco
from numpy.typing import ArrayLike
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ShapeError
from sim.physics.fault_record import FaultRecord
from sim.physics.joint_layout import quaternions, sensor_columns


class Engine:
    """N copies of one model. Tensors are live views: write into them, do not replace them."""

    motion: Tensor
    """Positions and velocities side by side, (N, nq + nv), as of the last step or reset."""
    qpos: Tensor
    """Generalised positions, (N, nq)."""
    qvel: Tensor
    """Generalised velocities, (N, nv)."""
    control: Tensor
    """Inputs of the actuators, (N, nu), held for a whole `step` or behind a `ramp`."""
    ramp: Tensor
    """Their values in every integration step, (N, decimation, nu), for a ramped `step`."""
    fixtures: tuple[Tensor, ...]
    """Poses of mocap bodies, if any: positions (N, M, 3) and quaternions (N, M, 4)."""
    fault: Tensor
    """(N,) bool, sticky."""
    sensordata: Tensor
    """All sensors, (N, columns): positions and velocities of the present state, forces and
    accelerations of the last substep."""
    actuator_force: Tensor
    """Forces of the actuators in the last substep, (N, nu)."""

    def __init__(self, model: mujoco.MjModel, num_worlds: int, decimation: int) -> None:
        """Read the model.

        Args:
            model: Its `opt.timestep` is the integration step; envs share it where no
                `model_field` gives them values of their own.
            decimation: Integration steps per `step`.
        """
        self.model, self.num_worlds, self.decimation = model, num_worlds, decimation
        self.control_dt = float(model.opt.timestep) * decimation
        """Time that one `step` simulates [s]."""
        self.fault_records: list[FaultRecord] = []
        """The first few envs that were given up, before that; take them and clear the list."""
        self.sensor_columns = sensor_columns(model)
        """Columns of every sensor by name; sensors `field/part` declared one after another are one
        sensor `field` too."""
        self.quaternions = quaternions(model, self.sensor_columns)
        """First entries of the unit quaternions in each sensor, by name."""
        self._fields: dict[str, Tensor] = {}
        self._shared: dict[str, Tensor] = {}  # values of `_fields` before they differed

    @property
    def sensors(self) -> dict[str, Tensor]:
        """Sensors of the model by name, (N, width), live."""
        return {name: self.sensordata[:, c] for name, c in self.sensor_columns.items()}

    def step(self, *, ramped: bool = False) -> None:
        """Simulate one control period in all envs.

        Args:
            ramped: Take the controls of every integration step from `ramp`, whose last stay in
                `control`; otherwise hold `control`.
        """
        raise NotImplementedError

    def reset(
        self, rows: EnvSelection, qpos: ArrayLike, qvel: ArrayLike, control: ArrayLike, *,
        fixtures: Mapping[int, Tensor] | None = None,
    ) -> None:  # fmt: skip
        """Place the picked envs and lower their flags; nothing of their past remains.

        Args:
            qpos: (count, nq).
            qvel: (count, nv).
            control: (count, nu), what the first forces and accelerations are felt with, and what
                motors with a delay obey until a new one reaches them.
            fixtures: Poses of mocap bodies by their number, (count, 7), position and quaternion
                wxyz; those left out stand where the model has them.
        """
        raise NotImplementedError

    def has_field(self, name: str) -> bool:
        """True if a field of the model can differ between envs."""
        raise NotImplementedError

    def model_field(self, name: str) -> Tensor:
        """A field of the model with values per env, (N, ...), such as `body_mass`.

        After writing masses, inertias or armatures call `update_constants`.

        Raises:
            ConfigError: No such field, or one that cannot differ between envs.
        """
        raise NotImplementedError

    def update_constants(self, rows: EnvSelection) -> None:
        """Recompute what the model derives from masses, inertias and armatures (milliseconds)."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise what the engine left out of the simulation since the last check."""
        raise NotImplementedError

    def copy_world(self, world: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Copy one env, for drawing: its model with its own fields, and its state, all computed.

        Args:
            model: Written; a copy of `model` before.
            data: Written: poses, contacts and forces of the present state.
        """
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the future of the envs, copied."""
        return {
            "fault": self.fault.clone(),
            "sensordata": self.sensordata.clone(),
            "actuator_force": self.actuator_force.clone(),
            "fields": {name: values.clone() for name, values in self._fields.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict` of an engine with the same model and number of envs."""
        raise NotImplementedError

    def _put_fixtures(self, rows: EnvSelection, poses: Mapping[int, Tensor] | None) -> None:
        for body, pose in (poses or {}).items():
            for part, columns in zip(self.fixtures, (slice(0, 3), slice(3, 7)), strict=True):
                rows.put(part[:, body], pose[:, columns].to(part.dtype))

    def _load_fields(self, state: Mapping[str, Any], present: Tensor) -> None:
        """Restore fields of the model, of states as wide as the present ones."""
        if state["state"].shape != present.shape:
            raise ShapeError(
                f"saved envs: expected {tuple(present.shape)}, got {tuple(state['state'].shape)}"
            )
        for name in self._fields.keys() | state["fields"].keys():
            self.model_field(name).copy_(state["fields"].get(name, self._shared[name]))

    def _load_felt(self, state: Mapping[str, Any]) -> None:
        self.sensordata.copy_(state["sensordata"])
        self.actuator_force.copy_(state["actuator_force"])
