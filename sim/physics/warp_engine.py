"""Worlds of MuJoCo Warp, stepped together: the engine of robots with joints on any device.

It offers what `MujocoEngine` does, in single precision, with the same meaning: views are live,
sensors of positions and velocities tell of the present state, those of forces and accelerations of
the last substep.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping
from copy import copy
from typing import Any

import mujoco
import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection, counting_is_free
from robot_rl.core.errors import ConfigError, ShapeError
from sim.physics.fault_record import MAX_RECORDS, STATE, FaultRecord, compiled
from sim.physics.joint_layout import named_sensor, quaternions, sensor_columns
from sim.physics.mujoco_model import waiting_columns
from sim.physics.warp_memory import Room
from sim.physics.warp_programs import Programs
from sim.physics.warp_start import wp

_DERIVED = ("body_subtreemass", "body_invweight0", "dof_invweight0", "tendon_length0",
            "tendon_invweight0", "actuator_acc0", "cam_pos0", "cam_poscom0", "cam_mat0",
            "light_pos0", "light_poscom0", "light_dir0")  # fmt: skip
"""Fields that MuJoCo derives: those of one world must not be written over by another's."""


class MujocoWarpEngine:
    """N copies of one model, on the CPU or on a GPU.

    MuJoCo Warp goes on with numbers that ran away, and leaves out contacts that do not fit into
    memory. Here each of these raises the world's flag in `fault`, which stays up until `reset`; a
    world that ran away (beyond 1e10, or no number) is put back to the model's reference pose at
    once, and `check` says what did not fit. Contacts of all worlds share one memory: where it ends,
    all worlds are at fault.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        num_worlds: int,
        *,
        decimation: int = 1,
        device: torch.device | str = "cpu",
        contacts: int = 0,
    ) -> None:
        """Make worlds in the model's reference pose.

        Args:
            model: Its `opt.timestep` is the integration step.
            num_worlds: N.
            decimation: Integration steps per `step`.
            device: Where worlds live.
            contacts: Contacts that a world has room for, on average over all; 0 for what falls
                of the model suggest.

        Raises:
            ConfigError: A number is out of range, or Warp cannot simulate the model.
        """
        for name, value, least in (
            ("num_worlds", num_worlds, 1), ("decimation", decimation, 1), ("contacts", contacts, 0),
        ):  # fmt: skip
            if value < least:
                raise ConfigError(f"{name} must be at least {least}, got {value}")
        self.model, self.num_worlds, self.decimation = model, num_worlds, decimation
        self.device = torch.empty(0, device=device).device  # with its number, as tensors name it
        self.control_dt = float(model.opt.timestep) * decimation
        """Time that one `step` simulates [s]."""
        with wp.ScopedDevice(wp.device_from_torch(self.device)):
            self._room = Room.of(model, contacts)
        worlds = self._worlds = Programs(model, num_worlds, decimation, self.device, self._room)
        data = worlds.data
        self.qpos = wp.to_torch(data.qpos)
        """Generalised positions, (N, nq)."""
        self.qvel = wp.to_torch(data.qvel)
        """Generalised velocities, (N, nv)."""
        self.control = wp.to_torch(data.ctrl)
        """Inputs of the actuators, (N, nu), held for a whole `step` or behind a `ramp`."""
        self.ramp = worlds.ramp.swapaxes(0, 1)
        """Their values in every integration step, (N, decimation, nu), for a ramped `step`."""
        fixtures = (data.mocap_pos, data.mocap_quat) if model.nmocap else ()
        self.fixtures: tuple[Tensor, ...] = tuple(map(wp.to_torch, fixtures))
        """Where mocap bodies stand, if any: positions (N, M, 3) and quaternions (N, M, 4)."""
        self.motion = worlds.motion
        """Positions and velocities side by side, (N, nq + nv), as of the last step or reset."""
        self.sensordata = worlds.sensordata
        """All sensors, (N, columns)."""
        self.actuator_force = worlds.actuator_force
        """Forces of the actuators in the last substep, (N, nu)."""
        self.sensor_columns = sensor_columns(model)
        """Columns of every sensor by name."""
        self.quaternions = quaternions(model, self.sensor_columns)
        """First entries of the unit quaternions in each sensor, by name."""
        self.sensors = {name: self.sensordata[:, c] for name, c in self.sensor_columns.items()}
        """Sensors of the model by name, (N, width)."""
        self.fault = worlds.fault
        """(N,) bool, sticky."""
        self.fault_records: list[FaultRecord] = []
        """The first few worlds that ran away, before that, where reading them is free (on
        the CPU); take them and clear the list."""
        self._history = wp.to_torch(data.history) if model.nhistory else torch.zeros(0)
        self._waiting, self._waiting_for = (
            torch.from_numpy(part).to(self.device) for part in waiting_columns(model)
        )
        self._fields: dict[str, Tensor] = {}
        self._shared: dict[str, Tensor] = {}  # values of `_fields` before they differed
        worlds.chosen.fill_(True)
        worlds.begin()

    def step(self, *, ramped: bool = False) -> None:
        """Simulate one control period in all worlds.

        Args:
            ramped: Take the controls of every integration step from `ramp`, whose last stay in
                `control`; otherwise hold `control`.
        """
        self._worlds.step(ramps=ramped)
        if counting_is_free(self.fault) and self._worlds.bad.any():
            self._remember(ramped=ramped)

    def forget_graphs(self) -> None:
        """Let the next step, and whatever else is captured, run once more kernel by kernel."""
        self._worlds.forget()

    def reset(
        self, rows: EnvSelection, qpos: ArrayLike, qvel: ArrayLike, control: ArrayLike, *,
        fixtures: Mapping[int, Tensor] | None = None,
    ) -> None:  # fmt: skip
        """Place the picked worlds and lower their flags; nothing of their past remains.

        Args:
            rows: Worlds to place.
            qpos: (count, nq).
            qvel: (count, nv).
            control: (count, nu), what the first forces and accelerations are felt with, and what
                motors with a delay obey until a new one reaches them.
            fixtures: Poses of mocap bodies by their number, (count, 7), position and quaternion
                wxyz; those left out stand where the model has them.
        """
        if rows.count == 0:
            return
        self._worlds.chosen.copy_(rows.mask)
        self._worlds.clear()
        inputs = self._tensor(control)
        for part, values in ((self.qpos, qpos), (self.qvel, qvel), (self.control, inputs)):
            rows.put(part, self._tensor(values))
        for body, pose in (fixtures or {}).items():
            for part, columns in zip(self.fixtures, (slice(0, 3), slice(3, 7)), strict=True):
                rows.put(part[:, body], pose[:, columns].to(part.dtype))
        if len(self._waiting):  # delayed controls too: nothing of the past is on its way
            history = rows.take(self._history).clone()
            history[:, self._waiting] = inputs[:, self._waiting_for]
            rows.put(self._history, history)
        self.fault &= ~self._worlds.chosen
        self._worlds.begin()

    def has_field(self, name: str) -> bool:
        """Whether a field of the model can differ between worlds."""
        array = getattr(self._worlds.model, name, None)
        shared = isinstance(array, wp.array) and array.ndim > 1 and array.shape[0] == 1
        return shared or name in self._fields

    def model_field(self, name: str) -> Tensor:
        """A field of the model with values per world, (N, ...), such as `body_mass`.

        After writing masses, inertias or armatures call `update_constants`.

        Raises:
            ConfigError: No such field, or one that cannot differ between worlds.
        """
        if name not in self._fields:
            if not self.has_field(name):
                raise ConfigError(
                    f"model field '{name}': MuJoCo Warp has none, or one for all worlds"
                )
            shared = getattr(self._worlds.model, name)
            values = wp.to_torch(shared)
            spread = values.expand(self.num_worlds, *values.shape[1:]).contiguous()
            setattr(self._worlds.model, name, wp.from_torch(spread, dtype=shared.dtype))
            self._fields[name], self._shared[name] = spread, values[0].clone()
            self._worlds.forget()
        return self._fields[name]

    def update_constants(self, rows: EnvSelection) -> None:
        """Recompute what the model derives from masses, inertias and armatures, in all worlds.

        Args:
            rows: Where something was written; the others' constants are those of the model again,
                in single precision.
        """
        if rows.count == 0:
            return
        for name in filter(self.has_field, _DERIVED):
            self.model_field(name)
        self._worlds.derive_constants()

    def sensor(self, name: str) -> Tensor:
        """A sensor of the model, (N, width), live.

        Raises:
            ConfigError: The model declares none of this name.
        """
        return named_sensor(self.sensors, name)

    def check(self) -> None:
        """Tell what did not fit into memory since the last check; waits for the device.

        Raises:
            LimitError: Contacts or constraints were left out of the simulation.
        """
        overflow = self._worlds.overflow
        if bool(overflow.any()):
            found = overflow.cpu().numpy().copy()
            overflow.zero_()
            error = self._room.error(int(np.bitwise_or.reduce(found)), found.nonzero()[0].tolist())
            if error is not None:
                raise error

    def copy_world(self, world: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Copy one world, for drawing: its model with its own fields, and its state, all computed.

        Args:
            world: Which.
            model: Written; a copy of `model` before.
            data: Written: poses, contacts and forces of the present state.
        """
        self._write_fields(world, model)
        state = self._worlds.state()[world].cpu().double().numpy()
        mujoco.mj_setState(model, data, state, STATE.value)
        mujoco.mj_forward(model, data)

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the future of the worlds, copied."""
        return {
            "state": self._worlds.state(),
            "fault": self.fault.clone(),
            "sensordata": self.sensordata.clone(),
            "actuator_force": self.actuator_force.clone(),
            "fields": {name: values.clone() for name, values in self._fields.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict` of an engine with the same model and number of worlds."""
        expected = self._worlds.before.shape
        if state["state"].shape != expected:
            raise ShapeError(
                f"saved worlds: expected {tuple(expected)}, got {tuple(state['state'].shape)}"
            )
        for name in self._fields.keys() | state["fields"].keys():
            values = self.model_field(name)
            values.copy_(state["fields"].get(name, self._shared[name]))
        self._worlds.restore(self._tensor(state["state"]).contiguous())
        self.fault.copy_(state["fault"])
        self.sensordata.copy_(state["sensordata"])
        self.actuator_force.copy_(state["actuator_force"])
        torch.cat([self.qpos, self.qvel], dim=1, out=self.motion)

    def _remember(self, *, ramped: bool) -> None:
        for world in self._worlds.bad.nonzero()[:, 0].tolist():
            if len(self.fault_records) == MAX_RECORDS:
                return
            model = copy(self.model)
            self._write_fields(world, model)
            self.fault_records.append(
                FaultRecord(
                    world=world, reasons=["ran away"], decimation=self.decimation,
                    state=self._worlds.before[world].double().numpy(), model=compiled(model),
                    ramp=self.ramp[world].double().numpy() if ramped else np.zeros((0, 0)),
                )
            )  # fmt: skip

    def _write_fields(self, world: int, model: mujoco.MjModel) -> None:
        for name, values in self._fields.items():
            field = getattr(model, name)
            field[:] = values[world].cpu().numpy().reshape(field.shape)

    def _tensor(self, values: ArrayLike) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float32, device=self.device)
