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
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from sim.physics.engine import Engine
from sim.physics.fault_record import MAX_RECORDS, FaultRecord, compiled
from sim.physics.joint_layout import stage_of_sensors
from sim.physics.mujoco_model import waiting_columns

if TYPE_CHECKING:
    from mujoco.batch import Batch

_CURRENT = mujoco.mjtStage.mjSTAGE_VEL.value
"""Positions, velocities and their sensors belong to the new state, not to the last substep."""
_FORCES = mujoco.mjtStage.mjSTAGE_ACC.value
"""Forces and accelerations too. After `step` they belong to the last substep: a new one would ask
for controls that are not known yet."""
_SERIAL = 8
"""So many worlds are not worth waking the threads: a world's constants or forces take 10 us."""
_COUNTER = 1
"""Column of a warning's counter; column 0 tells where."""


class MujocoEngine(Engine):
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
            threads: CPU threads; 0 for one per core.
        """
        super().__init__(model, num_worlds, decimation)
        self._batch: Batch = _batches().Batch(model, num_worlds, threads)
        self._untouched = self._batch.state[0].copy()  # as MuJoCo's own reset leaves a world
        # (N, kinds), counts since each env was reset
        self._warnings = self._batch.warning[:, :, _COUNTER]
        self._state = torch.from_numpy(self._batch.state)
        self._moving = self._batch.bind("qpos"), self._batch.bind("qvel")
        self.qpos = torch.from_numpy(self._batch.bind("qpos"))
        self.qvel = torch.from_numpy(self._batch.bind("qvel"))
        first = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_TIME.value)
        self.motion = self._state[:, first : first + model.nq + model.nv]
        self._moves = self.motion.numpy()
        self._inputs = self._batch.bind("ctrl")
        self.control = torch.from_numpy(self._inputs)
        self._ramp = np.zeros((num_worlds, decimation, model.nu))
        self.ramp = torch.from_numpy(self._ramp)
        names = ("mocap_pos", "mocap_quat") if model.nmocap else ()
        self.fixtures = tuple(torch.from_numpy(self._batch.bind(name)) for name in names)
        self._waiting, self._waiting_for = waiting_columns(model)
        self._history = self._batch.bind("history")
        self.fault = torch.zeros(num_worlds, dtype=torch.bool)
        self._at_fault = self.fault.numpy()
        self._before = self._batch.state.copy()
        self.sensordata = torch.from_numpy(writeable_output(self._batch, "sensordata"))
        self.actuator_force = torch.from_numpy(writeable_output(self._batch, "actuator_force"))
        self._stepper = MujocoStepper(self._batch, decimation)
        self._derived = False  # constants were recomputed: they are then per world
        self._batch.forward(stage=_FORCES)

    def step(self, *, ramped: bool = False) -> None:
        """As `Engine.step`."""
        ramp = self._ramp if ramped else None
        np.copyto(self._before, self._batch.state)
        for ids in self._stepper.step(ramp):
            self.fault[torch.from_numpy(ids)] = True
        # A sum is finite if and only if its parts are.
        if np.count_nonzero(self._batch.warning) or not math.isfinite(self._moves.sum()):
            self._take_out_of_service(ramp)

    def reset(
        self, rows: EnvSelection, qpos: ArrayLike, qvel: ArrayLike, control: ArrayLike, *,
        fixtures: Mapping[int, Tensor] | None = None,
    ) -> None:  # fmt: skip
        """As `Engine.reset`."""
        ids = rows.ids
        if ids.size == 0:
            return
        self._batch.state[ids] = self._untouched
        self._batch.warning[ids] = 0
        for part, values in zip((*self._moving, self._inputs), (qpos, qvel, control), strict=True):
            part[ids] = values
        self._put_fixtures(rows, fixtures)
        if self._waiting.size:  # delayed controls too: nothing of the past is on its way
            self._history[ids[:, None], self._waiting] = np.asarray(control)[:, self._waiting_for]
        self._at_fault[ids] = False
        for some in _in_turn(ids.astype(np.int32)):  # what MuJoCo takes without converting it
            self._batch.forward(some, stage=_FORCES)

    def model_field(self, name: str) -> Tensor:
        """As `Engine.model_field`."""
        if name not in self._fields:
            try:
                self._fields[name] = torch.from_numpy(self._batch.expand(name))
            except ValueError as error:
                raise ConfigError(f"model field '{name}': {error}") from error
            self._shared[name] = self._fields[name][0].clone()
        return self._fields[name]

    def has_field(self, name: str) -> bool:
        """As `Engine.has_field`."""
        try:
            self.model_field(name)
        except ConfigError:
            return False
        return True

    def check(self) -> None:
        """Does nothing: contacts that do not fit raise the world's flag."""

    def update_constants(self, rows: EnvSelection) -> None:
        """As `Engine.update_constants`."""
        self._derived = True
        for ids in _in_turn(rows.ids):
            self._batch.set_const(ids)

    def copy_world(self, world: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """As `Engine.copy_world`."""
        self._batch.get_model(world, model)
        self._batch.get_data(world, data)
        mujoco.mj_forward(model, data)

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the future of the envs, copied."""
        return {"state": self._state.clone(), "derived": self._derived, **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict` of an engine with the same model and number of envs."""
        self._load_fields(state, self._state)
        if state.get("derived", True) or self._derived:  # worlds of Warp do not say
            self.update_constants(EnvSelection(torch.ones_like(self.fault)))
        self._state.copy_(state["state"])
        self.fault.copy_(state["fault"])
        self._batch.warning[:] = 0
        self._batch.forward(stage=_CURRENT)
        self._load_felt(state)

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


def _in_turn(ids: np.ndarray) -> Iterable[np.ndarray]:
    """All at once, but a few one by one: waking the threads takes longer than they do."""
    return [ids] if ids.size > _SERIAL else ids[:, None]


_NOTHING = mujoco.mjtStage.mjSTAGE_NONE.value
_VELOCITY = mujoco.mjtStage.mjSTAGE_VEL.value
_OF_CONSTRAINTS = ("CONTACT", "JOINTLIMITPOS", "JOINTLIMITVEL", "TENDONLIMITPOS", "TENDONLIMITVEL")
"""Sensors of positions and velocities that ask for contacts or constraints after all."""
_LEFT_OUT = mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT


class MujocoStepper:
    """Steps all worlds of a batch by a control period."""

    def __init__(self, batch: "Batch", decimation: int) -> None:
        self._batch, self._decimation = batch, decimation
        model = batch.model
        self._stage = stage_of_sensors(model)
        self._inputs = batch.bind("ctrl")
        known = [int(getattr(mujoco.mjtSensor, f"mjSENS_{name}")) for name in _OF_CONSTRAINTS]
        apart = self._stage != _NOTHING and not np.isin(model.sensor_type, known).any()
        self._look = self._look_again(model) if apart else None

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

    def _look_again(self, model: mujoco.MjModel) -> Callable[[], list[np.ndarray]]:
        """Function that brings sensors up to date without contacts.

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


def _batches() -> Any:
    """Module of MuJoCo, late: foreign environments run beside a MuJoCo that has none."""
    import mujoco.batch

    return mujoco.batch


def _refused(call: Callable[[], object]) -> list[np.ndarray]:
    try:
        call()
    except _batches().SimulationError as error:
        return [error.ids.astype(np.int64)]
    return []


def writeable_output(batch: "Batch", name: str) -> np.ndarray:
    """Output of a batch, (N, ...), live and writeable, to restore what its next call leaves out."""
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
            threads: CPU threads; 0 for one per core.
        """
        self._batch: Batch = _batches().Batch(model, count, threads)
        numbers = {name: np.asarray(getattr(model, name, 0)) for name in _batches().MODEL_FIELDS}
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
