"""MuJoCo on CPU threads, N envs stepped together: the engine of robots with joints.

    engine = MujocoEngine(model, num_worlds=64, decimation=8)
    engine.reset(rows, qpos, qvel, control)
    engine.control[:] = target
    engine.step()  # engine.qpos, engine.qvel, engine.sensors["imu"]

`qpos`, `qvel`, `control`, `sensors` and `model_field(...)` are live views of the engine's memory,
float64 here: write into them, do not replace them, and copy what must outlive a step. Nothing that
a caller needs is computed on reading: an engine on another device, with its step captured as a
graph, can offer the same views. Envs feel nothing of each other, and results do not depend on the
number of threads.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
import torch
from mujoco.batch import MODEL_FIELDS, Batch, SimulationError
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, ShapeError
from sim.physics.fault_record import MAX_RECORDS, FaultRecord, compiled
from sim.physics.joint_layout import named_sensor, quaternions, sensor_columns, stage_of_sensors
from sim.physics.mujoco_model import waiting_columns

_CURRENT = mujoco.mjtStage.mjSTAGE_VEL.value
"""Positions, velocities and their sensors belong to the new state, not to the last substep."""
_FORCES = mujoco.mjtStage.mjSTAGE_ACC.value
"""Forces and accelerations too. After `step` they belong to the last substep: a new one would ask
for controls that are not known yet."""
_FEW = 8
"""So many worlds are not worth waking the threads: a world's constants or forces take 10 us."""
_COUNT = 1
"""Column of a warning's counter; column 0 tells where."""


