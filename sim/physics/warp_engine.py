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
from robot_rl.core.errors import ConfigError
from sim.physics.engine import Engine
from sim.physics.fault_record import MAX_RECORDS, STATE, FaultRecord, compiled
from sim.physics.mujoco_model import waiting_columns
from sim.physics.warp_memory import Room
from sim.physics.warp_programs import Programs
from sim.physics.warp_start import wp

_DERIVED = ("body_subtreemass", "body_invweight0", "dof_invweight0", "tendon_length0",
            "tendon_invweight0", "actuator_acc0", "cam_pos0", "cam_poscom0", "cam_mat0",
            "light_pos0", "light_poscom0", "light_dir0")  # fmt: skip
"""Fields that MuJoCo derives: those of one world must not be written over by another's."""


class MujocoWarpEngine(Engine):
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
            contacts: Contacts that an env has room for, on average over all; 0 for what falls
                of the model suggest.

        Raises:
            ConfigError: Warp cannot simulate the model.
        """
        super().__init__(model, num_worlds, decimation)
        self.device = torch.empty(0, device=device).device  # with its number, as tensors name it
        with wp.ScopedDevice(wp.device_from_torch(self.device)):
            self._room = Room.of(model, contacts)
        worlds = self._worlds = Programs(model, num_worlds, decimation, self.device, self._room)
        data = worlds.data
        self.qpos = wp.to_torch(data.qpos)
        self.qvel = wp.to_torch(data.qvel)
        self.control = wp.to_torch(data.ctrl)
        self.ramp = worlds.ramp.swapaxes(0, 1)
        fixtures = (data.mocap_pos, data.mocap_quat) if model.nmocap else ()
        self.fixtures: tuple[Tensor, ...] = tuple(map(wp.to_torch, fixtures))
        self.motion = worlds.motion
        self.sensordata = worlds.sensordata
        self.actuator_force = worlds.actuator_force
        self.fault = worlds.fault
        self._history = wp.to_torch(data.history) if model.nhistory else torch.zeros(0)
        self._waiting, self._waiting_for = (
            torch.from_numpy(part).to(self.device) for part in waiting_columns(model)
        )
        worlds.chosen.fill_(True)
        worlds.begin()

    def step(self, *, ramped: bool = False) -> None:
        """As `Engine.step`; `fault_records` are kept where reading is free, on the CPU."""
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
        """As `Engine.reset`."""
        if rows.count == 0:
            return
        self._worlds.chosen.copy_(rows.mask)
        self._worlds.clear()
        inputs = self._tensor(control)
        for part, values in ((self.qpos, qpos), (self.qvel, qvel), (self.control, inputs)):
            rows.put(part, self._tensor(values))
        self._put_fixtures(rows, fixtures)
        if len(self._waiting):  # delayed controls too: nothing of the past is on its way
            history = rows.take(self._history).clone()
            history[:, self._waiting] = inputs[:, self._waiting_for]
            rows.put(self._history, history)
        self.fault &= ~self._worlds.chosen
        self._worlds.begin()

    def has_field(self, name: str) -> bool:
        """As `Engine.has_field`."""
        array = getattr(self._worlds.model, name, None)
        shared = isinstance(array, wp.array) and array.ndim > 1 and array.shape[0] == 1
        return shared or name in self._fields

    def model_field(self, name: str) -> Tensor:
        """As `Engine.model_field`."""
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
        """As `Engine.copy_world`."""
        self._write_fields(world, model)
        state = self._worlds.state()[world].cpu().double().numpy()
        mujoco.mj_setState(model, data, state, STATE.value)
        mujoco.mj_forward(model, data)

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the future of the envs, copied."""
        return {"state": self._worlds.state(), **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict` of an engine with the same model and number of envs."""
        self._load_fields(state, self._worlds.before)
        self._worlds.restore(self._tensor(state["state"]).contiguous())
        self.fault.copy_(state["fault"])
        self._load_felt(state)
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
