"""Steps worlds of MuJoCo so that their sensors tell of the state in which they end.

After its last substep MuJoCo has computed everything at the state before it. What positions and
velocities decide must be computed once more, and of that a third to a half is for contacts and
constraints, which few sensors of this kind ask for.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from sim.physics.mujoco_engine.sensors import stage_of_sensors

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