class MujocoEngine:
    """N copies of one model.

    MuJoCo puts a world with a bad position, velocity or acceleration back to its reference pose and
    goes on; it drops contacts that do not fit into memory. Here each of these, and every other
    warning or error, raises the world's flag in `fault`, which stays up until `reset`. A world at
    fault keeps finite numbers that mean nothing.
    """

    device = torch.device("cpu")

    def __init__(
        self, model: mujoco.MjModel, num_worlds: int, *, decimation: int = 1, threads: int = 0
    ) -> None:
        """Make worlds in the model's reference pose.

        Args:
            model: Copied; its `opt.timestep` is the integration step.
            num_worlds: N.
            decimation: Integration steps per `step`.
            threads: CPU threads; 0 for one per core.

        Raises:
            ConfigError: A number is out of range.
        """
        for name, value, least in (
            ("num_worlds", num_worlds, 1), ("decimation", decimation, 1), ("threads", threads, 0),
        ):  # fmt: skip
            if value < least:
                raise ConfigError(f"{name} must be at least {least}, got {value}")
        self.num_worlds = num_worlds
        self.decimation = decimation
        self.control_dt = float(model.opt.timestep) * decimation
        """Time that one `step` simulates [s]."""
        self._batch = Batch(model, num_worlds, threads)
        self._untouched = self._batch.state[0].copy()  # as MuJoCo's own reset leaves a world
        self._warnings = self._batch.warning[:, :, _COUNT]  # (N, kinds), counts since it was reset
        self._state = torch.from_numpy(self._batch.state)
        self._moving = self._batch.bind("qpos"), self._batch.bind("qvel")
        self.qpos = torch.from_numpy(self._batch.bind("qpos"))
        """Generalised positions, (N, nq)."""
        self.qvel = torch.from_numpy(self._batch.bind("qvel"))
        """Generalised velocities, (N, nv)."""
        first = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_TIME.value)
        self.motion = self._state[:, first : first + model.nq + model.nv]
        """Positions and velocities side by side, (N, nq + nv), as MuJoCo's state has them."""
        self._moves = self.motion.numpy()
        self._inputs = self._batch.bind("ctrl")
        self.control = torch.from_numpy(self._inputs)
        """Inputs of the actuators, (N, nu), held for a whole `step` or behind a `ramp`."""
        self._ramp = np.zeros((num_worlds, decimation, model.nu))
        self.ramp = torch.from_numpy(self._ramp)
        """Their values in every integration step, (N, decimation, nu), for a ramped `step`."""
        self.fixtures = _fixtures(self._batch, model.nmocap)
        """Where mocap bodies stand, if any: positions (N, M, 3) and quaternions (N, M, 4)."""
        self._waiting, self._waiting_for = waiting_columns(model)
        self._history = self._batch.bind("history")
        self.fault = torch.zeros(num_worlds, dtype=torch.bool)
        """(N,) bool, sticky."""
        self._at_fault = self.fault.numpy()
        self.fault_records: list[FaultRecord] = []
        """The first few worlds that were given up, before that; take them and clear the list."""
        self._before = self._batch.state.copy()
        self.sensordata = torch.from_numpy(writeable_output(self._batch, "sensordata"))
        """All sensors, (N, columns): positions and velocities of the present state, forces and
        accelerations of the last substep."""
        self.sensor_columns = sensor_columns(model)
        """Columns of every sensor by name; sensors `field/part` declared one after another are one
        sensor `field` too."""
        self.quaternions = quaternions(model, self.sensor_columns)
        """First entries of the unit quaternions in each sensor, by name."""
        self.sensors = {name: self.sensordata[:, c] for name, c in self.sensor_columns.items()}
        """Sensors of the model by name, (N, width)."""
        self.actuator_force = torch.from_numpy(writeable_output(self._batch, "actuator_force"))
        """Forces of the actuators in the last substep, (N, nu)."""
        self._stepper = MujocoStepper(self._batch, decimation)
        self._fields: dict[str, Tensor] = {}
        self._shared: dict[str, Tensor] = {}  # values of `_fields` before they differed
        self._derived = False  # constants were recomputed: they are then per world
        self._batch.forward(stage=_FORCES)

    @property
    def model(self) -> mujoco.MjModel:
        """The model that worlds share where no `model_field` gives them values of their own."""
        return self._batch.model

    def step(self, *, ramped: bool = False) -> None:
        """Simulate one control period in all worlds.

        Args:
            ramped: Take the controls of every integration step from `ramp`, whose last stay in
                `control`; otherwise hold `control`.
        """
        ramp = self._ramp if ramped else None
        np.copyto(self._before, self._batch.state)
        for ids in self._stepper.step(ramp):
            self.fault[torch.from_numpy(ids)] = True
        # A sum is finite if and only if its parts are.
        if np.count_nonzero(self._batch.warning) or not math.isfinite(self._moves.sum()):
            self._take_out_of_service(ramp)

    def reset(
        self,
        rows: EnvSelection,
        qpos: ArrayLike,
        qvel: ArrayLike,
        control: ArrayLike,
        *,
        fixtures: Mapping[int, Tensor] | None = None,
    ) -> None:
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
        ids = rows.ids
        if ids.size == 0:
            return
        self._batch.state[ids] = self._untouched
        self._batch.warning[ids] = 0
        for part, values in zip((*self._moving, self._inputs), (qpos, qvel, control), strict=True):
            part[ids] = values
        for body, pose in (fixtures or {}).items():
            for part, columns in zip(self.fixtures, (slice(0, 3), slice(3, 7)), strict=True):
                rows.put(part[:, body], pose[:, columns].to(part.dtype))
        if self._waiting.size:  # delayed controls too: nothing of the past is on its way
            self._history[ids[:, None], self._waiting] = np.asarray(control)[:, self._waiting_for]
        self._at_fault[ids] = False
        for some in _in_turn(ids.astype(np.int32)):  # what MuJoCo takes without converting it
            self._batch.forward(some, stage=_FORCES)

    def model_field(self, name: str) -> Tensor:
        """A field of the model with values per world, (N, ...), such as `body_mass`.

        After writing masses, inertias or armatures call `update_constants`.

        Raises:
            ConfigError: No such field, or one that cannot differ between worlds.
        """
        if name not in self._fields:
            try:
                self._fields[name] = torch.from_numpy(self._batch.expand(name))
            except ValueError as error:
                raise ConfigError(f"model field '{name}': {error}") from error
            self._shared[name] = self._fields[name][0].clone()
        return self._fields[name]

    def has_field(self, name: str) -> bool:
        """Whether a field of the model can differ between worlds."""
        try:
            self.model_field(name)
        except ConfigError:
            return False
        return True

    def check(self) -> None:
        """Nothing is left out: contacts that do not fit raise the world's flag."""

    def update_constants(self, rows: EnvSelection) -> None:
        """Recompute what the model derives from masses, inertias and armatures (milliseconds)."""
        self._derived = True
        for ids in _in_turn(rows.ids):
            self._batch.set_const(ids)

    def sensor(self, name: str) -> Tensor:
        """A sensor of the model, (N, width), live.

        Raises:
            ConfigError: The model declares none of this name.
        """
        return named_sensor(self.sensors, name)

    def copy_world(self, world: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Copy one world, for drawing: its model with its own fields, and its state, all computed.

        Args:
            world: Which.
            model: Written; a copy of `model` before.
            data: Written: poses, contacts and forces of the present state.
        """
        self._batch.get_model(world, model)
        self._batch.get_data(world, data)
        mujoco.mj_forward(model, data)

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the future of the worlds, copied."""
        return {
            "state": self._state.clone(),
            "fault": self.fault.clone(),
            "sensordata": self.sensordata.clone(),
            "actuator_force": self.actuator_force.clone(),
            "fields": {name: values.clone() for name, values in self._fields.items()},
            "derived": self._derived,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict` of an engine with the same model and number of worlds."""
        if state["state"].shape != self._state.shape:
            raise ShapeError(
                f"saved worlds: expected {tuple(self._state.shape)}, "
                f"got {tuple(state['state'].shape)}"
            )
        for name in self._fields.keys() | state["fields"].keys():
            values = self.model_field(name)
            values.copy_(state["fields"].get(name, self._shared[name]))
        if state.get("derived", True) or self._derived:  # worlds of Warp do not say
            self.update_constants(EnvSelection(torch.ones_like(self.fault)))
        self._state.copy_(state["state"])
        self.fault.copy_(state["fault"])
        self._batch.warning[:] = 0
        self._batch.forward(stage=_CURRENT)
        self.sensordata.copy_(state["sensordata"])
        self.actuator_force.copy_(state["actuator_force"])

    def _take_out_of_service(self, ramp: np.ndarray | None) -> None:
        finite = self.qpos.isfinite().all(-1) & self.qvel.isfinite().all(-1)
        bad = torch.from_numpy(self._warnings.any(axis=1)) | ~finite
        self.fault |= bad
        ids = np.flatnonzero(bad.numpy())
        for world in ids[: MAX_RECORDS - len(self.fault_records)]:
            record = self._record(int(world), bool(finite[world]))
            if ramp is not None:
                record = replace(record, ramp=ramp[world].copy())
            self.fault_records.append(record)
        self._batch.reset(ids, stage=_FORCES)
        self._batch.warning[ids] = 0

    def _record(self, world: int, finite: bool) -> FaultRecord:
        kinds = np.flatnonzero(self._warnings[world])
        names = [mujoco.mjtWarning(int(kind)).name.removeprefix("mjWARN_") for kind in kinds]
        return FaultRecord(
            world=world, reasons=names + ["not finite"] * (not finite),
            decimation=self.decimation, state=self._before[world].copy(),
            model=compiled(self._batch.get_model(world)),
        )  # fmt: skip


def _fixtures(batch: Batch, count: int) -> tuple[Tensor, ...]:
    names = ("mocap_pos", "mocap_quat") if count else ()
    return tuple(torch.from_numpy(batch.bind(name)) for name in names)


def _in_turn(ids: np.ndarray) -> Iterable[np.ndarray]:
    """All at once, but a few one by one: waking the threads takes longer than they do."""
    return [ids] if ids.size > _FEW else ids[:, None]


_NOTHING = mujoco.mjtStage.mjSTAGE_NONE.value
_VELOCITY = mujoco.mjtStage.mjSTAGE_VEL.value
_KINDS = mujoco.mjtSensor
_OF_CONSTRAINTS = [
    int(kind) for kind in (
        _KINDS.mjSENS_CONTACT, _KINDS.mjSENS_JOINTLIMITPOS, _KINDS.mjSENS_JOINTLIMITVEL,
        _KINDS.mjSENS_TENDONLIMITPOS, _KINDS.mjSENS_TENDONLIMITVEL,
    )
]  # fmt: skip
"""Sensors of positions and velocities that ask for contacts or constraints after all."""
_LEFT_OUT = mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT


class MujocoStepper:
    """Steps all worlds of a batch by a control period."""

    def __init__(self, batch: Batch, decimation: int) -> None:
        """Look at the model's sensors.

        Args:
            batch: The worlds.
            decimation: Integration steps of a control period.
        """
        self._batch, self._decimation = batch, decimation
        model = batch.model
        self._stage = stage_of_sensors(model)
        self._inputs = batch.bind("ctrl")
        self._look = self._look_again(model) if self._looks_apart(model) else None

    def step(self, ramp: np.ndarray | None) -> list[np.ndarray]:
        """Simulate a control period; worlds that MuJoCo refuses stand still.

        Args:
            ramp: Controls of every integration step, (N, decimation, nu), of which the last stay;
                None holds the present ones.

        Returns:
            Numbers of the worlds that it refused.
        """
        batch, steps = self._batch, self._decimation
        if self._look is None:
            if ramp is None:
                return _refused(lambda: batch.step(nstep=steps, stage=self._stage))
            refused = []
            if steps > 1:
                refused = _refused(lambda: batch.rollout(steps - 1, ramp[:, :-1], record=()))
            self._inputs[:] = ramp[:, -1]
            return refused + _refused(lambda: batch.step(stage=self._stage))
        if ramp is None:
            refused = _refused(lambda: batch.step(nstep=steps))
        else:
            refused = _refused(lambda: batch.rollout(steps, ramp, record=()))
        return refused + self._look()

    def _looks_apart(self, model: mujoco.MjModel) -> bool:
        return self._stage != _NOTHING and not np.isin(model.sensor_type, _OF_CONSTRAINTS).any()

    def _look_again(self, model: mujoco.MjModel) -> Callable[[], list[np.ndarray]]:
        """What brings sensors up to date without contacts.

        A batch computes in memory that worlds share: what is not computed, forces and
        accelerations, would be the last computed world's. Hence they are kept aside.
        """
        batch, stage = self._batch, self._stage
        flags = batch.expand("opt.disableflags")
        usual = flags.copy()
        fewer = usual | _LEFT_OUT
        later = np.repeat(model.sensor_needstage > _VELOCITY, model.sensor_dim)
        felt = [("actuator_force", np.True_)] + [("sensordata", later)] * bool(later.any())
        felt = [
            (values := writeable_output(batch, name), values.copy(), which) for name, which in felt
        ]

        def look() -> list[np.ndarray]:
            for values, kept, _ in felt:
                np.copyto(kept, values)
            np.copyto(flags, fewer)
            refused = _refused(lambda: batch.forward(stage=stage))
            np.copyto(flags, usual)
            for values, kept, which in felt:
                np.copyto(values, kept, where=which)
            return refused

        return look


def _refused(call: Callable[[], object]) -> list[np.ndarray]:
    try:
        call()
    except SimulationError as error:
        return [error.ids.astype(np.int64)]
    return []


def writeable_output(batch: Batch, name: str) -> np.ndarray:
    """What a batch computes, (N, ...), live, to put back what its next call does not compute."""
    view = batch.bind(name).view()
    view.flags.writeable = True
    return view


class ModelConstants:
    """Models of one kind that differ in fields of their own; no world is stepped with them.

    The threads share them, and worlds that get the constants copy rows instead of calling MuJoCo.
    """

    def __init__(self, model: mujoco.MjModel, count: int, threads: int) -> None:
        """Allocate.

        Args:
            model: What they have in common; copied.
            count: How many models are made at a time.
            threads: CPU threads; 0 for one per core.
        """
        self._batch = Batch(model, count, threads)
        numbers = {name: np.asarray(getattr(model, name, 0)) for name in MODEL_FIELDS}
        self._names = [n for n, v in numbers.items() if v.size and v.dtype.kind == "f" and v.ndim]
        self._asked: set[str] = set()
        self._differing: dict[str, NDArray[Any]] = {}

    def derive(self, fields: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """All fields of models that begin with these.

        Args:
            fields: Fields of the model by name, (count, ...) each, any count.

        Returns:
            The same, and every other field that then differs from the common model's.
        """
        model, most = self._batch.model, self._batch.nsim
        count = len(next(iter(fields.values())))
        made = dict(fields)
        for start in range(0, count, most):
            some = slice(start, min(start + most, count))
            chosen = np.arange(some.stop - start, dtype=np.int32)
            for name, values in fields.items():
                self._batch.expand(name)[chosen] = values[some]
            self._batch.set_const(chosen)
            for name, rows in self._found(fields.keys()).items():
                if name in fields:
                    continue
                if name not in made:
                    made[name] = getattr(model, name)[None, : rows.shape[1]].repeat(count, 0)
                made[name][some] = rows[chosen]
        return made

    def _found(self, asked: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Fields that have values per model, live; looked for anew when others are written."""
        if not self._asked.issuperset(asked):
            self._asked.update(asked)
            rows = {name: self._batch.expanded(name) for name in self._names}
            self._differing = {name: found for name, found in rows.items() if found is not None}
        return self._differing
